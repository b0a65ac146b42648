"""A process in which all of a kernel is loaded, and from which each kernel is forked that a front end asks for.

The user's own broker starts it, and it ends with the broker; kernels that were forked go on. It has no thread, no event
loop and no context of ZMQ, and runs nobody's code: what is loaded is all that two kernels share. A kernel that is asked
for is this process's copy, which takes over what `launch.py` sends: its files, its folder, its variables and arguments.
"""

from __future__ import annotations

import gc
import math
import os
import select
import signal
import socket
import sys
import time
from contextlib import ExitStack, suppress

from ..core.listening import PAUSE_SECONDS, taken_from
from ..core.resources import keep_ends_of_children
from . import launch, successor
from .alike import AlikeError, require_alike
from .places import GONE_MEANWHILE, Launcher, receive, take_place

MODULES = (
    *("asyncio", "ctypes", "concurrent.futures.thread", "resource"),
    *("sandbox_kernel.config.sources", "sandbox_kernel.engines.broker.engine", "sandbox_kernel.gateway"),
    *("sandbox_kernel.kernel.heap", "sandbox_kernel.kernel.proxy", "sandbox_kernel.kernel.sockets"),
)
"""What an ordinary start has loaded by its first cell."""
READY = b"up\n"
FORKED, TAKEN_BACK = b"+", b"-"
"""What the broker is told of each copy: that there is one, and that it was to be no kernel after all."""
MOST_KERNELS = 256
STALE = 75
"""The exit code of a copy that found other files on the disk than were loaded."""
DECLINED = 74


class Prepared:
    """The process that is copied."""

    def __init__(self, listener: socket.socket, files: dict[str, tuple[int, int, int]], told: int) -> None:
        """`files` are those that were loaded, as they were; `told` is a pipe to the broker, who counts."""
        self.listener = listener
        self.told = told
        self.files = files
        self.kernels: dict[int, tuple[int, socket.socket]] = {}
        """By their pidfds, until they end: their numbers, and who is to hear how."""
        self._poll = select.poll()

    def serve(self) -> None:
        """Fork kernels until the broker is gone, or another package lies on the disk."""
        self.listener.setblocking(False)
        self._poll.register(self.listener, select.POLLIN)
        self._poll.register(sys.stdin.fileno(), select.POLLIN)
        again = math.inf
        while True:
            wait = None if again == math.inf else 1000 * max(0.0, again - time.monotonic())
            for descriptor, _ in self._poll.poll(wait):
                if descriptor == sys.stdin.fileno():
                    return
                if descriptor == self.listener.fileno():
                    if not self._answer():
                        self._poll.unregister(self.listener)
                        again = time.monotonic() + PAUSE_SECONDS
                elif self._ended(descriptor) == STALE:
                    return
            if time.monotonic() >= again:
                self._poll.register(self.listener, select.POLLIN)
                again = math.inf

    def _answer(self) -> bool:
        """Serve the next one; return whether there is room for more. Whoever gets no answer starts as ever."""
        try:
            if (sock := taken_from(self.listener)) is not None:
                self._take(sock)
        except OSError:
            return False
        return True

    def _take(self, sock: socket.socket) -> None:
        """Fork a kernel for whoever is there, and hang up on who is not to have one. Raises OSError without room."""
        with ExitStack() as undo:
            undo.callback(sock.close)
            launcher = Launcher.of(sock)
            if launcher is None:
                return
            with launcher:
                if launcher.uid != os.geteuid() or len(self.kernels) >= MOST_KERNELS:
                    return
                copy = os.fork()
                if not copy:
                    self._become(sock, launcher)  # which does not return
            try:
                pidfd = os.pidfd_open(copy)
            except OSError:  # nobody would hear of its end
                os.kill(copy, signal.SIGKILL)
                os.waitpid(copy, 0)
                raise
            undo.pop_all()
        self.kernels[pidfd] = copy, sock
        self._poll.register(pidfd, select.POLLIN)
        self._tell(FORKED)

    def _ended(self, pidfd: int) -> int:
        pid, sock = self.kernels.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code in {STALE, DECLINED}:
            self._tell(TAKEN_BACK)
        with sock, suppress(OSError):
            if code < 0:  # else it has said so itself, whether this process was there or not
                sock.sendall(b"%d" % code)
        return code

    def _tell(self, what: bytes) -> None:
        with suppress(OSError):  # a broker that does not read counts too few
            os.write(self.told, what)

    def _become(self, sock: socket.socket, launcher: Launcher) -> None:
        """Be a kernel, in the copy; ends the process."""
        try:
            self.listener.close()
            os.close(self.told)
            for pidfd, (_, other) in self.kernels.items():
                os.close(pidfd)
                other.close()
            asked = receive(sock)
            require_alike(launcher.pid, asked.environment)
            if not launcher.is_there:
                raise AlikeError(GONE_MEANWHILE)
            if self.files != loaded_files(self.files):
                decline(sock, launch.OUTDATED)
                os._exit(STALE)
            with launcher:
                launched = take_place(sock, asked, launcher.pid)
        except (OSError, ValueError, AlikeError) as error:
            decline(sock, "it has no room" if isinstance(error, OSError) else str(error))
            os._exit(DECLINED)
        successor.run_as_kernel(sock, asked.argv, launched)


def decline(sock: socket.socket, why: str) -> None:
    """Say why whoever asks is not to have a kernel, as far as it listens."""
    with suppress(OSError):
        sock.send(why.encode(errors="replace")[: launch.MOST_REASON], socket.MSG_DONTWAIT)


def loaded_files(known: dict[str, tuple[int, int, int]] | None = None) -> dict[str, tuple[int, int, int]]:
    """Return the files that were loaded, or those that are `known`, and what tells of a change."""
    found: dict[str, tuple[int, int, int]] = {}
    for path in known if known is not None else successor.loaded_files():
        with suppress(OSError):
            status = os.stat(path)  # noqa: PTH116 (there are hundreds)
            found[path] = status.st_ino, status.st_mtime_ns, status.st_size
    return found


def load() -> None:
    """Load what a kernel needs, and leave it for ever: looking for garbage would copy what is shared."""
    import importlib

    from ..core.model import Settings
    from ..engines.shipping import new_spec

    gc.disable()
    for name in MODULES:
        importlib.import_module(name)
    new_spec(Settings())  # reading and packing the agent's source; the rest of a spec is made anew each time
    gc.collect()
    gc.freeze()


def main(argv: list[str]) -> int:
    """Run as the process that is copied. Argument: the descriptor of the socket."""
    import resource

    keep_ends_of_children()
    # Each copy gets its launcher's, which it could not if this process had given up the right to more.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    files_before = loaded_files()
    load()
    files = files_before | loaded_files()
    if len(os.listdir("/proc/self/task")) != 1:  # noqa: PTH208 (names are enough)
        return 1  # something that was loaded started a thread, of which a copy would have none
    with socket.socket(fileno=int(argv[0])) as listener:
        told = os.dup(1)  # which what is started by a copy does not get
        os.write(told, READY)
        os.set_blocking(told, False)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.close(null)
        Prepared(listener, files, told).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
