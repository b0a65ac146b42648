"""The container engine stops or crashes under a running cell: the cell ends with that reason, and all goes on after.

A second engine of the test's own, in a folder of its own, so that stopping it disturbs nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_kernel import AsyncSandbox
from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import EngineError, SandboxError
from sandbox_kernel.engines.docker.engine import REAP_AGE_SECONDS, DockerEngine
from tests.plugins.broker.brokers import a_broker
from tests.support.batch import Started, run, write
from tests.support.kernels import Kernel, eventually
from tests.support.own_engine import IMAGE, OwnEngine, an_own_engine
from tests.support.patience import Stopwatch, until

Start = Callable[..., Kernel]

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("dockerd") is None, reason="needs root and dockerd for an engine of its own"
)


@pytest.fixture(scope="module")
def own_engine() -> Iterator[OwnEngine]:
    with an_own_engine() as engine:
        yield engine


@pytest.fixture
def running(own_engine: OwnEngine) -> OwnEngine:
    """The engine, started again if a test before left it stopped."""
    if own_engine.process is None or own_engine.process.poll() is not None:
        own_engine.start()
    return own_engine


@pytest.mark.parametrize("how", ["crash", pytest.param("stop", marks=pytest.mark.long)])
def test_an_engine_that_goes_ends_the_cell_and_the_next_engine_runs_the_next(
    start_kernel: Start, running: OwnEngine, how: str
) -> None:
    kernel = start_kernel("--engine", running.url, "--image", IMAGE)
    kernel.run("kept = 42")
    message_id, _ = kernel.start("import time; time.sleep(60)")
    with Stopwatch() as watch:
        getattr(running, how)()
        result = kernel.collect(message_id, time.monotonic())
    assert result.ename == "SandboxDied"
    assert watch.seconds < 5
    assert "engine" in result.reply["evalue"]
    assert "Kept: nothing" in result.reply["evalue"]

    running.ended()
    with Stopwatch() as watch:
        result = kernel.run("1 + 1")
    assert result.ename == "EngineUnavailable"
    assert watch.seconds < 1
    assert running.url.removeprefix("unix://") in result.reply["evalue"]
    assert kernel.manager.is_alive()

    running.start()
    assert kernel.run("1 + 1").value == "2"
    assert kernel.run("kept").ename == "NameError"


def test_an_engine_that_goes_under_a_broker_is_said_by_the_broker_s_kernels(
    start_kernel: Start, running: OwnEngine
) -> None:
    """What waited is gone with it; the broker goes on, and so does the kernel, with the next engine."""
    with a_broker("--pool", "1", "--engine", running.url) as daemon:
        kernel = start_kernel("--engine", daemon.address, "--image", IMAGE)
        kernel.run("kept = 42")

        def ready() -> int:
            return int(asyncio.run(daemon.engine().status())["ready"])

        eventually(lambda: ready() == 1, 30, "one waits")
        message_id, _ = kernel.start("import time; time.sleep(60)")
        running.crash()
        result = kernel.collect(message_id, time.monotonic())
        assert result.ename == "SandboxDied"
        assert kernel.run("1 + 1").ename == "EngineUnavailable"
        running.start()
        assert kernel.run("1 + 1").value == "2"
        assert kernel.run("kept").ename == "NameError"
        eventually(lambda: ready() == 1, 30, "the next one waits")


@pytest.mark.parametrize("how", [pytest.param("stop", marks=pytest.mark.long), "crash"])
async def test_an_engine_that_starts_again_leaves_no_detached_sandbox_half_there(running: OwnEngine, how: str) -> None:
    """With an owner and without one, in a cell and at rest: each is gone from the list, from the engine and its quota.

    No state of a detached sandbox is left out: the broker hears of the end by the pipe, which all of them have. A
    connection afterwards is told that it is gone, and never gets another sandbox.
    """
    with a_broker("--engine", running.url, "--detached", "3") as daemon:

        async def there() -> list[str]:
            return [info.id for info in await AsyncSandbox.list(engine=daemon.address)]

        made = [await AsyncSandbox.create(engine=daemon.address, image=IMAGE, detached=True) for _ in range(3)]
        names = [one.id for one in made]
        owned, busy, left = made
        begun = asyncio.Event()
        cell = "print(1, flush=True)\nimport time; time.sleep(60)"
        running_cell = asyncio.create_task(busy.run_code(cell, on_stdout=lambda _: begun.set()))
        await begun.wait()
        await busy.detach()
        ended = (await running_cell).error
        assert ended is not None
        assert ended.name == "SandboxDied"
        await left.run_code("kept = 42")
        await left.detach()
        assert sorted(await there()) == sorted(names), "the control: while the engine is there, so are they"
        getattr(running, how)()
        await asyncio.to_thread(running.ended)
        await until(there, 20, holds=False)
        with pytest.raises(SandboxError):
            await owned.run_code("1")
        await owned.kill()
        await asyncio.to_thread(running.start)
        for name in names:
            with pytest.raises(EngineError) as caught:
                await AsyncSandbox.connect(name, engine=daemon.address)
            assert caught.value.code is EndCode.DETACHED_NOT_THERE
            assert not await AsyncSandbox.kill_by_id(name, engine=daemon.address)
        again = [await AsyncSandbox.create(engine=daemon.address, image=IMAGE, detached=True) for _ in range(3)]
        try:
            assert [(await one.run_code("6 * 7")).text for one in again] == ["42"] * 3, "the quota is free again"
            assert not set(names) & {one.id for one in again}
        finally:
            for one in again:
                await one.kill()


def test_an_engine_that_goes_between_cells_is_said_in_the_next(start_kernel: Start, running: OwnEngine) -> None:
    kernel = start_kernel("--engine", running.url, "--image", IMAGE)
    kernel.run("kept = 42")
    running.crash()
    eventually(lambda: kernel.run("kept").ename == "EngineUnavailable", 10, "the loss is seen")
    running.start()
    result = kernel.run("1 + 1")
    assert result.value == "2"


def test_a_kernel_starts_without_its_engine_and_says_so(start_kernel: Start, running: OwnEngine) -> None:
    running.stop()
    running.ended()
    kernel = start_kernel("--engine", running.url, "--image", IMAGE)
    assert kernel.run("1 + 1").ename == "EngineUnavailable"
    running.start()
    assert kernel.run("1 + 1").value == "2"


def test_reap_removes_what_a_crash_of_the_engine_left(
    start_kernel: Start, running: OwnEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine forgets to remove a container that ended with it; no process of ours owns that any more."""
    kernel = start_kernel("--engine", running.url, "--image", IMAGE)
    kernel.run("1 + 1")
    running.crash()
    pid = kernel.pid
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not kernel.manager.is_alive(), 10, "the kernel's process has ended")
    running.start()
    engine = DockerEngine(running.url)
    assert REAP_AGE_SECONDS > 0
    monkeypatch.setattr("sandbox_kernel.engines.docker.engine.REAP_AGE_SECONDS", 0)
    left = [row for row in asyncio.run(engine.list()) if row.owner_pid == pid]
    assert asyncio.run(engine.reap()) >= len(left)
    assert asyncio.run(engine.list()) == ()
    assert running.docker("ps", "--all", "--quiet").stdout == ""


@pytest.mark.long
def test_a_batch_run_whose_engine_goes_leaves_notebook_and_report(running: OwnEngine, tmp_path: Path) -> None:
    source = write(tmp_path, "print('first')", "import time; time.sleep(60)", "print('third')")
    started = Started(tmp_path, source, "--engine", running.url, "--image", IMAGE)
    started.wait_for("[1/3]")
    running.stop()
    done = started.ended()
    assert done.code == 3, done.stderr
    assert done.report["exit"]["kind"] == "platform failed"
    assert "engine" in done.report["exit"]["reason"]
    assert done.statuses == ["ok", "sandbox", "not run"]
    assert (done.text(1), done.text(3)) == ("first\n", "")
    assert done.notebook.cells[1].outputs[-1].ename == "SandboxDied"
    running.ended()
    assert run(tmp_path, source, "--engine", running.url, "--image", IMAGE).code == 3
    assert "EngineUnavailable" in done.folder.joinpath("report.json").read_text(encoding="utf-8")


def fill(path: Path) -> None:
    """Take what is left of a disk, to its last byte."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)
    assert not shutil.disk_usage(path.parent).free


@pytest.mark.long
def test_an_engine_on_a_full_disk_refuses_a_start_and_all_else_goes_on(start_kernel: Start, running: OwnEngine) -> None:
    """What runs runs, a start says why it cannot be and leaves nothing; with room again, all is well."""
    with a_broker("--pool", "1", "--engine", running.url) as daemon:

        def status() -> dict[str, int]:
            return asyncio.run(daemon.engine().status())

        def kernel() -> Kernel:
            return start_kernel("--engine", daemon.address, "--image", IMAGE)

        first = kernel()
        first.run("kept = 42")
        eventually(lambda: status()["ready"] == 1, 60, "one waits")
        full = running.folder / "d/full"
        fill(full)
        assert first.run("kept").value == "42"
        refused = kernel()  # which is not given the one that waited: that it is this kernel's could not be noted
        result = refused.run("1 + 1")
        print(result.ename, result.reply["evalue"], daemon.said())
        assert result.ename == "EngineError"
        assert "no space left on device" in result.reply["evalue"]
        assert status()["all"] == 1
        eventually(lambda: len(running.docker("ps", "--all", "--quiet").stdout.split()) == 1, 30, "one is left")
        eventually(lambda: "could not be made ahead" in daemon.said(), 60, "the pool has tried")
        full.unlink()
        assert refused.run("1 + 1").value == "2"
        assert first.run("kept").value == "42"
        eventually(lambda: status()["ready"] == 1, 60, "the next one waits")
