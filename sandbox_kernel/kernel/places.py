"""The place of a launcher in the world, taken over by another process: its files, folder, variables and arguments.

Both ends of that are processes of the same user; `launch.py` is the other one. Standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import NamedTuple

from ..core.descriptors import send_fds
from . import launch
from .doors import Launched

REQUEST_SECONDS = 2.0
"""For a launcher to say what it wants, and to hear that it gets it."""
MOST_FILES = 4 + len(launch.CHANNELS)
SO_PEERPIDFD = 77
GONE_MEANWHILE = "it has gone, and another process may have its number"
GONE = 74
"""The exit code of a process whose launcher was gone before it could be tied to it."""


class Asked(NamedTuple):
    argv: list[str]
    environment: dict[bytes, bytes]
    names: list[str]
    files: list[int]
    """Standard input, output and error, the folder, and the doors that are named: as far as nobody has taken them."""


class Launcher:
    """The process at the other end, which a copy has to be like. While it is there, its number is no other's."""

    def __init__(self, pid: int, uid: int, pidfd: int) -> None:
        self.pid, self.uid, self._pidfd = pid, uid, pidfd

    @classmethod
    def of(cls, sock: socket.socket) -> Launcher | None:
        """Return who connected, None for one that has gone or cannot be seen from here. Raises OSError without room."""
        found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, uid = int.from_bytes(found[:4], sys.byteorder), int.from_bytes(found[4:8], sys.byteorder)
        with suppress(ProcessLookupError):
            if pid > 0 and (pidfd := process_of(sock, pid)) >= 0:
                return cls(pid, uid, pidfd)
        return None

    @property
    def is_there(self) -> bool:
        """Whether what was read under its number until now is its own."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return not poll.poll(0)

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._pidfd)


def process_of(sock: socket.socket, pid: int) -> int:
    """Return a pidfd of the process that connected, -1 if it is gone. Raises OSError.

    Before Linux 6.5 nobody says more than its number: then of the process that has it a moment after it connected.
    """
    try:
        return int.from_bytes(sock.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD, 4), sys.byteorder)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENODATA, errno.ESRCH}:
            return -1
        if error.errno != errno.ENOPROTOOPT:
            raise
    return os.pidfd_open(pid)


def receive(sock: socket.socket) -> Asked:
    """Return what a launcher wants. Raises ValueError for another's words, OSError when they do not come in time."""
    deadline = time.monotonic() + REQUEST_SECONDS
    sock.settimeout(REQUEST_SECONDS)
    data, files, _, _ = socket.recv_fds(sock, 1 << 16, MOST_FILES)
    try:
        for file in files:
            os.set_inheritable(file, False)  # the function above has no heed for flags
        return _asked(sock, data, files, deadline)
    except BaseException:
        for file in files:
            os.close(file)
        raise


def _asked(sock: socket.socket, data: bytes, files: list[int], deadline: float) -> Asked:
    sections: list[bytes] = []
    buffer = bytearray(data)
    while len(sections) < 5:
        while len(buffer) < 4 or len(buffer) < 4 + (size := int.from_bytes(buffer[:4], "big")):
            if time.monotonic() > deadline or not (more := sock.recv(1 << 20)) or len(buffer) > launch.MOST_BYTES:
                raise ValueError("it ends in the midst")
            buffer += more
        sections.append(bytes(buffer[4 : 4 + size]))
        del buffer[: 4 + size]
    magic, stamp, names, argv, environment = sections
    if buffer or magic != launch.MAGIC or stamp != launch.stamp():
        raise ValueError("another Python, or another version of this package")
    doors = names.decode().split()
    if len(files) != 4 + len(doors) or not set(doors) <= set(launch.CHANNELS):
        raise ValueError("other files than it said")
    pairs = (one.partition(b"=") for one in environment.split(b"\0") if one)
    return Asked(
        [os.fsdecode(word) for word in argv.split(b"\0")], {name: value for name, _, value in pairs}, doors, files
    )


def take_over(asked: Asked, launcher: int) -> Launched:
    """Take what a launcher brought as if it had been this process's from its start. Raises OSError.

    What is no file of its own any more is no longer in the list then.
    """
    if os.getsid(0) != os.getpid():
        os.setsid()
    for number in range(3):
        os.dup2(asked.files[0], number)
        os.close(asked.files.pop(0))
    os.fchdir(asked.files[0])
    os.close(asked.files.pop(0))
    os.environb.clear()
    os.environb.update(asked.environment)
    time.tzset()
    sys.argv = [launch.__file__, *asked.argv]
    return Launched(launcher, dict(zip(asked.names, asked.files, strict=True)))


def tie(sock: socket.socket) -> None:
    """Have the system end this process with the launcher, at once and whatever this process does. Raises OSError.

    Nothing comes over the connection any more: when the system says that it can be read, that is its end.
    """
    fcntl.fcntl(sock, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(sock, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(sock, fcntl.F_SETFL, fcntl.fcntl(sock, fcntl.F_GETFL) | fcntl.FASYNC)
    sock.setblocking(False)
    with suppress(BlockingIOError):
        if not sock.recv(1):  # it was gone before
            os._exit(GONE)


def take_place(sock: socket.socket, asked: Asked, launcher: int) -> Launched:
    """Be from now on what a launcher started, and end with it. Raises OSError, and ValueError if it says no."""
    launched = take_over(asked, launcher)
    pidfd = os.pidfd_open(os.getpid())
    send_fds(sock, b"ready", [pidfd])
    os.close(pidfd)
    if sock.recv(1) != launch.GO:
        raise ValueError("it has done without")
    tie(sock)
    return launched
