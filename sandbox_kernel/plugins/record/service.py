"""The record of one session: the audit hears what happens, and has one line of every cell.

The figures of processor and memory are asked of the sandbox when a cell has ended; its front end does not wait for
them, and what does not come is left out.
"""

from __future__ import annotations

import asyncio
import hashlib
from functools import partial
from typing import Any

from ...core.model import Settings
from ..api import EndedCell, Figures, SessionEvent, SessionHandle, SessionService
from .audit import Audit


class Record(SessionService):
    """See the module: a `CellRecorder` and an `EventListener`."""

    def __init__(self, settings: Settings, session: SessionHandle) -> None:
        """Open the audit. One that cannot be opened ends no session: its person is told in the first cell."""
        self._session = session
        self._unsaid: list[str] = []
        """What is to be said of the audit: lines may be written where nothing can be said, such as in a thread."""
        self.audit = Audit(
            settings.audit,
            session=session.id,
            key=settings.audit_key,
            limit_bytes=settings.audit_size,
            report=self._unsaid.append,
        )
        self._keeps_text = settings.audit_source == "text"
        self._waiting: dict[str, dict[str, Any]] = {}
        """Lines that wait for their figures, by the request of their cell."""

    def _say_unsaid(self) -> None:
        while self._unsaid:
            self._session.say(self._unsaid.pop(0))

    @property
    def head(self) -> str | None:
        return None if self.audit.head is None else str(self.audit.head)

    def begin(self, *, afresh: bool) -> None:
        self._say_unsaid()

    def hear(self, event: SessionEvent) -> None:
        self.audit(event.name, event.room, event.first, **event.fields)

    def cell_begun(self) -> None:
        self._say_unsaid()
        if self.audit.is_kept:
            self._session.measure()

    def cell_done(self, cell: EndedCell) -> None:
        if not self.audit.is_kept:
            return
        data = cell.code.encode(errors="replace")
        content = cell.reply.content if cell.reply is not None else {}
        fields = {
            "execution_count": cell.execution_count,
            "seconds": round(cell.seconds, 3),
            "status": content.get("status"),
            "error": content.get("ename"),
            "code": None if cell.verdict is None else cell.verdict.code.code,
            "kept": None if cell.verdict is None else cell.verdict.kept,
            "output_bytes": cell.output_bytes,
            "output_messages": cell.output_messages,
            **self.audit.cell_ended(),
            "source_sha256": hashlib.sha256(data).hexdigest(),
            "source_bytes": len(data),
        }
        if self._keeps_text:
            self.audit.source(fields["source_sha256"], cell.code)
        if not cell.begun:
            self._tell(fields)
            return
        self._waiting[cell.id] = fields
        self._session.measured(cell.id).add_done_callback(partial(self._measured, cell.id))

    def abandon(self) -> None:
        for cell in list(self._waiting):
            self._write(cell, (None, None))
        self.audit.close()

    async def close(self) -> None:
        self.abandon()

    def _measured(self, cell: str, task: asyncio.Task[Figures]) -> None:
        self._write(cell, (None, None) if task.cancelled() or task.exception() is not None else task.result())

    def _write(self, cell: str, figures: Figures) -> None:
        fields = self._waiting.pop(cell, None)
        if fields is not None:
            seconds, peak = figures
            used = {"cpu_seconds": None if seconds is None else round(seconds, 3), "memory_peak_bytes": peak}
            self._tell(fields | used)

    def _tell(self, fields: dict[str, Any]) -> None:
        """Write the line of a cell; all who listen hear of it."""
        self._session.emit("cell", **fields)
