"""A lock on an open file, among processes, that is waited for within a bound: who holds it may be stopped for good."""

from __future__ import annotations

import fcntl
import time

_SHORTEST, _LONGEST = 0.0002, 0.001


def take(fd: int, seconds: float) -> bool:
    """Lock a file, which `release` or its closing ends; return whether that was done within `seconds`."""
    until, pause = time.monotonic() + seconds, _SHORTEST
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST)
        else:
            return True


def release(fd: int) -> None:
    fcntl.flock(fd, fcntl.LOCK_UN)
