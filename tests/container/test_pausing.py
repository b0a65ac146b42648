"""`pause` and `resume`: a cell that runs is frozen with its clock, and no end waits for the end of a pause."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from sandbox_kernel import AsyncSandbox, Execution, Sandbox, SandboxDied
from sandbox_kernel.container import process
from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import AbilityMissing, EngineError, SandboxPaused
from sandbox_kernel.engines.abilities import Ability
from sandbox_kernel.plugins.broker.client import container as broker_container
from sandbox_kernel.plugins.bubblewrap import cgroups
from sandbox_kernel.plugins.bubblewrap.interface import bubblewrap_program
from tests.plugins.broker.brokers import shared
from tests.support.patience import until, within
from tests.support.roots import root_of_tests

WITHOUT = pytest.mark.skipif(
    bubblewrap_program() is None or cgroups.available() is not None,
    reason="no bubblewrap with a cgroup on this machine",
)
SMALL: dict[str, Any] = {"memory": "512M", "cell_timeout": 60}


@pytest.fixture(params=["docker", pytest.param("bubblewrap", marks=[WITHOUT, pytest.mark.long])])
def keywords(request: pytest.FixtureRequest, image: str) -> dict[str, Any]:
    root = image if request.param == "docker" else root_of_tests()
    return {"engine": request.param, "image": root, **SMALL}


async def begun(sandbox: AsyncSandbox, code: str, **more: Any) -> asyncio.Task[Execution]:
    """Start a cell and return when it has printed its first line."""
    printed = asyncio.Event()
    task = asyncio.create_task(sandbox.run_code(code, on_stdout=lambda _: printed.set(), **more))
    async with within(30):
        await printed.wait()
    return task


async def past(seconds: float) -> None:
    """Return when so many seconds have gone by, for those who have to see that nothing happens."""
    ended = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, ended.set)
    await ended.wait()


COUNTS = """
import time
print("begun", flush=True)
begun = time.process_time()
while time.process_time() < begun + 0.5:
    pass
print("ended")
"""


async def test_variables_and_files_are_there_after_a_pause(keywords: dict[str, Any]) -> None:
    async with AsyncSandbox(**keywords) as sandbox:
        await sandbox.run_code("x = 41")
        await sandbox.files.write("a.txt", "kept")
        assert Ability.PAUSE in sandbox.abilities
        assert (await sandbox.pause(), sandbox.is_paused, sandbox.info.state) == (True, True, "paused")
        assert await sandbox.pause() is False
        for call in (
            sandbox.run_code("1"), sandbox.files.read("a.txt"), sandbox.commands.run("true"), sandbox.usage(),
            sandbox.restart(), sandbox.interrupt(),
        ):  # fmt: skip
            with pytest.raises(SandboxPaused) as caught:
                await call
            assert caught.value.code.code == "sandbox-paused"
        assert (await sandbox.resume(), sandbox.is_paused, await sandbox.resume()) == (True, False, False)
        assert (await sandbox.run_code("x + 1")).text == "42"
        assert await sandbox.files.read("a.txt") == "kept"


async def test_a_cell_is_frozen_with_its_clock(keywords: dict[str, Any]) -> None:
    """It works for longer than is left of its time, as a watch on the wall has it; the one behind it waits."""
    async with AsyncSandbox(**keywords) as sandbox:
        cell = await begun(sandbox, COUNTS, timeout=5)
        behind = asyncio.create_task(sandbox.run_code("'behind'"))
        await sandbox.pause()
        await past(6)
        assert not cell.done()
        assert not behind.done()
        await sandbox.resume()
        execution = await cell
        assert (execution.error, "ended" in "".join(execution.logs.stdout)) == (None, True)
        assert (await behind).text == "'behind'"


async def test_control_the_clock_of_a_cell_that_is_not_paused_runs_out(image: str) -> None:
    async with AsyncSandbox(image=image, **SMALL) as sandbox:
        cell = await begun(sandbox, "import time\nprint('begun', flush=True)\ntime.sleep(30)", timeout=3)
        execution = await cell
        assert execution.error is not None
        assert execution.error.name == "CellTimeout"


async def test_what_is_left_of_a_time_limit_counts_after_a_pause(keywords: dict[str, Any]) -> None:
    async with AsyncSandbox(**keywords) as sandbox:
        cell = await begun(sandbox, "import time\nprint('begun', flush=True)\nwhile True: pass", timeout=3)
        await sandbox.pause()
        await sandbox.resume()
        async with within(30):
            execution = await cell
        assert execution.error is not None
        assert execution.error.name == "CellTimeout"
        assert (await sandbox.run_code("1 + 1")).text == "2"


async def test_a_paused_sandbox_ends_as_unused(keywords: dict[str, Any]) -> None:
    """With a cell in it, too, which would not end as unused if it ran."""
    async with AsyncSandbox(**{**keywords, "idle_timeout": 3}) as sandbox:
        cell = await begun(sandbox, "print('begun', flush=True)\nwhile True: pass")
        await sandbox.pause()
        async with within(20):
            execution = await cell
        assert execution.error is not None
        assert execution.error.name == "SandboxDied"
        assert "idle" in execution.error.value
        assert not sandbox.is_paused
        with pytest.raises(SandboxDied):
            await sandbox.resume()
        assert (await sandbox.run_code("1 + 1")).text == "2", "the next call has a new one"
        async with within(30):
            timed = await sandbox.run_code("while True: pass", timeout=1)
        assert timed.error is not None
        assert timed.error.name == "CellTimeout", "whose cells have their limits"


async def test_its_lifetime_counts_on(keywords: dict[str, Any]) -> None:
    async with AsyncSandbox(**keywords) as sandbox:
        await sandbox.run_code("1")
        await sandbox.set_timeout(2)
        await sandbox.pause()
        await until(lambda: sandbox.info.state == "ended" and not sandbox.is_alive, 20)


async def test_it_is_killed_while_it_is_paused(keywords: dict[str, Any]) -> None:
    async with AsyncSandbox(**keywords) as sandbox:
        cell = await begun(sandbox, "print('begun', flush=True)\nwhile True: pass")
        await sandbox.pause()
        async with within(10):
            assert await sandbox.kill()
        assert (await cell).error is not None


async def test_a_call_that_is_given_up_while_it_is_paused_is_ended_after(keywords: dict[str, Any]) -> None:
    async with AsyncSandbox(**keywords) as sandbox:
        cell = await begun(sandbox, "print('begun', flush=True)\nwhile True: pass")
        await sandbox.pause()
        cell.cancel()
        await asyncio.gather(cell, return_exceptions=True)
        await sandbox.resume()
        async with within(30):
            assert (await sandbox.run_code("1 + 1")).text == "2"


async def test_questions_that_are_under_way_wait_for_the_end_of_a_pause(keywords: dict[str, Any]) -> None:
    """Usage is asked for within 5 s, and a pause is longer."""
    async with AsyncSandbox(**keywords) as sandbox:
        await sandbox.run_code("1")
        question = asyncio.create_task(sandbox.usage())
        for _ in range(3):
            await asyncio.sleep(0)
        await sandbox.pause()
        await past(6)
        await sandbox.resume()
        assert (await question).memory_bytes


async def test_pauses_from_many_sides_are_one(keywords: dict[str, Any]) -> None:
    async with AsyncSandbox(**keywords) as sandbox:
        await sandbox.run_code("x = 1")
        assert sorted(await asyncio.gather(*(sandbox.pause() for _ in range(5)))) == [False, False, False, False, True]
        assert sorted(await asyncio.gather(*(sandbox.resume() for _ in range(5)))) == [False, False, False, False, True]
        assert (await sandbox.run_code("x")).text == "1"


async def test_a_pause_that_is_given_up_can_be_taken_back(keywords: dict[str, Any]) -> None:
    async with AsyncSandbox(**keywords) as sandbox:
        await sandbox.run_code("x = 1")
        for turns in (0, 1, 3, 10):
            pausing = asyncio.create_task(sandbox.pause())
            for _ in range(turns):
                await asyncio.sleep(0)
            pausing.cancel()
            await asyncio.gather(pausing, return_exceptions=True)
            await sandbox.resume()
            assert (await sandbox.run_code("x")).text == "1"


def test_without_await(image: str) -> None:
    with Sandbox(image=image, engine="docker", **SMALL) as sandbox:
        sandbox.run_code("x = 1")
        assert (sandbox.pause(), sandbox.is_paused) == (True, True)
        with pytest.raises(SandboxPaused):
            sandbox.run_code("x")
        assert sandbox in [Sandbox.connect(sandbox.id)], "which lets it go on"
        assert (sandbox.is_paused, sandbox.run_code("x").text) == (False, "1")


async def test_behind_a_broker_it_stands_still_and_goes_on(image: str) -> None:
    address = shared("--anything", "--engine", "docker").address
    async with AsyncSandbox(image=image, engine=address, **SMALL) as sandbox:
        await sandbox.run_code("x = 41")
        cell = await begun(sandbox, COUNTS, timeout=5)
        assert (await sandbox.pause(), sandbox.is_paused) == (True, True)
        await past(6)
        assert not cell.done()
        assert await sandbox.resume()
        assert (await cell).error is None
        assert (await sandbox.run_code("x + 1")).text == "42"
        await sandbox.pause()
        async with within(15):
            assert await sandbox.kill()


async def test_a_pause_that_a_broker_answers_too_late_is_undone(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker does it all the same: nobody waits for that, and nobody else would let the sandbox go on."""
    address = shared("--anything", "--engine", "docker").address
    async with AsyncSandbox(image=image, engine=address, **SMALL) as sandbox:
        await sandbox.run_code("x = 41")
        with monkeypatch.context() as patch:
            patch.setattr(broker_container, "PAUSE_SECONDS", 0.0)
            with pytest.raises(EngineError) as caught:
                await sandbox.pause()
        assert caught.value.code is EndCode.ENGINE_SILENT
        async with within(20):  # for a cell that is under way when the broker does it
            assert (await sandbox.run_code("import time; time.sleep(1); x + 1")).text == "42"


async def test_what_does_not_go_through_a_broker_says_so_at_once(image: str) -> None:
    """Nothing is started for the answer, which says what to do."""
    address = shared("--anything", "--engine", "docker").address
    sandbox = AsyncSandbox(image=image, engine=address, **SMALL)
    assert sandbox.abilities == {Ability.PAUSE}
    for call in (sandbox.snapshot("s"), sandbox.fork(1)):
        with pytest.raises(AbilityMissing) as caught:
            await call
        assert (caught.value.code.code, caught.value.fault, sandbox.is_new) == (
            "broker-cannot-snapshot", "configuration", True,
        )  # fmt: skip
        assert "without a broker" in caught.value.code.remedy
    await sandbox.kill()


def test_an_agent_that_stood_still_does_not_take_its_host_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    lease = process.SilenceLease()
    for _ in range(50):
        now[0] += 1.0
        assert not lease.over()
    now[0] += 3600.0  # frozen
    assert not lease.over()
    for _ in range(9):
        now[0] += 1.0
        assert not lease.over()
    for _ in range(2):
        now[0] += 1.0
    assert lease.over(), "the control: silence that it could have heard counts"
