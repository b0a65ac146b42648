"""`AsyncSandbox` as a chat back end uses it: callbacks, limits, cancelling, many calls at once, and all its ends."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from sandbox_kernel import (
    AsyncSandbox,
    CallbackFailed,
    ConfigurationError,
    EngineError,
    Execution,
    ExecutionError,
    Result,
    Sandbox,
    SandboxClosed,
    SandboxDied,
)
from sandbox_kernel.engines.inspectable import Listed
from sandbox_kernel.sdk.instance import STARTS_PER_CPU
from sandbox_kernel.session.session import Session
from tests.support.kernels import containers_of
from tests.support.patience import Stopwatch, cancelled, until, within

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOON = 20.0
"""Seconds for what takes one on a quiet machine."""
SHARED: set[str] = set()
"""Ids of sandboxes that outlive a test."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(image: str) -> AsyncIterator[AsyncSandbox]:
    """A sandbox that the tests of this module share: they leave it usable."""
    async with AsyncSandbox(image=image, memory="512M", cell_timeout=60) as sandbox:
        SHARED.add(sandbox.id)
        yield sandbox
    SHARED.clear()
    assert not await asyncio.to_thread(containers_here)


def containers_here() -> list[Listed]:
    """Return the containers of this process, but for the one that the tests of this module share."""
    return [row for row in containers_of(os.getpid()) if row.session not in SHARED]


async def started(sandbox: AsyncSandbox, code: str, *, before: str = "", **keywords: Any) -> asyncio.Task[Execution]:
    """Send a cell that prints first, or after what comes `before`, and return once it has."""
    printed = asyncio.Event()
    code = f"{before}\nprint('started', flush=True)\n{code}"
    task = asyncio.create_task(sandbox.run_code(code, on_stdout=lambda _: printed.set(), **keywords))
    async with within(SOON):
        await printed.wait()
    return task


# --- callbacks -------------------------------------------------------------------------------------------------------


async def test_code_that_is_no_text_for_the_wire_is_an_error_and_takes_nothing_away(sandbox: AsyncSandbox) -> None:
    await sandbox.run_code("kept = 42")
    half = "'\ud83d'"  # half of a pair, as a model's JSON may bring it
    first, odd, after = await asyncio.gather(*(sandbox.run_code(code) for code in ("kept", half, "kept + 1")))
    assert odd.error is not None
    assert odd.error.name == "ProtocolError"
    assert (first.text, after.text) == ("42", "43")


async def test_callbacks_are_called_while_the_cell_runs(sandbox: AsyncSandbox) -> None:
    """The cell waits for a file that only a callback writes: so it is called before the cell has ended."""
    seen: list[tuple[str, Any]] = []

    async def written(text: str) -> None:
        seen.append(("stdout", text))
        await sandbox.files.write("go", b"")

    execution = await sandbox.run_code(
        "import os, sys, time\nsys.stdout.write('one\\n'); sys.stdout.flush()\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "sys.stderr.write('two'); sys.stderr.flush()\ndisplay(3)\n1 / 0",
        on_stdout=written,
        on_stderr=lambda text: seen.append(("stderr", text)),
        on_result=lambda result: seen.append(("result", result)),
        on_error=lambda error: seen.append(("error", error)),
    )
    assert [name for name, _ in seen] == ["stdout", "stderr", "result", "error"]
    assert seen[2][1] is execution.results[0]
    assert isinstance(seen[2][1], Result)
    assert isinstance(seen[3][1], ExecutionError)
    assert seen[3][1] == execution.error


async def test_every_message_can_be_seen(sandbox: AsyncSandbox) -> None:
    kinds = []
    await sandbox.run_code("print(1); 2", on_message=lambda message: kinds.append(message.type))
    assert kinds == ["status", "execute_input", "stream", "execute_result", "execute_reply", "status"]


@pytest.mark.parametrize("name", ["on_stdout", "on_result", "on_message"])
async def test_a_callback_that_fails_loses_no_cell(sandbox: AsyncSandbox, name: str) -> None:
    calls = []

    async def fail(value: object) -> None:
        calls.append(value)
        raise ZeroDivisionError("of the callback")

    with pytest.raises(CallbackFailed, match="of the callback") as caught:
        await sandbox.run_code("for i in range(3): print(i, flush=True); display(i)\n'end'", **{name: fail})  # type: ignore[arg-type]
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert isinstance(caught.value.execution, Execution)
    assert caught.value.execution.text == "'end'"
    assert len(caught.value.execution.results) == 4
    assert len(calls) == 1
    assert (await sandbox.run_code("1")).text == "1"


async def test_input_that_fails_or_is_given_up_ends_the_cell(sandbox: AsyncSandbox) -> None:
    def fail(prompt: str) -> str:
        raise OSError("nobody there")

    with pytest.raises(CallbackFailed, match="nobody there") as caught:
        await sandbox.run_code("input()", on_input=fail)
    assert isinstance(caught.value.execution, Execution)
    assert caught.value.execution.error is not None
    assert caught.value.execution.error.name == "KeyboardInterrupt"

    asked = asyncio.Event()

    async def forever(prompt: str) -> str:
        asked.set()
        await asyncio.Event().wait()
        return ""

    call = asyncio.create_task(sandbox.run_code("input()", on_input=forever))
    async with within(SOON):
        await asked.wait()
        await sandbox.interrupt()
        execution = await call
    assert execution.error is not None
    assert execution.error.name == "KeyboardInterrupt"


# --- ends ------------------------------------------------------------------------------------------------------------


async def test_a_call_has_a_time_limit_of_its_own(sandbox: AsyncSandbox) -> None:
    await sandbox.run_code("kept = 1")
    with Stopwatch() as watch:
        error = (await sandbox.run_code("while True: pass", timeout=1)).error
    assert watch.seconds < SOON
    assert error is not None
    assert (error.name, error.limit, error.setting) == ("CellTimeout", "1 s", "timeout")
    assert error.from_sandbox
    assert error.fault == "user code"
    assert error.survived == "variables and files"
    assert error.reached is not None
    assert (await sandbox.run_code("kept")).text == "1"


async def test_a_call_s_time_limit_over_that_of_a_cell_is_an_error(image: str) -> None:
    async with AsyncSandbox(image=image, cell_timeout=1) as sandbox:
        for call in (sandbox.run_code("1", timeout=50), sandbox.commands.run("true", timeout=50)):
            with pytest.raises(ConfigurationError, match="timeout is longer than a call may run") as refused:
                await call
            assert (refused.value.limit, refused.value.value) == ("up to 1 s", "50 s")
            assert (refused.value.setting, refused.value.code.code) == ("cell_timeout", "wrong-argument")
        assert (await sandbox.run_code("while True: pass", timeout=1)).error is not None
        assert (await sandbox.commands.run("echo the usual time is the limit")).exit_code == 0


@pytest.mark.parametrize("timeout", [False, -1, float("nan"), True, "soon"])
async def test_an_improper_time_limit_is_refused_at_once(timeout: Any) -> None:
    with pytest.raises(ConfigurationError, match="timeout"):
        await AsyncSandbox().run_code("1", timeout=timeout)


async def test_cancelling_a_call_interrupts_its_cell(sandbox: AsyncSandbox) -> None:
    await sandbox.run_code("kept = 1")
    call = await started(sandbox, "import time\ntime.sleep(50)")
    with Stopwatch() as watch:
        await cancelled(call)
        assert (await sandbox.run_code("kept")).text == "1"
    assert watch.seconds < SOON


async def test_cancelling_a_call_that_waits_takes_no_other_cell_along(sandbox: AsyncSandbox) -> None:
    running = await started(sandbox, "import time\ntime.sleep(0.5)\n'first'")
    waiting = asyncio.create_task(sandbox.run_code("second = True"))
    third = asyncio.create_task(sandbox.run_code("'second' in globals()"))
    await asyncio.sleep(0)
    waiting.cancel()
    assert (await running).text == "'first'"
    assert (await third).text == "False"
    assert waiting.cancelled()


async def test_a_call_that_ignores_the_interrupt_can_be_cancelled_too(image: str) -> None:
    async with AsyncSandbox(image=image, interrupt_grace=0.5) as sandbox:
        await sandbox.files.write("kept", "x")
        call = await started(
            sandbox, "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(1)"
        )
        call.cancel()
        async with within(SOON):
            assert (await sandbox.run_code("open('kept').read()")).text == "'x'"


async def test_calls_of_one_sandbox_run_one_after_another(sandbox: AsyncSandbox) -> None:
    await sandbox.run_code("order = []")
    calls = [
        sandbox.run_code(f"order.append(({i}, 'in')); __import__('time').sleep(0.01); order.append(({i}, 'out'))")
        for i in range(8)
    ]
    executions = await asyncio.gather(*calls, sandbox.run_code("1 / 0"), sandbox.run_code("order"))
    expected = [(i, end) for i in range(8) for end in ("in", "out")]
    assert executions[-1].text is not None
    assert eval(executions[-1].text) == expected  # noqa: S307 (what it holds is checked by the comparison)
    assert [execution.ok for execution in executions] == [True] * 8 + [False, True]


async def test_a_failure_ends_those_that_wait_behind_it_if_asked_to(sandbox: AsyncSandbox) -> None:
    running = await started(sandbox, "import time\ntime.sleep(0.3)\n1 / 0", stop_on_error=True)
    after = await sandbox.run_code("ran = True")
    assert (await running).error is not None
    assert after.error is not None
    assert after.error.name == "Aborted"
    assert (await sandbox.run_code("'ran' in globals()")).text == "False"


async def test_too_many_waiting_calls_are_refused_and_not_forgotten(sandbox: AsyncSandbox) -> None:
    running = await started(sandbox, "import time\ntime.sleep(50)")
    waiting = [asyncio.create_task(sandbox.run_code("1")) for _ in range(1010)]
    done, _ = await asyncio.wait(waiting, timeout=SOON, return_when=asyncio.FIRST_COMPLETED)
    errors = [task.result().error for task in done]
    assert errors
    assert all(error is not None and "too many" in error.value for error in errors)
    for task in (running, *waiting):
        task.cancel()
    await asyncio.gather(running, *waiting, return_exceptions=True)
    assert (await sandbox.run_code("1")).text == "1"


async def test_out_of_memory_and_a_dead_kernel_are_errors_with_their_parts(sandbox: AsyncSandbox) -> None:
    await sandbox.files.write("kept", "x")
    hog = (await sandbox.run_code("hog = [bytearray(50_000_000) for _ in range(100)]")).error
    assert hog is not None
    assert (hog.name, hog.limit, hog.setting) == ("OutOfMemory", "512.0 MiB", "memory")
    assert hog.survived == "files, but no variables"
    dead = (await sandbox.run_code("import os; os._exit(3)")).error
    assert dead is not None
    assert (dead.name, dead.from_sandbox) == ("KernelDied", True)
    assert "exit code 3" in dead.value
    assert (await sandbox.run_code("open('kept').read()")).text == "'x'"


async def test_the_end_of_a_container_is_told_once_and_the_next_call_has_a_new_one(image: str) -> None:
    async with AsyncSandbox(image=image) as sandbox:
        await sandbox.files.write("lost", "x")
        call = await started(sandbox, "import time\ntime.sleep(50)")
        await asyncio.to_thread(end_container, sandbox.id)
        lost = (await call).error
        assert lost is not None
        assert (lost.name, lost.survived, lost.fault) == ("SandboxDied", "nothing", "platform")
        with pytest.raises(SandboxDied, match="ended from outside"):
            await sandbox.files.read("lost")
        assert (await sandbox.run_code("1")).text == "1"
        assert not await sandbox.files.exists("lost")


def end_container(session: str) -> None:
    names = [row.container for row in containers_of(os.getpid()) if row.session == session]
    subprocess.run(["docker", "kill", *names], check=True, capture_output=True, timeout=30)


# --- restart, kill, and sandboxes that cannot be ---------------------------------------------------------------------


async def test_a_restart_clears_variables_and_keeps_files(sandbox: AsyncSandbox) -> None:
    await sandbox.run_code("gone = 1; open('kept', 'w').write('x')")
    running = await started(sandbox, "import time\ntime.sleep(50)")
    await sandbox.restart()
    ended = (await running).error
    assert ended is not None
    assert ended.value.startswith("the kernel was restarted")
    execution = await sandbox.run_code("'gone' in globals(), open('kept').read()")
    assert execution.text == "(False, 'x')"
    assert execution.logs.stderr == []
    assert execution.execution_count == 1


async def test_kill_is_idempotent_and_ends_what_runs(image: str) -> None:
    sandbox = await AsyncSandbox.create(image=image)
    running = await started(sandbox, "import time\ntime.sleep(50)")
    waiting = asyncio.create_task(sandbox.run_code("1"))
    await asyncio.sleep(0)
    await asyncio.gather(sandbox.kill(), sandbox.kill())
    await sandbox.kill()
    for call in (running, waiting):
        error = (await call).error
        assert error is not None
        assert (error.name, error.survived) == ("SandboxDied", "nothing")
    assert not await asyncio.to_thread(containers_here)
    assert not sandbox.is_alive
    for use in (sandbox.run_code("1"), sandbox.files.list(), sandbox.restart(), sandbox.interrupt(), sandbox.usage()):
        with pytest.raises(SandboxClosed, match="killed"):
            await use


async def test_killing_during_the_start_leaves_nothing(image: str) -> None:
    sandbox = AsyncSandbox(image=image)
    call = asyncio.create_task(sandbox.run_code("1"))
    async with within(SOON):
        while not await asyncio.to_thread(containers_here):
            pass
    await sandbox.kill()
    with pytest.raises(SandboxClosed, match="killed"):
        await call
    assert not await asyncio.to_thread(containers_here)


async def test_what_cannot_start_is_raised_and_not_an_error_of_the_code() -> None:
    with pytest.raises(EngineError, match="no image"):
        await AsyncSandbox.create(image="sandbox-kernel-missing:none")
    with pytest.raises(EngineError, match="no image"), Sandbox(image="sandbox-kernel-missing:none"):
        pass
    sandbox = AsyncSandbox(engine="unix:///nonexistent/engine.sock")
    with pytest.raises(EngineError, match="no container engine"):
        await sandbox.run_code("1")
    await sandbox.kill()


@pytest.mark.parametrize("keywords", [{"code": 1}, {"code": "1", "on_stdout": "print"}])
async def test_bad_arguments_are_refused_before_anything_starts(keywords: dict[str, Any]) -> None:
    sandbox = AsyncSandbox()
    with pytest.raises(ConfigurationError, match="must be"):
        await sandbox.run_code(**keywords)
    assert sandbox.is_alive is False


async def test_sandboxes_do_not_see_each_other(image: str) -> None:
    async with AsyncSandbox(image=image) as one, AsyncSandbox(image=image) as other:
        await one.run_code("mine = 1; open('mine', 'w').write('x')")
        assert (await other.run_code("'mine' in globals()")).text == "False"
        assert await other.files.list() == []
        assert one.id != other.id


async def test_starts_take_turns(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More starts at once than processors can serve would only bring all of them near their time limit."""
    under_way, most, original = 0, 0, Session.started

    async def counted(session: Session) -> str:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return await original(session)
        finally:
            under_way -= 1

    monkeypatch.setattr(Session, "started", counted)
    turns = STARTS_PER_CPU * (os.cpu_count() or 1)
    sandboxes = [AsyncSandbox(image=image, memory="256M") for _ in range(turns + 2)]
    try:
        await asyncio.gather(*(sandbox.start() for sandbox in sandboxes))
        assert all(sandbox.is_alive for sandbox in sandboxes)
        assert most == turns
    finally:
        await asyncio.gather(*(sandbox.kill() for sandbox in sandboxes))
    assert not await asyncio.to_thread(containers_here)


# --- idleness, cancelled cells and interrupts ------------------------------------------------------------------------


async def until_idle(sandbox: AsyncSandbox) -> float:
    """Return for how many seconds it goes on living."""
    begin = time.monotonic()
    await until(lambda: not sandbox.is_alive, SOON)
    return time.monotonic() - begin


async def test_idleness_counts_from_the_end_of_a_cell(image: str) -> None:
    async with AsyncSandbox(image=image, idle_timeout=2) as sandbox:
        await sandbox.run_code("import time; time.sleep(1.7)")
        assert await until_idle(sandbox) > 1.8


async def test_files_are_a_use_of_a_sandbox(image: str) -> None:
    async with AsyncSandbox(image=image, idle_timeout=2) as sandbox:
        await sandbox.run_code("x = 1")
        begin = time.monotonic()
        while time.monotonic() - begin < 3:
            await sandbox.files.write("part", b"x")
            await sandbox.files.read("part")
            await asyncio.sleep(0.2)  # the step of a bounded wait
        assert (await sandbox.run_code("x")).text == "1"


async def test_a_call_in_the_last_moments_of_a_sandbox_is_answered_at_once(image: str) -> None:
    async with AsyncSandbox(image=image, idle_timeout=1) as sandbox:
        link = sandbox._instance.session.link
        assert link is not None
        await until_idle(sandbox)
        with pytest.raises(SandboxDied, match="ended"):
            await link.ask("ping")  # not after the time that an answer may take
        with pytest.raises(SandboxDied, match="ended"):
            link.tell("ping")


async def test_what_a_cancelled_cell_took_along_is_said_to_the_next(image: str) -> None:
    async with AsyncSandbox(image=image, interrupt_grace=0.3) as sandbox:
        await sandbox.run_code("x = 1")
        ignore = "import signal, time; signal.signal(2, signal.SIG_IGN)"
        call = await started(sandbox, "time.sleep(60)", before=ignore)
        call.cancel()
        execution = await sandbox.run_code("'x' in globals()")
        assert execution.text == "False"
        assert "after a cell was cancelled" in "".join(execution.logs.stderr)


async def test_cells_that_are_cancelled_at_any_moment_keep_variables(image: str) -> None:
    """An interrupt can meet ipykernel just outside of a cell's code, where it forgets to reply."""
    async with AsyncSandbox(image=image, interrupt_grace=5) as sandbox:
        await sandbox.run_code("keep = 42")
        for number in range(30):
            call = asyncio.create_task(sandbox.run_code("x = 1"))
            await asyncio.sleep(number / 5000)
            call.cancel()
        execution = await sandbox.run_code("keep")
        if execution.text != "42":  # it is rare, but the signal may end ipykernel itself: then it is said
            assert "after a cell was cancelled" in "".join(execution.logs.stderr)


async def test_an_interrupt_ends_a_call_that_waits_for_its_sandbox(image: str) -> None:
    async with AsyncSandbox(image=image) as other:
        sandbox = AsyncSandbox(other.settings)
        try:
            assert not await sandbox.interrupt()
            call = asyncio.create_task(sandbox.run_code("open('made', 'w').close()"))
            await asyncio.sleep(0)
            assert await sandbox.interrupt()
            error = (await call).error
            assert error is not None
            assert (error.name, error.from_sandbox) == ("KeyboardInterrupt", True)
            assert not await sandbox.files.exists("made")
        finally:
            await sandbox.kill()


async def test_an_interrupt_of_nothing_leaves_alone_what_was_started(sandbox: AsyncSandbox) -> None:
    await sandbox.run_code("import subprocess; child = subprocess.Popen(['sleep', '60'])")
    assert not await sandbox.interrupt()
    assert (await sandbox.run_code("print(child.poll()); child.kill(); child.wait()")).logs.stdout == ["None\n"]


async def test_the_answer_to_one_question_is_not_given_to_another(sandbox: AsyncSandbox) -> None:
    asked: list[str] = []
    first = asyncio.Event()

    async def answer(prompt: str) -> str:
        asked.append(str(prompt))
        if len(asked) == 1:
            first.set()
            await asyncio.Event().wait()
        return f"to {prompt}"

    code = "try: input('one')\nexcept KeyboardInterrupt: print(input('two'))"
    call = asyncio.create_task(sandbox.run_code(code, on_input=answer))
    async with within(SOON):
        await first.wait()
        await sandbox.interrupt()
        execution = await call
    assert asked == ["one", "two"]
    assert "".join(execution.logs.stdout) == "to two\n"
