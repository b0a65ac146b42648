"""How the end of a sandbox is named."""

from __future__ import annotations

from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import SandboxDied
from sandbox_kernel.session.agent_messages import Death
from sandbox_kernel.session.lifecycle import no_kernel


def test_the_last_words_of_a_kernel_are_words() -> None:
    """Not the program that it was given as an argument, nor the marks below it, which are as long."""
    program = f"    exec({'b64' * 300})\n    {'~' * 900}^^\n"
    said = "  File 'x', line 1, in main\nModuleNotFoundError: No module named 'ipykernel'\n"
    ended = no_kernel("mine", Death(1, None, 0, program + said), SandboxDied(EndCode.KERNEL_DIED))
    assert ended.message.startswith("no kernel starts in image 'mine': File 'x', line 1")
    assert ended.message.endswith("No module named 'ipykernel'")
