"""A process that has loaded what kernels load, and forks itself into each of them: `python -m ... FD BLANKS`.

It is a child of the process that asks (a Jupyter Server, nbclient), and so has its user, groups, namespaces, cgroup and
limits. It has one thread, runs no loop, and opens nothing but the socket `FD` to its parent. Each request there is
four bytes with the size of what follows, with four descriptors: a socket for the new process alone, and its stdin,
stdout and stderr. What follows is JSON: `argv` of the kernel, `env`, `cwd`.

Over its own socket, the new process says its number and begins once it was answered. Where nobody answers, it ends.
Its exit code comes over the same socket, and its number is not given to another process before the parent closes that.
The blanks are room for what `ps` shows of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

from ...core.kernel_command import FORK_NUMBER, FORK_SIZE
from ...core.model import Settings
from ...engines.shipping import new_spec
from ...kernel import head_start

MAX_REQUEST = 4 << 20
"""Bytes: all variables and arguments that a process can be started with are shorter."""
DESCRIPTORS = 4
READY = b"\1"
"""What the parent gets once all is loaded."""
IDLE_SECONDS = 600.0
"""How long it waits for a request while no kernel of its own runs."""
PARENT_SECONDS = 1.0
"""How often it looks whether its parent is still there."""
PRELOADED = (
    "sandbox_kernel.kernel.proxy",
    "sandbox_kernel.kernel.front_sockets",
    "sandbox_kernel.engines.docker.engine",
    "sandbox_kernel.engines.docker.container",
    "sandbox_kernel.config.sources",
    "subprocess",
)


class ForkServer:
    """The kernels that were forked, each with its socket, until the parent has closed that."""

    def __init__(self, parent: socket.socket) -> None:
        self._parent: socket.socket | None = parent
        self._parent_pid = os.getppid()
        self._running: dict[int, socket.socket] = {}
        self._ended: dict[socket.socket, int] = {}
        self._loaded = _files()
        self._woken, self._wake = socket.socketpair()
        for end in (self._woken, self._wake):
            end.setblocking(False)

    def run(self) -> tuple[list[str], dict[str, int]] | None:
        """Serve until the parent is gone, or nothing was asked for a long time and no kernel is left; return None.

        In each new process it returns with the arguments of a kernel, and the ports that it has opened.
        """
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno())
        since = time.monotonic()
        while os.getppid() == self._parent_pid:
            asking = [self._parent] if self._parent is not None else []
            ready, _, _ = select.select([*asking, self._woken, *self._ended], [], [], PARENT_SECONDS)
            if self._woken in ready:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4096)
            for end in self._ended.keys() & set(ready):
                os.waitpid(self._ended.pop(end), 0)
                end.close()
            self._report()
            if self._parent in ready:
                since = time.monotonic()
                if (kernel := self._answer()) is not None:
                    return kernel
            if self._running or self._ended:
                since = time.monotonic()
            elif self._parent is None or time.monotonic() - since > IDLE_SECONDS:
                break
        return None

    def _report(self) -> None:
        """Tell the parent which kernels have ended, and keep their numbers for as long as it may use them."""
        if sys.platform != "linux":
            return  # there is no fork server, see provisioner.py
        for pid in [*self._running]:
            if (ended := os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is None:
                continue
            code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
            end = self._running.pop(pid)
            self._ended[end] = pid
            with contextlib.suppress(OSError):
                end.sendall(FORK_NUMBER.pack(code))

    def _answer(self) -> tuple[list[str], dict[str, int]] | None:
        """Take the next request; return arguments and ports in the new process, None in this one."""
        request, fds = self._received()
        if request is not None and _files() == self._loaded:
            return self._fork(request, fds)
        # The parent has closed its end, or another version of this package was installed over the one that is loaded.
        for fd in fds:
            os.close(fd)
        if self._parent is not None:
            self._parent.close()
        self._parent = None
        return None

    def _received(self) -> tuple[dict[str, Any] | None, list[int]]:
        """Return the next request and its descriptors; no request if the parent has ended it, or made no sense."""
        assert self._parent is not None  # noqa: S101 (for the type)
        try:
            head, fds, _, _ = socket.recv_fds(self._parent, FORK_SIZE.size, DESCRIPTORS)
            if len(head) == FORK_SIZE.size and len(fds) == DESCRIPTORS and FORK_SIZE.unpack(head)[0] <= MAX_REQUEST:
                data = self._parent.recv(FORK_SIZE.unpack(head)[0], socket.MSG_WAITALL)
                return json.loads(data), fds
        except (OSError, ValueError):
            return None, []
        return None, fds

    def _fork(self, request: dict[str, Any], fds: list[int]) -> tuple[list[str], dict[str, int]] | None:
        status, *streams = fds
        end = socket.socket(fileno=status)
        if pid := os.fork():
            self._running[pid] = end
            for fd in streams:
                os.close(fd)
            return None
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for other in (self._parent, self._woken, self._wake, *self._running.values(), *self._ended):
            if other is not None:
                other.close()
        os.setsid()
        ports = head_start.open_ports(head_start.connection_file_of(request["argv"]))  # clients come at once
        with end:
            end.sendall(FORK_NUMBER.pack(os.getpid()))
            if not end.recv(1):
                os._exit(1)
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
            if fd > len(streams):
                os.close(fd)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        time.tzset()
        _show(request["argv"])
        return list(request["argv"]), ports


def _show(argv: list[str]) -> None:
    """Have `ps` show the command of the kernel, in the memory of the fork server's own and no longer than that."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat", encoding="utf-8") as file:  # noqa: PTH123 (pathlib is slow)
            begin, end = map(int, file.read().rpartition(")")[2].split()[45:47])  # arg_start, arg_end: see proc(5)
        words = [*sys.orig_argv[: sys.orig_argv.index("-m") + 1], "sandbox_kernel", *argv]
        if 0 < begin < end:
            ctypes.memmove(begin, "\0".join(words).encode()[: end - begin - 1].ljust(end - begin, b"\0"), end - begin)


def _files() -> dict[str, tuple[int, int]]:
    """Return what says whether the files of this package are those that were loaded."""
    found: dict[str, tuple[int, int]] = {}
    for name, module in [*sys.modules.items()]:
        if name.startswith("sandbox_kernel.") and (path := getattr(module, "__file__", None)):
            with contextlib.suppress(OSError):
                status = os.stat(path)  # noqa: PTH116 (pathlib is slow)
                found[name] = status.st_mtime_ns, status.st_ino
    return found


def main() -> int:
    """Load, serve, and be a kernel in each new process; return the exit code."""
    parent = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()
    for name in PRELOADED:
        importlib.import_module(name)
    new_spec(Settings())  # what is the same for all sandboxes is made once
    gc.freeze()
    try:
        parent.sendall(READY)
    except OSError:
        return 0  # who wanted kernels has ended meanwhile
    kernel = ForkServer(parent).run()
    return 0 if kernel is None else head_start.kernel_main(*kernel)


if __name__ == "__main__":
    code = main()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
