"""Kernel processes from a fork server of this process's own, each as `subprocess.Popen` would have it.

The fork server is started some seconds after the first kernel: who starts one kernel and ends has no use for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ...core.descriptors import send_fds
from ...core.kernel_command import FORK_NUMBER, FORK_SIZE

DELAY_SECONDS = 3.0
"""How long after a kernel's start its fork server is started."""
SHOWN = 500
"""Characters of a kernel's arguments that `ps` can show."""
ANSWER_SECONDS = 2.0
"""How long a new process may take to say that it is there; then the kernel is started as any other."""


class ForkedProcess:
    """A process that a fork server made; what jupyter_client uses of `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int, status: socket.socket) -> None:
        self.pid, self._status = pid, status
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once the process has ended. Raises `subprocess.TimeoutExpired`, after seconds."""
        if (code := self._look(timeout)) is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            answer = b""
            with suppress(OSError):
                answer = self._status.recv(FORK_NUMBER.size)
            # Nothing comes of a fork server that was killed: its kernels end within a second, and are helped to.
            self.returncode = FORK_NUMBER.unpack(answer)[0] if len(answer) == FORK_NUMBER.size else self._orphan()
            self._status.close()
        return self.returncode

    def _orphan(self) -> int:
        with suppress(OSError):
            os.kill(self.pid, signal.SIGTERM)
        return -signal.SIGKILL

    def send_signal(self, number: int) -> None:
        """Send a signal to the process, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServers:
    """The fork servers of this process, by the command and the environment that they were started with."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Begin without fork servers: in a fork of this process they are not its own, and the lock may be held."""
        self._lock = threading.Lock()
        self._servers: dict[tuple[str, ...], socket.socket] = {}
        self._awaited: set[tuple[str, ...]] = set()

    def fork(
        self,
        python: Sequence[str],
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        streams: Sequence[int],
        variables: Mapping[str, str],
    ) -> ForkedProcess | None:
        """Return a new process, or None where there is no fork server (yet): one is started soon then.

        Args:
            python: The command of Python, with its switches.
            argv: Arguments of the kernel.
            env: Its variables.
            cwd: Its working folder, which is there.
            streams: Descriptors of its stdin, stdout and stderr.
            variables: Those of `env` that count while Python starts: each set of them has a fork server.
        """
        key = (*python, *(f"{name}={value}" for name, value in sorted(variables.items())))
        with self._lock:
            server = self._servers.get(key)
            if server is None:
                if key not in self._awaited:
                    self._awaited.add(key)
                    timer = threading.Timer(DELAY_SECONDS, self._start, (key, list(python), dict(env)))
                    timer.daemon = True
                    timer.start()
                return None
            try:
                return _ask(server, {"argv": [*argv], "env": dict(env), "cwd": cwd}, streams)
            except OSError:
                self._servers.pop(key).close()
                return None

    def _start(self, key: tuple[str, ...], python: list[str], env: dict[str, str]) -> None:
        ours, its = socket.socketpair()
        with its:
            process = subprocess.Popen(
                [*python, "-m", "sandbox_kernel.plugins.provisioner.fork_server", str(its.fileno()), " " * SHOWN],
                stdin=subprocess.DEVNULL,
                env=env,
                cwd="/",
                pass_fds=(its.fileno(),),
                start_new_session=True,
            )
        ready = ours.recv(1)
        with self._lock:
            self._awaited.discard(key)
            if ready:
                self._servers[key] = ours
            else:
                ours.close()
        process.wait()


def _ask(server: socket.socket, request: Mapping[str, object], streams: Sequence[int]) -> ForkedProcess:
    """Return a new process. Raises `OSError` where none came in time: then none will begin."""
    data = json.dumps(request).encode()
    ours, its = socket.socketpair()
    with contextlib.ExitStack() as undo:
        undo.callback(ours.close)
        with its:
            server.settimeout(ANSWER_SECONDS)
            send_fds(server, FORK_SIZE.pack(len(data)), [its.fileno(), *streams])
            server.sendall(data)
        ours.settimeout(ANSWER_SECONDS)
        answer = ours.recv(FORK_NUMBER.size)
        if len(answer) != FORK_NUMBER.size:
            raise ConnectionResetError("the fork server has ended")
        ours.sendall(b"\1")
        undo.pop_all()
    return ForkedProcess(FORK_NUMBER.unpack(answer)[0], ours)


SERVERS = ForkServers()
