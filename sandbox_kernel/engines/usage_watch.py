"""Looks at what a sandbox without a cgroup uses, several times a second: the weaker form of its limits.

A process that takes much at once is seen too late, memory that is neither mapped nor in a file is not seen at all, and
processors are not limited. So a setting has to say that this will do.

Public: plugins may import it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ..core.model import SCRATCH, SandboxSample, SandboxSpec
from .process_sample import cpu_seconds, of_processes

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

PLACES = ("/tmp", SCRATCH, "/dev/shm")  # noqa: S108 (inside)
"""Where files take memory."""


class MayUse(NamedTuple):
    """What a sandbox may use at most."""

    memory_bytes: int
    pids: int
    """Processes and threads together."""
    disk_bytes: int = 0
    """Of scratch that takes no memory; 0 if it does."""

    @property
    def data_bytes(self) -> int:
        """Data of one process at most: the memory, and the stacks of all threads."""
        return self.memory_bytes + self.pids * STACK_BYTES

    @classmethod
    def of(cls, spec: SandboxSpec) -> MayUse:
        limits = spec.limits
        return cls(limits.memory, limits.pids, limits.scratch_size if limits.scratch == "disk" else 0)


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
    programs = of_processes(family(first))
    return SandboxSample(cpu_seconds=seconds, memory_bytes=usage(first, disk=disk)[0], programs=programs)


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
