"""The container engine stops or crashes under a running cell: the cell ends with that reason, and all goes on after.

A second engine of the test's own, in a folder of its own, so that stopping it disturbs nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from sandbox_kernel import AsyncSandbox
from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import EngineError, SandboxError
from sandbox_kernel.engines.docker.engine import REAP_AGE_SECONDS, DockerEngine
from tests.plugins.broker.brokers import a_broker
from tests.support.batch import Started, run, write
from tests.support.kernels import Kernel, eventually
from tests.support.patience import Stopwatch, within

Start = Callable[..., Kernel]
IMAGE = "sandbox-kernel:base"
DISK_BYTES = 512 << 20
"""Of the engine's own disk, which has room for this image and little more."""

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("dockerd") is None, reason="needs root and dockerd for an engine of its own"
)


class OwnEngine:
    """A Docker engine with its own containerd, below one folder; without any network."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"unix://{folder}/s"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        folder = self.folder
        # In a network namespace of its own: an engine without a bridge removes docker0, which is another engine's.
        command = [
            "unshare",
            "--net",
            "dockerd",
            "--data-root",
            f"{folder}/d",
            "--exec-root",
            f"{folder}/x",
            "--pidfile",
            f"{folder}/p",
        ]
        command += ["--host", self.url, "--bridge=none", "--iptables=false", "--ip-masq=false"]
        with (folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        eventually(lambda: self.docker("version", check=False).returncode == 0, 30, "the engine answers")

    def docker(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", "--host", self.url, *arguments], check=check, capture_output=True, text=True, timeout=60
        )

    def load(self, image: str) -> None:
        with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as save:
            subprocess.run(
                ["docker", "--host", self.url, "load"], stdin=save.stdout, check=True, capture_output=True, timeout=60
            )

    def processes(self) -> list[psutil.Process]:
        """Return the engine, its containerd, and the shims of its containers."""
        found = []
        for process in psutil.process_iter(["name", "cmdline", "status"]):
            part = process.info["name"].startswith(("dockerd", "containerd"))  # a kernel's arguments name it too
            mine = any(str(self.folder) in argument for argument in process.info["cmdline"] or [])
            if part and mine and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process)
        return found

    def stop(self) -> None:
        """As an administrator stops it; the call does not wait for the end."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def crash(self) -> None:
        """End everything at once: engine, containerd, shims, and what ran in the containers."""
        victims = self.processes()
        victims += [child for process in victims for child in process.children(recursive=True)]
        for process in set(victims):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.ended()

    def ended(self) -> None:
        assert self.process is not None
        self.process.wait(30)
        eventually(lambda: not self.processes(), 30, "the engine's processes have ended")
        for name in ("p", "x/containerd/containerd.pid"):  # a crash of the machine would have removed them
            (self.folder / name).unlink(missing_ok=True)

    def mounts(self) -> list[str]:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
        return [line.split()[4] for line in lines if line.split()[4].startswith(str(self.folder))]

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)
        eventually(lambda: not self.processes(), 30, "the engine's processes have ended")
        for mount in sorted(self.mounts(), reverse=True):
            subprocess.run(["umount", "--lazy", mount], check=True)


@pytest.fixture(scope="module")
def own_engine() -> Iterator[OwnEngine]:
    # Not below tmp_path: the name of a unix socket has 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="sk-", dir="/tmp") as folder:
        engine = OwnEngine(Path(folder))
        (disk := engine.folder / "d").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0711", "none", disk], check=True)
        try:
            engine.start()
            engine.load(IMAGE)
            yield engine
        finally:
            engine.close()
        assert engine.mounts() == []


@pytest.fixture
def running(own_engine: OwnEngine) -> OwnEngine:
    """The engine, started again if a test before left it stopped."""
    if own_engine.process is None or own_engine.process.poll() is not None:
        own_engine.start()
    return own_engine


@pytest.mark.parametrize("how", ["stop", "crash"])
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
        async with within(20):
            while await there():  # noqa: ASYNC110 (it happens in another process)
                await asyncio.sleep(0.02)
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
