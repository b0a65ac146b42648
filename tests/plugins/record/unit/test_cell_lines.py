"""The record's part of a session: one line of each cell, with what it used, where an audit is kept."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any, cast

import pytest

from sandbox_kernel.core.codes import EndCode, OutputCode, Survived
from sandbox_kernel.core.errors import CellTimeout
from sandbox_kernel.core.events import CellRecorded, OutputRemoved, SessionEvent
from sandbox_kernel.core.model import Message, Settings
from sandbox_kernel.plugins.api import EndedCell, Figures, SessionHandle
from sandbox_kernel.plugins.record.audit import Record
from sandbox_kernel.plugins.record.settings import RecordSettings
from tests.support.events import an
from tests.support.patience import within


class Session:
    """What the record knows of its session."""

    id = "s1"

    def __init__(self, place: Path, audit: str = "audit", source: Any = "hash") -> None:
        self.file = place / audit
        self.said: list[str] = []
        self.measures = 0
        self.written = asyncio.Event()
        self.figures: asyncio.Future[Figures] = asyncio.Future()
        record = RecordSettings(audit=str(self.file), audit_key=str(place / "key"), audit_source=source)
        settings = Settings(of_plugins=(record,))
        self.record = Record(settings, cast("SessionHandle", self))
        self.record.begin(afresh=True)

    def emit(self, event: SessionEvent) -> None:
        self.record.hear(event)
        if isinstance(event, CellRecorded):
            self.written.set()

    def say(self, text: str) -> None:
        self.said.append(text)

    def measure(self) -> None:
        self.measures += 1

    def measured(self, cell: str) -> asyncio.Task[Figures]:
        async def figures() -> Figures:
            return await self.figures

        return asyncio.ensure_future(figures())

    def run(self, code: str, **more: Any) -> None:
        self.record.cell_begun()
        header = {
            "msg_id": "2",
            "msg_type": "execute_reply",
            "session": "s",
            "username": "",
            "date": "",
            "version": "5",
        }
        reply = Message(channel="shell", header=header, content={"status": "error", "ename": "ValueError"})
        given = {
            "id": "1", "code": code, "begun": True, "seconds": 0.12345, "execution_count": 3, "reply": reply,
            "verdict": None, "output_bytes": 7, "output_messages": 2, **more,
        }  # fmt: skip
        self.record.cell_done(EndedCell(**given))

    def lines(self, event: str = "cell") -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.file.read_text().splitlines()]
        return [line for line in found if line["event"] == event]


async def test_a_cell_has_a_line_with_what_happened_and_what_it_used(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.emit(an(OutputRemoved, code=OutputCode.JAVASCRIPT))
    session.run("6 * 7")
    assert session.lines() == [], "it waits for its figures"
    session.figures.set_result((1.23456, 1 << 20))
    async with within(20):
        await session.written.wait()
    [line] = session.lines()
    assert line["source_sha256"] == hashlib.sha256(b"6 * 7").hexdigest()
    wanted = {
        "execution_count": 3, "seconds": 0.123, "status": "error", "error": "ValueError", "code": None,
        "output_bytes": 7, "output_messages": 2, "cpu_seconds": 1.235, "memory_peak_bytes": 1 << 20, "source_bytes": 5,
        "codes": {"javascript": 1},
    }  # fmt: skip
    assert {name: line[name] for name in wanted} == wanted
    assert session.measures == 1
    assert session.lines("source") == []
    await session.record.close()


async def test_a_cell_that_the_host_ended_says_why_and_its_text_stands_there_if_asked_for(tmp_path: Path) -> None:
    session = Session(tmp_path, source="text")
    error = CellTimeout(EndCode.CELL_TIMEOUT, kept=Survived.FILES)
    session.run("while True: pass", begun=False, verdict=error, reply=None)
    [line] = session.lines()
    assert (line["code"], line["kept"], line["status"]) == ("cell-timeout", "files", None)
    assert [part["text"] for part in session.lines("source")] == ["while True: pass"]
    await session.record.close()


async def test_a_line_names_who_asked_where_a_server_knows_it(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.run("1", begun=False, caller="jupyter ann/alice")
    session.run("2", begun=False)
    assert [line.get("caller") for line in session.lines()] == ["jupyter ann/alice", None]
    await session.record.close()


@pytest.mark.parametrize("end", ["close", "abandon"])
async def test_a_line_that_waits_for_its_figures_is_written_at_the_end(tmp_path: Path, end: str) -> None:
    session = Session(tmp_path)
    session.run("1")
    await session.record.close() if end == "close" else session.record.abandon()
    [line] = session.lines()
    assert "cpu_seconds" not in line or line["cpu_seconds"] is None
    assert session.record.head is not None


async def test_where_none_can_be_kept_a_person_is_told_once_and_nothing_is_made_up(tmp_path: Path) -> None:
    """Nor measured. The control is the first test."""
    session = Session(tmp_path, audit="no/such/folder/audit")
    [said] = session.said
    assert "the audit file cannot be opened" in said
    session.run("1")
    assert (session.measures, session.record.head, len(session.said)) == (0, None, 1)
    await session.record.close()
    assert not session.file.exists()
