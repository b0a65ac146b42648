"""What is heard of a sandbox's datasets becomes lines that fit the audit, whatever the files are called."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from sandbox_kernel.core.events import SessionEvent
from sandbox_kernel.core.model import OpenedDatasetFile
from sandbox_kernel.plugins.api import FileWatch, RunningCell, SessionHandle
from sandbox_kernel.plugins.data import reads
from sandbox_kernel.plugins.data.codes import DataCode
from sandbox_kernel.plugins.data.reads import FilesRead, ReadRecord, Stretch
from sandbox_kernel.plugins.record.audit import Audit
from tests.support.patience import within


class Heard:
    """A watch that was heard to open files."""

    fd = -1
    partial = overflowed = False
    elsewhere = 0

    def __init__(self, *paths: str) -> None:
        self._left = [OpenedDatasetFile(path, 10, 10**18, True) for path in paths]
        self.closed = False

    def read(self, most: int) -> Iterable[OpenedDatasetFile]:
        taken, self._left = self._left[:most], self._left[most:]
        return taken

    def renew(self) -> FileWatch:
        raise OSError(24, "Too many open files")

    def close(self) -> None:
        self.closed = True


def lines(*paths: str) -> list[dict[str, Any]]:
    stretch = Stretch(Heard(*paths), ("cell",), after=False)
    stretch.end()
    return list(stretch.lines())


@pytest.mark.parametrize(
    "name",
    ["a" * 4000, "\U0001f600" * 900, "\x1b[2J" * 900, "$(rm -rf)`" * 400, "\udcff" * 3000, '"\\\n' * 1000, "b"],
    ids=["long", "wide", "controls", "shell", "no UTF-8", "quotes", "short"],
)
def test_no_line_is_too_long_for_the_audit(tmp_path: Path, name: str) -> None:
    found = lines(*(f"sales/{number}{name}" for number in range(50)))
    audit = Audit(str(tmp_path / "audit"), session="s", key=str(tmp_path / "key"))
    for fields in found:
        audit(FilesRead.name, **fields)
    audit.close()
    written = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    rows = [row for line in written if line["event"] == FilesRead.name for row in line["files"]]
    assert not any("cut" in line for line in written)
    assert sorted(row["path"][:8] for row in rows) == sorted(f"sales/{number}{name}"[:8] for number in range(50))


def test_lines_are_told_once_and_of_nothing_there_is_none() -> None:
    stretch = Stretch(Heard("sales/a"), ("cell",), after=False)
    stretch.end()
    assert len(list(stretch.lines())) == 1
    assert list(stretch.lines()) == []
    assert lines() == []


def test_an_end_reads_no_more_than_its_bound_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "LAST_EVENTS", 30)
    assert lines(*map(str, range(100)))[0]["files_count"] == 30


class Cell:
    def __init__(self, name: str) -> None:
        self.id = name


class Session:
    """A session whose sandbox can be watched once, and no more after that."""

    is_open = True

    def __init__(self, watch: Heard) -> None:
        self._watches: Iterator[Heard] = iter([watch])
        self.said: list[dict[str, Any]] = []

    def watch_files(self) -> FileWatch:
        for watch in self._watches:
            return watch
        raise OSError(1, "Operation not permitted")

    def emit(self, event: SessionEvent) -> None:
        self.said.append(event.line())

    def start(self, work: Coroutine[Any, Any, object], what: str) -> asyncio.Task[object]:
        return asyncio.get_running_loop().create_task(work)


async def test_a_cell_that_could_not_be_watched_any_more_has_a_line_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ReadRecord, "_listen", lambda *_: None)
    watch = Heard("sales/a")
    session = Session(watch)
    record = ReadRecord(cast("SessionHandle", session))
    async with within(10):
        for name in ("one", "two"):
            record.cell_sent(cast("RunningCell", Cell(name)))
            record.cell_ended(cast("RunningCell", Cell(name)))
        await record.close()
    codes = [one.get("code") for one in session.said]
    assert codes.count(DataCode.READS_NOT_SEEN.code) == 1
    assert [one["cells"] for one in session.said if "cells" in one] == [["one"]]
    assert watch.closed
