"""Contexts while something else happens: a pause, an interrupt, a call that is given up, the end of their sandbox."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import pytest

from sandbox_kernel import AsyncSandbox, ConfigurationError, Context, Sandbox, SandboxClosed, SandboxPaused, Tool, Tools
from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.model import SandboxSpec
from sandbox_kernel.plugins.api import AgentPipe
from sandbox_kernel.plugins.contexts.codes import ContextCode
from sandbox_kernel.plugins.contexts.nested_agents import NestedEngine
from sandbox_kernel.session import pauses
from sandbox_kernel.session.lifecycle import Lifecycle
from tests.support.patience import cancelled, until, within

COUNT = "import os; len([name for name in os.listdir('/proc') if name.isdigit()])"
DEAF = """
import signal, time
signal.signal(signal.SIGINT, lambda *_: print('I stay', flush=True))
while True: time.sleep(600)
"""
LOOP = "import time\nwhile True: time.sleep(0.01)"


def pipes(sandbox: AsyncSandbox) -> dict[int, Any]:
    """Return the pipes of further agents that the host knows of."""
    link = sandbox._instance.session.link  # noqa: SLF001
    assert link is not None
    return link.nested()._pipes  # noqa: SLF001


async def no_pipe(sandbox: AsyncSandbox) -> None:
    """Wait until no further agent is left."""
    await until(lambda: not pipes(sandbox), 30)


async def begun(sandbox: AsyncSandbox, context: Context, code: str, **named: Any) -> asyncio.Task[Any]:
    """Start a cell and wait until it runs.

    What it prints first is a message of its own: with what a flood prints after it, it may be too large to pass.
    """
    return await printing(sandbox, context, f"print('begun', flush=True)\n{code}", **named)


async def printing(sandbox: AsyncSandbox, context: Context, code: str, **named: Any) -> asyncio.Task[Any]:
    """Start a cell and wait until it has printed something."""
    printed = asyncio.Event()
    task = asyncio.create_task(sandbox.run_code(code, context=context, on_stdout=lambda _: printed.set(), **named))
    task.add_done_callback(lambda _: printed.set())
    async with within(30):
        await printed.wait()
    assert not task.done(), task.result()
    return task


# --- interrupts -------------------------------------------------------------------------------------------------------


async def test_an_interrupt_is_for_one_context(image: str) -> None:
    async with AsyncSandbox(image=image) as sandbox:
        own, made = (await sandbox.list_contexts())[0], await sandbox.create_context()
        assert not await sandbox.interrupt(made)
        running = [await begun(sandbox, one, LOOP, timeout=60) for one in (own, made)]
        assert sandbox.info.busy
        assert await sandbox.interrupt(made)
        assert (await running[1]).error.name == "KeyboardInterrupt"
        assert not await sandbox.interrupt(made)
        assert not running[0].done()
        assert await sandbox.interrupt()
        assert (await running[0]).error.name == "KeyboardInterrupt"
        assert not await sandbox.interrupt()


async def test_a_cell_of_a_context_alone_is_none_of_the_sandboxs_own(image: str) -> None:
    async with AsyncSandbox(image=image) as sandbox:
        made = await sandbox.create_context()
        running = await begun(sandbox, made, LOOP)
        assert not await sandbox.interrupt()
        assert await sandbox.interrupt(made.id)
        await running


# --- calls that are given up ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [1, 3, 10, 30, 100])
async def test_a_context_that_nobody_waits_for_leaves_nothing(image: str, turns: int) -> None:
    async with AsyncSandbox(image=image) as sandbox:
        await sandbox.remove_context(await sandbox.create_context())
        await no_pipe(sandbox)
        before = int((await sandbox.run_code(COUNT)).text or 0)

        async def left() -> bool:
            return int((await sandbox.run_code(COUNT)).text or 0) <= before

        making = asyncio.create_task(sandbox.create_context())
        for _ in range(turns):
            await asyncio.sleep(0)
        await cancelled(making)
        await no_pipe(sandbox)
        assert len(await sandbox.list_contexts()) == 1
        await until(left, 30)  # an agent that is killed is there until the next look


async def test_one_that_floods_and_is_removed_leaves_no_pipe(image: str) -> None:
    """Its agent has no credit left then, so that what it wrote last is read by nobody."""
    async with AsyncSandbox(image=image, output_limit="1G", pids=512) as sandbox:
        for _ in range(3):
            made = await sandbox.create_context()
            flooding = await begun(sandbox, made, "while True: print('x' * 100_000)")
            await sandbox.remove_context(made)
            assert (await flooding).error is not None
        await no_pipe(sandbox)


async def test_a_kill_while_contexts_start_says_so(image: str) -> None:
    async with AsyncSandbox(image=image) as sandbox:
        await sandbox.run_code("1")
        making = [asyncio.create_task(sandbox.create_context()) for _ in range(3)]
        await asyncio.sleep(0)
        await sandbox.kill()
        for found in await asyncio.gather(*making, return_exceptions=True):
            assert isinstance(found, SandboxClosed)


# --- pauses -----------------------------------------------------------------------------------------------------------


async def test_a_paused_sandbox_ends_at_once_with_its_contexts(image: str) -> None:
    async with AsyncSandbox(image=image) as sandbox:
        running = await begun(sandbox, await sandbox.create_context(), LOOP)
        assert await sandbox.pause()
        begin = time.monotonic()
        await sandbox.kill()
        assert time.monotonic() - begin < 10
        assert (await running).error.code == EndCode.SANDBOX_ENDED_BY_OWNER.code


async def test_a_pause_that_fails_lets_all_clocks_go_on(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "CALM_SECONDS", 2.0)
    async with AsyncSandbox(image=image, interrupt_grace=30) as sandbox:
        made = await sandbox.create_context()
        deaf = await printing(sandbox, made, DEAF, timeout=0.2)
        pausing = asyncio.create_task(sandbox.pause())
        with pytest.raises(SandboxPaused):
            await pausing
        async with within(20):
            ended = await sandbox.run_code(LOOP, timeout=1)
        assert ended.error is not None
        assert ended.error.name == "CellTimeout"
        await sandbox.remove_context(made)
        await deaf


async def test_one_that_is_on_its_way_is_use_of_the_sandbox(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long its start takes; on a busy machine the sandbox ended as unused meanwhile."""
    start = NestedEngine.start

    async def slow(engine: NestedEngine, spec: SandboxSpec) -> AgentPipe:
        await asyncio.sleep(1.5)  # longer than the sandbox may be unused
        return await start(engine, spec)

    monkeypatch.setattr(NestedEngine, "start", slow)
    async with AsyncSandbox(image=image, idle_timeout=1) as sandbox:
        made = await sandbox.create_context()
        assert (await sandbox.run_code("6 * 7", context=made)).text == "42"


# --- ends -------------------------------------------------------------------------------------------------------------


def test_a_forked_process_leaves_the_contexts_of_its_parent(image: str) -> None:
    with Sandbox(image=image) as sandbox:
        made = sandbox.create_context()
        sandbox.run_code("kept = 1", context=made)
        if (child := os.fork()) == 0:
            try:
                sandbox.kill()
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert sandbox.run_code("kept", context=made).text == "1"


async def test_one_whose_agent_has_ended_is_restarted(image: str) -> None:
    async with AsyncSandbox(image=image) as sandbox:
        made = await sandbox.create_context()
        agent = (await sandbox.run_code("import os; os.getppid()", context=made)).text
        await sandbox.run_code(f"import os; os.kill({agent}, 9)")
        await no_pipe(sandbox)
        await sandbox.restart_context(made)
        assert (await sandbox.run_code("6 * 7", context=made)).text == "42"


async def test_one_that_is_just_ending_tells_the_reason_and_starts_again(
    image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pipe has ended, and what is left of it is being removed: here, until the test has asked for something."""
    removing, removed, remove = asyncio.Event(), asyncio.Event(), Lifecycle._remove  # noqa: SLF001

    async def slow(life: Lifecycle, container: Any) -> None:
        removing.set()
        await removed.wait()
        await remove(life, container)

    monkeypatch.setattr(Lifecycle, "_remove", slow)
    async with AsyncSandbox(image=image) as sandbox:
        made = await sandbox.create_context()
        for asks in ("cell", "restart"):
            agent = (await sandbox.run_code("import os; os.getppid()", context=made)).text
            removing.clear()
            await sandbox.run_code(f"import os; os.kill({agent}, 9)")
            async with within(30):
                await removing.wait()
                code, restart = sandbox.run_code("1", context=made), sandbox.restart_context(made)
                asked = asyncio.create_task(code if asks == "cell" else restart)
                (restart if asks == "cell" else code).close()
                await asyncio.wait({asked}, timeout=0.1)
                removed.set()
                done: Any = await asked
            removed.clear()
            if asks == "cell":
                assert (done.error.code, done.error.kept) == (EndCode.CONTEXT_DIED.code, "files")
            assert (await sandbox.run_code("6 * 7", context=made)).text == "42"
        removed.set()


def test_a_folder_that_cells_cannot_enter_is_refused_with_the_reason(image: str) -> None:
    with Sandbox(image=image) as sandbox:
        for folder in ("/root", "/etc/passwd", "/proc/new"):
            with pytest.raises(ConfigurationError) as refused:
                sandbox.create_context(cwd=folder)
            assert refused.value.code.code == ContextCode.NO_FOLDER.code
            assert refused.value.setting == "cwd"
        assert len(sandbox.list_contexts()) == 1
        assert sandbox.create_context(cwd="new/folder").cwd == "/mnt/data/new/folder"


# --- tools and connections, which the sandbox's own session serves for all -------------------------------------------


def slow() -> str:
    time.sleep(2)
    return "done"


def test_a_tool_stops_the_clock_of_a_context(image: str) -> None:
    with Sandbox(image=image, tools=Tools([Tool.of(slow, stops_clock=True)])) as sandbox:
        made = sandbox.create_context()
        found = sandbox.run_code("import sandbox_tools as tools; tools.slow()", context=made, timeout=1)
        assert (found.error, found.text) == (None, "'done'")
        ended = sandbox.run_code("tools.slow()\nwhile True: pass", context=made, timeout=1)
        assert ended.error is not None, "the control: its clock goes on"
        assert ended.error.name == "CellTimeout"


async def test_a_call_of_one_cell_outlasts_a_cell_of_another_context(image: str) -> None:
    called, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        called.set()
        await ended.wait()
        return "done"

    async with AsyncSandbox(image=image, tools=[wait]) as sandbox:
        made = await sandbox.create_context()
        code = "import pathlib, sandbox_tools, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\n"
        calling = await begun(sandbox, (await sandbox.list_contexts())[0], f"{code}await sandbox_tools.wait()")
        other = await begun(
            sandbox, made, "import pathlib; open('go', 'w').close()\nwhile not pathlib.Path('end').exists(): pass"
        )
        async with within(30):
            await called.wait()
        await sandbox.files.write("end", "")
        await other
        ended.set()
        assert (await calling).text == "'done'"


def test_a_host_that_is_not_allowed_is_told_in_the_cell_that_asked(image: str) -> None:
    ask = (
        "import urllib.request\ntry: urllib.request.urlopen('http://other.example.org')\nexcept OSError as e: print(e)"
    )
    with Sandbox(image=image, network=["api.example.org"]) as sandbox:
        made = sandbox.create_context()
        for context in (made, sandbox.list_contexts()[0]):
            found = sandbox.run_code(f"{ask}\n" * 3, context=context)
            assert "".join(found.logs.stderr).count("NetworkDenied") == 1
            assert [denial.host for denial in found.denied] == ["other.example.org"] * 3
