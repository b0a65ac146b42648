"""What a cell answers to a program, through each entry point, costs the host what one answer may, and no more.

An entry point keeps what a cell sent until it has ended, so many messages that are small enough are one large answer.
They are counted where all entry points get them from: a message counts as what it came as, or as a part of what it
becomes in memory (`session/requests/driver.py`). What cells of the package's own answer is read by
`core/answer_allowance.py`, and so are the values of the adapters (`tests/unit/core/test_answer_allowance.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import AsyncSandbox
from sandbox_kernel.core import answer_allowance
from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import CommandError
from sandbox_kernel.plugins.commands.codes import CommandCode
from sandbox_kernel.session.requests import driver
from tests.attacks.test_floods import status
from tests.support.cases import some

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


ROOT = Path(__file__).parents[2]
CHILD = "import asyncio, json; from {module} import {name}; print(json.dumps(asyncio.run({name}(*{arguments!r}))))"


def apart(call: Callable[..., Awaitable[dict[str, Any]]], *arguments: object) -> dict[str, Any]:
    """Return what a call says in a process of its own: in this one, what tests before it freed would be taken first."""
    code = CHILD.format(module=call.__module__, name=call.__name__, arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def made() -> AsyncSandbox:
    return AsyncSandbox(output_limit=LIMIT, message_limit="8M", memory="512M")


def grown(before: int) -> int:
    return status(os.getpid(), "VmHWM") - before


def begin() -> int:
    Path("/proc/self/clear_refs").write_text("5")  # the highest so far is the present again
    return status(os.getpid(), "VmRSS")


async def many_displays(protected: bool) -> dict[str, Any]:
    async with made() as sandbox:
        await sandbox.run_code(DISPLAYS.format(count=1))
        if not protected:
            vars(driver)["MEMORY_FACTOR"] = 1 << 40
        before = begin()
        execution = await sandbox.run_code(DISPLAYS.format(count=20))
        needed = grown(before)
        error = execution.error and {
            name: getattr(execution.error, name)
            for name in ("name", "code", "setting", "limit", "from_sandbox", "reached", "value")
        }
        after = (await sandbox.run_code("1 + 1")).text
    return {"needed": needed, "error": error, "results": len(execution.results), "after": after}


async def long_answer(protected: bool, inner: str) -> dict[str, Any]:
    async with made() as sandbox:
        await sandbox.commands.run("true")  # its commands are there
        count = 5 * MIB // 2 // len(inner)
        await sandbox.run_code(REPLY.format(reply=f"'{{\"pid\":[' + {inner!r} * {count} + '0]}}'"))
        if not protected:
            answer_allowance.MEMORY_FACTOR = 1 << 30
        before, began = begin(), time.process_time()
        with pytest.raises(CommandError) as caught:
            await sandbox.commands.run("true")
        needed, taken = grown(before), time.process_time() - began
    return {
        "needed": needed,
        "taken": taken,
        "code": caught.value.code.code,
        "limit": caught.value.limit,
        "setting": caught.value.setting,
    }


@pytest.mark.parametrize("protected", [True, pytest.param(False, marks=pytest.mark.long)], ids=["", "control"])
def test_many_displays_are_one_answer(protected: bool) -> None:
    said = apart(many_displays, protected)
    if not protected:
        assert (said["error"], said["results"]) == (None, 20)
        assert said["needed"] > 3 * LIMIT
        return
    error = said["error"]
    assert (error["name"], error["code"], error["setting"]) == (
        "OutputLimit",
        EndCode.OUTPUT_TOO_LARGE.code,
        "output_limit",
    )
    assert (error["limit"], error["from_sandbox"]) == ("4.0 MiB", True)
    assert error["reached"] is not None
    assert error["reached"] in error["value"]
    assert said["results"] <= 1
    assert said["needed"] < 3 * LIMIT
    assert said["after"] == "2"


@pytest.mark.parametrize("protected", [True, pytest.param(False, marks=pytest.mark.long)], ids=["", "control"])
@pytest.mark.parametrize("inner", some(["[],", "{},", '"abc",'], of=3))
def test_an_answer_about_a_command_is_not_built_if_it_is_too_much(inner: str, protected: bool) -> None:
    """The code of a cell stands in the same process as ours, so it answers in our place."""
    said = apart(long_answer, protected, inner)
    assert said["taken"] < 20
    if protected:
        assert (said["code"], said["setting"]) == (EndCode.ANSWER_TOO_LARGE.code, "output_limit")
        assert said["limit"] == "16.0 MiB of memory, 4 times output_limit"
        assert said["needed"] < 3 * LIMIT
    else:
        assert said["code"] == CommandCode.COMMAND_UNANSWERED.code
        assert said["needed"] > 3 * LIMIT
