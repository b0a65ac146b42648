"""What one cell used of processor and memory, as its sandbox says.

Cells can make their sandbox lie: the figures are for people, and nothing may depend on them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from ..core.errors import SandboxDied
from ..core.model import Limits
from ..core.tasks import Tasks
from ..plugins.api import Figures
from .agent_link import Link
from .agent_messages import MeasuredUse


class CellMeter:
    """That of one session: it measures one cell at a time."""

    def __init__(
        self, ask: Callable[..., Awaitable[tuple[dict[str, Any], bytes]]], link: Callable[[], Link], limits: Limits
    ) -> None:
        self._ask = ask
        self._link = link
        self._limits = limits
        self._tasks = Tasks()
        """Readings end by themselves, with the sandbox at the latest, so each caller gets an answer."""
        self._reading: tuple[str, asyncio.Task[Figures]] | None = None

    def start(self) -> None:
        """Measure what is used from now on; does nothing without a sandbox."""
        with contextlib.suppress(SandboxDied):
            self._link().tell("meter", start=True)

    def read(self, cell: str) -> asyncio.Task[Figures]:
        """Return what was used since `start`. A second call for the same cell returns the same."""
        if self._reading is None or self._reading[0] != cell:
            self._reading = cell, self._tasks.hold(self._figures(), "reading the meter")
        return self._reading[1]

    async def _figures(self) -> Figures:
        try:
            reply, _ = await self._ask("meter", timeout=5.0)
        except SandboxDied:
            return None, None
        metered = MeasuredUse.of(reply, self._limits.memory)
        return metered.cpu_seconds, metered.memory_peak_bytes
