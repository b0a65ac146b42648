"""The keeper between two kernel processes: only the right successor gets the pipe, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kernels import Kernel, containers_of, eventually

from sandbox_kernel import keeper
from sandbox_kernel.engines.docker import DockerEngine

NOBODY = 65534
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def name(tmp_path: Path) -> str:
    return keeper.address(str(tmp_path / "connection.json"), secrets.token_hex())


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


@pytest.fixture
def keep(name: str, pipe: tuple[int, int]) -> Iterator[Callable[..., Callable[[], bool]]]:
    """Return a function that keeps the pipe's writing end in a thread; what that returns waits for the outcome."""
    threads: list[threading.Thread] = []

    def begin(state: bytes = b'{"kept": 1}', seconds: float = 10.0) -> Callable[[], bool]:
        outcome: list[bool] = []
        listener = keeper.listen(name)

        def run() -> None:
            with listener:
                outcome.append(keeper.keep(listener, pipe[1], state, seconds))

        threads.append(threading.Thread(target=run))
        threads[-1].start()

        def wait() -> bool:
            threads[-1].join(20)
            return outcome[0]

        return wait

    yield begin
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


Keep = Callable[..., Callable[[], bool]]


def test_the_successor_gets_the_pipe_and_the_state(keep: Keep, name: str, pipe: tuple[int, int]) -> None:
    given = keep()
    found = keeper.collect(name)
    assert found is not None
    fd, state = found
    os.write(fd, b"through the pipe")
    os.close(fd)
    assert os.read(pipe[0], 100) == b"through the pipe"
    assert state == {"kept": 1}
    assert given()
    assert keeper.collect(name) is None


def test_a_large_state_arrives_whole(keep: Keep, name: str) -> None:
    given = keep(b'{"text": "%s"}' % (b"x" * 3_000_000))
    found = keeper.collect(name)
    assert found is not None
    os.close(found[0])
    assert len(found[1]["text"]) == 3_000_000
    assert given()


@pytest.mark.parametrize("changed", ["key", "file"])
def test_who_does_not_know_the_key_finds_nothing(tmp_path: Path, changed: str) -> None:
    path = tmp_path / "connection.json"
    other = {"key": keeper.address(str(path), "other"), "file": keeper.address(str(path) + "x", "secret")}[changed]
    with keeper.listen(keeper.address(str(path), "secret")):
        assert keeper.collect(other) is None


def test_nobody_left_anything(name: str) -> None:
    assert keeper.collect(name) is None


def test_without_a_successor_the_keeper_ends(keep: Keep) -> None:
    begin = time.monotonic()
    assert not keep(seconds=0.3)()
    assert time.monotonic() - begin < 3


def as_nobody(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script as another user."""
    command = [sys.executable, "-c", BECOME_NOBODY + code, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)


# Only once it runs: the interpreter may lie where nobody may go.
BECOME_NOBODY = f"import os, socket, sys; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
CONNECT = """
peer = socket.socket(socket.AF_UNIX)
peer.connect("\\0" + sys.argv[1])
peer.settimeout(5)
print(socket.recv_fds(peer, 4, 1)[:2])
"""

CONNECT_FOR_EVER = """
while True:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect("\\0" + sys.argv[1])
        peer.settimeout(5)
        try:
            peer.recv(1)
        except ConnectionResetError:
            pass
"""


@root_only
def test_another_user_gets_nothing_and_the_successor_still_does(keep: Keep, name: str) -> None:
    given = keep()
    stranger = as_nobody(CONNECT, name[1:])
    assert stranger.stdout == "(b'', [])\n", stranger.stderr
    found = keeper.collect(name)
    assert found is not None
    os.close(found[0])
    assert given()


@root_only
def test_another_user_does_not_prolong_the_wait(keep: Keep, name: str) -> None:
    """Who connects again and again holds no container in being."""
    begin = time.monotonic()
    waits = keep(seconds=1.0)
    stranger = as_nobody(CONNECT_FOR_EVER, name[1:])
    assert "refused" in stranger.stderr.lower()
    assert not waits()
    assert time.monotonic() - begin < 5


@root_only
def test_what_another_user_offers_is_not_taken(name: str) -> None:
    """The one who keeps must be the same user: a stranger that guessed the place could hand in a container."""
    code = (
        "listener = socket.socket(socket.AF_UNIX)\n"
        "listener.bind('\\0' + sys.argv[1])\n"
        "listener.listen()\n"
        "print('listening', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", BECOME_NOBODY + code, name[1:]]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as stranger:
        assert stranger.stdin is not None
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == b"listening\n"
        assert keeper.collect(name) is None
        with pytest.raises(OSError, match="in use"):
            keeper.listen(name)
        stranger.stdin.close()


def leave(name: str, head: bytes, state: bytes, count: int, pipe: tuple[int, int]) -> threading.Thread:
    """Offer something at the meeting place, well formed or not."""
    listener = keeper.listen(name)

    def run() -> None:
        # The other side may hang up as soon as it has seen enough.
        with contextlib.suppress(ConnectionError), listener, listener.accept()[0] as peer:
            if head:
                socket.send_fds(peer, [head], [pipe[1]] * count)
            peer.sendall(state)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("head", "state", "count"),
    [
        (b"", b"", 0),
        (struct.pack("!I", 2), b"{}", 0),
        (b"\0\0", b"", 1),
        (struct.pack("!I", 2), b"", 1),
        (struct.pack("!I", 100), b'{"cut": ', 1),
        (struct.pack("!I", 4), b"\xff\xfe\xfd\xfc", 1),
        (struct.pack("!I", 4), b"null", 1),
        (struct.pack("!I", 2), b"[]", 1),
        (struct.pack("!I", 20000), b"[" * 20000, 1),
        (struct.pack("!I", 0xFFFFFFFF), b"{", 1),
    ],
    ids=["nothing", "no pipe", "short head", "no state", "cut", "not text", "null", "list", "deep", "4 GiB"],
)
def test_garbage_is_no_container_and_leaves_no_file_open(
    name: str, pipe: tuple[int, int], head: bytes, state: bytes, count: int
) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    thread = leave(name, head, state, count, pipe)
    assert keeper.collect(name) is None
    thread.join(10)
    assert len(set(Path("/proc/self/fd").iterdir())) == len(before)


def test_the_container_ends_with_a_keeper_to_whom_nobody_comes(start_kernel: Callable[..., Kernel]) -> None:
    """A restart whose second half never happens: the keeper, run as the script that it is, ends and takes all along."""
    kernel = start_kernel()
    kernel.run("kept = 1")
    kernel.client.stop_channels()
    client = kernel.manager.client()
    client.start_channels()
    try:
        client.control_channel.send(client.session.msg("shutdown_request", {"restart": True}))
        eventually(lambda: not kernel.manager.is_alive(), 10, "the old process has ended")
        (row,) = [row for row in all_containers() if is_keeper(row["owner_pid"])]
        seconds = eventually(
            lambda: not containers_of(row["owner_pid"]), keeper.HOLD_SECONDS + 5, "the container has ended"
        )
        assert seconds > keeper.HOLD_SECONDS / 2
        eventually(lambda: not is_keeper(row["owner_pid"]), 5, "the keeper has ended")
    finally:
        client.stop_channels()


def all_containers() -> list[dict[str, Any]]:
    return asyncio.run(DockerEngine().list())


def is_keeper(pid: int | None) -> bool:
    try:
        return b"keeper.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
