"""Who has no room for one more connection waits for a moment, and serves those that waited once there is room."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psutil
import pytest
import zmq

from sandbox_kernel.kernel import pipe_holder
from sandbox_kernel.plugins.broker.client.listener_trust import CREDENTIALS
from sandbox_kernel.plugins.broker.daemon import Listener, bound
from tests.support.cases import each
from tests.support.kernels import WAIT
from tests.support.patience import until

NO_ROOM = [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM]
WATCHED_SECONDS = 1.0
LITTLE = 0.3
"""Of a processor, of which a loop that turns in circles takes all it gets."""


class Scarce(socket.socket):
    """A socket that listens in a process without room."""

    fails: int | None = None
    tries = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.tries += 1
        if self.fails is not None:
            raise OSError(self.fails, os.strerror(self.fails))
        return super().accept()


@each("number", NO_ROOM)
def test_a_loop_without_room_for_a_connection_is_not_woken_for_it_again_and_again(number: int) -> None:
    place = f"\0{os.urandom(16).hex()}"

    async def tried() -> None:
        with Scarce(socket.AF_UNIX) as sock, socket.socket(socket.AF_UNIX) as peer:
            sock.bind(place)
            sock.listen()
            sock.fails = number
            taken: list[socket.socket] = []
            heard: list[int | None] = []
            listener = Listener(sock, taken.append, no_room=lambda error: heard.append(error.errno), pause=0.02)
            listener.open()
            peer.connect(place)
            begin = time.monotonic()
            await until(lambda: sock.tries >= 3, 10)
            assert time.monotonic() - begin > 0.03
            assert heard == [number] * 3
            sock.fails = None
            await until(lambda: taken, 10)
            taken[0].close()
            sock.fails = number
            peer.close()
            listener.shut()
            before = sock.tries
            with socket.socket(socket.AF_UNIX) as other:
                other.connect(place)
                await asyncio.sleep(0.05)
            assert sock.tries == before  # who has shut the listener is not woken by a pause that is over

    asyncio.run(tried())


@contextlib.contextmanager
def without_files(pid: int) -> Iterator[None]:
    """Leave a process none but those that it has open."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    there = {int(one.name) for one in Path(f"/proc/{pid}/fd").iterdir()}
    most = next(number for number in count() if number not in there)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def rests(pid: int) -> bool:
    """Return whether a process that is woken does little."""
    process = psutil.Process(pid)
    before = sum(process.cpu_times()[:2])
    time.sleep(WATCHED_SECONDS)  # what it does meanwhile is what is measured
    return sum(process.cpu_times()[:2]) - before < LITTLE * WATCHED_SECONDS


@pytest.mark.slow
def test_a_pipe_holder_without_room_gives_what_it_has_to_who_waited(tmp_path: Path) -> None:
    """Else a restart of a kernel on a busy machine would end its sandbox."""
    sock = Scarce(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.bind(str(tmp_path / "socket"))
    sock.listen()
    sock.fails = errno.ENFILE
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        sock.fails = None

    with (
        sock,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer,
        pytest.MonkeyPatch.context() as patch,
        Path(os.devnull).open() as file,
    ):
        patch.setattr(time, "sleep", sleep)
        peer.connect(str(tmp_path / "socket"))
        peer.send(pipe_holder.CLAIM)
        assert pipe_holder.keep(sock, file.fileno(), {"pipe": file.fileno()}, WAIT)
        names, fds, _, _ = socket.recv_fds(peer, 100, 2)
        assert (names, len(fds)) == (b'["pipe"]', 2)
        for fd in fds:
            os.close(fd)
    assert len(slept) == 1


PORTS = """
import os, resource, sys, threading, zmq
from sandbox_kernel.kernel.peer_check import PeerCheck
full, run = threading.Event(), PeerCheck._run
PeerCheck._run = lambda self: (full.wait(), run(self))  # as late as it may be
context = zmq.Context()
peer_check = PeerCheck(context, lambda why: print(why, flush=True))
port = context.socket(zmq.ROUTER)
if sys.argv[1] == "guarded":
    peer_check.watch(port)
print(port.bind_to_random_port("tcp://127.0.0.1"), flush=True)
peer_check.start()
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
held = []
for step in sys.stdin:
    try:
        while step == "fill\\n":
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        full.set()
        print("full", flush=True)
    if step == "free\\n":
        print([os.close(one) for one in held].count(None), flush=True)
        port.send_multipart(port.recv_multipart())
"""


@pytest.mark.slow
@each("guarded", [True, False])
def test_a_kernel_without_file_descriptors_ends_who_connects(guarded: bool) -> None:
    """Or libzmq would ask for it again and again. The control is libzmq alone: who connects waits, as does its thread.

    No sibling is left: whoever listens is one of `Listener`, of asyncio's servers, which pause by themselves, the
    agent's own, or libzmq.
    """
    with subprocess.Popen(
        [sys.executable, "-c", PORTS, "guarded" if guarded else "alone"], stdin=-1, stdout=-1, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            process.stdin.write("fill\n")
            assert process.stdout.readline() == "full\n"
            with socket.create_connection(("127.0.0.1", port)) as peer:
                peer.settimeout(WAIT if guarded else 2)
                with pytest.raises(ConnectionError) if guarded else pytest.raises(TimeoutError):
                    while peer.recv(1000):
                        pass
                    raise ConnectionResetError
            if guarded:
                assert "no file descriptor" in process.stdout.readline()
            process.stdin.write("free\n")
            assert int(process.stdout.readline()) > 10
            with zmq.Context() as context, context.socket(zmq.DEALER) as client:
                client.linger = 0
                client.connect(f"tcp://127.0.0.1:{port}")
                client.send(b"there")
                assert client.poll(int(WAIT * 1000))
        finally:
            process.kill()


def test_each_message_says_who_sends_it_from_the_first_on(tmp_path: Path) -> None:
    """Also one that comes between the moment in which a connection is taken and the one in which it is looked at."""
    sock, lock = bound(str(tmp_path / "b"))
    kind = socket.AF_UNIX, socket.SOCK_SEQPACKET
    with sock, socket.socket(*kind) as peer:
        peer.connect(str(tmp_path / "b"))
        peer.send(b"before")
        with sock.accept()[0] as taken:
            peer.send(b"at once")
            for words in (b"before", b"at once"):
                data, [(_, what, sender)], *_ = taken.recvmsg(99, socket.CMSG_SPACE(CREDENTIALS.size))
                own = os.getpid(), os.getuid(), os.getgid()
                assert (data, what, CREDENTIALS.unpack(sender)) == (words, socket.SCM_CREDENTIALS, own)
    os.close(lock)
