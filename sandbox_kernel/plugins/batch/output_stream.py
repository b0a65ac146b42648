"""This process's own stdout and stderr, for readers that pause or go: a pager, a stopped terminal, `head`.

A write that waits for its reader would stop the clocks of a run, its pings, and its ear for Ctrl-C. What is said here
may end in the log of a service that looks for commands in it, so no line of a cell is one.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
import time
from collections.abc import Mapping
from typing import TextIO

from ...policy.safe_text import LogLines, coloured, ours

PIECE = 4096
"""PIPE_BUF, see pipe(7): a pipe that is ready takes so many bytes at once."""
STEP_SECONDS = 0.02
MAX_KEPT = 1 << 20
"""Bytes kept for a reader that pauses; further output is lost."""


class OutputStream:
    """One of the two streams."""

    def __init__(self, stream: TextIO, environment: Mapping[str, str] = os.environ) -> None:
        self._stream = stream
        self._lines = LogLines(buildkite="BUILDKITE" in environment)
        self._is_log = is_log(stream, environment)
        self._kept = bytearray()
        self._gone = False
        self._poll: select.poll | None = None
        try:
            stream.flush()  # from here on, its buffer is passed by
            self._fd = stream.fileno()
            self._poll = select.poll()
            self._poll.register(self._fd, select.POLLOUT)
        except (OSError, ValueError):
            pass  # a stream in memory, which is always ready, or a closed one

    def say(self, text: str, *, live: bool = False) -> None:
        """Write lines of our own without waiting; what the reader does not take now is kept for the next time.

        They may quote what a cell chose. `live` is for a terminal: it may have colours.
        """
        text = coloured(text) if live else "\n".join(map(ours, text.split("\n")))
        if len(self._kept) < MAX_KEPT:
            self._kept += self._encoded(self._lines.feed(text))
        self._push()

    async def write(self, text: str) -> None:
        """Write what a cell has printed, and wait until the reader has taken it or is gone."""
        self._kept += self._encoded(self._lines.feed(text, act=self._is_log))
        self._push()
        while self._kept:
            await asyncio.sleep(STEP_SECONDS)
            self._push()

    def erase(self) -> None:
        """Take away the line that the cursor of a terminal is in."""
        self._kept += b"\r\x1b[2K"
        self._push()

    def finish(self, seconds: float) -> None:
        """Give the reader so much time to take what is kept."""
        deadline = time.monotonic() + seconds
        self._push()
        while self._kept and (left := deadline - time.monotonic()) > 0:
            if self._poll is not None:
                self._poll.poll(1000 * left)
            self._push()

    def _encoded(self, text: str) -> bytes:
        return text.encode(self._stream.encoding or "utf-8", "backslashreplace")

    def _push(self) -> None:
        try:
            if self._gone:
                self._kept.clear()
            elif self._poll is None:
                self._stream.write(self._kept.decode(self._stream.encoding or "utf-8"))
                self._stream.flush()
                self._kept.clear()
            else:
                while self._kept and self._poll.poll(0):
                    del self._kept[: os.write(self._fd, self._kept[:PIECE])]
        except BlockingIOError:
            pass  # somebody else made it a stream that never waits
        except (OSError, ValueError):
            self._gone = True  # nobody reads any more; the run goes on
            self._kept.clear()


SERVICES = frozenset(
    """APPVEYOR BITBUCKET_BUILD_NUMBER BUILDKITE CI CIRCLECI CODEBUILD_BUILD_ID DRONE GITEA_ACTIONS GITHUB_ACTIONS
    GITLAB_CI JENKINS_URL TEAMCITY_VERSION TF_BUILD TRAVIS""".split()  # noqa: SIM905
)
"""Variables by which services that run jobs are known."""


def is_log(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether a stream may end in the log of a service: all but a terminal, or a file of somebody's own."""
    if any(environment.get(name) for name in SERVICES):
        return True
    try:
        return not (stream.isatty() or stat.S_ISREG(os.fstat(stream.fileno()).st_mode))
    except (OSError, ValueError):
        return True  # a stream in memory, or a closed one
