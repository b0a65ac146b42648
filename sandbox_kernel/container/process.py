"""What the agent asks of the system for its own process: pipes that never block, memory that stays, and privacy.

Runs inside the container, where the host ships its source: standard library only, and Python 3.9 and later.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable

F_SETPIPE_SZ = 1031
PIPE_BYTES = 1 << 20
"""What an ordinary user may have, see pipe(7)."""
PAUSE = 0.0005
KEPT_BYTES = 64 << 20

NICENESS = 5
"""How much less of the processor a kernel and its children get than this process, where they compete for it.

Only within the container: its share of the machine is the engine's to set, and stays the same.
"""

_PR_SET_DUMPABLE = 4
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8


LEASE = 60.0
"""Seconds of silence after which the host is taken for dead; it sends a ping every few seconds."""
STILL = 5.0
"""Seconds without a turn of the agent's loop, which waits for one at most: it was paused with its sandbox."""


class SilenceLease:
    """How long the host may be silent. Time in which this process could not run does not count."""

    def __init__(self) -> None:
        self.heard = self.looked = time.monotonic()

    def renew(self) -> None:
        self.heard = time.monotonic()

    def over(self) -> bool:
        """Return whether the host is gone; to be asked at each turn of the loop."""
        now = time.monotonic()
        since, self.looked = now - self.looked, now
        if since > STILL:
            self.heard += since
        return now - self.heard > LEASE


def prepare_pipes(stdin: int, stdout: int) -> int:
    """Make the pipes fit for a loop that never blocks; return the end that wakes it when a child has ended."""
    # SIGINT is the kernel's; a process without handler for a signal cannot be sent it as PID 1 from inside.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wake_read, wake_write = os.pipe()
    for fd in (wake_read, wake_write, stdin, stdout):
        os.set_blocking(fd, False)
    for fd in (stdin, stdout):
        try:
            fcntl.fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES)
        except OSError:
            pass
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return wake_read


def let_engine_read(stdin: int, wake: int) -> None:
    """Wait for a moment, unless something is to be read.

    The engine takes 32 kB at a time out of the pipe: a pause lets it take many of them before the next write.
    """
    import select

    select.select([stdin, wake], [], [], PAUSE)


def settle() -> Callable[[], object]:
    """Close this process to others, and have it keep freed memory; return what gives that back.

    The user's code has the same uid, and is kept away from this process's memory and file descriptors. A message of
    50 MB else goes into new pages each time, which cost more than the receiving. Call before there are threads.
    """
    import ctypes

    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    try:
        libc.mallopt(_M_ARENA_MAX, 1)
        libc.mallopt(_M_MMAP_MAX, 0)  # a mapping of its own would be given back at once
        libc.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        return lambda: libc.malloc_trim(0)
    except AttributeError:  # not glibc
        return lambda: None


def read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
