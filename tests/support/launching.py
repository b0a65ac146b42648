"""Kernels that are forked from a prepared process, without a broker: their sandbox cannot start, all else is real."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sandbox_kernel.broker import kernels as of_broker
from sandbox_kernel.core.resources import environment_of_helpers
from sandbox_kernel.engines.sightings import waits_for
from sandbox_kernel.kernel import launch
from tests.support.kernels import WAIT, eventually

SCRIPT = str(Path(launch.__file__))
PROGRAM = "from sandbox_kernel.kernel.prepared import main; import sys; sys.exit(main(sys.argv[1:]))"


def ports(count: int) -> list[int]:
    """Return ports that were free a moment ago."""
    socks = [socket.socket() for _ in range(count)]
    for sock in socks:
        sock.bind(("127.0.0.1", 0))
    found = [int(sock.getsockname()[1]) for sock in socks]
    for sock in socks:
        sock.close()
    return found


def file_of(launcher: subprocess.Popen[bytes]) -> str:
    """Return the connection file that a launcher was started with."""
    assert isinstance(launcher.args, list)
    return str(launcher.args[6])


def words_of(pid: int) -> list[str]:
    """Return the arguments of a process as others see them; of one that has ended, none."""
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(word) for word in data.split(b"\0") if word]


def state_of(pid: int) -> str:
    """Return the state of a process, an empty one if there is none, or only its remains."""
    try:
        found = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""
    return "" if found in "ZX" else found


class Place:
    """A folder with a prepared process, and the launchers that were started there."""

    def __init__(self, program: Sequence[str] = (), *, listens: bool = True) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="launching-"))
        self.broker = f"{self.folder}/broker.sock"
        self.listener = socket.socket(socket.AF_UNIX)
        self.launchers: list[subprocess.Popen[bytes]] = []
        self.process: subprocess.Popen[bytes] | None = None
        if listens:
            self.listener.bind(self.broker + launch.SUFFIX)
            self.listener.listen(16)
        if listens and program is not None:
            self.prepare(program)

    def prepare(self, program: Sequence[str] = ()) -> None:
        descriptor = self.listener.fileno()
        command = [sys.executable, "-I", *(program or ("-m", of_broker.MODULE)), str(descriptor)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[descriptor],
            cwd="/",
            env={**environment_of_helpers(), **variables()},
            start_new_session=True,
        )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], WAIT)
        assert ready
        assert self.process.stdout.readline() == b"up\n"

    def file(self, **changed: Any) -> str:
        """Return a new connection file."""
        names = [f"{channel}_port" for channel in launch.CHANNELS]
        connection: dict[str, Any] = dict(zip(names, ports(len(names)), strict=True))
        connection |= {"ip": "127.0.0.1", "transport": "tcp", "key": "k", "signature_scheme": "hmac-sha256"}
        handle, path = tempfile.mkstemp(suffix=".json", dir=self.folder)
        with os.fdopen(handle, "w") as file:
            json.dump(connection | changed, file)
        return path

    def command(self, *more: str, file: str | None = None) -> list[str]:
        words = [launch.PACKAGE, "-f", file or self.file(), f"--engine=broker://{self.broker}", *more]
        return [sys.executable, "-I", "-S", SCRIPT, *words]

    def start(
        self, *more: str, file: str | None = None, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a launcher as a front end does."""
        options.setdefault("start_new_session", True)
        given = {**os.environ, **variables(), **(env or {})}
        one = subprocess.Popen(self.command(*more, file=file), env=given, **options)
        self.launchers.append(one)
        return one

    def kernel_of(self, launcher: subprocess.Popen[bytes]) -> int:
        """Wait for the kernel that was forked for a launcher; return its number."""
        found: list[int] = []

        def look() -> bool:
            found[:] = self.kernels_of(launcher.pid)
            return bool(found) and listens(file_of(launcher))

        eventually(look, WAIT, "no kernel was forked")
        return found[0]

    def kernels_of(self, launcher: int) -> list[int]:
        """Return what was forked for a launcher: it waits for its end."""
        return sorted(waits_for(launcher) & set(self.children()))

    def children(self) -> list[int]:
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(word) for word in children.read_text(encoding="ascii").split() if state_of(int(word))]

    def close(self) -> None:
        for one in self.launchers:
            if one.poll() is None:
                one.kill()
            one.wait(WAIT)
        if self.process is not None:
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            self.process.stdin.close()
            self.process.stdout.close()
            self.process.wait(WAIT)
        self.listener.close()
        shutil.rmtree(self.folder)


def variables() -> dict[str, str]:
    """Return what a kernelspec gives a kernel."""
    return of_broker.of_kernels()


def listens(file: str) -> bool:
    """Return whether a kernel answers heartbeats at the addresses of a connection file."""
    import zmq

    connection = json.loads(Path(file).read_text(encoding="utf-8"))
    with zmq.Context() as context, context.socket(zmq.REQ) as beat:
        beat.linger = 0
        beat.connect(f"tcp://127.0.0.1:{connection['hb_port']}")
        beat.send(b"x")
        return bool(beat.poll(1000))


def turned(launcher: subprocess.Popen[bytes]) -> float:
    """Wait until a launcher has turned into the kernel itself; return how long that took."""

    def look() -> bool:
        return "-m" in words_of(launcher.pid)

    return eventually(look, WAIT, "it did not turn into a kernel")
