"""What every engine must do, whatever it is: each goes through this one suite, with what it lacks declared.

`tests.support.engines` has an `EngineUnderTest` for each: how to start one, and how to look and kill from outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import AttestationFailed, EngineError, ImageMissing
from sandbox_kernel.core.model import HOME, MIB, AgentOptions, SandboxSpec
from sandbox_kernel.engines import shipping
from sandbox_kernel.engines.abilities import Sampled
from sandbox_kernel.engines.base import Container, Handover
from sandbox_kernel.plugins.data import disk_images
from tests.support.cases import some
from tests.support.datasets import a_folder, dataset
from tests.support.disks import loops_of, size_of_its_own
from tests.support.engines import (
    DEAF,
    REPORT,
    SMALL,
    Bubblewrap,
    Docker,
    EngineUnderTest,
    receive_all,
    receive_line,
    report_sources,
)
from tests.support.patience import within
from tests.support.processes import python

Launch = Callable[[SandboxSpec], Awaitable[Container]]


@pytest.fixture
async def launch(under_test: EngineUnderTest) -> AsyncIterator[Launch]:
    """Start containers that do not outlive the test."""
    engine, started = under_test.make(), []

    async def launch(spec: SandboxSpec) -> Container:
        container = await engine.start(spec)
        started.append(container)
        return container

    yield launch
    for container in started:
        await container.kill()


@pytest.fixture
async def swept(under_test: EngineUnderTest) -> AsyncIterator[Callable[[str], None]]:
    """Take the sessions whose containers a test that fails would leave."""
    sessions: list[str] = []
    yield sessions.append
    for session_id in sessions:
        await under_test.sweep(session_id)


async def given_away(container: Container) -> Handover:
    """Detach a container. One that cannot be is ended, and raises."""
    try:
        return container.detach()
    except EngineError:
        await container.kill()
        raise


async def gone(under_test: EngineUnderTest, session_id: str, seconds: float = 10) -> None:
    async with within(seconds):
        while await under_test.left(session_id):  # noqa: ASYNC110 (it happens in another process)
            await asyncio.sleep(0.02)


# --- the pipe -------------------------------------------------------------------------------------------------------


async def test_bytes_that_go_in_come_out(launch: Launch, under_test: EngineUnderTest) -> None:
    container = await launch(under_test.spec())
    await container.send(b"hello\n")
    assert await receive_line(container) == b"hello\n"
    assert container.offer(b"again\n") == 6
    assert await receive_line(container) == b"again\n"


async def test_50_mb_come_through_unchanged(launch: Launch, under_test: EngineUnderTest) -> None:
    code = """
import hashlib, os, sys
data = os.urandom(1 << 20) * 50
sys.stderr.write(hashlib.sha256(data).hexdigest())
sys.stdout.buffer.write(data)
sys.exit(1)
"""
    container = await launch(under_test.spec(code))
    data = await receive_all(container)
    assert len(data) == 50 * MIB
    assert (await container.wait()).detail == hashlib.sha256(data).hexdigest()


async def test_what_it_wrote_last_comes_after_its_end_was_told(launch: Launch, under_test: EngineUnderTest) -> None:
    """A reader that is late misses nothing, though a part of it may still be the engine's to hand over."""
    code = "import os, sys; sys.stdout.buffer.write(bytes(400_000) + b'the end'); sys.stdout.flush(); os._exit(3)"
    container = await launch(under_test.spec(code))
    ending = asyncio.ensure_future(container.wait())
    await asyncio.wait({ending}, timeout=5)  # where there is less room than that, it ends only when it is read
    data = await receive_all(container)
    assert (len(data), data[-7:], (await ending).exit_code) == (400_007, b"the end", 3)


async def test_50_mb_go_in(launch: Launch, under_test: EngineUnderTest) -> None:
    container = await launch(under_test.spec("import sys; print(len(sys.stdin.buffer.read(50 << 20)))"))
    await container.send(bytes(50 * MIB))
    assert await receive_line(container) == b"%d\n" % (50 * MIB)


async def test_its_program_comes_before_all_else(launch: Launch, under_test: EngineUnderTest) -> None:
    """More than a pipe of the system holds."""
    program = b"x" * 100_000
    code = "import sys; print(len(sys.stdin.buffer.read(100_000).strip(b'x')), sys.stdin.read(4))"
    container = await launch(under_test.spec(code, program=program))
    await container.send(b"more")
    assert await receive_line(container) == b"0 more\n"


async def test_half_a_program_ends_with_its_pipe_and_runs_not(launch: Launch, under_test: EngineUnderTest) -> None:
    spec = under_test.spec(command=shipping.COMMAND, program=shipping.sized("open('/tmp/ran', 'w')\n" * 4000)[:-1])
    container = await launch(spec)
    assert await under_test.left(spec.session_id)
    container.abandon()
    await gone(under_test, spec.session_id)


async def test_the_loop_runs_on_while_a_send_waits(launch: Launch, under_test: EngineUnderTest) -> None:
    """A container that reads nothing stops the send, and only that; the send ends with an error when it is killed."""
    container = await launch(under_test.spec("import time; print('up', flush=True); time.sleep(60)"))
    await receive_line(container)
    sending = asyncio.create_task(container.send(bytes(50 * MIB)))
    await asyncio.wait([sending], timeout=0.2)
    assert not sending.done()
    assert container.offer(b"x") == 0
    await container.kill()
    with pytest.raises(EngineError, match="pipe"):
        await sending


async def test_a_cancelled_receive_loses_no_byte(launch: Launch, under_test: EngineUnderTest) -> None:
    container = await launch(under_test.spec())
    expected = b"".join(b"%06d\n" % number for number in range(20_000))
    sending = asyncio.create_task(container.send(expected))
    output = bytearray()
    while len(output) < len(expected):
        receiving = asyncio.create_task(container.receive())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        receiving.cancel()
        try:
            data = await receiving
        except asyncio.CancelledError:
            async with within(30):
                data = await container.receive()
        assert data
        output += data
    await sending
    assert bytes(output) == expected


# --- a disk ---------------------------------------------------------------------------------------------------------

FILL = """
import json, os, sys
def fill(path):
    written = 0
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                written += file.write(bytes(1 << 20))
        except OSError as error:
            return written, error.errno
own = os.stat("/mnt/data")
print(json.dumps([*fill("/mnt/data/x"), own.st_uid == os.getuid(), own.st_dev != os.stat("/").st_dev]), flush=True)
sys.stdin.read()
"""


async def test_scratch_on_a_disk_is_bounded_and_goes_with_the_sandbox(
    launch: Launch, under_test: EngineUnderTest
) -> None:
    spec = under_test.spec(FILL, limits=replace(SMALL, scratch="disk", scratch_size=(size := size_of_its_own())))
    if disk_images.available() is not None and spec.limits_kept == "best-effort":  # a folder of an ordinary user's
        container = await launch(spec)
        written, error, own, apart = json.loads(await receive_line(container))
        assert (written, error, own, apart) == (size, errno.EFBIG, True, True)
        await container.kill()
        async with within(30):
            while container.id in os.listdir("/var/tmp"):  # noqa: ASYNC110, PTH208 (a slow disk's is left to a process)
                await asyncio.sleep(0.02)
        return
    if disk_images.available() is not None:  # an ordinary user has none, and no sandbox instead
        with pytest.raises(EngineError) as refused:
            await launch(spec)
        assert refused.value.code is EndCode.DISK_NOT_MADE
        return
    container = await launch(spec)
    assert loops_of(size)
    written, error, own, apart = json.loads(await receive_line(container))
    assert (error, own, apart) == (errno.ENOSPC, True, True)
    assert size * 3 // 4 < written < size
    await container.kill()
    async with within(10):
        while loops_of(size):  # noqa: ASYNC110 (the system removes it)
            await asyncio.sleep(0.02)


# --- the end --------------------------------------------------------------------------------------------------------


async def test_it_ends_with_its_pipe(launch: Launch, under_test: EngineUnderTest) -> None:
    spec = under_test.spec()
    container = await launch(spec)
    container.abandon()
    await gone(under_test, spec.session_id)


async def test_an_exit_code_and_the_last_words(launch: Launch, under_test: EngineUnderTest) -> None:
    code = "import sys; sys.stderr.write('x' * 20000 + 'last words'); sys.exit(3)"
    container = await launch(under_test.spec(code))
    waiting = asyncio.create_task(container.wait())
    assert await receive_all(container) == b""
    reason = await waiting
    assert (reason.kind, reason.exit_code) == ("exited", 3)
    assert reason.detail.endswith("xlast words")
    assert len(reason.detail) == 8192


@pytest.mark.alone
async def test_out_of_memory_is_named(launch: Launch, under_test: EngineUnderTest) -> None:
    container = await launch(under_test.spec("x = bytearray(b'x') * (400 << 20)"))
    assert await receive_all(container) == b""
    assert (await container.wait()).kind == "out_of_memory"


async def test_killed_from_outside_is_not_out_of_memory(launch: Launch, under_test: EngineUnderTest) -> None:
    container = await launch(under_test.spec())
    await under_test.end_from_outside(container)
    reason = await container.wait()
    assert (reason.kind, reason.exit_code) == ("killed", 137)
    assert await container.receive() == b""


async def test_kill_removes_it_and_may_be_repeated(launch: Launch, under_test: EngineUnderTest) -> None:
    spec = under_test.spec("import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)")
    container = await launch(spec)
    async with within(30):
        while not await under_test.left(spec.session_id):  # noqa: ASYNC110 (a process has its name a moment later)
            await asyncio.sleep(0.01)
    receiving = asyncio.create_task(container.receive())
    await container.kill()
    assert await under_test.left(spec.session_id) == []
    assert await receiving == b""
    await container.kill()
    assert (await container.wait()).kind == "killed"
    with pytest.raises(EngineError):
        await container.send(b"x")
    with pytest.raises(EngineError, match="gone"):
        await container.attest({}, spec)


async def test_kill_after_it_ended_by_itself(launch: Launch, under_test: EngineUnderTest) -> None:
    container = await launch(under_test.spec("pass"))
    assert (await container.wait()).kind == "exited"
    await container.kill()
    assert (await container.wait()).kind == "exited"


OWNER = """
import asyncio, os, sys
{source}
from sandbox_kernel.core.model import Limits, SandboxSpec
async def main():
    session_id, image, runtime, kept, cpus, *command = sys.argv[1:]
    spec = SandboxSpec(session_id=session_id, image=image, limits=Limits(cpus=float(cpus)), command=tuple(command),
                       uid=300_012_345, runtime=runtime or None, limits_kept=kept)
    container = await Engine().start(spec)
    print("up", flush=True)
    sys.stdin.read()
asyncio.run(main())
"""


@contextlib.contextmanager
def an_owner(under_test: EngineUnderTest, spec: SandboxSpec) -> Iterator[subprocess.Popen[str]]:
    program = OWNER.format(source=under_test.source)
    words = [spec.session_id, spec.image, spec.runtime or "", spec.limits_kept, str(spec.limits.cpus)]
    with python(program, *words, *spec.command) as (process, line):
        assert line == "up"
        yield process


async def killed_with_its_owner(under_test: EngineUnderTest, spec: SandboxSpec, seconds: float) -> None:
    try:
        with an_owner(under_test, spec) as owner:
            assert await under_test.left(spec.session_id)
            owner.send_signal(signal.SIGKILL)
            owner.wait()
            started = time.monotonic()
            await gone(under_test, spec.session_id, seconds)
            print(f"gone after {time.monotonic() - started:.2f} s")
    finally:
        await under_test.sweep(spec.session_id)


async def test_sigkill_of_the_owner_ends_it(under_test: EngineUnderTest) -> None:
    """Within a second, as is printed; the machine that runs the tests may be busy."""
    await killed_with_its_owner(under_test, under_test.spec(), 10)


async def test_a_container_that_does_not_hear_of_its_owner_s_end_is_ended(under_test: EngineUnderTest) -> None:
    """SIGKILL of the owner, and a program that never looks at its pipe: something outside ends it."""
    seconds = 1 if "test_a_container_that_does_not_hear_of_its_owner_s_end_is_ended" in under_test.lacks else 10
    await killed_with_its_owner(under_test, under_test.spec(DEAF), seconds)


# --- starting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", some([0, 1, 3, 10, 30], of=2))
async def test_a_cancelled_start_leaves_nothing(under_test: EngineUnderTest, turns: int) -> None:
    """After some turns of the loop, wherever the start is by then; one that was quicker is ended by its owner."""
    spec = under_test.spec()
    starting = asyncio.create_task(under_test.make().start(spec))
    for _ in range(turns):
        await asyncio.sleep(0)
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await (await starting).kill()
    await gone(under_test, spec.session_id)


async def test_a_command_that_is_not_there_leaves_nothing(launch: Launch, under_test: EngineUnderTest) -> None:
    spec = under_test.spec(command=("/no/such/program",))
    with pytest.raises(EngineError, match="no such file"):
        await launch(spec)
    assert await under_test.left(spec.session_id) == []


async def test_a_missing_image_is_an_error_of_its_own(launch: Launch, under_test: EngineUnderTest) -> None:
    with pytest.raises(ImageMissing, match="sandbox-kernel:never"):
        await launch(under_test.spec(image="sandbox-kernel:never"))


async def test_an_unknown_runtime_names_the_setting(launch: Launch, under_test: EngineUnderTest) -> None:
    with pytest.raises(EngineError, match="no runtime 'kata-never'") as caught:
        await launch(under_test.spec(runtime="kata-never"))
    assert caught.value.setting == "runtime"


async def test_more_cpus_than_the_machine_has_are_no_error(launch: Launch, under_test: EngineUnderTest) -> None:
    spec = under_test.spec()
    container = await launch(replace(spec, limits=replace(spec.limits, cpus=512)))
    await container.send(b"hello\n")
    assert await receive_line(container) == b"hello\n"


# --- other owners ---------------------------------------------------------------------------------------------------

PIPE_HOLDER = """
import socket, sys
with socket.socket(fileno=int(sys.argv[1])) as way:
    state, fds, _, _ = socket.recv_fds(way, 65536, 3)
    way.sendall(b"mine")
    way.recv(1)
    socket.send_fds(way, [state], fds)
"""


async def test_another_process_keeps_it_and_a_third_adopts_it(
    under_test: EngineUnderTest, swept: Callable[[str], None]
) -> None:
    """The pipe survives in a pipe holder when its first owner lets go, unread bytes included."""
    engine, spec = under_test.make(), under_test.spec()
    swept(spec.session_id)
    container = await engine.start(spec)
    mine, theirs = socket.socketpair()
    with mine, theirs:
        pipe_holder = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PIPE_HOLDER, str(theirs.fileno()), pass_fds=[theirs.fileno()]
        )
        await container.send(b"unread\n")
        given = await given_away(container)
        socket.send_fds(mine, [json.dumps(given.state).encode()], [given.fd, *given.beside.values()])
        assert await asyncio.to_thread(mine.recv, 4) == b"mine"
        given.close()
        assert len(await under_test.left(spec.session_id)) == 1
        mine.sendall(b"x")
        state, (fd, *beside), _, _ = await asyncio.to_thread(socket.recv_fds, mine, 65536, 3)
        await pipe_holder.wait()
    named = dict(zip(given.beside, beside, strict=True))
    adopted = await under_test.make().adopt(fd, {**json.loads(state), **named})
    try:
        assert await receive_line(adopted) == b"unread\n"
        await adopted.send(b"still there\n")
        assert await receive_line(adopted) == b"still there\n"
        await under_test.end_from_outside(adopted)
        assert (await adopted.wait()).kind == "killed"
    finally:
        await adopted.kill()


async def test_what_was_given_away_ends_with_whoever_has_it(
    under_test: EngineUnderTest, swept: Callable[[str], None]
) -> None:
    spec = under_test.spec()
    swept(spec.session_id)
    container = await under_test.make().start(spec)
    (await given_away(container)).close()
    await gone(under_test, spec.session_id)


@pytest.mark.parametrize("state", [{}, {"id": "x", "session": "y", "since": "z", "pid": "w"}])
async def test_adopting_from_a_strange_state_is_an_error(under_test: EngineUnderTest, state: dict[str, Any]) -> None:
    with pytest.raises(EngineError, match="can be adopted"):
        await under_test.make().adopt(-1, state)


# --- what it does ---------------------------------------------------------------------------------------------------

BROUGHT = """
import os, shutil, subprocess, sys
shutil.copy("/bin/sleep", "/tmp/brought"); os.chmod("/tmp/brought", 0o755)
subprocess.Popen(["/tmp/brought", "60"])
print("up", flush=True)
sys.stdin.read()
"""


async def test_its_programs_are_seen_from_outside(launch: Launch, under_test: EngineUnderTest) -> None:
    """With the file of each, and without a word of the sandbox's."""
    container = await launch(under_test.spec(BROUGHT))
    assert await receive_line(container) == b"up\n"
    assert isinstance(container, Sampled)
    found: set[str] = set()
    async with within(1 if "test_its_programs_are_seen_from_outside" in under_test.lacks else 10):
        while "/tmp/brought" not in found:
            sample = await container.sample()
            found |= {file for one in sample.programs or () for file in one.files}
            await asyncio.sleep(0.02)


READER = """
import errno, json, os, sys
there = "/mnt/datasets/sales"
said = {"read": open(f"{there}/a.csv").read(), "names": sorted(os.listdir(there)), "refused": []}
for change in (
    lambda: open(f"{there}/a.csv", "r+"), lambda: open(f"{there}/new", "w"), lambda: os.unlink(f"{there}/a.csv"),
    lambda: os.rename(f"{there}/a.csv", f"{there}/b"), lambda: os.mkdir(f"{there}/new"),
):
    try:
        change()
    except OSError as error:
        said["refused"].append(errno.errorcode[error.errno])
print(json.dumps(said))
"""


async def test_a_dataset_is_attested_and_read_and_cannot_be_changed(
    launch: Launch, under_test: EngineUnderTest
) -> None:
    with a_folder() as folder:
        folder.chmod(0o777)  # so that nothing but the mount refuses
        (folder / "a.csv").write_text("1,2")
        (folder / "a.csv").chmod(0o666)
        container = await launch(under_test.spec(READER, attached=dataset(folder)))
        said = json.loads(await receive_line(container))
        assert said == {"read": "1,2", "names": ["a.csv"], "refused": ["EROFS"] * 5}
        spec = under_test.spec(REPORT, *report_sources(), environment={"TZ": "UTC"}, attached=dataset(folder))
        container = await launch(spec)
        report = json.loads(await receive_line(container))
        different = {line.name for line in await container.compare(report, spec) if not line.ok}
        assert different == set()
        assert [path.name for path in folder.iterdir()] == ["a.csv"]


# --- what it is -----------------------------------------------------------------------------------------------------


async def test_it_is_attested_or_refused_for_what_it_does_not_enforce(
    launch: Launch, under_test: EngineUnderTest
) -> None:
    """An engine that lacks a protection says so in its table, and no sandbox of it is accepted."""
    spec = under_test.spec(REPORT, *report_sources(), environment={"TZ": "UTC"})
    container = await launch(spec)
    report = json.loads(await receive_line(container))
    different = {line.name for line in await container.compare(report, spec) if not line.ok}
    assert set(under_test.unenforced) <= different
    if under_test.unenforced:
        with pytest.raises(AttestationFailed):
            await container.attest(report, spec)
    else:
        assert different == set()
        await container.attest(report, spec)


async def test_scratch_is_a_folder_at_the_home_of_hosted_interpreters(
    launch: Launch, under_test: EngineUnderTest
) -> None:
    """An engine that has one place for scratch keeps it there, and its sandboxes are attested all the same."""
    asked = {"environment": {"TZ": "UTC"}, "made_of": AgentOptions(home=True)}
    spec = under_test.spec(REPORT, *report_sources(), **asked)
    container = await launch(spec)
    report = json.loads(await receive_line(container))
    different = {line.name for line in await container.compare(report, spec) if not line.ok}
    assert bool(different) == bool(under_test.unenforced)
    if type(under_test) in {Docker, Bubblewrap}:  # others have it at its other place
        container = await launch(under_test.spec(AT_HOME, **asked))
        said = json.loads(await receive_line(container))
        refused = errno.EACCES if under_test.name == "runsc" else errno.EROFS  # of gVisor, whose root this user is not
        assert said == {"cwd": HOME, "mount": True, "folder": True, "kept": "written", "refused": refused}


AT_HOME = """
import json, os, stat
said = {"cwd": os.getcwd(), "mount": os.path.ismount("/home/user")}
said["folder"] = stat.S_ISDIR(os.lstat("/home/user").st_mode)
with open("/home/user/a", "w") as file:
    file.write("written")
said["kept"] = open("a").read()
try:
    os.mkdir("/home/other")
except OSError as error:
    said["refused"] = error.errno
print(json.dumps(said))
"""


async def test_a_report_of_nothing_is_refused(launch: Launch, under_test: EngineUnderTest) -> None:
    """The engine's own word is not enough: whatever a sandbox leaves out differs."""
    spec = under_test.spec()
    container = await launch(spec)
    with pytest.raises(AttestationFailed, match="user ids: expected"):
        await container.attest({}, spec)
