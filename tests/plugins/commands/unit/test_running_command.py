"""A command as the host follows it: whatever the sandbox answers, it is text, bounded, and comes to an end."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from sandbox_kernel import CellTimeout, CommandError, CommandExitException
from sandbox_kernel.core.errors import OutputLimit
from sandbox_kernel.core.model import Limits, Settings
from sandbox_kernel.plugins.commands.running_command import CommandRequests, Following
from sandbox_kernel.sdk.execution import Execution, ExecutionError, Logs
from tests.support.patience import cancelled, within


class Sandbox:
    """Answers each cell of ours with what a hostile kernel would."""

    def __init__(self, *answers: object, printed: str | None = None) -> None:
        self.answers = list(answers)
        self.printed = printed
        self.asked: list[str] = []
        self.settings = Settings(limits=Limits(output_limit=1000))

    async def run_own(self, code: str, **_: object) -> Execution:
        self.asked.append(code)
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, ExecutionError):
            return Execution(error=answer)
        return Execution(logs=Logs(stdout=[self.printed if self.printed is not None else json.dumps(answer) + "\n"]))


HELD: list[Sandbox] = []
"""Nothing that follows a command holds its sandbox."""


def following(sandbox: Any, timeout: float | None = 5.0) -> Following:
    HELD[:] = [sandbox]
    requests = CommandRequests(sandbox)
    return Following(requests, 7, after=0, timeout=timeout)


def piece(number: int, text: bytes, stream: int = 1) -> list[object]:
    return [number, stream, base64.b64encode(text).decode()]


async def test_what_it_says_is_text_that_may_be_printed() -> None:
    sandbox = Sandbox(
        {"pieces": [piece(1, b"a\xc3"), piece(2, b"\xbc\x1b]52;c;aGk=\x07"), piece(3, b"e\xff", 2)], "running": True},
        {"pieces": [piece(4, b"\xc3")], "returncode": 0, "timed_out": False},
    )
    command = following(sandbox)
    said = [*await command.step(), *await command.step()]
    assert [(one.stream, str(one.text)) for one in said] == [
        ("stdout", "a"),
        ("stdout", "ü"),
        ("stderr", "e�"),
        ("stdout", "�"),
    ]
    assert [one.text.error for one in said] == [False, False, True, False]
    assert command.ended
    assert command.result().stdout == "aü�"
    assert '"after": 3' in sandbox.asked[1]  # each piece is asked for once


async def test_who_stops_following_does_not_interrupt_the_cell_that_asks() -> None:
    """An interrupt of a moment's cell of ours ended kernels, and with them variables, where the machine was slow."""
    begun, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Slow(Sandbox):
        async def run_own(self, code: str, **_: object) -> Execution:
            begun.set()
            await go_on.wait()
            ended.set()
            return await super().run_own(code)

    following_it = asyncio.create_task(following(Slow({"pieces": [], "running": True})).step())
    await begun.wait()
    await cancelled(following_it)
    go_on.set()
    async with within(10):
        await ended.wait()


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {},
        {"pieces": 7},
        {"pieces": [[1, 1]]},
        {"pieces": [[1, 9, ""]]},
        {"pieces": [[0, 1, ""]]},
        {"pieces": [[1, 1, "no base64!"]]},
        {"pieces": [[1, 1, "a" * (1 << 20)]]},
        {"pieces": [piece(2, b"a"), piece(1, b"b")], "running": True},
        {"pieces": [], "returncode": "0"},
        {"pieces": [], "returncode": True},
        {"pieces": [], "returncode": 1 << 70},
        {"gone": True},
    ],
    ids=range(13),
)
async def test_an_answer_that_is_none_ends_it(answer: object) -> None:
    with pytest.raises(CommandError):
        await following(Sandbox(answer)).step()


@pytest.mark.parametrize("printed", ["", "no JSON", "[" * 100_000, '{"pieces": []'])
async def test_what_is_no_json_ends_it(printed: str) -> None:
    with pytest.raises(CommandError):
        await following(Sandbox(printed=printed)).step()


async def test_it_says_no_more_than_output_limit() -> None:
    sandbox = Sandbox(
        {"pieces": [piece(1, b"a" * 600)], "running": True}, {"pieces": [piece(2, b"a" * 600)]} | {"running": True}
    )
    command = following(sandbox)
    await command.step()
    with pytest.raises(OutputLimit) as raised:
        await command.step()
    assert raised.value.setting == "output_limit"
    assert '"op": "kill"' in sandbox.asked[-1]


async def test_its_ends_are_told() -> None:
    with pytest.raises(CellTimeout) as late:
        await following(Sandbox({"pieces": [], "returncode": 137, "timed_out": True})).step()
    assert (late.value.limit, late.value.setting) == ("5 s", "timeout")
    command = following(Sandbox({"pieces": [piece(1, b"why", 2)], "returncode": 3}))
    await command.step()
    with pytest.raises(CommandExitException, match="exit code 3\nwhy") as failed:
        command.result()
    assert (failed.value.exit_code, failed.value.stdout, failed.value.stderr) == (3, "", "why")


async def test_a_kernel_that_does_not_know_of_commands_is_taught_once() -> None:
    unknown = ExecutionError(name="KeyError", value="'_sandbox_commands'")
    sandbox = Sandbox(unknown, {"pieces": [], "running": True})
    await following(sandbox).step()
    assert len(sandbox.asked) == 2
    with pytest.raises(CommandError):
        await following(Sandbox(unknown, unknown)).step()


async def test_what_ended_the_cell_that_asked_is_raised() -> None:
    died = ExecutionError(name="SandboxDied", value="the sandbox is gone", from_sandbox=True)
    with pytest.raises(Exception, match="the sandbox is gone") as raised:
        await following(Sandbox(died)).step()
    assert type(raised.value).__name__ == "SandboxDied"
    forged = ExecutionError(name="SandboxDied", value="the sandbox is gone")  # raised by a cell's own code
    with pytest.raises(CommandError):
        await following(Sandbox(forged)).step()


@pytest.mark.parametrize("pid", [True, 0, -1, 1.0, "7", 1 << 40, 10**30, None, [7]], ids=repr)
async def test_what_can_be_no_process_is_none(pid: object) -> None:
    """It goes into answers of servers and into the next questions, which take a whole number."""
    sandbox: Any = Sandbox({"pid": pid}, {"commands": [{"pid": pid}, {"pid": 7}]})
    requests = CommandRequests(sandbox)
    with pytest.raises(CommandError):
        await requests.start("true", cwd=None, envs=None, timeout=None)
    assert await requests.list() == [{"pid": 7}]


async def test_a_piece_whose_number_is_true_is_no_piece() -> None:
    with pytest.raises(CommandError):
        await following(Sandbox({"pieces": [[True, 1, ""]], "running": True})).step()
