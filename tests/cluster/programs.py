"""Processes that outlive the command that started them, found again by their pid files."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

STOP_SECONDS = 10.0


class Programs:
    """The processes of one cluster; each has a pid file and a log in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, command: list[str], environment: dict[str, str] | None = None) -> None:
        """Start one unless it runs."""
        if self.pid(name):
            return
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        process.returncode = 0  # it outlives this object, which shall not say so
        self._file(name).write_text(f"{process.pid} {_began(process.pid)}")
        process.returncode = 0  # it outlives this object, which would complain of that

    def pid(self, name: str) -> int | None:
        """Return the number of one that runs."""
        with contextlib.suppress(OSError, ValueError):
            number, began = self._file(name).read_text().split()
            if _began(int(number)) == began:
                return int(number)
        return None

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End one, and wait for it."""
        pid = self.pid(name)
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, how)
        until = time.monotonic() + STOP_SECONDS
        while self.pid(name) is not None:
            if time.monotonic() > until:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            time.sleep(0.02)
        self._file(name).unlink(missing_ok=True)

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.pid"


def _began(pid: int) -> str:
    """Return when a process began; empty if it is none, or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
