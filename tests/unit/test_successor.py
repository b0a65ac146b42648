"""The copy of a kernel process that ends for a restart: made only where it is whole, and of what is on the disk."""

from __future__ import annotations

import errno
import gc
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn, cast

import pytest

from sandbox_kernel.kernel import guidance, head_start, launch, places, successor
from sandbox_kernel.kernel.doors import Launched
from sandbox_kernel.kernel.handover import Parked

NOBODY = 65534


def test_a_process_that_has_a_thread_left_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    forks: list[int] = []
    monkeypatch.setattr(os, "fork", lambda: forks.append(1))
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert not successor.begin(cast("Parked", None), time.time())
    finally:
        signal.signal(signal.SIGTERM, before)
        done.set()
        thread.join()
    assert not forks


@pytest.mark.parametrize("lacks", ["listdir", "pipe"])
def test_a_process_without_room_is_not_copied(monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    def refused(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, "no room")

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(os, lacks, refused)
    monkeypatch.setattr(successor, "THREADS_SECONDS", 0.0)
    try:
        assert successor.begin(cast("Parked", None), time.time()) is False
    finally:
        signal.signal(signal.SIGTERM, before)


LIVES = """
import socket, sys, traceback
from sandbox_kernel.kernel import successor
depths = []
def live(argv, launched, since):
    depths.append(len(traceback.extract_stack()))
    if len(depths) == 3000:
        return 7, None
    return 0, successor.Next(socket.socket(fileno=4), [], None, 0.0)
successor._live = live
successor.os._exit = lambda code: (print(code, len(set(depths))), sys.exit())
a, b = socket.socketpair()
a.detach(), b.detach()
successor._go_on(successor.Next(socket.socket(fileno=4), [], None, 0.0))
"""


def test_a_life_after_thousands_stands_on_no_more_frames() -> None:
    done = subprocess.run([sys.executable, "-c", LIVES], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split()[0] == "7", done.stderr
    assert int(done.stdout.split()[1]) == 1


def test_what_a_later_process_put_in_its_place_stays(tmp_path: Path) -> None:
    path = tmp_path / "meeting"
    path.touch()
    one = successor.Successor(cast("Parked", SimpleNamespace(path=str(path))), None, 0.0)
    (tmp_path / "other").touch()
    (tmp_path / "other").replace(path)
    one._forget(str(path))  # noqa: SLF001
    assert path.exists()
    again = successor.Successor(cast("Parked", SimpleNamespace(path=str(path))), None, 0.0)
    again._forget(str(path))  # noqa: SLF001
    assert not path.exists()


def test_the_folder_beside_is_each_process_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy has another folder, and has closed the file by which the one before knew its own."""
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "data.csv").touch()
    monkeypatch.chdir(tmp_path / "first")
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert guidance.lies_beside(["data.csv"]) == "data.csv"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "getpid", lambda: 2)
    assert guidance.lies_beside(["data.csv"]) is None


@pytest.mark.parametrize("left", [None, (3, {"settings": "its"})])
def test_what_was_left_is_kept_where_a_kernel_was_asked_for_in_vain(
    left: tuple[int, dict[str, str]] | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Launched] = []

    def run_kernel(*arguments: object) -> tuple[int, None]:
        seen.append(cast("Launched", arguments[-1]))
        return 0, None

    monkeypatch.setattr(head_start, "run_kernel", run_kernel)
    monkeypatch.setattr(head_start, "head_start", lambda *_: head_start.NOTHING_BEGUN)
    (tmp_path / "c.json").write_text("{}")
    launched = Launched(5, {}, None, left) if left else None
    try:
        head_start.kernel_main(["-f", str(tmp_path / "c.json"), launch.ASKED], launched)
    finally:
        gc.enable()
    assert [(one.left, one.pid) for one in seen] == [(left, 5 if left else os.getpid())]


@pytest.mark.parametrize("how", ["as it was", "written", "replaced by an older one", "removed"])
def test_a_file_that_was_loaded_and_changed_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    file = tmp_path / "some_module.py"
    file.write_text("one = 1")
    module = type(sys)("some_module")
    module.__file__ = str(file)
    monkeypatch.setattr(sys, "modules", {"some_module": module})
    since = file.stat().st_ctime + 0.000_001
    while time.time() < since + 0.02:  # the clock of files has steps
        os.utime(tmp_path)
    if how == "written":
        file.write_text("one = 2")
    elif how == "replaced by an older one":
        (tmp_path / "new").write_text("one = 2")
        os.utime(tmp_path / "new", (1, 1))
        (tmp_path / "new").replace(file)
    elif how == "removed":
        file.unlink()
    assert successor.changed(since) == (how != "as it was")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("user", ["another", "the same"])
def test_another_user_is_not_heard(monkeypatch: pytest.MonkeyPatch, user: str) -> None:
    """No real place can be reached by others; what is left is who they are."""
    heard: list[bytes] = []

    def receive(sock: socket.socket) -> NoReturn:
        heard.append(sock.recv(100))
        raise ValueError("no words of a launcher")

    monkeypatch.setattr(places, "receive", receive)
    monkeypatch.setattr(successor, "be_nobody", lambda: None)
    monkeypatch.setattr(successor, "leave_no_core", lambda: None)
    monkeypatch.setattr(successor, "changed", lambda since: False)
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as place:
        Path(folder).chmod(0o755)
        path = f"{folder}/meeting{launch.NEXT}"
        place.bind(path)
        place.listen(1)
        Path(path).chmod(0o666)
        program = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({path!r}); s.sendall(b'I'); s.recv(1)"
        with subprocess.Popen(
            ["/usr/bin/env", "python3", "-c", program], user=NOBODY if user == "another" else None, cwd="/"
        ) as guest:
            one = successor.Successor(cast("Parked", SimpleNamespace(path=path)), place, 0.0)
            one.become(place)
            guest.wait(20)
    assert heard == ([] if user == "another" else [b"I"])
