"""Open files from one process to another, whatever cells of the same user have on their way. Standard library only.

The kernel counts descriptors in flight by user, and compares the count with the sender's own limit of open files. A
sandbox that has the user of its owner can fill it as far as the sandbox's own limit, which is lower than what this
process may allow itself.
"""

from __future__ import annotations

import errno
import resource
import socket
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
