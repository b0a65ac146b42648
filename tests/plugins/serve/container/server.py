"""A real server for the tests, on a free port of loopback."""

from __future__ import annotations

import re
import subprocess
import sys
import threading

from tests.support.kernels import containers_of, eventually

START_SECONDS = 30


class Server:
    """`sandbox-kernel serve` as a process."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "sandbox_kernel", "serve", "--port", "0", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        guard = threading.Timer(START_SECONDS, self.process.kill)
        guard.start()
        self.said = [self.process.stderr.readline() for _ in range(3)]
        guard.cancel()
        self.url = self.said[0].strip()
        assert re.fullmatch(r"https?://127\.0\.0\.1:\d+", self.url), self.said
        self.log: list[str] = []
        self._reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr or ()), daemon=True)
        self._reader.start()

    def close(self) -> int:
        """End it as a service manager does, with all that it started; return its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(20)
        self._reader.join(5)
        assert self.process.stderr is not None
        self.process.stderr.close()
        eventually(lambda: not containers_of(self.process.pid), 10, "its containers are gone")
        return code
