"""The one line that the audit keeps of every cell: what it was, how it ended, what it used and what happened meanwhile.

The figures of processor and memory are asked of the agent when the cell has ended; its front end does not wait for
them, and what does not come is left out.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ...core.model import Message
from ..meter import Figures, Meter
from .outbound import Audit
from .queue import PendingRequest


class Recorder:
    """See the module; one for a session's whole life."""

    def __init__(
        self,
        audit: Audit,
        *,
        tally: Callable[[], dict[str, Any]] = dict,
        meter: Meter | None = None,
        source: Callable[[str, str], None] | None = None,
        kept: bool = True,
    ) -> None:
        """`tally` returns what happened since the last cell; `source` keeps the text of a cell under its hash.

        `kept`: whether lines go anywhere. If not, none is made up, and no code is hashed.
        """
        self._kept = kept
        self._audit = audit
        self._tally = tally
        self._meter = meter
        self._source = source
        self._waiting: dict[str, dict[str, Any]] = {}
        """Lines that wait for their figures, by the request of their cell."""

    def began(self) -> None:
        """Note that a kernel has taken up a cell."""
        if self._meter is not None:
            self._meter.start()

    def ended(self, request: PendingRequest, reply: Message | None) -> None:
        """Write down a cell that has its end; its content must still be there."""
        if not self._kept:
            return
        code = str(request.message.content.get("code", ""))
        data = code.encode(errors="replace")
        fields = self._fields(request, reply)
        fields |= {"source_sha256": hashlib.sha256(data).hexdigest(), "source_bytes": len(data)}
        if self._source is not None:
            self._source(fields["source_sha256"], code)
        if self._meter is None or not request.busy:
            self._audit("cell", **fields)
            return
        self._waiting[request.id] = fields
        self._meter.read(request.id).add_done_callback(partial(self._read, request.id))

    def flush(self) -> None:
        """Write the lines that still wait for their figures, without them."""
        for cell in list(self._waiting):
            self._write(cell, (None, None))

    def _fields(self, request: PendingRequest, reply: Message | None) -> dict[str, Any]:
        content = reply.content if reply is not None else {}
        verdict, budget = request.verdict, request.budget
        return {
            "execution_count": request.execution_count,
            "seconds": round(time.monotonic() - request.started, 3) if request.started else 0,
            "status": content.get("status"),
            "error": content.get("ename"),
            "code": None if verdict is None else verdict.code.code,
            "kept": None if verdict is None else verdict.kept,
            "output_bytes": budget.bytes if budget is not None else 0,
            "output_messages": budget.messages if budget is not None else 0,
            **self._tally(),
        }

    def _read(self, cell: str, task: asyncio.Task[Figures]) -> None:
        self._write(cell, (None, None) if task.cancelled() or task.exception() is not None else task.result())

    def _write(self, cell: str, figures: Figures) -> None:
        fields = self._waiting.pop(cell, None)
        if fields is not None:
            seconds, peak = figures
            used = {"cpu_seconds": None if seconds is None else round(seconds, 3), "memory_peak_bytes": peak}
            self._audit("cell", **fields, **used)
