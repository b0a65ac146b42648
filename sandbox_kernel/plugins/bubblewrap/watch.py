"""What bounds a sandbox without a cgroup, or without a disk, besides a look at what it uses (`engines.usage_watch`).

Each process has limits of its own, if this process may set them: data of no more than the sandbox's memory and the
stacks of its threads, and a number of processes, which the kernel counts for the sandbox's own namespace of users
(Linux 5.14). A folder in the place of a disk is gone through.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable

from ...core.model import format_bytes
from ...engines.usage_watch import INTERVAL_SECONDS, PAUSE_FOR_WEIGHING, Looking, MayUse, family
from . import scratch_folder

WHILE_SECONDS = 1.0
"""Between two times that a folder is gone through, where its disk loses little."""
PART_OF_FOLDERS, SPARE_BYTES = 64, 1 << 20
"""What a folder may have above its size, a part of that and so many bytes: a disk has what its folders take, too, and a
program that meets the limit of one file is to be told, not ended."""


def confine(pid: int, most: MayUse) -> None:
    """Give a process and all that it starts limits of their own. Raises OSError."""
    resource.prlimit(pid, resource.RLIMIT_DATA, (most.data_bytes,) * 2)
    resource.prlimit(pid, resource.RLIMIT_NPROC, (most.pids,) * 2)


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
