"""SIGKILL of whoever keeps a sandbox, in each state of its ownership: no container stays, and no process."""

from __future__ import annotations

import contextlib
import ctypes
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil
import pytest

from sandbox_kernel import Sandbox, SandboxError
from sandbox_kernel.engines import broker_sockets
from sandbox_kernel.kernel import pipe_holder
from sandbox_kernel.plugins.broker.owner_states import OwnerState
from tests.plugins.broker.brokers import Daemon, a_broker
from tests.support.kernels import Kernel, all_containers, arguments_of, containers_of, eventually

PR_SET_CHILD_SUBREAPER = 36
SECONDS = 40.0


def processes() -> set[psutil.Process]:
    """Return the processes that this one has started, or one of those, and that run."""
    found = set()
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if one.status() != psutil.STATUS_ZOMBIE:
                found.add(one)
    return found


@pytest.fixture
def orphans() -> Iterator[None]:
    """Have processes whose parent is gone be this one's, so that none is lost sight of."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    assert prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) == 0


@dataclass(frozen=True)
class World:
    """What a member is made of."""

    image: str
    folder: Path
    start_kernel: Callable[..., Kernel]
    stack: contextlib.ExitStack

    def broker(self) -> Daemon:
        """Return a broker that ends after the test, if nobody ended it."""
        return self.stack.enter_context(a_broker())


class Member(Protocol):
    """A sandbox with an owner, or one to come."""

    owner: int
    """The number of the process whose name its container has."""

    def reach(self, state: OwnerState) -> int:
        """Bring it to a state; return which process keeps it then."""


class OfARestart:
    """Its owner is a kernel process, and a pipe holder keeps it between two of them."""

    def __init__(self, world: World, *settings: str) -> None:
        self._kernel = kernel = world.start_kernel("--image", world.image, *settings)
        kernel.run("kept = 1")
        self.owner = kernel.pid
        key = json.loads(Path(kernel.manager.connection_file).read_text(encoding="utf-8"))["key"]
        self._meeting = pipe_holder.place(kernel.manager.connection_file, key)

    def reach(self, state: OwnerState) -> int:
        if state is OwnerState.OWNED:
            return self.owner
        client = self._kernel.client
        request = client.session.msg("shutdown_request", {"restart": state is OwnerState.KEPT})
        client.control_channel.send(request)
        if state is OwnerState.ENDING:
            return self.owner
        eventually(lambda: not self._kernel.manager.is_alive(), SECONDS, "the kernel process has ended")
        if state is OwnerState.ENDED:
            return self.owner
        [holder] = [one for one in processes() if any(self._meeting.name in word for word in arguments_of(one))]
        return holder.pid


class OfARestartAtABroker(OfARestart):
    """The same with the connection to a broker."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "--engine", world.broker().address)


LEASED = """
import sys
from sandbox_kernel import Sandbox
sandbox = Sandbox(engine=sys.argv[1], image=sys.argv[2])
sandbox.start()
print("owned", flush=True)
if sys.stdin.readline():
    print("ending", flush=True)
    sandbox.kill()
    print("ended", flush=True)
    sys.stdin.readline()
"""


class OfACaller:
    """Its owner is a process that has it from a broker, and it ends with that."""

    def __init__(self, world: World) -> None:
        command = [sys.executable, "-c", LEASED, world.broker().address, world.image]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.owner = self._process.pid
        world.stack.callback(self._process.communicate)
        world.stack.callback(self._process.kill)
        assert self._line() == "owned\n"

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def reach(self, state: OwnerState) -> int:
        if state is not OwnerState.OWNED:
            assert self._process.stdin is not None
            self._process.stdin.write("\n")
            self._process.stdin.flush()
            assert self._line() == "ending\n"
        if state is OwnerState.ENDED:
            assert self._line() == "ended\n"
        return self.owner


class OfALifetime:
    """Its owner is this process, and a broker keeps it from one owner to the next."""

    def __init__(self, world: World) -> None:
        self._daemon = world.broker()
        self.owner = self._daemon.process.pid
        self._sandbox = Sandbox(engine=self._daemon.address, image=world.image, detached=True)
        self._sandbox.start()
        world.stack.callback(ended, self._sandbox)

    def reach(self, state: OwnerState) -> int:
        if state is OwnerState.KEPT:
            self._sandbox.detach()
        elif state is OwnerState.ENDED:
            self._sandbox.kill()
        elif state is OwnerState.ENDING:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
                sock.connect(self._daemon.path)
                sock.send(json.dumps({"op": "end", "n": 1, "name": self._sandbox.id}).encode())
        return self.owner


class OfSeveralKernels:
    """Its owner is a broker of its own, which waits a moment for the next kernel."""

    def __init__(self, world: World) -> None:
        self._sandbox = Sandbox(engine="shared:///killed", image=world.image)
        self._sandbox.start()
        world.stack.callback(ended, self._sandbox)
        own = str(world.folder)
        [self._process] = [one for one in processes() if any(word.startswith(own) for word in arguments_of(one))]
        self.owner = self._process.pid

    def reach(self, state: OwnerState) -> int:
        if state is not OwnerState.OWNED:
            self._sandbox.kill()
        if state is OwnerState.ENDING:
            self._process.send_signal(signal.SIGTERM)
        if state is OwnerState.ENDED:
            eventually(lambda: self._process not in processes(), SECONDS, "its owner has ended")
        return self.owner


def ended(sandbox: Sandbox) -> None:
    with contextlib.suppress(SandboxError):
        sandbox.kill()


MEMBERS: tuple[Callable[[World], Member], ...] = (
    OfARestart,
    OfARestartAtABroker,
    OfACaller,
    OfALifetime,
    OfSeveralKernels,
)
CASES = [(make, state) for make in MEMBERS for state in OwnerState if (make, state) != (OfACaller, OwnerState.KEPT)]
"""What a caller has is not kept for another one."""


@pytest.fixture
def world(
    image: str, tmp_path: Path, start_kernel: Callable[..., Kernel], monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    monkeypatch.setattr(broker_sockets, "own_folder", lambda: str(tmp_path / "own"))
    with contextlib.ExitStack() as stack:
        yield World(image, tmp_path, start_kernel, stack)


@pytest.mark.parametrize(("make", "state"), CASES)
@pytest.mark.usefixtures("orphans")
def test_a_kill_in_each_state_leaves_no_container_and_no_process(
    make: Callable[[World], Member], state: OwnerState, world: World
) -> None:
    before = processes()
    one = make(world)
    [row] = containers_of(one.owner)

    def is_there() -> bool:
        return row.container in {each.container for each in all_containers()}

    keeper = one.reach(state)
    if state in {OwnerState.OWNED, OwnerState.KEPT}:
        assert is_there(), "the control"
    for process in processes():
        if process.pid == keeper:  # one that has ended already is not killed
            process.kill()
    eventually(lambda: not is_there(), SECONDS, "its container has ended")
    world.stack.close()  # a broker that was not killed ends
    eventually(lambda: processes() <= before, SECONDS, "no process is left")
