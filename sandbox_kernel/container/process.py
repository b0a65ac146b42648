"""What the agent asks of the system for its own process: pipes that never block, memory that stays, and privacy.

Runs inside the container, where the host ships its source: standard library only, and Python 3.9 and later.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
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
_ZMQ_PAIR = 0
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8


LEASE = 60.0
"""Seconds of silence after which the host is taken for dead; it sends a ping every few seconds."""
STILL = 5.0
"""Seconds without a turn of the agent's loop, which waits for one at most: it stood still with all of its sandbox."""


class Lease:
    """How long the host may be silent. Time in which nobody here could have heard it does not count."""

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


def wait_for_pipes(stdin: int, wake: int, stdout: int) -> dict[int, int]:
    """Wait a second at most until something can be read, or a good deal written; return these as a poller does."""
    import select

    # The engine takes 32 kB at a time out of the pipe: a pause lets it take many of them before the next write.
    none: list[int] = []
    read, write, _ = select.select([stdin, wake], none, none, PAUSE)
    if not read:
        read, write, _ = select.select([stdin, wake], [stdout], none, 1.0)
    return dict.fromkeys([*read, *write], 1)


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


def start_threads() -> int | None:
    """Have the library of the sockets start its threads; return the address of its context.

    pyzmq takes long to load; its wheels bring the library in a file beside it. None where there is no such file.
    """
    import ctypes

    for folder in sys.path:
        if not os.path.isdir(os.path.join(folder, "zmq")):
            continue
        beside = os.path.join(folder, "pyzmq.libs")
        found = [name for name in os.listdir(beside) if name.startswith("libzmq")] if os.path.isdir(beside) else []
        if len(found) != 1:
            return None
        try:
            library = ctypes.CDLL(os.path.join(beside, found[0]))
        except OSError:
            return None
        library.zmq_ctx_new.restype = library.zmq_socket.restype = ctypes.c_void_p
        library.zmq_socket.argtypes, library.zmq_close.argtypes = (ctypes.c_void_p, ctypes.c_int), (ctypes.c_void_p,)
        context = library.zmq_ctx_new()
        library.zmq_close(library.zmq_socket(context, _ZMQ_PAIR))
        return int(context)
    return None


def threads() -> list[int]:
    """Return the threads of this process."""
    return sorted(int(name) for name in os.listdir("/proc/self/task"))


def read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
