"""Two sandboxes of one user: what the machine's kernel counts by user, or shows and holds by inode.

One acts, and the other is looked at. The class has two halves, and each has one mend where the machine can, and one
where it cannot. By inode: no call that shows or holds a file for others is on the list of calls (`F_SETLEASE`,
`F_NOTIFY`, fanotify, and for sandboxes of bubblewrap's inotify, mincore, cachestat and RWF_NOWAIT), and a layer of the
sandbox's own leaves locks nothing to be seen by. By user: each count that a process's limits bound is bounded for each
sandbox (signals and timers, locked memory, processes, message queues), each that a call fills without need is not to
be had (inotify, fanotify, io_uring, keys, BPF, perf, namespaces), and the owner depends on none of the rest.
docs/isolation.md says what is left: locks on device nodes, pipes, watches of epoll, descriptors in flight of others.
`test_ordinary_user.py` runs this file as a user who has no other to give to a sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import resource
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client.manager import KernelManager

from sandbox_kernel.core.descriptors import send_fds
from sandbox_kernel.engines.docker.arguments import container_arguments
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.engines.hardening import OF_A_USER
from sandbox_kernel.kernel import pipe_holder
from sandbox_kernel.plugins.bubblewrap import container as running
from sandbox_kernel.plugins.bubblewrap import launch, users
from sandbox_kernel.plugins.bubblewrap.arguments import arguments
from sandbox_kernel.plugins.bubblewrap.container import BubblewrapContainer
from sandbox_kernel.plugins.bubblewrap.discovery import bubblewrap_program
from sandbox_kernel.plugins.bubblewrap.engine import BubblewrapEngine
from sandbox_kernel.plugins.bubblewrap.process_labels import sandboxes
from tests.attacks.escape.weaker import NO_FILTER
from tests.support.engines import Bubblewrap, new_spec, receive_line
from tests.support.kernels import Kernel, install
from tests.support.roots import root_of_tests

pytestmark = pytest.mark.skipif(bubblewrap_program() is None, reason="there is no bubblewrap")
own_user = pytest.mark.skipif(launch.drops(), reason="root gives each sandbox a user of its own")

SHARED = "/opt/shared"
"""A file of the root, which is the user's own where it has no other."""

PROGRAM = """
import contextlib, ctypes, errno, fcntl, json, mmap, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
kept = []
def tried(function):
    try:
        return function() or 0
    except OSError as error:
        return error.errno
def call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result
def flight(most):
    "Put descriptors on their way until no more may; return how many hundreds were."
    for count in range(most):
        if count % 8 == 0:
            kept.append(socket.socketpair())
        try:
            socket.send_fds(kept[-1][0], [b"x"], [0] * 100)
        except OSError:
            return count
    return most
def pipes(most):
    "Make pipes, large ones first, until a new one is small; return how many there are."
    for count in range(most):
        kept.extend(os.pipe())
        with contextlib.suppress(OSError):
            fcntl.fcntl(kept[-1], 1031, 1 << 20)
        if fcntl.fcntl(kept[-1], 1032) < 65536:
            return count
    return most
for line in sys.stdin:
    print(json.dumps(eval(line, globals())), flush=True)
"""
LEASE = "tried(lambda: kept.append(os.open({path!r}, os.O_RDONLY)) or fcntl.fcntl(kept[-1], 1024, fcntl.F_WRLCK))"
OPEN = "tried(lambda: os.close(os.open({path!r}, os.O_RDONLY | os.O_NONBLOCK)))"
NOTIFY = "tried(lambda: kept.append(os.open({folder!r}, os.O_RDONLY)) or fcntl.fcntl(kept[-1], 1026, 0x80000001))"
WATCH = """tried(lambda: kept.append(call("inotify_init1", os.O_NONBLOCK)) or \
[call("inotify_add_watch", kept[-1], path, 0x20) for path in {paths!r}] and 0)"""
EVENTS = """tried(lambda: len(os.read(kept[-1], 65536)) // 16)"""
FLOCK = "tried(lambda: kept.append(open({path!r})) or fcntl.flock(kept[-1], fcntl.LOCK_EX | fcntl.LOCK_NB))"
POSIX = "tried(lambda: kept.append(open({path!r})) or fcntl.lockf(kept[-1], fcntl.LOCK_SH | fcntl.LOCK_NB))"
OFD = """tried(lambda: kept.append(open({path!r})) or \
fcntl.fcntl(kept[-1], 37, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0)) and 0)"""
SEEN = """(kept.append(open({path!r})), struct.unpack_from("h", fcntl.fcntl(kept[-1], fcntl.F_GETLK, \
struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))))[1][0] != fcntl.F_UNLCK"""
RESIDENT = """tried(lambda: call("mincore", ctypes.c_void_p(0), 0, ctypes.c_void_p(0)))"""
TIMERS = """next((count for count in range({most}) if \
libc.timer_create(1, None, ctypes.byref(ctypes.c_void_p())) < 0), {most})"""
LOCKED = """tried(lambda: call("shmctl", call("shmget", 0, {size}, 0o1600), 11, None))"""
PIPES = "pipes({most})"
PIPE_BYTES = "fcntl.fcntl(os.pipe()[0], 1032)"
THROUGH_A_PIPE = """len(__import__("subprocess").run(["head", "-c", "3000000", "/dev/zero"], \
capture_output=True).stdout)"""
FLIGHT = "flight({most})"


@pytest.fixture(autouse=True)
def _one_user(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give no sandbox a user of its own, which would hide what holds without."""
    if "own_ids" not in request.fixturenames:
        monkeypatch.setattr(users, "space", lambda _: None)


@pytest.fixture
def own_ids() -> None:
    if launch.drops():
        pytest.skip("root gives each sandbox a user of its own")
    if why := users.absent():
        pytest.skip(why)


@pytest.fixture
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a root with a file that is this user's, above what the image has."""
    folder = tmp_path_factory.mktemp("root")
    for each in (folder, *folder.parents):
        with contextlib.suppress(PermissionError):
            each.chmod(each.stat().st_mode | 0o711)
    folder.chmod(0o755)
    (folder / "own").mkdir()
    (folder / "own/shared").write_text("of everybody\n")
    for name, mode in (("own", 0o755), ("own/shared", 0o644)):  # whatever the umask: the sandbox's user is another
        (folder / name).chmod(mode)
    said = json.loads(Path(root_of_tests(), "root.json").read_text())
    tree = f"{root_of_tests()}/{said.pop('tree', 'root')}"
    links = [[str(path.readlink()), f"/{path.name}"] for path in Path(tree).iterdir() if path.is_symlink()]
    said |= {"binds": [[f"{tree}/usr", "/usr"], ["own", "/opt"]], "links": links}
    (folder / "root.json").write_text(json.dumps(said))
    return str(folder)


class Inside:
    """A sandbox that does what it is told."""

    def __init__(self, container: Any) -> None:
        self.container = container

    async def does(self, expression: str, **given: Any) -> Any:
        await self.container.send(expression.format(**given).encode() + b"\n")
        return json.loads(await receive_line(self.container))


Pair = tuple[Inside, Inside]
Starting = Callable[..., contextlib.AbstractAsyncContextManager[Pair]]


@contextlib.asynccontextmanager
async def pair(root: str, *, layers: bool = True) -> AsyncIterator[Pair]:
    under = Bubblewrap("bubblewrap", cgroup=False)
    engine = BubblewrapEngine(cgroup=False, layers=layers)
    async with contextlib.AsyncExitStack() as stack:
        both = []
        for _ in range(2):
            container = await engine.start(under.spec(PROGRAM, image=root))
            stack.push_async_callback(container.kill)
            assert isinstance(container, BubblewrapContainer)
            both.append(Inside(container))
        yield both[0], both[1]


@pytest.fixture
def unfiltered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "arguments", lambda *asked: NO_FILTER(arguments(*asked), {}))


# --- by inode ---------------------------------------------------------------------------------------------------------


async def test_no_lease_holds_up_who_opens_a_file(root: str) -> None:
    async with pair(root) as (one, other):
        assert await one.does(LEASE, path=SHARED) == errno.EPERM
        assert await other.does(OPEN, path=SHARED) == 0
        assert await one.does(NOTIFY, folder="/opt") == errno.EPERM


@own_user
@pytest.mark.usefixtures("unfiltered")
@pytest.mark.parametrize(("layers", "seen"), [(True, 0), (False, errno.EWOULDBLOCK)])
async def test_control_without_the_filter_it_does_unless_there_is_a_layer(root: str, layers: bool, seen: int) -> None:
    """Each of both mends holds by itself."""
    async with pair(root, layers=layers) as (one, other):
        assert await one.does(LEASE, path=SHARED) == 0
        assert await other.does(OPEN, path=SHARED) == seen


async def test_nothing_shows_which_files_a_neighbour_opens(root: str) -> None:
    async with pair(root) as (one, _):
        assert await one.does(WATCH, paths=[b"/dev/null"]) == errno.ENOSYS
        assert await one.does(RESIDENT) == errno.ENOSYS


@pytest.mark.usefixtures("unfiltered")
@pytest.mark.parametrize("layers", [True, False])
async def test_control_without_the_filter_device_nodes_do(root: str, layers: bool) -> None:
    """A layer keeps the root's files apart. The nodes are the machine's, for an ordinary user can make none."""
    async with pair(root, layers=layers) as (one, other):
        assert await one.does(WATCH, paths=[SHARED.encode()]) == 0
        assert await other.does(OPEN, path=SHARED) == 0
        assert await one.does(EVENTS) == (errno.EAGAIN if layers else 1)
        assert await one.does(WATCH, paths=[b"/dev/full"]) == 0
        assert await other.does(OPEN, path="/dev/full") == 0
        assert await one.does(EVENTS) == 1


@pytest.mark.parametrize("layers", [True, False], ids=["layers", "control_without"])
async def test_a_lock_is_not_seen_by_a_neighbour(root: str, layers: bool) -> None:
    async with pair(root, layers=layers) as (one, other):
        for path in (SHARED, "/usr/bin/env"):
            for lock in (POSIX, OFD):
                assert await one.does(lock, path=path) == 0
                assert await other.does(SEEN, path=path) is not layers
                assert await one.does("kept.clear()") is None
        assert await one.does(FLOCK, path=SHARED) == 0
        assert await other.does(FLOCK, path=SHARED) == (0 if layers else errno.EWOULDBLOCK)


async def in_docker(stack: contextlib.AsyncExitStack, folder: str | None = None) -> Inside:
    """Start a container of the user that all of them have; `folder` is one of the host's that it has, too."""
    spec = new_spec(PROGRAM, uid=300_000_004)
    body = container_arguments(spec)
    body["HostConfig"]["Binds"] = [f"{folder}:/opt:ro"] if folder else []
    if folder:
        body["HostConfig"]["SecurityOpt"][1:] = ["seccomp=unconfined"]
    container = await DockerEngine().start_body(spec.session_id, body)
    stack.push_async_callback(container.kill)
    return Inside(container)


@pytest.mark.skipif(not launch.drops(), reason="an ordinary user has no Docker here")
async def test_containers_of_one_user_share_no_inode(tmp_path: Path) -> None:
    """Each has a layer and device nodes of its own, whatever image they have; the control is a folder of the host's."""
    file = "/usr/bin/env"
    async with contextlib.AsyncExitStack() as stack:
        one, other = await in_docker(stack), await in_docker(stack)
        assert await one.does(LEASE, path=file) == errno.EPERM
        assert await one.does(NOTIFY, folder="/usr") == errno.EPERM
        for path in (file, "/dev/null"):
            assert await one.does(WATCH, paths=[path.encode()]) == 0
            assert await other.does(OPEN, path=path) == 0
            assert await one.does(EVENTS) == errno.EAGAIN
            assert await one.does(FLOCK, path=path) == 0
            assert await other.does(FLOCK, path=path) == 0
    (tmp_path / "shared").touch()
    os.chown(tmp_path / "shared", 300_000_004, 300_000_004)
    for each in (tmp_path, *tmp_path.parents):
        each.chmod(each.stat().st_mode | 0o711)
    async with contextlib.AsyncExitStack() as stack:
        one, other = await in_docker(stack, str(tmp_path)), await in_docker(stack, str(tmp_path))
        assert await one.does(WATCH, paths=[SHARED.encode()]) == 0
        assert await other.does(OPEN, path=SHARED) == 0
        assert await one.does(EVENTS) == 1
        assert await one.does(FLOCK, path=SHARED) == 0
        assert await other.does(FLOCK, path=SHARED) == errno.EWOULDBLOCK
        assert await one.does("kept.clear()") is None
        assert await other.does("kept.clear()") is None
        assert await one.does(LEASE, path=SHARED) == 0
        assert await other.does(OPEN, path=SHARED) == errno.EWOULDBLOCK


# --- by user ----------------------------------------------------------------------------------------------------------


@own_user
async def test_timers_and_signals_do_not_run_out_for_a_neighbour(root: str) -> None:
    async with pair(root) as (one, other):
        assert await one.does(TIMERS, most=200_000) == OF_A_USER["sigpending"]
        assert await other.does(TIMERS, most=10) == 10


@own_user
async def test_control_without_a_limit_they_do(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "confine_user", lambda _: None)
    async with pair(root) as (one, other):
        most = resource.getrlimit(resource.RLIMIT_SIGPENDING)[0]
        assert OF_A_USER["sigpending"] < await one.does(TIMERS, most=most + 1) <= most
        assert await other.does(TIMERS, most=10) == 0


@own_user
async def test_memory_that_stays_does_not_run_out_for_a_neighbour(root: str) -> None:
    most = OF_A_USER["memlock"]
    async with pair(root) as (one, other):
        assert await one.does(LOCKED, size=most + 4096) == errno.ENOMEM
        assert await one.does(LOCKED, size=most) == 0
        assert await other.does(LOCKED, size=most) == 0


@own_user
async def test_pages_of_pipes_that_run_out_hold_up_nobody(root: str) -> None:
    """What is left of them is enough for a sandbox to start and for its programs, whose pipes are small."""
    async with pair(root) as (one, other):
        before = await other.does(PIPE_BYTES)
        assert await one.does(PIPES, most=400) < 400
        assert await other.does(PIPE_BYTES) < before
        assert await other.does(THROUGH_A_PIPE) == 3_000_000
        async with pair(root) as (later, _):
            assert await later.does(THROUGH_A_PIPE) == 3_000_000


@pytest.fixture
def few_files() -> Any:
    """As of a process that is started from a login: a sandbox's limit is no lower, the highest one is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard > 4 * 1024
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@own_user
@pytest.mark.usefixtures("few_files")
async def test_descriptors_in_flight_do_not_keep_the_owner_from_its_own(root: str, tmp_path: Path) -> None:
    """The control is in it: what is not asked for with a higher limit fails."""
    near, far = socket.socketpair()
    async with pair(root) as (one, _):
        assert 10 <= await one.does(FLIGHT, most=64) < 64
        with near, far, pytest.raises(OSError, match="Too many references"):
            socket.send_fds(near, [b"x"], [0])
        near, far = socket.socketpair()
        with near, far:
            assert send_fds(near, b"x", [0]) == 1
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 1024
            data, fds, _, _ = socket.recv_fds(far, 1, 1)
            assert (data, len(fds)) == (b"x", 1)
            os.close(fds[0])
        async with pair(root) as (later, _):  # its reaper is told by descriptors
            assert await later.does(OPEN, path=SHARED) == 0
        kept(tmp_path)


@own_user
@pytest.mark.usefixtures("few_files")
def test_descriptors_in_flight_do_not_keep_a_kernel_from_its_restart(root: str, tmp_path: Path) -> None:
    """It goes on with its sandbox, whichever way the pipe takes from one process to the next."""
    tmp_path.chmod(0o700)
    settings = ("--engine", "bubblewrap", "--image", root_of_tests(), "--limits", "best-effort")
    manager = KernelManager(kernel_name="sandbox-python", kernel_spec_manager=install(tmp_path, *settings))
    manager.connection_file = str(tmp_path / "kernel.json")  # in a folder that is closed to others
    manager.start_kernel()
    kernel = Kernel(manager)
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        try:
            kernel.run("open('/mnt/data/kept.txt', 'w').write('yes')")
            one, _ = runner.run(stack.enter_async_context(pair(root)))
            assert 10 <= runner.run(one.does(FLIGHT, most=64)) < 64
            kernel.manager.restart_kernel()
            kernel.client.wait_for_ready(timeout=30)
            assert kernel.run("print(open('/mnt/data/kept.txt').read())").text() == "yes\n"
            assert kernel.run("kept").ename == "NameError"
        finally:
            runner.run(stack.aclose())
            kernel.close()


def uid_of(name: str) -> int:
    """Return whom the machine takes a sandbox's first process for."""
    found = next(each for each in sandboxes() if each.name == name)
    return psutil.Process(found.pid).children()[0].uids().real


@pytest.mark.usefixtures("own_ids", "few_files")
async def test_with_subordinate_ids_what_no_limit_bounds_is_counted_apart(root: str) -> None:
    """Each sandbox has a user of its own, which pipes, watches of epoll and descriptors in flight are counted by."""
    async with pair(root) as (one, other):
        found = [uid_of(each.container.id) for each in (one, other)]
        assert len({*found, os.getuid()}) == 3
        assert await one.does(FLIGHT, most=64) < 64
        assert await other.does(FLIGHT, most=64) >= 10
        near, far = socket.socketpair()
        with near, far:
            assert socket.send_fds(near, [b"x"], [0]) == 1


def kept(folder: Path) -> None:
    """Leave a pipe for the next process, as a restart does, and collect it."""
    import threading

    folder.chmod(0o700)
    meeting = pipe_holder.place(str(folder / "kernel.json"), "key")
    listener, path = pipe_holder.listen(meeting)
    read, write = os.pipe()
    state = (folder / "state").open("w+b", buffering=0)
    state.write(b"{}")
    left = []

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # as the process of a pipe holder has it

    def keep() -> None:
        left.append(pipe_holder.keep(listener, state.fileno(), {"pipe": read}, 10))

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        found = pipe_holder.collect(meeting)
    finally:
        thread.join()
        listener.close()
        pipe_holder.forget(path)
        state.close()
        os.close(read)
        os.close(write)
    assert left == [True]
    assert found is not None
    os.close(found[0]["pipe"])
