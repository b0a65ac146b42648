"""The seam between a session and what serves the connections of its cells: who is called, and with what.

A cell opens a TCP connection to the loopback of its container, and the host gets a `Stream`: bytes both ways, nothing
more. A plugin's `StreamService` reads what is wanted out of them. What carries the bytes does not stand here.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol

from ..core.codes import EndCode
from ..core.errors import WireError
from ..plugins.api import Cell, Stream

CHUNK_BYTES = 64 << 10
"""What one frame carries at most. A `receive` may return several frames' worth."""

RESET_BY_CELL = "cell"
"""The cell broke it, or its process ended."""
RESET_BY_KERNEL = "kernel"
"""Its kernel was replaced, or its host process is about to be."""
RESET_BY_END = "end"
"""The sandbox ended, or the session."""
RESET_LEFT_OPEN = "left-open"
"""The service returned without an end of it."""
RESET_CROWDED = "crowded"
"""Nobody waited for it, and others may wait for its place."""
RESET_UNSERVED = "unserved"
"""No service is for what it begins with."""
RESET_UNCHARGED = "uncharged"
"""It was opened before its kernel's first cell."""


class Identified(Protocol):
    """The request of a cell, as far as it is known here."""

    @property
    def id(self) -> str: ...


class RunningCells:
    """Which cells run, and which of them connections are charged to: an observer of cells."""

    def __init__(self) -> None:
        self._running: dict[str, Cell] = {}
        self._last: Cell | None = None

    @property
    def charged(self) -> Cell | None:
        """The cell that began last of those that run, or else that ended last; None before a kernel's first."""
        return next(reversed(self._running.values()), self._last)

    def cell_sent(self, cell: Identified) -> None:
        self._running[cell.id] = self._last = Cell(cell.id)

    def cell_ended(self, cell: Identified) -> None:
        self._last = self._running.pop(cell.id, self._last)

    def kernel_gone(self) -> None:
        """Charge nothing more to the cells of a kernel that is gone."""
        self._last = None


class Streams(Protocol):
    """The connections of one container's cells."""

    def begin(self) -> None:
        """Let cells open some; idempotent."""

    def take(self, parts: list[bytes]) -> None:
        """Act on a frame of the container. Raises `WireError` for one that no agent sends."""

    def reset_all(self, code: str) -> None:
        """Break all that are open; others may be opened."""

    async def close(self) -> None:
        """Break all for good, without a word to the container; idempotent, bounded."""


class NoStreams:
    """Those of a session without a service: none."""

    def begin(self) -> None: ...

    def take(self, parts: list[bytes]) -> None:
        raise WireError(EndCode.NOT_FRAMES, "the sandbox sent a frame of a stream, and was never allowed to open one")

    def reset_all(self, code: str) -> None: ...

    async def close(self) -> None: ...


works_for: ContextVar[str | None] = ContextVar("sandbox_works_for", default=None)
"""The session for which a tool works: what it did in a cell of that session would wait for itself."""


class Service(Protocol):
    """What serves the connections of one session, over all its kernels and containers: see `StreamService`."""

    async def serve(self, stream: Stream, cell: Cell) -> None: ...
