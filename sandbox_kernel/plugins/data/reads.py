"""The record of reads: which cell opened which file of a dataset, as the host can see it, for the audit.

What a sandbox opens is heard by a `FileWatch`. Each stretch of time, with a cell or between two, has a watch of its
own: so what is still queued when a cell ends is that cell's, and no cell waits for the reading. One line names several
files, each once, however often it was opened: the kernel takes equal events together, so there is no count. All of it
is bounded: the kernel's queue, what is read of it at a time, and the files that are told apart.

Where the host cannot see, one line of a sandbox says so and why. The sandbox is not asked: what it could tell comes
from Python's own audit hook, which DuckDB, polars and pyarrow pass by.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ...core.errors import SandboxError
from ...core.events import SessionEvent
from ..api import FileWatch, RunningCell, SessionHandle, SessionService
from .codes import DataCode


class FilesRead(SessionEvent):
    """What cells have opened, or that nobody sees it."""

    name = "reads"
    about: dict[str, Any]
    """The fields of the line."""

    def line(self) -> dict[str, Any]:
        return self.about


MAX_FILES = 10_000
"""Files that one cell's record tells apart; the opening of others is counted."""
MAX_ROWS, MAX_ROW_CHARACTERS = 16, 2800
"""Files of one line, and what they may come to: a line of the audit has 4 KiB."""
MAX_PATH = 200
FOLLOW_SECONDS = 0.25
"""From one look at what was heard to the next."""
MAX_EVENTS = 4096
"""Events of one look, so that a sandbox cannot have the host work without end: the queue overflows then."""
LAST_EVENTS = 20_000
"""Events that are read when a stretch ends: what the kernel's queue holds, and some that come meanwhile."""
MAX_CELLS = 16
"""Cells that may run at once and are named in one line."""


class Stretch:
    def __init__(self, watch: FileWatch, cells: tuple[str, ...], *, after: bool) -> None:
        """`cells` are the running ones; `after` the end of the last cell, that one."""
        self.watch = watch
        self._cells, self._after = cells, after
        self._files: dict[str, tuple[int, int, bool]] = {}
        self._more = 0
        self._turn = threading.Lock()
        self._told = False

    def look(self, most: int) -> None:
        """Take in what was heard, `most` events at most. From any thread."""
        with self._turn:
            self._take(most)

    def end(self) -> None:
        """Take in the last of it, and hear no more. From any thread; idempotent."""
        with self._turn:
            try:
                self._take(LAST_EVENTS)
            finally:
                self.watch.close()

    def _take(self, most: int) -> None:
        for one in self.watch.read(most):
            known = self._files.get(one.path)
            if known is None and len(self._files) >= MAX_FILES:
                self._more += 1
            else:
                read = one.read or (known is not None and known[2])
                self._files[one.path] = (one.size, one.modified_ns, read)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the fields of each line, once: nothing if nothing was opened."""
        if self._told:
            return
        self._told = True
        lost = self._more > 0 or self.watch.overflowed
        head: dict[str, Any] = {
            "cells": list(self._cells),
            "after": self._after or None,
            "seen_by": "host",
            "partial": self.watch.partial or None,
        }
        whole: dict[str, Any] = {
            "code": DataCode.READS_LOST.code if lost else None,
            "files_count": len(self._files),
            "more_opened": self._more,
            "overflow": self.watch.overflowed or None,
            "elsewhere": self.watch.elsewhere,
        }
        rows: list[dict[str, Any]] = []
        cost = 0
        for path, (size, modified, read) in sorted(self._files.items()):
            row: dict[str, Any] = {"path": _short(path), "size": size, "modified": _moment(modified), "read": read}
            costs = sum(1 if char.isascii() and char.isalnum() else 12 for char in str(row["path"])) + 120
            if len(rows) == MAX_ROWS or (rows and cost + costs > MAX_ROW_CHARACTERS):
                yield head | whole | {"files": rows}
                rows, cost, whole = [], 0, {}
            rows.append(row)
            cost += costs
        if rows or any(whole.values()):
            yield head | whole | {"files": rows}


class ReadRecord(SessionService):
    """The record of one session: a `CellObserver`. It begins with the first cell of a sandbox."""

    of_sandbox = True

    def __init__(self, session: SessionHandle) -> None:
        self._session = session
        self._pid = os.getpid()
        self._stretch: Stretch | None = None
        self._running: dict[str, None] = {}
        self._last: tuple[str, ...] = ()
        self._said = False
        """Whether this sandbox has its line that the host cannot see."""
        self._ending: dict[Stretch, asyncio.Task[object]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self, *, afresh: bool) -> None:
        """Take note of a new sandbox: its first cell finds where it can be watched."""
        self._turn_to(None)
        self._said = False
        if afresh:
            self._last = ()

    def cell_sent(self, cell: RunningCell) -> None:
        """Charge to a cell what is opened from now on."""
        self._running[cell.id] = None
        self._turn()

    def cell_ended(self, cell: RunningCell) -> None:
        """Charge to the cells that still run, or to this one as what came after it."""
        self._last = (cell.id,)
        self._running.pop(cell.id, None)
        if self._stretch is not None:
            self._turn()

    def _turn(self) -> None:
        cells = tuple(self._running)[:MAX_CELLS]
        watch: FileWatch | None = None
        try:
            watch = self._session.watch_files() if self._stretch is None else self._stretch.watch.renew()
        except (OSError, SandboxError) as error:
            if (cells or self._session.is_open) and not self._said:  # else the session has ended, or it is known
                self._said = True
                reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
                about = {"code": DataCode.READS_NOT_SEEN.code, "seen_by": "nobody", "reason": reason}
                self._session.emit(FilesRead(about=about))
        else:
            self._said = False
        self._turn_to(None if watch is None else Stretch(watch, cells or self._last, after=not cells))

    def _turn_to(self, stretch: Stretch | None) -> None:
        """Begin another stretch, and end the one before beside the session."""
        before, self._stretch = self._stretch, stretch
        if before is not None:
            self._listen_no_more(before)
            task = self._session.start(self._end(before), "what a cell has opened")
            self._ending[before] = task
            task.add_done_callback(lambda _: self._ending.pop(before, None))
        if stretch is not None:
            self._listen(stretch)

    # --- while a stretch lasts ---

    def _listen(self, stretch: Stretch) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(stretch.watch.fd, self._heard, stretch)

    def _heard(self, stretch: Stretch) -> None:
        """Look a little later, so that equal events are one until then."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(stretch.watch.fd)
        self._timer = loop.call_later(FOLLOW_SECONDS, self._look, stretch)

    def _look(self, stretch: Stretch) -> None:
        self._timer = None
        self._session.start(self._follow(stretch), "what a cell opens")

    async def _follow(self, stretch: Stretch) -> None:
        await asyncio.to_thread(stretch.look, MAX_EVENTS)
        if stretch is self._stretch:
            self._listen(stretch)

    def _listen_no_more(self, stretch: Stretch) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(stretch.watch.fd)

    # --- ends ---

    async def _end(self, stretch: Stretch) -> None:
        await asyncio.to_thread(stretch.end)
        self._write(stretch)

    def _write(self, stretch: Stretch) -> None:
        for fields in stretch.lines():
            self._session.emit(FilesRead(about=fields))

    async def close(self) -> None:
        """Write down what the last cell has opened."""
        self._turn_to(None)
        while self._ending:
            await asyncio.wait(list(self._ending.values()))

    def abandon(self) -> None:
        """End without a loop; a child process has the watch of its parent, and takes nothing of it."""
        stretch, self._stretch = self._stretch, None
        left = list(self._ending)
        if stretch is not None:
            left.append(stretch)
        for one in left:
            if os.getpid() != self._pid:
                one.watch.close()
                continue
            if one is stretch:
                self._listen_no_more(one)
            one.end()
            self._write(one)
        self._ending.clear()


def _short(path: str) -> str:
    return path if len(path) <= MAX_PATH else f"{path[: MAX_PATH // 2]}…{path[1 - MAX_PATH // 2 :]}"


def _moment(ns: int) -> str:
    try:
        return datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, OSError, ValueError):
        return str(ns)
