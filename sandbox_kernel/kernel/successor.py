"""A copy of a kernel process that ends for a restart: it keeps the container, and is the next kernel if it may be.

The process was one kernel until a moment ago: its loop, its ZMQ context and its threads are gone, and all that a kernel
loads is still there. The next process that the front end starts hands its place over, as `launch.py` does to one that
was prepared. Where it is not alike, or asks in vain, this one is a keeper, and the next starts as ever: so nothing is
lost. Without a successor, it ends after as long as a keeper does, and the container with it.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from ..core.resources import PACKAGE
from . import keeper, launch
from .head_start import kernel_main

if TYPE_CHECKING:
    from .doors import Launched
    from .handover import Parked

OWN_FILES = (0, 1, 2)
THREADS_SECONDS = 0.1
"""For threads that have said that they end, and are still there for the system."""


class Next(NamedTuple):
    """What a copy is to do when it has become the next kernel."""

    sock: socket.socket
    """To its launcher, who hears how it ends."""
    argv: list[str]
    launched: Launched
    since: float
    """Time in seconds, since when no file of it may have changed."""


def run(argv: list[str], launched: Launched | None = None) -> int:
    """Run a kernel with these arguments until its shutdown; return its exit code. A copy of it never returns."""
    code, following = _live(argv, launched, time.time())
    if following is not None:
        _go_on(following)
    return code


def run_as_kernel(sock: socket.socket, argv: list[str], launched: Launched) -> NoReturn:
    """Run a kernel, and tell its launcher how it ended; ends the process."""
    _go_on(Next(sock, argv, launched, time.time()))


def _go_on(one: Next) -> NoReturn:
    """Be one kernel after another, each in a copy of the process before: no frame of an earlier one is left then."""
    while True:
        code, following = 1, None
        try:
            code, following = _live(one.argv, one.launched, one.since)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        if following is None:
            try:
                with suppress(OSError, ValueError):
                    sys.stdout.flush()
                    sys.stderr.flush()
                with suppress(OSError):
                    one.sock.sendall(b"%d" % (code & 0xFF))
            finally:
                os._exit(code)
        one.sock.detach()  # the copy has closed it by its number, which is another file's by now
        one = following


def _live(argv: list[str], launched: Launched | None, since: float) -> tuple[int, Next | None]:
    """Run one kernel; return its exit code, or in a copy, what it does now."""
    code, parked = kernel_main(argv, launched)
    if parked is None:
        return code, None
    following = begin(parked, since)
    if isinstance(following, Next):
        return code, following
    if not following:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # for the keeper
        with suppress(OSError):
            following = parked.start_keeper() > 0
    parked.close(kept=following)
    return code, None


def begin(parked: Parked, since: float) -> Next | bool:
    """Leave a copy of this process with what is parked; return whether there is one. Call when no loop runs.

    In the copy it returns what to do next, or does not return. `since` is the time, in seconds of the clock that files
    are dated by, from which on no file may have changed that was loaded. A process that still has a thread is not
    copied: the copy would lack it.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends in a moment, and would lose what it has to leave
    deadline = time.monotonic() + THREADS_SECONDS
    try:
        while len(os.listdir("/proc/self/task")) != 1:  # noqa: PTH208 (names are enough)
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        ready, said = os.pipe()
    except OSError:
        return False
    try:
        copy = os.fork()
    except OSError:
        os.close(ready)
        os.close(said)
        return False
    if not copy:
        return _be_copy(parked, since, said)
    os.close(said)
    heard = os.read(ready, 1)  # in a group of its own, which nobody kills with this one's
    os.close(ready)
    return bool(heard)


def _be_copy(parked: Parked, since: float, said: int) -> Next:
    """Be the copy; return what to do as the next kernel, or end the process."""
    code = 1
    try:
        os.setsid()
        place = _let_go_of_all_but(parked, said)
        os.write(said, b"1")
        os.close(said)
        following = Successor(parked, place, since).serve()
        if following is not None:
            return following
        code = 0
    except BaseException:  # noqa: S110 (nobody listens any more)
        pass
    os._exit(code)


def _let_go_of_all_but(parked: Parked, said: int) -> socket.socket | None:
    """Close what was the process's before, and return where the next process may hand its place over."""
    gc.collect()  # what is left of the session before closes its files, while their numbers are its own
    leave_no_core()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    be_nobody()
    kept = {*OWN_FILES, said, parked.listener.fileno(), parked.fd, *parked.doors.values()}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (names are enough)
        if int(name) not in kept:
            with suppress(OSError):
                os.close(int(name))
    path = parked.path + launch.NEXT
    keeper.forget(path)
    place = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(place.fileno(), 0o600)  # the mode of the file that bind makes
        place.bind(path)
        place.listen(1)
    except OSError:  # the path of its folder is too long: a keeper has its ways with that
        place.close()
        return None
    return place


class Successor:
    """What waits between two kernel processes."""

    def __init__(self, parked: Parked, place: socket.socket | None, since: float) -> None:
        self._parked, self._place, self._since = parked, place, since
        self._path = parked.path + launch.NEXT
        self._own = {path: keeper.inode_of(path) for path in (self._path, parked.path)}

    def serve(self) -> Next | None:
        """Be the next kernel, or give the container to it; return what to do, None if neither or after the latter."""
        parked = self._parked
        deadline = time.monotonic() + keeper.HOLD_SECONDS
        poll = select.poll()
        poll.register(parked.listener, select.POLLIN)
        if self._place is not None:
            poll.register(self._place, select.POLLIN)
        gone = False
        while not gone and (left := deadline - time.monotonic()) > 0:
            for descriptor, _ in poll.poll(1000 * left):
                if self._place is not None and descriptor == self._place.fileno():
                    following = self.become(self._place)
                    if following is not None:
                        return following
                else:
                    state = json.dumps(parked.state).encode()
                    some = min(left, keeper.MEET_SECONDS)
                    gone = gone or keeper.keep(parked.listener, parked.fd, state, some, [*parked.doors.values()])
        self._forget(self._path)
        if not gone:
            self._forget(parked.path)
        return None

    def _forget(self, path: str) -> None:
        """Remove a file of this process's; a later one may have put its own there."""
        if keeper.inode_of(path) == self._own[path]:
            keeper.forget(path)

    def become(self, place: socket.socket) -> Next | None:
        """Take the place of a launcher, and return what the kernel needs; None if it cannot be."""
        from . import places
        from .alike import AlikeError, require_alike

        try:
            sock, _ = place.accept()
        except OSError:
            time.sleep(keeper.NO_ROOM_SECONDS)  # else it would be asked for again and again
            return None
        brought: list[int] = []
        since = time.time()
        try:
            launcher = places.Launcher.of(sock)
            if launcher is None:
                raise AlikeError(places.GONE_MEANWHILE)
            with launcher:
                if launcher.uid != os.geteuid() or changed(self._since):
                    raise AlikeError("not for this one, or not with these files")
                asked = places.receive(sock)
                brought = asked.files
                require_alike(launcher.pid, asked.environment)
                if not launcher.is_there:
                    raise AlikeError(places.GONE_MEANWHILE)
                launched = places.take_place(sock, asked, launcher.pid)
        except (OSError, ValueError, AlikeError):
            for file in brought:
                os.close(file)
            sock.close()
            be_nobody()
            leave_no_core()
            return None
        place.close()
        self._parked.listener.close()
        self._forget(self._path)
        self._forget(self._parked.path)
        state = {**self._parked.state, keeper.DOORS: dict(self._parked.doors)}
        return Next(sock, asked.argv, launched._replace(left=(self._parked.fd, state)), since)


def loaded_files() -> set[str]:
    """Return the files of the modules that are loaded, and of those that sandboxes get, whose texts are kept."""
    found = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return {path for path in found if path is not None} | {str(path) for path in (PACKAGE / "container").glob("*.py")}


def changed(since: float) -> bool:
    """Return whether a file is another than was loaded, as far as its times tell."""
    for path in loaded_files():
        try:
            status = os.stat(path)  # noqa: PTH116 (there are hundreds)
        except OSError:
            return True
        if max(status.st_mtime, status.st_ctime) >= since:
            return True
    return False


def leave_no_core() -> None:
    """Have no file written of this process's memory if it crashes: the state has a key."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def be_nobody() -> None:
    """Have no files, no folder and no variables of a front end."""
    null = os.open(os.devnull, os.O_RDWR)
    for file in OWN_FILES:
        os.dup2(null, file)
    os.close(null)
    os.chdir("/")
