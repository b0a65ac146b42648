"""How the end of a sandbox is named."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox_kernel.core.codes import EndCode, Survived
from sandbox_kernel.core.errors import SandboxDied
from sandbox_kernel.core.model import Limits, Settings
from sandbox_kernel.session.agent_messages import Death
from sandbox_kernel.session.lifecycle import no_kernel, no_kernelspec, of_kernel


@pytest.mark.parametrize("undoes", [True, False])
@pytest.mark.parametrize("fuel", [10, 0])
def test_only_a_sandbox_that_can_is_believed_that_its_variables_are_back(fuel: int, *, undoes: bool) -> None:
    said = {"code": None, "signal": 9, "ooms": 1, "tail": "", "undone": True, "fuel": True}
    error = of_kernel(Death.of(said), Limits(), fuel=fuel, undoes=undoes)
    assert error.kept is (Survived.BEFORE_CELL if undoes else Survived.FILES)
    assert error.code is (EndCode.CELL_OUT_OF_FUEL if fuel else EndCode.OUT_OF_MEMORY)


def test_the_last_words_of_a_kernel_are_words() -> None:
    """Not the program that it was given as an argument, nor the marks below it, which are as long."""
    program = f"    exec({'b64' * 300})\n    {'~' * 900}^^\n"
    said = "  File 'x', line 1, in main\nModuleNotFoundError: No module named 'ipykernel'\n"
    ended = no_kernel("mine", Death(1, None, 0, program + said), SandboxDied(EndCode.KERNEL_DIED))
    assert ended.message.startswith("no kernel starts in image 'mine': File 'x', line 1")
    assert ended.message.endswith("No module named 'ipykernel'")


@pytest.mark.parametrize("said", [{"names": 5, "why": {}}, {"names": "ir", "why": [1]}, {"names": [["ir"], 1]}, {}])
def test_an_agent_may_say_anything_of_its_kernelspecs(said: dict[str, Any]) -> None:
    assert no_kernelspec(Settings(kernel="ir"), said).message.endswith("none")
    proper = no_kernelspec(Settings(kernel="ir"), {"names": ["deno"], "why": "x"}).message
    assert ": x" in proper
    assert proper.endswith("deno")
