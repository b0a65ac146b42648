"""Scratch of an ordinary user in a folder of the host's disk: attested as what it is, looked at, and gone with its end.

What runs as an ordinary user is started by the first test, in a process of one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import signal
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import AttestationFailed, EngineError
from sandbox_kernel.core.model import MIB, SandboxSpec
from sandbox_kernel.plugins.bubblewrap import scratch_folder, watch
from sandbox_kernel.plugins.bubblewrap.container import BubblewrapContainer
from sandbox_kernel.plugins.bubblewrap.engine import BubblewrapEngine
from sandbox_kernel.plugins.bubblewrap.scratch_folder import INSIDE, PLACE, Room
from tests.support import ordinary
from tests.support.engines import REPORT, SMALL, Bubblewrap, alive, receive_all, receive_line, report_sources
from tests.support.patience import Stopwatch, until, within
from tests.support.processes import python

HERE = "tests/plugins/bubblewrap"
CONTRACT = "tests/container/engines/test_contract.py"
SECONDS = 300
SIZE = 32 * MIB
UNDER = Bubblewrap("bubblewrap-best-effort", cgroup=False)
Launch = Callable[..., Awaitable[BubblewrapContainer]]

of_an_ordinary_user = pytest.mark.skipif(os.geteuid() == 0, reason="root has disks")


def held_by_an_ordinary_user(select: str, *more: str, with_ids: bool = False) -> None:
    """Run tests of this file that are selected, and of others, as one."""
    if why := ordinary.absent():
        pytest.skip(why)
    tests = [f"{HERE}/container/test_scratch_in_a_folder.py", *more]
    ran = ordinary.run(tests, select, delegated=True, with_ids=with_ids, seconds=SECONDS)
    print("", *re.findall(r"[a-z ]+ after [\d.]+ s|\d+ passed.*", ran.stdout), sep="\n")
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-1000:]
    assert "SKIPPED" not in ran.stdout, ran.stdout[-3000:]


@pytest.mark.parametrize("with_ids", [False, True], ids=["as_they_are", "with_subordinate_ids"])
def test_it_is_what_it_is_said_to_be_and_ends_with_its_owner(with_ids: bool) -> None:
    held_by_an_ordinary_user("attested or (ends and files) or closed_to_them or few_files", with_ids=with_ids)


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 20)
def test_all_of_it_holds_for_an_ordinary_user() -> None:
    unit = f"{HERE}/unit/test_scratch_folder.py"
    own = "test_scratch_in_a_folder and not ends_with and not all_of_it"
    held_by_an_ordinary_user(f"test_scratch_folder or (scratch and effort) or ({own})", CONTRACT, unit)


def spec_of(code: str, *arguments: str, **fields: Any) -> SandboxSpec:
    fields.setdefault("limits_kept", "best-effort")
    limits = replace(SMALL, scratch="disk", scratch_size=SIZE, open_files=1024)
    return UNDER.spec(code, *arguments, **{"limits": limits, **fields})


def folders() -> set[str]:
    """Return the names of all that are there."""
    return {path.name for path in Path(PLACE).iterdir()}


async def removed(name: str) -> None:
    """Wait for the end of a folder: where the disk is slow, another process does what takes longer than an end may."""
    await until(lambda: name not in folders(), 30)


def mode_of(container: BubblewrapContainer, *names: str) -> int:
    return stat.S_IMODE(Path(PLACE, container.id, *names).stat().st_mode)


@pytest.fixture
async def start() -> AsyncIterator[Launch]:
    """Start sandboxes that do not outlive the test; nor do their folders."""
    before = folders()
    started = []

    async def start(spec: SandboxSpec, *, cgroup: bool = False) -> BubblewrapContainer:
        container = await BubblewrapEngine(cgroup=cgroup).start(spec)
        started.append(container)
        return container

    yield start
    for container in started:
        await container.kill()
        await removed(container.id)
    assert not {name for name in folders() - before if f"-{os.getpid()}-" in name}


# --- what it is -------------------------------------------------------------------------------------------------------


@of_an_ordinary_user
async def test_without_best_effort_it_is_refused_and_what_to_do_is_named() -> None:
    with pytest.raises(EngineError, match="limits = best-effort") as refused:
        await BubblewrapEngine().start(spec_of("", limits_kept="enforced"))
    assert (refused.value.code, refused.value.setting) == (EndCode.DISK_NOT_MADE, "scratch")


@of_an_ordinary_user
@pytest.mark.parametrize("cgroup", [True, False], ids=["with_a_cgroup", "without"])
async def test_it_is_attested_as_a_folder_and_accepted_by_that_setting_only(start: Launch, cgroup: bool) -> None:
    spec = spec_of(REPORT, *report_sources())
    container = await start(spec, cgroup=cgroup)
    report = json.loads(await receive_line(container))
    await container.attest(report, spec)
    assert not container.held
    said = {each.name: each for each in await container.compare(report, spec)}
    for name in ("engine: scratch", "size of a disk"):
        assert "an ordinary user" in said[name].expected or "accepts" in said[name].expected
    assert said["engine: largest file"].found == f"['{SIZE}', '{SIZE}']"
    assert said["engine: disk at /mnt/data"].ok
    with pytest.raises(AttestationFailed, match="engine: scratch") as refused:
        await container.attest(report, replace(spec, limits_kept="enforced"))
    assert ("memory limit" in str(refused.value)) is not cgroup
    larger = replace(spec, limits=replace(spec.limits, scratch_size=2 * SIZE))
    with pytest.raises(AttestationFailed, match="largest file"):
        await container.attest(report, larger)


@of_an_ordinary_user
async def test_what_a_cell_opens_to_others_stays_closed_to_them(start: Launch) -> None:
    """A program that runs as its owner would make any user of the machine this one."""
    code = """
import os, sys
open("program", "w").close()
os.chmod("program", 0o6777)
os.chmod(".", 0o777)
print(open("/proc/mounts").read().split(" /mnt/data ")[1].split()[1], flush=True)
sys.stdin.read()
"""
    container = await start(spec_of(code))
    options = set((await receive_line(container)).decode().strip().split(","))
    assert {"nosuid", "nodev"} <= options
    assert mode_of(container, INSIDE) == 0o777  # the control: cells may do so
    assert mode_of(container, INSIDE, "program") == 0o6777
    assert mode_of(container) == 0o700


# --- how full it may be -----------------------------------------------------------------------------------------------

FILL = """
import os, sys, time
def files():
    for number in range(12):
        with open(f"file{number}", "wb", buffering=0) as file:
            for _ in range(8):
                file.write(bytes(1 << 20))
                time.sleep(0.01)
def nameless():
    kept = []
    for number in range(12):
        kept.append(open("file", "wb", buffering=0))
        os.unlink("file")
        for _ in range(8):
            kept[-1].write(bytes(1 << 20))
            time.sleep(0.01)
    globals()["kept"] = kept
def closed():
    os.mkdir("closed")
    for number in range(12):
        os.chmod("closed", 0o700)
        file = open(f"closed/file{number}", "wb", buffering=0)
        os.chmod("closed", 0)
        for _ in range(8):
            file.write(bytes(1 << 20))
            time.sleep(0.01)
def many():
    for number in range(3000):
        open(f"file{number}", "w").close()
        time.sleep(0.0005)
def deep():
    for number in range(3000):
        os.mkdir("d")
        os.chdir("d")
        time.sleep(0.0005)
globals()[sys.argv[1]]()
print("passed", flush=True)
sys.stdin.read()
"""

SAID = {
    "files": " MiB of files",
    "nameless": " MiB of files",
    "closed": " MiB of files",
    "many": "more than 1,000 files",
    "deep": "more than 100 folders within each other",
}


@of_an_ordinary_user
@pytest.mark.parametrize("how", SAID)
async def test_more_than_it_may_have_ends_the_sandbox(start: Launch, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch_folder, "MAX_FILES", 1000)
    container = await start(spec_of(FILL, how))
    assert await receive_all(container) == b""
    reason = await container.wait()
    assert (reason.kind, reason.exit_code) == ("out_of_scratch", 137)
    assert SAID[how] in reason.detail


@of_an_ordinary_user
@pytest.mark.parametrize("how", SAID)
async def test_control_without_a_look_it_is_passed(start: Launch, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch.FolderWatch, "_look", lambda self: None)
    container = await start(spec_of(FILL, how))
    assert await receive_line(container) == b"passed\n"


ONE = """
import os, sys
written = 0
with open("file", "wb", buffering=0) as file:
    try:
        while True:
            written += file.write(bytes(1 << 20))
    except OSError as error:
        print(written, error.errno, flush=True)
for line in sys.stdin:
    print(line, end="", flush=True)
"""


@of_an_ordinary_user
async def test_one_file_has_an_end_and_the_sandbox_goes_on(start: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = asyncio.Semaphore(0)
    gone_through = watch.FolderWatch._gone_through  # noqa: SLF001 (to hear of each look)

    def noting(self: watch.FolderWatch, done: asyncio.Future[tuple[int, int, str, float]]) -> None:
        looked.release()
        gone_through(self, done)

    monkeypatch.setattr(watch.FolderWatch, "_gone_through", noting)
    container = await start(spec_of(ONE))
    assert await receive_line(container) == f"{SIZE} {errno.EFBIG}\n".encode()
    while not looked.locked():
        await looked.acquire()
    async with within(10):
        for _ in range(3):
            await looked.acquire()
    await container.send(b"still there\n")
    assert await receive_line(container) == b"still there\n"


@of_an_ordinary_user
async def test_a_disk_that_is_nearly_full_ends_the_sandbox(start: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it has is hidden from looks."""
    container = await start(spec_of("import time; time.sleep(600)"))
    monkeypatch.setattr(scratch_folder, "room", lambda _: Room(MIB, 2 * MIB, 1000))
    reason = await container.wait()
    assert (reason.kind, reason.detail) == ("out_of_scratch", "the host's disk has 1.0 MiB left")


ASKED = "import sys; sys.stdin.readline()\n" + FILL


@of_an_ordinary_user
async def test_who_takes_it_over_looks_at_it_and_removes_it() -> None:
    engine = UNDER.make()
    first = await engine.start(spec_of(ASKED, "files"))
    handover = first.detach()
    async with alive(engine.adopt(handover.fd, json.loads(json.dumps(handover.state)))) as container:
        assert not container.held
        await container.send(b"\n")
        assert await receive_all(container) == b""
        assert (await container.wait()).kind == "out_of_scratch"
        assert container.id in folders()
    await removed(container.id)


# --- its end ----------------------------------------------------------------------------------------------------------

LEAVES = """
import os, sys
for number in range(90):
    os.mkdir("d")
    os.chdir("d")
os.chdir("/mnt/data")
os.mkdir("many")
for number in range(int(sys.argv[1])):
    os.close(os.open(f"many/{number}", os.O_CREAT))
os.mkdir("closed")
os.mkdir("closed/within", 0o500)
os.chmod("closed", 0)
os.symlink("/", "link")
os.chmod(".", 0)
print("left", flush=True)
sys.stdin.read()
"""

OWN = """
import asyncio, sys
from tests.plugins.bubblewrap.container.test_scratch_in_a_folder import LEAVES, spec_of
{source}
async def main():
    container = await Engine().start(spec_of(LEAVES, sys.argv[2], session_id=sys.argv[1]))
    await container.receive()
    print(container.id, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


@contextlib.contextmanager
def an_owner(files: int) -> Iterator[tuple[psutil.Process, str]]:
    """Start a sandbox in a process of its own, which is killed after the block; it has left all kinds of files."""
    with python(OWN.format(source=UNDER.source), spec_of("").session_id, str(files)) as (owner, name):
        assert name in folders()
        yield psutil.Process(owner.pid), name


@of_an_ordinary_user
@pytest.mark.parametrize("files", [1000, 100_000], ids=["few_files", "many_files"])
async def test_it_goes_after_the_kill_of_its_owner(files: int) -> None:
    with an_owner(files) as (owner, name):
        owner.send_signal(signal.SIGKILL)
        with Stopwatch() as taken:
            await removed(name)
        print(f"its folder is removed after {taken.seconds:.2f} s")


@of_an_ordinary_user
async def test_it_is_reaped_when_its_owner_and_its_reaper_were_killed() -> None:
    with an_owner(1000) as (owner, name):
        reaper = next(one for one in owner.children() if any("bubblewrap/reaper.py" in word for word in one.cmdline()))
        engine = UNDER.make()
        await engine.reap()
        assert name in folders()
        reaper.kill()
        owner.kill()
        await until(lambda: not owner.is_running() or owner.status() == psutil.STATUS_ZOMBIE, 30)
        async with within(30):
            while name in folders():
                await engine.reap()
