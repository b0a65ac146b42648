"""The pipe holder between two kernel processes: only the right successor gets the pipe, and nobody waits for ever."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import psutil
import pytest

from sandbox_kernel.kernel import pipe_holder
from tests.support.descriptors import open_files
from tests.support.kernels import Kernel, all_containers, arguments_of, eventually
from tests.support.patience import Stopwatch
from tests.support.processes import python

NOBODY = 65534
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def place(tmp_path: Path) -> pipe_holder.MeetingPlace:
    return pipe_holder.place(str(tmp_path / "connection.json"), secrets.token_hex())


@pytest.fixture
def open_place() -> Iterator[pipe_holder.MeetingPlace]:
    """A meeting place that another user can reach, as no real one is: what is left is who they are."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield pipe_holder.MeetingPlace((folder,), "meeting")


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def in_memory(state: bytes) -> IO[bytes]:
    file = os.fdopen(os.memfd_create("state", os.MFD_CLOEXEC), "wb", buffering=0)
    file.write(state)
    return file


@pytest.fixture
def keep(pipe: tuple[int, int]) -> Iterator[Callable[..., Callable[[], bool]]]:
    """Return a function that keeps the pipe's writing end in a thread; what that returns waits for the outcome."""
    threads: list[threading.Thread] = []

    def begin(
        place: pipe_holder.MeetingPlace, state: bytes = b'{"kept": 1}', seconds: float = 10.0
    ) -> Callable[[], bool]:
        outcome: list[bool] = []
        listener, path = pipe_holder.listen(place)
        Path(path).chmod(0o666)

        def run() -> None:
            with listener, in_memory(state) as file:
                outcome.append(pipe_holder.keep(listener, file.fileno(), {"pipe": pipe[1]}, seconds))

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


def test_the_successor_gets_the_pipe_and_the_state(
    keep: Keep, place: pipe_holder.MeetingPlace, pipe: tuple[int, int]
) -> None:
    given = keep(place)
    found = pipe_holder.collect(place)
    assert found is not None
    files, state = found
    fd = files["pipe"]
    os.write(fd, b"through the pipe")
    os.close(fd)
    assert os.read(pipe[0], 100) == b"through the pipe"
    assert state == {"kept": 1}
    assert given()
    assert pipe_holder.collect(place) is None


def test_a_large_state_arrives_whole(keep: Keep, place: pipe_holder.MeetingPlace) -> None:
    given = keep(place, b'{"text": "%s"}' % (b"x" * 3_000_000))
    found = pipe_holder.collect(place)
    assert found is not None
    os.close(found[0]["pipe"])
    assert len(found[1]["text"]) == 3_000_000
    assert given()


@pytest.mark.parametrize("changed", ["key", "file"])
def test_who_does_not_know_the_key_finds_nothing(tmp_path: Path, changed: str) -> None:
    path = tmp_path / "connection.json"
    other = {"key": pipe_holder.place(str(path), "other"), "file": pipe_holder.place(str(path) + "x", "secret")}[
        changed
    ]
    with pipe_holder.listen(pipe_holder.place(str(path), "secret"))[0]:
        assert pipe_holder.collect(other) is None


def test_nobody_left_anything(place: pipe_holder.MeetingPlace) -> None:
    assert pipe_holder.collect(place) is None


def test_without_a_successor_the_pipe_holder_ends(keep: Keep, place: pipe_holder.MeetingPlace) -> None:
    with Stopwatch() as watch:
        assert not keep(place, seconds=0.3)()
    assert watch.seconds < 3


def as_nobody(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script as another user."""
    command = [sys.executable, "-c", BECOME_NOBODY + code, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)


# Only once it runs: the interpreter may lie where nobody may go.
BECOME_NOBODY = (
    f"import contextlib, os, socket, sys, time\nos.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
)
CONNECT = """
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[1])
peer.settimeout(5)
print(socket.recv_fds(peer, 4, 1)[:2])
"""

CONNECT_FOR_EVER = """
while True:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(sys.argv[1])
        peer.settimeout(5)
        try:
            peer.recv(1)
        except ConnectionResetError:
            pass
"""


def assert_taken(place: pipe_holder.MeetingPlace, given: Callable[[], bool]) -> None:
    """Take what a pipe holder has, as the next process does."""
    found = pipe_holder.collect(place)
    assert found is not None
    os.close(found[0]["pipe"])
    assert given()


@root_only
def test_another_user_gets_nothing_and_the_successor_still_does(
    keep: Keep, open_place: pipe_holder.MeetingPlace
) -> None:
    given = keep(open_place)
    stranger = as_nobody(CONNECT, path_of(open_place))
    assert stranger.stdout == "(b'', [])\n", stranger.stderr
    assert_taken(open_place, given)


@root_only
def test_another_user_does_not_prolong_the_wait(keep: Keep, open_place: pipe_holder.MeetingPlace) -> None:
    """Who connects again and again holds no container in being."""
    with Stopwatch() as watch:
        waits = keep(open_place, seconds=1.0)
        stranger = as_nobody(CONNECT_FOR_EVER, path_of(open_place))
        assert "refused" in stranger.stderr.lower()
        assert not waits()
    assert watch.seconds < 5


@root_only
def test_another_user_reaches_no_real_place(keep: Keep, open_place: pipe_holder.MeetingPlace) -> None:
    """Without the mode that the test gives it, nobody else can even connect."""
    given = keep(open_place)
    Path(path_of(open_place)).chmod(0o600)
    assert "PermissionError" in as_nobody(CONNECT, path_of(open_place)).stderr
    assert_taken(open_place, given)


def test_the_file_of_a_meeting_place_is_for_one_user(open_place: pipe_holder.MeetingPlace) -> None:
    listener, path = pipe_holder.listen(open_place)
    with listener:
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
        assert path == path_of(open_place)


def test_a_long_path_is_no_hindrance(tmp_path: Path, keep: Keep) -> None:
    """An address of a socket holds 107 bytes."""
    folder = tmp_path / ("x" * 200)
    folder.mkdir(mode=0o700)
    place = pipe_holder.place(str(folder / "connection.json"), "secret")
    given = keep(place)
    assert_taken(place, given)
    assert not list(folder.iterdir())


def test_what_a_killed_pipe_holder_left_is_no_hindrance(place: pipe_holder.MeetingPlace, keep: Keep) -> None:
    pipe_holder.listen(place)[0].close()
    assert Path(path_of(place)).exists()
    assert pipe_holder.collect(place) is None
    assert not Path(path_of(place)).exists()
    pipe_holder.listen(place)[0].close()
    given = keep(place)
    assert_taken(place, given)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777, 0o722])
def test_a_folder_in_which_others_write_is_passed_over(tmp_path: Path, mode: int, keep: Keep) -> None:
    """The next one is taken, by both ends."""
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    shared.chmod(mode)
    own.mkdir(mode=0o700)
    place = pipe_holder.MeetingPlace((str(shared), str(own)), "meeting")
    given = keep(place)
    assert [path.name for path in own.iterdir()] == ["meeting"]
    assert not list(shared.iterdir())
    assert_taken(place, given)
    with pytest.raises(OSError, match="closed to others"):
        pipe_holder.listen(pipe_holder.MeetingPlace((str(shared), str(tmp_path / "missing")), "meeting"))


@root_only
def test_what_another_user_offers_is_not_taken(open_place: pipe_holder.MeetingPlace) -> None:
    """The one who keeps must be the same user: a stranger whose socket got there could hand in a container."""
    code = (
        "listener = socket.socket(socket.AF_UNIX)\n"
        "listener.bind(sys.argv[1])\n"
        "listener.listen()\n"
        "print('listening', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        offered = Path(folder, "offered")
        with python(BECOME_NOBODY + code, offered) as (_, line):
            assert line == "listening"
            offered.rename(path_of(open_place))  # as only this user can
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(path_of(open_place))  # the control: it is there, and listens
            assert pipe_holder.collect(open_place) is None
            pipe_holder.listen(open_place)[0].close()  # and it is no hindrance


SQUAT = """
held, seen = [], set()
print("watching", flush=True)
end = time.monotonic() + 60
while time.monotonic() < end and os.getppid() != 1:
    with open("/proc/net/unix") as table:
        seen |= {line.split()[-1] for line in table if "sandbox-kernel" in line.split()[-1]}
    for name in seen:
        squatter = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            if not name.startswith("@"):
                with contextlib.suppress(OSError):
                    os.unlink(name)
            squatter.bind("\\0" + name[1:] if name.startswith("@") else name)
            squatter.listen()
            held.append(squatter)
    time.sleep(0.01)
"""


@root_only
def test_another_user_who_takes_every_address_costs_no_restart_its_files(start_kernel: Callable[..., Kernel]) -> None:
    """Whoever sees a meeting place in the kernel's table of sockets cannot take it, before the next restart or ever."""
    kernel = start_kernel()
    kernel.run("open('kept', 'w').write('kept')")
    with python(BECOME_NOBODY + SQUAT) as (_, line):
        assert line == "watching"
        for _ in range(3):
            kernel.restart()
            assert kernel.run("open('kept').read()").value == "'kept'"


def path_of(place: pipe_holder.MeetingPlace) -> str:
    return f"{place.folders[0]}/{place.name}"


def leave(
    place: pipe_holder.MeetingPlace, said: bytes, state: bytes | None, count: int, pipe: tuple[int, int]
) -> threading.Thread:
    """Offer something at the meeting place, well formed or not; without a state, a pipe is in the place of it."""
    listener, _ = pipe_holder.listen(place)

    def run() -> None:
        told = in_memory(state or b"")
        # The other side may hang up as soon as it has seen enough.
        with contextlib.suppress(ConnectionError), listener, listener.accept()[0] as peer, told as file:
            assert peer.recv(100) == pipe_holder.CLAIM
            first = [] if count < 0 else [pipe[0] if state is None else file.fileno()]
            if said:
                socket.send_fds(peer, [said], first + [pipe[1]] * count)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


GARBAGE: dict[str, tuple[bytes, bytes | None, int]] = {
    "nothing": (b"", b"", 0),
    "no files": (b'["pipe"]', b"{}", -1),
    "no pipe": (b'["pipe"]', b"{}", 0),
    "cut names": (b'["pi', b"{}", 1),
    "no state": (b'["pipe"]', b"", 1),
    "cut": (b'["pipe"]', b'{"cut": ', 1),
    "not text": (b'["pipe"]', b"\xff\xfe\xfd\xfc", 1),
    "null": (b'["pipe"]', b"null", 1),
    "list": (b'["pipe"]', b"[]", 1),
    "deep": (b'["pipe"]', b"[" * 20000, 1),
    "a pipe as state": (b'["pipe"]', None, 1),
    "more": (b'["pipe"]', b"{}", 3),
    "twice": (b'["pipe", "pipe"]', b"{}", 2),
    "no names": (b'[["pipe"]]', b"{}", 1),
    "number": (b"2", b"{}", 1),
}
"""What is said, the state, and how many descriptors of the pipe come with it."""


@pytest.mark.parametrize(("said", "state", "count"), GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_no_container_and_leaves_no_file_open(
    place: pipe_holder.MeetingPlace, pipe: tuple[int, int], said: bytes, state: bytes | None, count: int
) -> None:
    before = open_files()
    thread = leave(place, said, state, count, pipe)
    assert pipe_holder.collect(place) is None
    thread.join(10)
    assert not open_files() - before


def test_a_state_that_is_too_long_is_none(
    place: pipe_holder.MeetingPlace, pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit, wanted in ((1, None), (2, {})):
        monkeypatch.setattr(pipe_holder, "MAX_STATE", limit)
        thread = leave(place, b'["pipe"]', b"{}", 1, pipe)
        found = pipe_holder.collect(place)
        thread.join(10)
        assert (found and found[1]) == wanted
        if found is not None:
            os.close(found[0]["pipe"])


def test_who_connects_and_claims_nothing_takes_nothing(keep: Keep, place: pipe_holder.MeetingPlace) -> None:
    given = keep(place)
    with socket.socket(socket.AF_UNIX) as peer:
        with contextlib.chdir(place.folders[0]):  # an address of a socket holds 107 bytes
            peer.connect(place.name)
        peer.send(b'{"op": "status"}')
        assert peer.recv(100) == b""
    assert_taken(place, given)


@pytest.mark.long
def test_the_container_ends_with_a_pipe_holder_to_whom_nobody_comes(start_kernel: Callable[..., Kernel]) -> None:
    """A restart whose second half never happens: the pipe holder, run as a script, ends and takes all along."""
    kernel = start_kernel()
    kernel.run("kept = 1")
    [row] = kernel.containers()
    kernel.client.stop_channels()
    client = kernel.manager.client()
    client.start_channels()
    connection = json.loads(Path(kernel.manager.connection_file).read_text())
    meeting = pipe_holder.place(kernel.manager.connection_file, connection["key"])
    try:
        began = time.monotonic()
        client.control_channel.send(client.session.msg("shutdown_request", {"restart": True}))
        eventually(lambda: not kernel.manager.is_alive(), 10, "the old process has ended")
        [held] = [one for one in psutil.process_iter() if any(meeting.name in word for word in arguments_of(one))]
        assert "pipe_holder.py" in " ".join(arguments_of(held))
        eventually(lambda: not held.is_running(), pipe_holder.HOLD_SECONDS + 5, "the pipe holder has ended")
        assert time.monotonic() - began > pipe_holder.HOLD_SECONDS / 2
        eventually(
            lambda: row.container not in {one.container for one in all_containers()}, 5, "the container has ended"
        )
        assert not pipe_holder.left(meeting)
    finally:
        client.stop_channels()
