"""The screen asks a person before a cell runs, in any front end that can ask: over the wire of Jupyter, and the SDK."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sandbox_kernel import AsyncSandbox, Sandbox
from sandbox_kernel.session.requests import machine
from tests.support.kernels import Kernel, Result, control

GRAVE = "import os\nos.system('rm -rf /nowhere/at-all')\nprint('it ran')"
WAIT = 15


@pytest.fixture(scope="module")
def asking(launch_kernel: Callable[..., Kernel]) -> Iterator[Kernel]:
    one = launch_kernel("--screen", "ask", "--memory", "512M")
    yield one
    one.close()


def _asked(kernel: Kernel, answer: Callable[[str], object]) -> Result:
    """Run the cell, and do with its question what a person does."""
    begin = time.monotonic()
    message_id = kernel.client.execute(GRAVE, allow_stdin=True)
    prompt: str = kernel.client.get_stdin_msg(timeout=WAIT)["content"]["prompt"]
    assert "line 2: file-delete-many" in prompt
    answer(prompt)
    return kernel.collect(message_id, begin)


def _word(prompt: str) -> str:
    found = re.search("yes [0-9]{4}", prompt)
    assert found is not None
    return found[0]


def test_a_yes_runs_the_cell(asking: Kernel) -> None:
    result = _asked(asking, lambda prompt: asking.client.input(_word(prompt)))
    assert (result.reply["status"], result.text()) == ("ok", "it ran\n")


@pytest.mark.parametrize("said", ["no", "yes", ""])
def test_anything_else_blocks_it(asking: Kernel, said: str) -> None:
    result = _asked(asking, lambda _: asking.client.input(said))
    assert (result.ename, result.text()) == ("ScreenBlocked", "")
    assert asking.run("1 + 1").value == "2"


def test_without_stdin_it_is_blocked(asking: Kernel) -> None:
    result = asking.run(GRAVE, allow_stdin=False)
    assert (result.ename, result.text()) == ("ScreenBlocked", "")
    assert "nobody can be asked here" in result.reply["evalue"]


def test_an_interrupt_blocks_it(asking: Kernel) -> None:
    result = _asked(asking, lambda _: asking.manager.interrupt_kernel())
    assert (result.ename, result.text()) == ("ScreenBlocked", "")
    assert asking.run("1 + 1").value == "2"


def test_a_cell_that_asks_by_itself_gets_its_own_answers_alone(asking: Kernel) -> None:
    begin = time.monotonic()
    message_id = asking.client.execute("print('got', input('who? '))", allow_stdin=True)
    assert asking.client.get_stdin_msg(timeout=WAIT)["content"]["prompt"] == "who? "
    asking.client.input("me")
    assert asking.collect(message_id, begin).text() == "got me\n"


def test_programs_are_asked_by_their_callback_and_blocked_without(image: str) -> None:
    with Sandbox(image=image, memory="512M", screen="ask") as sandbox:
        execution = sandbox.run_code(GRAVE)
        assert execution.error is not None
        assert (execution.error.code, "nobody can be asked here" in execution.error.value) == ("screen-blocked", True)
        asked: list[Any] = []

        def answer(prompt: str) -> str:
            asked.append(prompt)
            return _word(prompt)

        execution = sandbox.run_code(GRAVE, on_input=answer)
        assert (len(asked), execution.error, "".join(execution.logs.stdout)) == (1, None, "it ran\n")


async def test_without_an_answer_in_time_it_is_blocked(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "ASK_SECONDS", 0.2)

    async def never(_: str) -> str:
        await asyncio.Event().wait()
        return ""

    async with AsyncSandbox(image=image, memory="512M", screen="ask") as sandbox:
        execution = await sandbox.run_code(GRAVE, on_input=never)
        assert execution.error is not None
        assert "there was no answer within 0.2 s" in execution.error.value
        assert (await sandbox.run_code("1 + 1")).text == "2"


def test_what_would_be_pasted_is_read_and_the_state_has_what_cells_did(asking: Kernel) -> None:
    info = control(asking.client, "kernel_info_request")
    assert info["sandbox"]["screen_message"] == {"version": 1}
    before = control(asking.client, "sandbox_state_request")["behaviour"]["rows"]
    reply = control(asking.client, "sandbox_screen_request", {"code": GRAVE})
    assert reply["status"] == "ok"
    assert [reason for reason in reply["reasons"] if "file-delete-many" in reason]
    assert control(asking.client, "sandbox_screen_request", {"code": "x = 1\n" * 20})["reasons"] == []
    assert control(asking.client, "sandbox_state_request")["behaviour"]["rows"] == before, "nothing of it ran"
    asking.run(GRAVE, allow_stdin=False)
    asking.run("os.system('rm -rf /nowhere/at-all')  # again", allow_stdin=False)
    found = control(asking.client, "sandbox_state_request")["behaviour"]
    codes = {row["code"]: row for row in found["rows"]}
    assert {"screen-blocked", "file-delete-many"} <= codes.keys()
    assert codes["file-delete-many"]["count"] >= 2
    assert (found["risk_score"], found["is_safe"]) == (80, False)
    assert control(asking.client, "kernel_info_request")["status"] == "ok"
