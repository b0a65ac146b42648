"""Open files: passed from one process to another, and looked at for another's lock.

Cells of the same user may have files on their way too. The kernel counts descriptors in flight by user, and compares
the count with the sender's own limit of open files. A sandbox that has the user of its owner can fill it as far as the
sandbox's own limit, which is lower than what this process may allow itself.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
import sys
from collections.abc import Sequence


def send_fds(sock: socket.socket, data: bytes, fds: Sequence[int]) -> int:
    """Send bytes and descriptors; return how many of the bytes were sent. Raises OSError.

    Where too many are in flight, once more with the highest limit of open files that this process may have.
    """
    try:
        return socket.send_fds(sock, [data], list(fds))
    except OSError as error:
        if error.errno != errno.ETOOMANYREFS:
            raise
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        return socket.send_fds(sock, [data], list(fds))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def is_locked(path: str | os.PathLike[str], folder: int | None = None) -> bool:
    """Return whether somebody has a lock of a file, which goes with its process; False where there is no such file.

    `folder` is the handle of the one that the path begins in. What cannot be told counts as locked.
    """
    import fcntl

    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


MAX_FILES = 1 << 16 if sys.platform == "linux" else 10_240  # more is an error on macOS, whose limit says "infinite"


def room_for_files() -> None:
    """Take as many file descriptors as this process may have: connections and sandboxes take some each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
