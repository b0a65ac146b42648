"""A fork server by itself, with a short program in place of a kernel."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from sandbox_kernel.core.kernel_command import FORK_NUMBER, FORK_SIZE
from sandbox_kernel.kernel.kept_ports import CHANNELS
from sandbox_kernel.plugins.provisioner import fork_server, forked_process
from sandbox_kernel.plugins.provisioner.forked_process import ForkedProcess, ForkServers
from tests.support.kernels import eventually

MAIN = """
import os, signal, sys, time
from sandbox_kernel.kernel import head_start
from sandbox_kernel.plugins.provisioner import fork_server
fork_server.PRELOADED = ()
fork_server.PARENT_SECONDS = 0.01
def kernel_main(argv, ports):
    exec(argv[0])
    return 0
head_start.kernel_main = kernel_main
{more}
sys.exit(fork_server.main())
"""
SLEEP = "time.sleep(600)"
Ask = Callable[..., ForkedProcess]


@contextmanager
def served(more: str = "") -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    ours, its = socket.socketpair()
    with ours, its:
        command = [sys.executable, "-c", MAIN.format(more=more), str(its.fileno())]
        with subprocess.Popen(command, pass_fds=(its.fileno(),)) as server:
            its.close()
            try:
                assert ours.recv(1) == fork_server.READY
                yield server, ours
            finally:
                server.kill()


def asked(server: socket.socket, code: str, streams: tuple[int, int] = (1, 2), **more: Any) -> ForkedProcess:
    with Path(os.devnull).open("rb") as nothing:
        request = {"argv": [code], "env": dict(os.environ), "cwd": "/"} | more
        return forked_process._ask(server, request, [nothing.fileno(), *streams])  # noqa: SLF001


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_process, "ANSWER_SECONDS", 30.0)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with served() as (_, found):
        yield found


def test_the_ports_of_a_kernel_are_open_before_its_clients_know_of_it(server: socket.socket, tmp_path: Path) -> None:
    file = tmp_path / "kernel.json"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file.write_text(json.dumps({"ip": "127.0.0.1", **{f"{channel}_port": 0 for channel in CHANNELS}, "hb_port": port}))
    process = asked(server, SLEEP, argv=[SLEEP, "-f", str(file)])
    socket.create_connection(("127.0.0.1", port)).close()
    process.kill()
    assert process.wait(30) == -9
    control = asked(server, SLEEP)  # which was told of none
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    control.kill()
    assert control.wait(30) == -9


@pytest.mark.parametrize(
    ("code", "expected"),
    [("pass", 0), ("os._exit(3)", 3), ("os.kill(os.getpid(), 9)", -9), ("os.kill(os.getpid(), 15)", -15)],
)
def test_an_exit_code_is_that_of_a_child(server: socket.socket, code: str, expected: int) -> None:
    process = asked(server, code)
    assert process.wait(30) == expected
    assert process.poll() == expected


def test_it_has_what_was_asked_for_and_nothing_of_others(server: socket.socket, tmp_path: Path) -> None:
    show = (
        "import json; print(json.dumps([dict(os.environ), os.getcwd(), sorted(map(int, os.listdir('/proc/self/fd')))]))"
    )
    with (tmp_path / "out").open("wb") as out:
        first = asked(server, SLEEP)
        process = asked(server, show, (out.fileno(), 2), env={"A": "b", "TZ": "Asia/Tokyo"}, cwd=str(tmp_path))
    assert process.wait(30) == 0
    environment, folder, files = json.loads((tmp_path / "out").read_text())
    assert (environment, folder) == ({"A": "b", "TZ": "Asia/Tokyo"}, str(tmp_path))
    assert len(files) == 4  # its streams, and the folder that is listed
    first.kill()
    first.wait(30)


def test_no_two_have_the_same_randomness(server: socket.socket, tmp_path: Path) -> None:
    found = []
    for name in ("a", "b"):
        with (tmp_path / name).open("wb") as out:
            assert (
                asked(server, "import random, uuid; print(random.random(), uuid.uuid4())", (out.fileno(), 2)).wait(30)
                == 0
            )
        found += (tmp_path / name).read_text().split()
    assert len({*found}) == 4


def test_its_number_is_its_own_until_the_end_was_heard(server: socket.socket) -> None:
    process = asked(server, "pass")
    eventually(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE, 30, "it has ended")
    assert process.wait(30) == 0
    eventually(lambda: not psutil.pid_exists(process.pid), 30, "its number is free")


def test_one_that_is_not_answered_begins_nothing(server: socket.socket, tmp_path: Path) -> None:
    """The control is answered."""
    ours, its = socket.socketpair()
    data = json.dumps({"argv": [f"open({str(tmp_path / 'ran')!r}, 'w')"], "env": {}, "cwd": "/"}).encode()
    with ours, its:
        socket.send_fds(server, [FORK_SIZE.pack(len(data))], [its.fileno(), 0, 1, 2])
        server.sendall(data)
        (pid,) = FORK_NUMBER.unpack(ours.recv(4))
    eventually(lambda: not psutil.pid_exists(pid), 30, "it has ended")
    assert not (tmp_path / "ran").exists()
    asked(server, f"open({str(tmp_path / 'ran')!r}, 'w')").wait(30)
    assert (tmp_path / "ran").exists()


@pytest.mark.slow
def test_a_fork_server_that_is_killed_takes_its_processes_along() -> None:
    with served() as (server, ours):
        process = asked(ours, "import signal; signal.pause()")
        server.kill()
        assert process.wait(30) == -9
    eventually(lambda: not psutil.pid_exists(process.pid), 30, "it has ended")


@pytest.mark.slow
def test_one_that_nothing_is_asked_of_ends_by_itself_and_not_while_it_is_needed() -> None:
    with served("fork_server.IDLE_SECONDS = 0.2") as (server, ours):
        process = asked(ours, "time.sleep(1)")
        assert process.wait(30) == 0
        assert server.wait(30) == 0


def test_one_whose_parent_has_ended_while_it_loaded_ends_without_a_word() -> None:
    ours, its = socket.socketpair()
    with its:
        ours.close()
        command = [sys.executable, "-c", MAIN.format(more=""), str(its.fileno())]
        done = subprocess.run(command, pass_fds=(its.fileno(),), capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_what_was_installed_meanwhile_is_not_mixed_with_what_is_loaded(tmp_path: Path) -> None:
    """What runs goes on; the control is the same file as before."""
    path = tmp_path / "module.py"
    path.touch()
    module = f"sys.modules['sandbox_kernel.core.errors'].__file__ = {str(path)!r}"
    with served(module) as (server, ours):
        running, other = asked(ours, SLEEP), asked(ours, "pass")
        assert other.wait(30) == 0
        os.utime(path, (1, 1))
        with pytest.raises(OSError, match="has ended"):
            asked(ours, "pass")
        assert running.poll() is None
        running.kill()
        assert running.wait(30) == -9
        assert server.wait(30) == 0


@pytest.mark.parametrize("data", [b"", b"\xff\xff\xff\xff", b"\0\0\0\1{"])
def test_a_parent_that_makes_no_sense_is_served_no_more(data: bytes) -> None:
    with served() as (server, ours):
        ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
        assert server.wait(30) == 0


def test_the_first_has_none_and_one_is_started_for_those_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a fork of this process, its copy has none either."""
    monkeypatch.setattr(forked_process, "DELAY_SECONDS", 0.0)
    monkeypatch.setenv("SANDBOX_KERNEL_MEMORY", "1G")
    servers = ForkServers()
    wanted: dict[str, Any] = {"env": {"HOME": "/"}, "cwd": "/", "streams": (0, 1, 2), "variables": {}}
    assert servers.fork([sys.executable, "-I"], ["--help"], **wanted) is None
    eventually(lambda: servers._servers, 30, "it is there")  # noqa: SLF001
    assert servers.fork([sys.executable, "-I"], ["--help"], **wanted | {"variables": {"A": "b"}}) is None
    process = servers.fork([sys.executable, "-I"], [], **wanted)
    assert process is not None
    assert process.wait(30) == 2  # a kernel without a connection file
    eventually(lambda: len(servers._servers) == 2, 30, "the other is there, too")  # noqa: SLF001
    for one in servers._servers.values():  # noqa: SLF001
        one.close()
    eventually(lambda: not [one for one in threading.enumerate() if isinstance(one, threading.Timer)], 30, "they end")
