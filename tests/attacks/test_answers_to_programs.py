"""What a cell answers to a program, through each entry point, costs the host what one answer may, and no more.

An entry point keeps what a cell sent until it has ended, so many messages that are small enough are one large answer.
They are counted where all entry points get them from: a message counts as what it came as, or as a part of what it
becomes in memory (`session/requests/inbound.py`). What cells of the package's own answer is read by
`core/allowance.py`, and so are the values of the adapters (`tests/unit/core/test_allowance.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox_kernel import AsyncSandbox
from sandbox_kernel.core import allowance
from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import CommandError, SandboxError
from sandbox_kernel.session.requests import inbound
from tests.attacks.test_floods import status

MIB = 1 << 20
LIMIT = 4 * MIB
DISPLAYS = """
for number in range({count}):
    display({{"application/json": [[]] * 60_000}}, raw=True)
"""
"""Each is 180 kB as it comes, and 4 MB of lists where it is kept."""
REPLY = """
import sys
import _sandbox_commands
def answer(request):
    print({reply})
_sandbox_commands.answer = sys.modules["_sandbox_commands"].answer = answer
"""


@pytest.fixture
async def sandbox() -> AsyncIterator[AsyncSandbox]:
    async with AsyncSandbox(output_limit=LIMIT, message_limit="8M", memory="512M") as made:
        await made.commands.run("true")  # its commands are there
        yield made


def grown(before: int) -> int:
    return status(os.getpid(), "VmHWM") - before


def begin() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return status(os.getpid(), "VmRSS")


@pytest.mark.parametrize("protected", [True, False], ids=["", "control"])
async def test_many_displays_are_one_answer(
    sandbox: AsyncSandbox, monkeypatch: pytest.MonkeyPatch, protected: bool
) -> None:
    await sandbox.run_code(DISPLAYS.format(count=1))
    if not protected:
        monkeypatch.setattr(inbound, "MEMORY_FACTOR", 1 << 40)
    before = begin()
    execution = await sandbox.run_code(DISPLAYS.format(count=20))
    if not protected:
        assert execution.ok
        assert len(execution.results) == 20
        assert grown(before) > 3 * LIMIT
        return
    error = execution.error
    assert error is not None
    assert (error.name, error.code, error.setting) == ("OutputLimit", EndCode.OUTPUT_TOO_LARGE.code, "output_limit")
    assert (error.limit, error.from_sandbox) == ("4.0 MiB", True)
    assert error.reached is not None
    assert error.reached in error.value
    assert len(execution.results) <= 1
    assert grown(before) < 3 * LIMIT
    assert (await sandbox.run_code("1 + 1")).text == "2"


@pytest.mark.parametrize("protected", [True, False], ids=["", "control"])
@pytest.mark.parametrize("inner", ["[],", "{},", '"abc",'])
async def test_an_answer_about_a_command_is_not_built_if_it_is_too_much(
    sandbox: AsyncSandbox, monkeypatch: pytest.MonkeyPatch, inner: str, protected: bool
) -> None:
    """The code of a cell stands in the same process as ours, so it answers in our place."""
    count = 5 * MIB // 2 // len(inner)
    await sandbox.run_code(REPLY.format(reply=f"'{{\"pid\":[' + {inner!r} * {count} + '0]}}'"))
    if not protected:
        monkeypatch.setattr(allowance, "MEMORY_FACTOR", 1 << 30)
    before, began = begin(), time.process_time()
    with pytest.raises(CommandError) as caught:
        await sandbox.commands.run("true")
    needed, taken = grown(before), time.process_time() - began
    error: SandboxError = caught.value
    assert taken < 20
    if protected:
        assert (error.code, error.setting) == (EndCode.ANSWER_TOO_LARGE, "output_limit")
        assert error.limit == "16.0 MiB of memory, 4 times output_limit"
        assert needed < 3 * LIMIT
    else:
        assert error.code == EndCode.COMMAND_UNANSWERED
        assert needed > 3 * LIMIT
