"""Hears from the machine's own kernel, beside an engine's events, that a container reached one of its limits.

An engine may miss that memory ran out when it is the end of the whole container, as it is within gVisor; and none tells
that there was no room for one more thread. It can be heard where the container's processes are this machine's and their
cgroups can be seen; elsewhere there is the engine's word and no more.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

ROW_BYTES = 4096
ELSEWHERE = "the cgroups of sandboxes are another machine's"


class CgroupPlace(NamedTuple):
    """The folder of a container's cgroup, and which of the two kinds it is."""

    folder: str
    version: int


class Signals(Protocol):
    """A descriptor that becomes readable when there is something to look at."""

    fd: int
    over: bool
    """Nothing more will come."""

    def met(self) -> bool:
        """Take in what is to be read, and return whether the limit was met since the last look."""

    def close(self) -> None: ...


class LimitWatch:
    """Calls `heard`, on the running loop, whenever a container met a limit."""

    def __init__(self, signals: Signals, heard: Callable[[], None]) -> None:
        self._signals: Signals | None = signals
        self._heard = heard
        from asyncio import get_running_loop  # who only asks for folders has no loop, and starts sooner without

        self._loop = get_running_loop()
        self._loop.add_reader(signals.fd, self._look)

    def close(self) -> None:
        """Listen no longer; idempotent, and works without a loop."""
        signals, self._signals = self._signals, None
        if signals is not None:
            if not self._loop.is_closed():
                self._loop.remove_reader(signals.fd)
            signals.close()

    def _look(self) -> None:
        if self._signals is None:
            return
        try:
            met, over = self._signals.met(), self._signals.over
        except OSError:
            self.close()  # the cgroup is gone
            return
        if over:
            self.close()
        if met:
            self._heard()


def watch_memory(place: CgroupPlace, heard: Callable[[], None]) -> LimitWatch:
    """Hear of memory that ran out. Raises `OSError` where this process may not listen, or the container is gone."""
    if place.version == 1:
        return LimitWatch(_Counted(place.folder), heard)
    return LimitWatch(_Written(f"{place.folder}/memory.events"), heard)


def watch_processes(place: CgroupPlace, pid: int, heard: Callable[[], None]) -> LimitWatch:
    """Hear at the end of process `pid` whether there ever was no room for one more. Raises as `watch_memory` does."""
    return LimitWatch(_AtTheEnd(f"{place.folder}/pids.events", pid), heard)


def refused_processes(place: CgroupPlace) -> int:
    """Return how often there was no room for one more process, of whatever kind. Raises OSError once it is gone."""
    file = os.open(f"{place.folder}/pids.events", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _count(file, "max")
    finally:
        os.close(file)


class _Counted:
    """Memory in version 1: a counter gets one when memory runs out, and one when the cgroup is removed."""

    fd: int
    over = False

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._of_the_end = 0
        if sys.platform != "linux":
            raise OSError(ELSEWHERE)
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            control = os.open(f"{folder}/memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
            try:
                Path(folder, "cgroup.event_control").write_bytes(b"%d %d" % (self.fd, control))
            finally:
                os.close(control)
        except BaseException:
            self.close()
            raise

    def met(self) -> bool:
        try:
            count = int.from_bytes(os.read(self.fd, 8), sys.byteorder)
        except BlockingIOError:
            return False
        if Path(self._folder).is_dir():
            return True  # it was there after the signal, so its removal was not what the signal meant
        self._of_the_end += count
        return self._of_the_end > 1

    def close(self) -> None:
        os.close(self.fd)


class _Written:
    """A file of counts, which has to be looked at again whenever the kernel says that it changed."""

    fd: int
    over = False
    _epoll: Any

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._known = _count(self._file, "oom_kill")
            if sys.platform != "linux":
                raise OSError(ELSEWHERE)
            self._epoll = select.epoll()
            self._epoll.register(self._file, select.EPOLLPRI)
        except BaseException:
            os.close(self._file)
            raise
        self.fd = self._epoll.fileno()  # a file is always readable to a loop, which knows no other sign

    def met(self) -> bool:
        self._epoll.poll(0)
        before, self._known = self._known, _count(self._file, "oom_kill")
        return self._known > before

    def close(self) -> None:
        self._epoll.close()
        os.close(self._file)


class _AtTheEnd:
    """A file of counts that not every kernel tells of: looked at once, between a process's end and its cgroup's."""

    fd: int
    over = True

    def __init__(self, path: str, pid: int) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if sys.platform != "linux":
                raise OSError(ELSEWHERE)
            self.fd = os.pidfd_open(pid)
        except BaseException:
            os.close(self._file)
            raise

    def met(self) -> bool:
        return _count(self._file, "max") > 0

    def close(self) -> None:
        os.close(self.fd)
        os.close(self._file)


def _count(file: int, name: str) -> int:
    rows = dict(line.split() for line in os.pread(file, ROW_BYTES, 0).decode("ascii").splitlines())
    return int(rows.get(name, 0))


def places_of(pid: int, identity: str) -> dict[str, CgroupPlace]:
    """Return the cgroups of a container's process by what they limit, if they are visible from here.

    `identity` is the engine's, 64 digits that cannot be guessed: a process of that number may be another's.
    """
    paths: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError):
        for row in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = row.split(":", 2)
            paths |= dict.fromkeys(controllers.split(","), path)
    found = {}
    for name in ("memory", "pids", "cpuacct"):
        version = 1 if name in paths else 2  # both kinds may be mounted; each limit is in one of them
        path = paths.get(name if version == 1 else "", "")
        root, where = _mounts().get(name if version == 1 else "", ("", ""))
        if where and identity in path and path.startswith(root):
            found[name] = CgroupPlace(f"{where}/{path.removeprefix(root).lstrip('/')}", version)
    return found


def own_folders() -> dict[str, tuple[str, str]]:
    """Return where each hierarchy of cgroups is mounted, and this process's own folder there, by controllers.

    "" stands for version 2.
    """
    found: dict[str, tuple[str, str]] = {}
    with contextlib.suppress(OSError, ValueError):
        for row in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = row.split(":", 2)
            for name in controllers.split(","):
                root, where = _mounts().get(name, ("", ""))
                if where and path.startswith(root):
                    own = f"{where}/{path.removeprefix(root).lstrip('/')}".rstrip("/")
                    found[name] = where, own
    return found


@cache
def _mounts() -> dict[str, tuple[str, str]]:
    """Return which part of a hierarchy of cgroups is mounted, and where, by controllers; "" stands for version 2."""
    found: dict[str, tuple[str, str]] = {}
    with contextlib.suppress(OSError, ValueError):
        for row in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
            mount, _, system = row.partition(" - ")
            kind, _, options = system.split(" ", 2)
            if kind in {"cgroup", "cgroup2"}:
                _, _, _, root, where, *_ = mount.split(" ")
                for name in options.split(",") if kind == "cgroup" else [""]:
                    found.setdefault(name, (root, where))
    return found
