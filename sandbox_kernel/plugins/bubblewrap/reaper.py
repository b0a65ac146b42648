"""Outlives the process that owns sandboxes, and ends each when the other end of its pipe is closed everywhere.

It is given a copy of the sandbox's own end, and the system tells it when the owner's is closed, however that came
about: the owner ended, let go of it, or its next owner did. Then it kills the sandbox, and removes its cgroups.
One for each process that owns sandboxes; it ends with the last of them. It runs as a script (`python -I -S reaper.py`)
and imports the standard library only.
"""

from __future__ import annotations

import os
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WATCH, STARTED, FORGET = "+", "=", "-"
MESSAGE_BYTES = 8192
ROUND_SECONDS = 0.05
REMOVE_SECONDS = 30.0
OWNER_SECONDS = 0.5
"""How long an owner that is there has to remove a folder itself."""


class SandboxReaper:
    """This process's end: tells a reaper about sandboxes, and starts one when there is something to tell."""

    def __init__(self) -> None:
        import threading

        self._known: dict[str, list[tuple[str, str, tuple[int, ...]]]] = {}
        self._way: socket.socket | None = None
        self._lock = threading.RLock()  # a finalizer may run in the midst of another call

    def watch(self, name: str, cgroups: tuple[str, ...], end: int, monitor: int, folder: str = "") -> None:
        """A sandbox is about to start: `end` is its end of the pipe, `monitor` the pidfd of its first process here.

        `folder` is on the host's disk, and is to be removed with it.
        """
        self._tell(WATCH, name, "\n".join((folder, *cgroups)), (end, monitor))

    def started(self, name: str, first: int) -> None:
        """The sandbox's own first process is there: its pidfd."""
        self._tell(STARTED, name, "", (first,))

    def forget(self, name: str) -> None:
        """The sandbox is gone, and so is all that it had."""
        if name in self._known:
            self._tell(FORGET, name, "", ())

    def drop(self) -> None:
        """Close a copy of the way in a forked child, whose sandboxes these are not."""
        import threading

        self._lock = threading.RLock()
        for messages in self._known.values():
            _close(messages)
        self._known.clear()
        self._hang_up()

    def _tell(self, word: str, name: str, text: str, fds: tuple[int, ...]) -> None:
        """Send a message. The caller keeps copies of the files, in case a new reaper has to be told."""
        with self._lock:
            if word == FORGET:
                _close(self._known.pop(name, []))
            else:
                copies = tuple(os.dup(fd) for fd in fds)
                self._known.setdefault(name, []).append((word, text, copies))
            told = self._way is not None and self._send(word, name, text, fds)
            if not told and self._known and self._start():
                # There was none yet, or somebody ended it: a new one is told everything.
                for each, messages in self._known.items():
                    for what, more, held in messages:
                        self._send(what, each, more, held)

    def _send(self, word: str, name: str, text: str, fds: tuple[int, ...]) -> bool:
        if self._way is None:
            return False
        from ...core.descriptors import send_fds

        try:
            send_fds(self._way, f"{word}{name}\n{text}".encode(), fds)
        except OSError:
            return False
        return True

    def _start(self) -> bool:
        from ...core.helper_processes import start_helper

        self._hang_up()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                start_helper(__file__, stdin=theirs.fileno())
            except OSError:
                ours.close()
                return False  # no process to be had; the sandbox's own end is left, and `reap`
        ours.settimeout(1.0)
        self._way = ours
        return True

    def _hang_up(self) -> None:
        if self._way is not None:
            self._way.close()
        self._way = None


def _close(messages: list[tuple[str, str, tuple[int, ...]]]) -> None:
    for _, _, fds in messages:
        for fd in fds:
            os.close(fd)


_one: SandboxReaper | None = None


def reaper() -> SandboxReaper:
    global _one  # noqa: PLW0603 (there is one for each process)
    if _one is None:
        _one = SandboxReaper()
    return _one


def _after_fork() -> None:
    if _one is not None:
        _one.drop()


os.register_at_fork(after_in_child=_after_fork)


def kill(processes: list[int]) -> None:
    """Kill a sandbox by the pidfds of bubblewrap's own process and, if that is known, of the sandbox's first one.

    The first process takes all others along. One that bubblewrap has just started, and not reported yet, is
    found as its child while it is frozen.
    """
    import signal

    for process in reversed(processes[1:]):
        _send(process, signal.SIGKILL)
    if len(processes) == 1 and _send(processes[0], signal.SIGSTOP):
        pid = _pid(processes[0])
        for child in [int(word) for line in _lines(f"/proc/{pid}/task/{pid}/children") for word in line.split()]:
            os.kill(child, signal.SIGKILL)
    _send(processes[0], signal.SIGKILL)


def _send(process: int, number: int) -> bool:
    import signal

    try:
        signal.pidfd_send_signal(process, number)
    except OSError:
        return False  # it was quicker
    return True


def _has_ended(process: int) -> bool:
    import select

    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(0))


def _pid(process: int) -> int:
    """Return the number of a pidfd's process, -1 if it is gone."""
    for line in _lines(f"/proc/self/fdinfo/{process}"):
        if line.startswith("Pid:"):
            return int(line.split()[1])
    return -1


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123 (pathlib is slow to import)
            return file.readlines()
    except OSError:
        return []


# --- the process ------------------------------------------------------------------------------------------------------


class WatchedSandbox:
    def __init__(self, end: int, monitor: int, folder: str, cgroups: list[str]) -> None:
        self.end = end
        self.processes = [monitor]
        self.cgroups = cgroups
        self._folder = folder
        self._since = 0.0
        self._remover = 0

    def kill(self) -> None:
        """Kill what is known of it, and what else is in its cgroups; one that is paused dies when it goes on."""
        kill(self.processes)
        for folder in self.cgroups:
            let_go_on(folder)
            for pid in [int(line) for line in _lines(f"{folder}/cgroup.procs")]:
                try:
                    os.kill(pid, 9)
                except OSError:
                    continue

    def gone(self) -> bool:
        """Return whether its cgroups and its folder are removed, which takes until its last process has ended."""
        for folder in self.cgroups:
            try:
                os.rmdir(folder)  # noqa: PTH106 (as above)
            except FileNotFoundError:
                pass
            except OSError:
                return False
        # Its folder may have many files, so a process of its own removes it; an owner may be faster.
        import time

        if not self._folder:
            return True
        if not os.path.lexists(self._folder):
            if self._remover:
                os.waitpid(self._remover, 0)  # it has nothing left to do
            return True
        now = time.monotonic()
        self._since = self._since or now
        if not self._remover and now - self._since > OWNER_SECONDS and all(map(_has_ended, self.processes)):
            script = os.path.join(os.path.dirname(__file__), "scratch_folder.py")  # noqa: PTH118, PTH120 (as above)
            words = [sys.executable, "-I", "-S", script, self._folder]
            self._remover = os.posix_spawn(sys.executable, words, os.environ)
        return False

    def close(self) -> None:
        for fd in (self.end, *self.processes):
            os.close(fd)


def let_go_on(folder: str) -> None:
    """Let what is paused there go on: of version 1, a frozen process hears of no signal."""
    for name, word in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
        try:
            with open(f"{folder}/{name}", "r+", encoding="ascii") as file:  # noqa: PTH123 (as above)
                file.write(word)
        except OSError:
            continue


class Wards:
    """All that the reaper looks after, and the way by which it is told of them."""

    def __init__(self, way: socket.socket) -> None:
        import select

        self._way: socket.socket | None = way
        self._charges: dict[str, WatchedSandbox] = {}
        self._ending: list[tuple[WatchedSandbox, float]] = []
        self._poll = select.poll()
        self._poll.register(way.fileno(), select.POLLIN)
        self._hung_up = select.POLLHUP | select.POLLERR | select.POLLNVAL

    def run(self) -> None:
        """Return when the owner is gone and nothing is left."""
        import time

        while self._way is not None or self._charges or self._ending:
            ready = dict(self._poll.poll(ROUND_SECONDS * 1000 if self._ending else None))
            if self._way is not None and self._way.fileno() in ready:
                self._hear(self._way)
            for name, charge in list(self._charges.items()):
                if ready.get(charge.end, 0) & self._hung_up:
                    self._release(name)
                    charge.kill()
                    self._ending.append((charge, time.monotonic() + REMOVE_SECONDS))
            left = []
            for charge, until in self._ending:
                if charge.gone() or time.monotonic() > until:
                    charge.close()
                else:
                    charge.kill()
                    left.append((charge, until))
            self._ending = left

    def _hear(self, way: socket.socket) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(way, MESSAGE_BYTES, 4)
        except OSError:
            data, fds = b"", []
        if not data:
            self._poll.unregister(way.fileno())
            way.close()
            self._way = None
            return
        head, _, text = data.decode("utf-8", "replace").partition("\n")
        self._note(head[:1], head[1:], text, fds)

    def _note(self, word: str, name: str, text: str, fds: list[Any]) -> None:
        if word == WATCH and len(fds) == 2 and name not in self._charges:
            end, monitor = fds
            folder, *cgroups = text.split("\n")
            self._charges[name] = WatchedSandbox(end, monitor, folder, cgroups)
            self._poll.register(end, 0)  # the end of the other side is told without being asked for
        elif word == STARTED and len(fds) == 1 and name in self._charges:
            self._charges[name].processes += fds
        else:
            for fd in fds:
                os.close(fd)
            if word == FORGET and name in self._charges:
                charge = self._release(name)
                charge.close()

    def _release(self, name: str) -> WatchedSandbox:
        charge = self._charges.pop(name)
        self._poll.unregister(charge.end)
        return charge


def main() -> int:
    """Run as the reaper of the process at the other end of stdin."""
    Wards(socket.socket(fileno=os.dup(0))).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
