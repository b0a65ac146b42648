"""What is seen of sandboxes from outside, in /proc: which there are, whose they are, whether a process has ended.

Whose a sandbox is, is not written down anywhere: it is the process that has the other end of its pipe.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ...engines.owner_process import start_ticks

MARK = "SANDBOX_KERNEL_BUBBLEWRAP"
"""The variable of bubblewrap's own process, and of nothing within, by which sandboxes are found."""


class LabelledProcess(NamedTuple):
    """A sandbox that is seen from outside."""

    pid: int
    name: str
    session: str
    image: str
    memory_bytes: int
    version: str
    pipe: int
    """The number of the owner's end of its pipe."""
    hosts: bool
    """Whether its cells have a way to hosts."""


def sandboxes(variable: str = MARK) -> Iterator[LabelledProcess]:
    """Yield the sandboxes of this machine that this process may inspect, of any owner."""
    names = set()
    for name in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):  # noqa: PTH208 (names are enough)
        mark = mark_of(int(name), variable)
        if not mark or not _outside(int(name)):  # a cell may mark what it likes
            continue
        try:
            said = json.loads(mark)
            found = LabelledProcess(
                int(name),
                str(said["name"]),
                str(said["session"]),
                str(said["image"]),
                int(said["memory"]),
                str(said["version"]),
                int(said["pipe"]),
                bool(said.get("hosts")),
            )
        except (LookupError, TypeError, ValueError, OverflowError, RecursionError):
            continue
        if found.name not in names:  # for a moment the sandbox's first process is marked as well
            names.add(found.name)
            yield found


def _outside(pid: int) -> bool:
    """Return whether a process is in this process's own namespace of processes."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid")  # noqa: PTH115 (as strings)
    except OSError:
        return False


def holders() -> tuple[dict[int, int], bool]:
    """Return which process has which socket open, of several the first; and whether all were to be seen.

    Those of other users may be hidden, and have none of this user's sandboxes.
    """
    found: dict[int, int] = {}
    complete = True
    for name in sorted(filter(str.isdigit, os.listdir("/proc")), key=int, reverse=True):  # noqa: PTH208 (as above)
        try:
            numbers = os.listdir(f"/proc/{name}/fd")  # noqa: PTH208 (as above)
        except FileNotFoundError:
            continue
        except OSError:
            complete = complete and not may_hold(name)
            continue
        for number in numbers:
            with contextlib.suppress(OSError):  # it is closed meanwhile
                link = os.readlink(f"/proc/{name}/fd/{number}")  # noqa: PTH115 (as a string)
                if link.startswith("socket:["):
                    found[int(link[8:-1])] = int(name)
    return found, complete


def may_hold(name: str) -> bool:
    """Return whether a process of this user may have files that it does not show; one that has ended has none."""
    with contextlib.suppress(OSError):
        for row in Path(f"/proc/{name}/status").read_text(encoding="utf-8", errors="replace").splitlines():
            if row.startswith("State:\tZ"):
                return False
            if row.startswith("Uid:"):
                return str(os.geteuid()) in row.split()[1:]
    return False


@cache
def _ticks_each_second() -> int:
    return os.sysconf("SC_CLK_TCK")


def age_of(pid: int) -> int:
    return max(0, round(time.clock_gettime(time.CLOCK_BOOTTIME) - (start_ticks(pid) or 0) / _ticks_each_second()))


def mark_of(pid: int, variable: str = MARK) -> str:
    """Return what a process of bubblewrap's was marked with, "" for another process."""
    with contextlib.suppress(OSError):
        for row in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = row.partition(b"=")
            if name == variable.encode():
                return value.decode("utf-8", "replace")
    return ""


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return ""


def has_ended(handle: int) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(0))
