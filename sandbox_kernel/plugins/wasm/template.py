"""Processes of sessions from one that has loaded what each of them loads: they begin sooner, and share its memory.

It is a child of the process that owns the sessions, and so has its user, groups, namespaces and limits. It has one
thread and nothing of a session, runs no guest, and ends with its owner or after ten minutes without a request. A new
process is the same program as one that was started alone, and closes itself in the same way: see docs/design.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, NamedTuple

from ...core.descriptors import send_fds
from ...core.version import __version__
from . import image

if TYPE_CHECKING:
    import wasmtime

NAME = "template".ljust(32, "-")
"""What stands in the place of a session's number, of the same length: a new process writes its own there."""
READY = b"\1"
ANSWER_SECONDS = 2.0
IDLE_SECONDS = 600.0
MAX_NUMBER = 64


class Forked(NamedTuple):
    """A new process of a template: it is no child of this one, and no code of its end is known."""

    pid: int
    handle: int
    """Its pidfd, which is the caller's."""


class Template:
    """A template, from the side of its owner."""

    def __init__(self, module: str, found: image.Image) -> None:
        self._lock = threading.Lock()
        self._ready = False
        self.end, its = socket.socketpair()
        self.end.setblocking(False)
        words = (f"--version={__version__}", found.folder, *(["metered"] if found.metered else []))
        with its:
            process = subprocess.Popen(
                [sys.executable, "-I", "-m", module, NAME, *words],
                stdin=its.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
        self.pid = process.pid
        process.returncode = 0  # it ends with its socket: `close`

    def fork(self, session: str, pipe: int, errors: int) -> Forked:
        """Return a new process with these descriptors. Raises `OSError`, `BlockingIOError` while it still loads."""
        with self._lock:
            self._ready = self._ready or self.end.recv(1) == READY
            ours, its = socket.socketpair()
            with ours:
                ours.settimeout(ANSWER_SECONDS)
                with its:
                    send_fds(self.end, session.encode(), (pipe, errors, its.fileno()))
                said, handles, _, _ = socket.recv_fds(ours, MAX_NUMBER, 1)
        if not (said and handles):
            raise ConnectionResetError("the template has ended")
        return Forked(int(said), handles[0])

    def close(self) -> None:
        """Let it end; what it has forked goes on."""
        self.end.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)


templates: dict[tuple[int, str, str], Template | None] = {}
"""By the process, and the folder and the contents of its image: one at most."""


def forked(module: str, found: image.Image, session: str, pipe: int, errors: int) -> Forked | None:
    """Return a new process from this process's template; None where it is to be started alone.

    The first session starts alone, and who has only one needs no template. The next one starts it.
    """
    key = os.getpid(), found.folder, found.contents
    if key not in templates:
        for other in [*templates]:  # of an image that was made anew, or of the process that this is a fork of
            if (old := templates.pop(other, None)) is not None:
                old.close()
        templates[key] = None
        return None
    template = templates[key]
    try:
        if template is not None:
            return template.fork(session, pipe, errors)
        templates[key] = Template(module, found)
    except BlockingIOError:
        pass  # it is loading
    except OSError:
        template = templates.pop(key, None)
        if template is not None:
            template.close()
    return None


def serve(folder: str, metered: str = "") -> tuple[wasmtime.Engine, wasmtime.Module]:
    """Be a template. Return in each new process, with what is loaded."""
    from .checkpoints import Checkpoints  # noqa: F401 (each of its processes needs it)
    from .machine import loaded, new_engine

    parent = socket.socket(fileno=os.dup(0))
    engine = new_engine(metered=bool(metered))
    module = loaded(engine, f"{folder}/{image.MODULE}")
    parent.settimeout(IDLE_SECONDS)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who waits for its processes has their pidfds
    gc.freeze()
    if len(os.listdir("/proc/self/task")) != 1:  # noqa: PTH208
        os._exit(1)
    with contextlib.suppress(OSError):
        parent.sendall(READY)
        while True:
            said, fds, _, _ = socket.recv_fds(parent, MAX_NUMBER, 3)
            if not said:
                break
            if os.fork() == 0:
                parent.close()
                _become(said.decode(), *fds)
                return engine, module
            for fd in fds:
                os.close(fd)
    os._exit(0)


def _become(session: str, pipe: int, errors: int, answer: int) -> None:
    """Be the process of a session, as if it had been started with these descriptors."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for number, fd in enumerate((pipe, pipe, errors)):
        os.dup2(fd, number)
    with socket.socket(fileno=answer) as owner:
        handle = os.pidfd_open(os.getpid())
        socket.send_fds(owner, [b"%d" % os.getpid()], [handle])
    for fd in (pipe, errors, handle):
        os.close(fd)
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat", encoding="ascii") as file:  # noqa: PTH123 (pathlib is slow)
            begin = int(file.read().rpartition(")")[2].split()[45])  # arg_start: see proc(5)
        place = begin + len("\0".join(sys.orig_argv[: sys.orig_argv.index(NAME)])) + 1
        ctypes.memmove(place, session.encode().ljust(len(NAME))[: len(NAME)], len(NAME))
