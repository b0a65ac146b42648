"""Looks at what a sandbox without a cgroup uses, several times a second: the weaker form of its limits.

A process that takes much at once is seen too late, memory that is neither mapped nor in a file is not seen at all, and
processors are not limited. So a setting has to say that this will do. Beside it, each process has limits of its own, if
this process may set them: data of no more than the sandbox's memory and the stacks of its threads, and a number of
processes, which the kernel counts for the sandbox's own namespace of users (Linux 5.14).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ...core.model import SCRATCH, SandboxSample, SandboxSpec, format_bytes
from ...engines.process_sample import cpu_seconds
from . import scratch_folder

INTERVAL_SECONDS = 0.05
STACK_BYTES = 8 << 20
"""Of each thread, which counts as data from its start, however little of it is used."""
KIB = 1024
PRIVATE = ("RssAnon", "VmSwap")
SHARED = "RssShmem"
SHARES = ("Pss_Anon", "SwapPss")
"""What `PRIVATE` is, each page divided by the number of processes that have it."""
PAUSE_FOR_WEIGHING = 4
"""How many times as long as a look at every page took, until the next look."""


WHILE_SECONDS = 1.0
"""Between two times that a folder is gone through, where its disk loses little."""
PART_OF_FOLDERS, SPARE_BYTES = 64, 1 << 20
"""What a folder may have above its size, a part of that and so many bytes: a disk has what its folders take, too, and a
program that meets the limit of one file is to be told, not ended."""

PLACES = ("/tmp", SCRATCH, "/dev/shm")  # noqa: S108 (inside)
"""Where files take memory."""


class MayUse(NamedTuple):
    """What a sandbox may use at most."""

    memory_bytes: int
    pids: int
    """Processes and threads together."""
    disk_bytes: int = 0
    """Of scratch that takes no memory; 0 if it does."""

    @classmethod
    def of(cls, spec: SandboxSpec) -> MayUse:
        limits = spec.limits
        return cls(limits.memory, limits.pids, limits.scratch_size if limits.scratch == "disk" else 0)


def confine(pid: int, most: MayUse) -> None:
    """Give a process and all that it starts limits of their own. Raises OSError."""
    resource.prlimit(pid, resource.RLIMIT_DATA, (most.memory_bytes + most.pids * STACK_BYTES,) * 2)
    resource.prlimit(pid, resource.RLIMIT_NPROC, (most.pids,) * 2)


class Looking:
    """Looks at a sandbox now and then, on the running loop, until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(INTERVAL_SECONDS, self._look)
        self._closed = False

    def close(self) -> None:
        """Look no longer; idempotent, and works without a loop."""
        self._closed = True
        self._timer.cancel()

    def _look(self) -> None:
        raise NotImplementedError


class UsageWatch(Looking):
    """Calls `over`, on the running loop, when a sandbox uses more memory or processes than it may."""

    def __init__(self, first: int, most: MayUse, over: Callable[[], None]) -> None:
        """`first` is the number of the sandbox's first process."""
        super().__init__()
        self._first, self._most, self._over = first, most, over

    def _look(self) -> None:
        memory, count = usage(self._first, disk=bool(self._most.disk_bytes))
        if count > self._most.pids:
            self._over()
        elif memory > self._most.memory_bytes:
            self._loop.run_in_executor(None, self._weigh).add_done_callback(self._weighed)
        else:
            self._timer = self._loop.call_later(INTERVAL_SECONDS, self._look)

    def _weigh(self) -> tuple[int, float]:
        began = time.monotonic()
        return usage(self._first, disk=bool(self._most.disk_bytes), shares=True)[0], time.monotonic() - began

    def _weighed(self, done: asyncio.Future[tuple[int, float]]) -> None:
        if self._closed or done.cancelled():
            return
        memory, seconds = done.result()
        if memory > self._most.memory_bytes:
            self._over()
            return
        pause = max(INTERVAL_SECONDS, seconds * PAUSE_FOR_WEIGHING)
        self._timer = self._loop.call_later(pause, self._look)


def usage(first: int, *, disk: bool, shares: bool = False) -> tuple[int, int]:
    """Return the bytes of memory that a sandbox uses, files in memory included, and the number of its threads.

    What processes share since one forked from the other is counted for each of them, unless its `shares` are asked
    for, which takes the system longer: it looks at each page. With `disk`, its scratch takes no memory.
    """
    private = shared = threads = 0
    for pid in family(first):
        rows = dict(_rows(pid, "status", {*PRIVATE, SHARED, "Threads"}))
        weighed = dict(_rows(pid, "smaps_rollup", set(SHARES))) if shares else {}
        private += sum((weighed or rows).get(name, 0) for name in (SHARES if weighed else PRIVATE)) * KIB
        shared = max(shared, rows.get(SHARED, 0) * KIB)
        threads += rows.get("Threads", 0)
    files = 0
    for place in PLACES:
        if place == SCRATCH and disk:
            continue
        with contextlib.suppress(OSError):
            inside = f"/proc/{first}/root{place}"
            if not _is_ours(inside, place):
                space = os.statvfs(inside)
                files += (space.f_blocks - space.f_bfree) * space.f_frsize
    return private + max(shared, files), threads


def sample_of_family(first: int, *, disk: bool = False) -> SandboxSample:
    """Return what a sandbox uses that no cgroup holds: the processor time is that of the processes it has now."""
    seconds = 0.0
    for pid in family(first):
        with contextlib.suppress(OSError, ValueError, LookupError):
            seconds += cpu_seconds(pid)
    return SandboxSample(cpu_seconds=seconds, memory_bytes=usage(first, disk=disk)[0])


class FolderWatch(Looking):
    """Calls `over`, on the running loop, with what there is too much of in a folder that takes the place of a disk.

    At each look, the file system says what is left of it, which costs nothing. The folder itself is gone through when
    as much is lost since the last time as it may still take, and else once in a while, for another may have given room
    back meanwhile: for `scratch_folder.MAX_FILES` files at most, and a fifth of the time where nothing is lost. A file
    without a name is seen by who has it open. One that is hidden from that (it is on its way from process to process,
    or mapped and closed) is not, so the sandbox ends as well when the disk is nearly full. The kernel's own count for a
    user, a quota, would see all of it, and also all else that is the user's: few machines have one.
    """

    def __init__(self, first: int, folder: str, most_bytes: int, over: Callable[[str], None]) -> None:
        """`first` is the number of the sandbox's first process."""
        super().__init__()
        self._first, self._folder, self._over = first, folder, over
        self._most = most_bytes + most_bytes // PART_OF_FOLDERS + SPARE_BYTES
        self._before = scratch_folder.Room(0, 0, 0)
        self._left, self._left_files, self._due = 0, 0, 0.0

    def _look(self) -> None:
        try:
            now = scratch_folder.room(self._folder)
        except OSError:
            return  # it went with its sandbox
        lost, files = self._before.free - now.free, self._before.files - now.files
        if now.free < now.least:
            self._over(f"the host's disk has {format_bytes(now.free)} left")
        elif time.monotonic() >= self._due or lost >= self._left or files >= self._left_files:
            self._before = now
            self._loop.run_in_executor(None, self._go_through).add_done_callback(self._gone_through)
        else:
            self._timer = self._loop.call_later(INTERVAL_SECONDS, self._look)

    def _go_through(self) -> tuple[int, int, str, float]:
        began, total, count, why = time.monotonic(), 0, 0, ""
        try:
            total, count = scratch_folder.used(self._folder, family(self._first))
        except scratch_folder.OverLimitError as error:
            why = str(error)
        if total > self._most:
            why = f"{format_bytes(total)} of files"
        return total, count, why, time.monotonic() - began

    def _gone_through(self, done: asyncio.Future[tuple[int, int, str, float]]) -> None:
        if self._closed or done.cancelled():
            return
        try:
            total, count, why, seconds = done.result()
        except OSError:
            return  # as above
        if why:
            self._over(why)
            return
        self._left, self._left_files = self._most - total, scratch_folder.MAX_FILES - count
        self._due = time.monotonic() + max(WHILE_SECONDS, seconds * PAUSE_FOR_WEIGHING)
        self._timer = self._loop.call_later(max(INTERVAL_SECONDS, seconds), self._look)


def _is_ours(inside: str, place: str) -> bool:
    """Return whether a place is this machine's own: a sandbox that is being set up has not left its root yet."""
    try:
        return os.stat(inside).st_dev == os.stat(place).st_dev  # noqa: PTH116 (no path is made of it at each look)
    except FileNotFoundError:
        return False  # it is there on one side only


def family(first: int) -> Iterator[int]:
    """Yield a process and all that descend from it; within a sandbox, no other parent takes them."""
    left = [first]
    while left:
        pid = left.pop()
        yield pid
        with contextlib.suppress(OSError, ValueError):
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 (names are enough)
                text = Path(f"/proc/{pid}/task/{thread}/children").read_text(encoding="ascii")
                left += map(int, text.split())


def _rows(pid: int, file: str, names: set[str]) -> Iterator[tuple[str, int]]:
    with contextlib.suppress(OSError):
        for row in Path(f"/proc/{pid}/{file}").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = row.partition(":")
            if name in names:
                yield name, int(value.split()[0])
