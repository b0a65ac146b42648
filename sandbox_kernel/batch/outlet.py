"""This process's own stdout and stderr, for readers that pause or go: a pager, a stopped terminal, `head`.

A write that waits for its reader would stop the clocks of a run, its pings, and its ear for Ctrl-C. Standard library
only.
"""

from __future__ import annotations

import asyncio
import os
import select
import time
from typing import TextIO

PIECE = 4096
"""PIPE_BUF, see pipe(7): a pipe that is ready takes so many bytes at once."""
STEP_SECONDS = 0.02
MAX_KEPT = 1 << 20
"""Bytes kept for a reader that pauses; what is said beyond that is lost."""


class Outlet:
    """One of the two streams."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
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

    def say(self, text: str) -> None:
        """Write without waiting; what the reader does not take now is kept for the next time."""
        if len(self._kept) < MAX_KEPT:
            self._kept += self._encoded(text)
        self._push()

    async def write(self, text: str) -> None:
        """Write, and wait until the reader has taken it or is gone."""
        self._kept += self._encoded(text)
        self._push()
        while self._kept:
            await asyncio.sleep(STEP_SECONDS)
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
