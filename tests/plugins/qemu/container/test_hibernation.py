"""A paused machine gives its memory back after a while, and goes on where it was: the same one, at the same pipe.

Emulated, so only `make test-qemu` runs these.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sandbox_kernel import AsyncSandbox, SandboxDied
from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.plugins.qemu import saved_states, state_capture
from sandbox_kernel.plugins.qemu.container import QemuContainer
from sandbox_kernel.plugins.qemu.snapshots import store
from tests.plugins.qemu.container.test_snapshots import SLOW
from tests.plugins.qemu.engine import UNDER_TEST as QEMU
from tests.plugins.qemu.engine import machine_of_tests
from tests.support.engines import ONLY, receive_line
from tests.support.patience import until, within
from tests.support.processes import python

pytestmark = [
    pytest.mark.skipif(QEMU.name != ONLY, reason="machines are emulated: make test-qemu"),
    pytest.mark.timeout(600),
]

SAYS = """
import os, random, sys, time
held = bytearray(os.urandom(1 << 20)) * 64
identity = [os.urandom(8).hex(), random.random()]
print("up", flush=True)
for number, _ in enumerate(sys.stdin):
    print(number, *identity, held[-1], round(time.time()), flush=True)
"""
STREAMS = """
import os
print("up", flush=True)
os.read(0, 1)
for part in range(16):
    data = b"".join(b"%07d\\n" % number for number in range(part << 16, (part + 1) << 16))
    while data:
        data = data[os.write(1, data):]
os.read(0, 1)
"""
"""Sends 8 MB, more than anybody takes while it is paused."""


def processes(session_id: str) -> list[psutil.Process]:
    """Return what the host has of a sandbox."""
    found = [psutil.Process(each.pid) for each in QEMU.found() if each.session == session_id]
    return [one for each in found for one in (each, *each.children(recursive=True))]


def memory(session_id: str) -> int:
    """Return what a sandbox has; while one of its processes ends, what they all have is asked for again."""
    while True:
        with contextlib.suppress(psutil.NoSuchProcess):
            return sum(process.memory_info().rss for process in processes(session_id))


def a_file(folder: Path) -> int:
    return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)


def holders(number: int) -> list[str]:
    """Return who has a file open."""
    found = []
    for place in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if place.stat().st_ino == number and stat.S_ISREG(place.stat().st_mode):
                found.append(str(place))
    return found


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def rested(container: QemuContainer, folder: Path) -> None:
    """Pause it and have it give its memory back."""
    await container.pause()
    fd = a_file(folder)
    try:
        await container.rest(fd)
    finally:
        os.close(fd)


async def answer(container: QemuContainer) -> list[str]:
    await container.send(b"\n")
    return (await receive_line(container)).decode().split()


@pytest.fixture
async def container(request: pytest.FixtureRequest) -> AsyncIterator[QemuContainer]:
    made = await QEMU.make().start(QEMU.spec(getattr(request, "param", SAYS), session_id=f"rest{os.urandom(4).hex()}"))
    try:
        assert await receive_line(made) == b"up\n"
        yield made
    finally:
        await made.kill()


def session_of(container: QemuContainer) -> str:
    return next(each.session for each in QEMU.found() if each.name == container.id)


async def test_it_has_no_memory_and_is_the_same_afterwards(container: QemuContainer, tmp_path: Path) -> None:
    session = session_of(container)
    first = await answer(container)
    before = memory(session)
    await rested(container, tmp_path)
    assert container.paused
    left = memory(session)
    print(f"{before >> 20} MiB before, {left >> 10} KiB while it rests")
    assert before > 64 << 20
    assert left < 8 << 20
    assert [each.name for each in QEMU.found() if each.session == session] == [container.id], "it is listed"
    await container.send(b"\n")  # waits in the pipe
    heard = asyncio.create_task(receive_line(container))
    await container.resume()
    second = (await heard).decode().split()
    assert (second[0], second[1:4]) == ("1", first[1:4]), "nothing of it was drawn again"
    third = await answer(container)
    assert abs(int(third[4]) - time.time()) < 30
    assert not container.paused
    await rested(container, tmp_path)  # and again
    await container.resume()
    assert (await answer(container))[:2] == ["3", first[1]]


async def test_control_one_that_is_only_paused_keeps_its_memory(container: QemuContainer) -> None:
    session = session_of(container)
    before = memory(session)
    await container.pause()
    assert memory(session) > before // 2


@pytest.mark.parametrize("container", [STREAMS], indirect=True)
async def test_no_byte_on_its_way_is_lost_or_comes_twice(container: QemuContainer, tmp_path: Path) -> None:
    await container.send(b"!")
    expected, got = b"".join(b"%07d\n" % number for number in range(1 << 20)), bytearray()
    for rests in range(1, 4):
        while len(got) < rests << 21:
            got += await container.receive()
        reading = asyncio.create_task(container.receive())  # somebody always reads
        await rested(container, tmp_path)
        await container.resume()
        got += await reading
    while len(got) < len(expected):
        got += await container.receive()
    assert bytes(got) == expected


async def test_its_state_is_gone_from_the_disk_when_it_goes_on(container: QemuContainer, tmp_path: Path) -> None:
    await rested(container, tmp_path)
    assert container.asleep is not None
    number = os.fstat(container.asleep.fd).st_ino
    assert names(tmp_path) == set(), "it has no name"
    assert holders(number), "the control"
    await container.resume()
    await answer(container)
    assert holders(number) == []


async def test_one_that_rests_is_killed_as_any_other(container: QemuContainer, tmp_path: Path) -> None:
    session = session_of(container)
    await rested(container, tmp_path)
    async with within(10):
        await container.kill()
    assert (await container.wait()).kind == "killed"
    assert await QEMU.left(session) == []


async def test_one_that_rests_and_is_ended_from_outside_says_so(container: QemuContainer, tmp_path: Path) -> None:
    session = session_of(container)
    await rested(container, tmp_path)
    (gate,) = processes(session)
    gate.kill()
    async with within(10):
        reason = await container.wait()
    assert (reason.kind, reason.exit_code) == ("killed", 137)
    with pytest.raises(EngineError):
        await container.resume()


async def test_a_changed_file_is_refused(container: QemuContainer, tmp_path: Path) -> None:
    session = session_of(container)
    await rested(container, tmp_path)
    assert container.asleep is not None
    fd = container.asleep.fd
    byte = os.pread(fd, 1, 1 << 20)
    os.pwrite(fd, bytes([byte[0] ^ 1]), 1 << 20)
    with pytest.raises(EngineError, match="has been changed"):
        await container.resume()
    assert "did not come back from its pause" in (await container.wait()).detail
    assert await QEMU.left(session) == []


@pytest.mark.parametrize("cut", [0, 1 << 20])
async def test_a_state_that_qemu_cannot_read_ends_it_in_time(
    container: QemuContainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """Should the look at the file be deceived: what QEMU makes of it ends the sandbox, with a reason."""
    await rested(container, tmp_path)
    assert container.asleep is not None
    os.ftruncate(container.asleep.fd, cut)
    monkeypatch.setattr(saved_states, "look", lambda status: container.asleep and container.asleep.looked)
    async with within(90):
        with pytest.raises(EngineError):
            await container.resume()
        assert (await container.wait()).kind in {"killed", "exited"}


async def test_a_full_disk_leaves_it_paused_in_memory(container: QemuContainer, tmp_path: Path) -> None:
    """A file that may not grow, for the disk of a test cannot be filled; QEMU meets an error in the midst of it."""
    first = await answer(container)
    await container.pause()
    reading, writing = os.pipe()
    os.close(reading)
    try:
        with pytest.raises(EngineError, match="could not write"):
            await container.rest(writing)
    finally:
        os.close(writing)
    assert container.paused
    assert container.asleep is None
    await container.resume()
    assert (await answer(container))[1:4] == first[1:4]


async def test_a_resume_in_the_midst_of_the_writing_goes_on_at_once(container: QemuContainer, tmp_path: Path) -> None:
    first = await answer(container)
    await container.pause()
    for turns in (0, 1, 5, 20, 60):
        fd = a_file(tmp_path)
        writing = asyncio.create_task(container.rest(fd))
        for _ in range(turns):
            await asyncio.sleep(0.002)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        os.close(fd)
        async with within(60):
            await container.resume()
            assert (await answer(container))[1:4] == first[1:4]
            await container.pause()


async def test_a_kill_in_the_midst_of_the_writing_leaves_nothing(container: QemuContainer, tmp_path: Path) -> None:
    session = session_of(container)
    await container.pause()
    fd = a_file(tmp_path)
    writing = asyncio.create_task(container.rest(fd))
    while os.fstat(fd).st_size == 0 and not writing.done():  # noqa: ASYNC110 (QEMU does it)
        await asyncio.sleep(0)
    async with within(15):
        await container.kill()
    await asyncio.gather(writing, return_exceptions=True)
    os.close(fd)
    assert await QEMU.left(session) == []


async def test_one_that_runs_does_not_rest(container: QemuContainer, tmp_path: Path) -> None:
    fd = a_file(tmp_path)
    try:
        with pytest.raises(EngineError, match="only a machine that is paused"):
            await container.rest(fd)
    finally:
        os.close(fd)


OWNER = """
import asyncio, os, sys
from sandbox_kernel.core.model import SandboxSpec
from sandbox_kernel.plugins.qemu.engine import QemuEngine
from tests.support.engines import SMALL
async def main():
    session, image, folder, *command = sys.argv[1:]
    spec = SandboxSpec(session_id=session, image=image, limits=SMALL, command=tuple(command), uid=300_000_777)
    container = await QemuEngine().start(spec)
    await container.pause()
    await container.rest(os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600))
    print("rests", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_one_that_rests_ends_with_its_owner(tmp_path: Path) -> None:
    spec = QEMU.spec(SAYS)
    with python(OWNER, spec.session_id, spec.image, tmp_path, *spec.command) as (owner, line):
        assert line == "rests"
        assert await QEMU.left(spec.session_id)
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        await until(lambda: QEMU.left(spec.session_id), 10, holds=False)


# --- the session's part -----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    there = tmp_path / "snapshots"
    monkeypatch.setattr(store, "usual_folder", lambda: str(there))
    monkeypatch.setattr(saved_states, "folder_of_user", lambda: tmp_path / "states")
    monkeypatch.setattr(state_capture, "take_in_background", lambda *_, **__: None)  # it would go on into the next test
    return there


async def test_a_long_pause_has_no_memory_and_a_cell_goes_on(folder: Path) -> None:
    """A cell that runs, too: it is there with all it had, and ends as if nothing had been."""
    machine = await asyncio.to_thread(machine_of_tests)
    async with AsyncSandbox(engine="qemu", image=machine, memory="512M", pause_memory=1, **SLOW) as sandbox:
        await sandbox.run_code("import os; x = os.urandom(8).hex(); held = bytearray(64 << 20)")
        before = (await sandbox.run_code("x")).text
        printed = asyncio.Event()
        code = "print(1, flush=True)\nimport time\nfor _ in range(50): time.sleep(0.1)\nprint('ended')"
        cell = asyncio.create_task(sandbox.run_code(code, on_stdout=lambda _: printed.set()))
        await printed.wait()
        session = sandbox.id
        had = memory(session)
        await sandbox.pause()
        await until(lambda: memory(session) < 8 << 20)
        assert sandbox.is_paused
        print(f"{had >> 20} MiB before, {memory(session) >> 10} KiB in a long pause")
        assert names(folder) <= {".lock"}, "and no name in the store"
        begun = time.monotonic()
        await sandbox.resume()
        print(f"back within {time.monotonic() - begun:.2f} s")
        execution = await cell
        assert execution.error is None
        assert "ended" in "".join(execution.logs.stdout)
        assert (await sandbox.run_code("x")).text == before
        await sandbox.pause()
        await until(lambda: memory(session) < 8 << 20)
        assert await sandbox.kill()
    assert await QEMU.left(session) == []


async def test_where_there_is_no_room_a_long_pause_keeps_its_memory(folder: Path, tmp_path: Path) -> None:
    machine, audit = await asyncio.to_thread(machine_of_tests), tmp_path / "audit.jsonl"
    more: dict[str, Any] = {"pause_memory": 1, "snapshots_size": "1M", "audit": str(audit)}
    async with AsyncSandbox(engine="qemu", image=machine, memory="512M", **SLOW, **more) as sandbox:
        await sandbox.run_code("x = 1")
        await sandbox.pause()
        await until(lambda: "memory kept" in audit.read_text(encoding="utf-8"))
        assert memory(sandbox.id) > 64 << 20
        await sandbox.resume()
        assert (await sandbox.run_code("x")).text == "1"


async def test_one_whose_state_is_changed_says_why_it_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = await asyncio.to_thread(machine_of_tests)
    async with AsyncSandbox(engine="qemu", image=machine, memory="512M", pause_memory=1, **SLOW) as sandbox:
        await sandbox.run_code("x = 1")
        await sandbox.pause()
        await until(lambda: memory(sandbox.id) < 8 << 20)
        monkeypatch.setattr(saved_states, "look", lambda status: os.urandom(8))
        with pytest.raises((EngineError, SandboxDied)):
            await sandbox.resume()
        async with within(120):
            while (execution := await sandbox.run_code("'x' in dir()")).error is not None:
                assert execution.error.name == "SandboxDied"  # the session hears of it a moment later
        assert execution.text == "False", "the next call has a new one"
