"""Hears from the machine's own kernel, beside the engine's events, that the memory of a container ran out.

An engine may miss that when it is the end of the whole container, as it is within gVisor. It can be heard where the
container's processes are this machine's and their cgroup can be seen; elsewhere there is the engine's word and no more.
Standard library only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

ROW_BYTES = 4096


class Place(NamedTuple):
    """The folder of a container's memory cgroup, and which of the two kinds it is."""

    folder: str
    version: int


class Signals(Protocol):
    """A descriptor that becomes readable when there is something to look at."""

    fd: int

    def ran_out(self) -> bool:
        """Take in what is to be read, and return whether memory ran out since the last look."""

    def close(self) -> None: ...


class MemoryWatch:
    """Calls `heard`, on the running loop, whenever the memory of a container ran out."""

    def __init__(self, place: Place, heard: Callable[[], None]) -> None:
        """Raises `OSError` where this process may not listen, or the container is gone."""
        self._signals: Signals | None = (_Counted if place.version == 1 else _Written)(place.folder)
        self._heard = heard
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._signals.fd, self._look)

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
            ran_out = self._signals.ran_out()
        except OSError:
            self.close()  # the cgroup is gone
            return
        if ran_out:
            self._heard()


class _Counted:
    """Version 1: the kernel adds one to a counter when memory runs out, and one when the cgroup is removed."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._of_the_end = 0
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

    def ran_out(self) -> bool:
        try:
            count = os.eventfd_read(self.fd)
        except BlockingIOError:
            return False
        if Path(self._folder).is_dir():
            return True  # it was there after the signal, so its removal was not what the signal meant
        self._of_the_end += count
        return self._of_the_end > 1

    def close(self) -> None:
        os.close(self.fd)


class _Written:
    """Version 2: a file of counts, which has to be looked at again whenever the kernel says that it changed."""

    def __init__(self, folder: str) -> None:
        self._file = os.open(f"{folder}/memory.events", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._epoll = select.epoll()
            self._epoll.register(self._file, select.EPOLLPRI)
            self._known = self._kills()
        except BaseException:
            os.close(self._file)
            raise
        self.fd = self._epoll.fileno()  # a file is always readable to a loop, which knows no other sign

    def ran_out(self) -> bool:
        self._epoll.poll(0)
        before, self._known = self._known, self._kills()
        return self._known > before

    def close(self) -> None:
        self._epoll.close()
        os.close(self._file)

    def _kills(self) -> int:
        rows = dict(line.split() for line in os.pread(self._file, ROW_BYTES, 0).decode("ascii").splitlines())
        return int(rows.get("oom_kill", 0))


def place_of(pid: int, identity: str) -> Place | None:
    """Return the memory cgroup of a container's process, None if it is not to be seen from here.

    `identity` is the engine's, 64 digits that nobody guesses: a process of that number may be another's.
    """
    try:
        rows = [row.split(":", 2) for row in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        return None
    paths = {1: "", 2: ""}
    for _, controllers, path in rows:
        if "memory" in controllers.split(","):
            paths[1] = path
        elif not controllers:
            paths[2] = path
    version = 1 if paths[1] else 2  # both kinds may be mounted; memory is counted by one of them
    root, mounted = _mounts().get(version, ("", ""))
    if not mounted or identity not in paths[version] or not paths[version].startswith(root):
        return None
    return Place(f"{mounted}/{paths[version].removeprefix(root).lstrip('/')}", version)


@cache
def _mounts() -> dict[int, tuple[str, str]]:
    """Return, for each version of cgroups that counts memory here, which part of the tree is mounted, and where."""
    found: dict[int, tuple[str, str]] = {}
    with contextlib.suppress(OSError, ValueError):
        for row in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
            mount, _, system = row.partition(" - ")
            kind, _, options = system.split(" ", 2)
            if kind == "cgroup2" or (kind == "cgroup" and "memory" in options.split(",")):
                _, _, _, root, where, *_ = mount.split(" ")
                found.setdefault(2 if kind == "cgroup2" else 1, (root, where))
    return found
