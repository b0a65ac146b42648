"""A process in which all of a kernel is loaded, and from which each kernel is forked that a front end asks for.

The user's own broker starts it, and it ends with the broker; kernels that were forked go on. It has no thread, no event
loop and no context of ZMQ, and runs nobody's code: what is loaded is all that two kernels share. A kernel that is asked
for is this process's copy, which takes over what `launch.py` sends: its files, its folder, its variables and arguments.
"""

from __future__ import annotations

import fcntl
import gc
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import NamedTuple

from . import launch
from .alike import AlikeError, require_alike
from .doors import Launched

MODULES = (
    *("asyncio", "ctypes", "concurrent.futures.thread", "resource"),
    *("sandbox_kernel.config.sources", "sandbox_kernel.engines.broker.engine", "sandbox_kernel.gateway"),
    *("sandbox_kernel.kernel.heap", "sandbox_kernel.kernel.proxy", "sandbox_kernel.kernel.sockets"),
)
"""What an ordinary start has loaded by its first cell."""
READY = b"up\n"
REQUEST_SECONDS = 2.0
"""For a launcher to say what it wants, and to hear that it gets it."""
MOST_KERNELS = 256
MOST_FILES = 4 + len(launch.CHANNELS)
STALE = 75
"""The exit code of a copy that found other files on the disk than were loaded."""
DECLINED = 74
NO_COPIES = 1


class Asked(NamedTuple):
    argv: list[str]
    environment: dict[bytes, bytes]
    names: list[str]
    files: list[int]


class Prepared:
    """The process that is copied."""

    def __init__(self, listener: socket.socket, files: dict[str, tuple[int, int, int]]) -> None:
        """`files` are those that were loaded, as they were."""
        self.listener = listener
        self.files = files
        self.kernels: dict[int, tuple[int, socket.socket]] = {}
        """By their pidfds, until they end: their numbers, and who is to hear how."""
        self._poll = select.poll()

    def serve(self) -> None:
        """Fork kernels until the broker is gone, or another package lies on the disk."""
        self.listener.setblocking(False)
        self._poll.register(self.listener, select.POLLIN)
        self._poll.register(sys.stdin.fileno(), select.POLLIN)
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == sys.stdin.fileno():
                    return
                if descriptor == self.listener.fileno():
                    with suppress(OSError):
                        self._take(self.listener.accept()[0])
                elif self._ended(descriptor) == STALE:
                    return

    def _take(self, sock: socket.socket) -> None:
        pid, uid = credentials(sock)
        if uid != os.geteuid() or pid <= 0 or len(self.kernels) >= MOST_KERNELS:
            sock.close()
            return
        copy = os.fork()
        if not copy:
            self._become(sock, pid)  # which does not return
        pidfd = os.pidfd_open(copy)
        self.kernels[pidfd] = copy, sock
        self._poll.register(pidfd, select.POLLIN)

    def _ended(self, pidfd: int) -> int:
        pid, sock = self.kernels.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with sock, suppress(OSError):
            if code < 0:  # else it has said so itself, whether this process was there or not
                sock.sendall(b"%d" % code)
        return code

    def _become(self, sock: socket.socket, launcher: int) -> None:
        """Be a kernel, in the copy; ends the process."""
        code = DECLINED
        try:
            self.listener.close()
            for pidfd, (_, other) in self.kernels.items():
                os.close(pidfd)
                other.close()
            sock.settimeout(REQUEST_SECONDS)
            asked = receive(sock)
            require_alike(launcher, asked.environment)
            if self.files != loaded_files(self.files):
                os._exit(STALE)
            launched = take_over(asked, launcher)
            pidfd = os.pidfd_open(os.getpid())
            socket.send_fds(sock, [b"ready"], [pidfd])
            os.close(pidfd)
            if sock.recv(1) != launch.GO:
                os._exit(DECLINED)
            tie(sock)
        except (OSError, ValueError, AlikeError):
            os._exit(DECLINED)
        code = NO_COPIES
        try:
            from .head_start import kernel_main

            code = kernel_main(asked.argv, launched)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            with suppress(OSError):
                sock.sendall(b"%d" % (code & 0xFF))
            os._exit(code)


def credentials(sock: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end, as the system says."""
    found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(found[:4], sys.byteorder), int.from_bytes(found[4:8], sys.byteorder)


def receive(sock: socket.socket) -> Asked:
    """Return what a launcher wants. Raises ValueError for another's words, OSError when they do not come in time."""
    deadline = time.monotonic() + REQUEST_SECONDS
    data, files, _, _ = socket.recv_fds(sock, 1 << 16, MOST_FILES)
    for file in files:
        os.set_inheritable(file, False)  # the function above has no heed for flags
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
    """Take what a launcher brought as if it had been this process's from its start. Raises OSError."""
    os.setsid()
    stdin, stdout, stderr, folder, *doors = asked.files
    for number, file in enumerate((stdin, stdout, stderr)):
        os.dup2(file, number)
        os.close(file)
    os.fchdir(folder)
    os.close(folder)
    os.environb.clear()
    os.environb.update(asked.environment)
    time.tzset()
    sys.argv = [launch.__file__, *asked.argv]
    show(asked)
    return Launched(launcher, dict(zip(asked.names, doors, strict=True)))


def show(asked: Asked) -> None:
    """Have the lists of processes show the arguments of this kernel, and its notebook, in the room of this program's.

    For people: where it cannot be, the kernel is as good without.
    """
    words = b"\0".join(os.fsencode(word) for word in (sys.executable, "-m", "sandbox_kernel", *asked.argv)) + b"\0"
    notebook = b"JPY_SESSION_NAME"
    variable = notebook + b"=" + asked.environment[notebook] if notebook in asked.environment else b""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/stat", "rb") as stat:  # noqa: PTH123 (a short way)
        fields = stat.read().rpartition(b")")[2].split()
        places = [int(field) for field in fields[45:49]]
        with open("/proc/self/mem", "r+b", buffering=0) as memory:  # noqa: PTH123 (as above)
            for begin, end, text in ((places[0], places[1], words), (places[2], places[3], variable)):
                memory.seek(begin)
                memory.write(text[: end - begin - 1].ljust(end - begin, b"\0"))


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
            os._exit(DECLINED)


def loaded_files(known: dict[str, tuple[int, int, int]] | None = None) -> dict[str, tuple[int, int, int]]:
    """Return the files of the modules that are loaded, or those that are `known`, and what tells of a change."""
    paths = known if known is not None else {str(getattr(one, "__file__", None)) for one in sys.modules.values()}
    found: dict[str, tuple[int, int, int]] = {}
    for path in paths:
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
    """Run as the process that is copied. Arguments: the descriptor of the socket, and room for longer ones."""
    import resource

    # Each copy gets its launcher's, which it could not if this process had given up the right to more.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    files_before = loaded_files()
    load()
    files = files_before | loaded_files()
    if len(os.listdir("/proc/self/task")) != 1:  # noqa: PTH208 (names are enough)
        return 1  # something that was loaded started a thread, of which a copy would have none
    with socket.socket(fileno=int(argv[0])) as listener:
        os.write(1, READY)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.close(null)
        Prepared(listener, files).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
