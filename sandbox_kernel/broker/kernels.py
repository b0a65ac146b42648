"""A process from which kernels are forked, for the front ends of one user: started once somebody asked for one.

Until it is up, whoever asks is told at once that there is none, and starts as ever. The user's own broker has one, for
it serves nobody else. Imports no door: what the process runs is said by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ..core.listening import Door
from ..core.resources import brought, environment_of_helpers
from ..core.tasks import Tasks
from .spare import under_pressure

FORKED, TAKEN_BACK = b"+", b"-"
"""As in `kernel/prepared.py`."""
SUFFIX = ".kernels"
"""After the address of the broker, as `kernel/launch.py` has it; a test holds both together."""
MODULE = "sandbox_kernel.kernel.prepared"
REST_SECONDS = 1.0
"""After somebody asked, who starts without it now and has a cell to run first."""
UP_SECONDS = 60.0
BACKLOG = 64


class Kernels:
    """One such process, or the wish for one."""

    def __init__(
        self,
        path: str,
        *,
        busy: Callable[[], bool] = under_pressure,
        say: Callable[[str], None] = lambda line: None,
        rest_seconds: float = REST_SECONDS,
        starts: Counter[str] | None = None,
    ) -> None:
        """`path` is the broker's own, whose lock is held; `starts` counts kernels by how they start."""
        self.starts: Counter[str] = Counter() if starts is None else starts
        self.path = path + SUFFIX
        self._busy = busy
        self._say = say
        self._rest = rest_seconds
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._door = Door(self._socket, self._asked)
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._tasks = Tasks()
        self._preparing = False

    @property
    def pid(self) -> int | None:
        """The process that is copied, once it is up."""
        return self._process.pid if self._process is not None and self._pidfd >= 0 else None

    def listen(self) -> None:
        """Begin to take who asks. Raises OSError; without it, kernels start as ever."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)  # noqa: PTH108 (a loop waits for no disk here)
        os.fchmod(self._socket.fileno(), 0o600)  # the mode of the file that bind makes
        self._socket.bind(self.path)
        self._socket.listen(BACKLOG)
        self._door.open()

    def _asked(self, sock: socket.socket) -> None:
        """Say that there is none, by hanging up, and see to it that there is one."""
        self.starts["not-prepared"] += 1
        sock.close()
        if self._process is None and not self._preparing:
            self._preparing = True
            self._tasks.start(self._prepare(), "preparing kernels")

    async def _prepare(self) -> None:
        try:
            await asyncio.sleep(self._rest)
            if self._busy():
                return  # whoever asks next asks anew
            self._process = self._started()
            async with asyncio.timeout(UP_SECONDS):
                await self._up(self._process)
        except (OSError, ValueError, TimeoutError) as error:
            self._say(f"no kernels are prepared: {error!r}")
            await self._end()
        finally:
            self._preparing = False

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-m", MODULE, str(self._socket.fileno())],
            stdin=subprocess.PIPE,  # whose end is its own
            stdout=subprocess.PIPE,
            cwd="/",
            env={**environment_of_helpers(), **of_kernels()},
            pass_fds=[self._socket.fileno()],
            start_new_session=True,
        )

    async def _up(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until it takes who asks. Raises ValueError if it ends."""
        loop, said = asyncio.get_running_loop(), process.stdout.fileno() if process.stdout is not None else -1
        heard: asyncio.Future[None] = loop.create_future()
        loop.add_reader(said, heard.cancel)
        try:
            await asyncio.wait({heard})
        finally:
            loop.remove_reader(said)
        if not os.read(said, 64):
            raise ValueError("the process ended")
        self._pidfd = os.pidfd_open(process.pid)
        loop.add_reader(self._pidfd, self._gone)
        loop.add_reader(said, self._count, said)
        self._door.shut()

    def _count(self, said: int) -> None:
        """Note what became of those who asked."""
        told = os.read(said, 4096)
        if not told:
            asyncio.get_running_loop().remove_reader(said)
        declined = told.count(TAKEN_BACK)
        self.starts["declined"] += declined
        self.starts["forked"] += told.count(FORKED) - declined

    def _gone(self) -> None:
        """It has ended: another package lies on the disk, or somebody ended it."""
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self._tasks.start(self._end(), "the end of prepared kernels")

    async def _end(self) -> None:
        loop = asyncio.get_running_loop()
        pidfd, self._pidfd = self._pidfd, -1
        if pidfd >= 0:
            loop.remove_reader(pidfd)
            os.close(pidfd)
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            if process.stdout is not None:
                loop.remove_reader(process.stdout.fileno())
            _close(process)
            await asyncio.to_thread(process.wait)
        self._door.open()

    async def close(self) -> None:
        """End it; the kernels that were forked go on."""
        if self._socket.fileno() >= 0:
            self._door.shut()
            self._socket.close()
            with contextlib.suppress(OSError):
                os.unlink(self.path)  # noqa: PTH108 (as above)
        await self._tasks.close()
        await self._end()


def _close(process: subprocess.Popen[bytes]) -> None:
    for end in (process.stdin, process.stdout):
        if end is not None:
            end.close()


def of_kernels() -> dict[str, str]:
    """Return the variables that a kernelspec gives a kernel: the system's libraries read some of them once."""
    spec = json.loads((Path(brought("kernelspec")) / "kernel.json").read_text(encoding="utf-8"))
    return {str(name): str(value) for name, value in spec.get("env", {}).items()}
