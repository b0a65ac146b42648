"""A service of connections that does what a test says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sandbox_kernel.core.codes import Note
from sandbox_kernel.plugins.api import Cell, Identified, SessionService, Stream

Serve = Callable[[Stream, Cell], Awaitable[None]]


class Served(SessionService):
    """A service that does what a test says, and remembers the rest."""

    def __init__(self, serve: Serve) -> None:
        self.preamble = b""
        self.does = serve
        self.events: list[tuple[str, str]] = []
        self.streams: list[Stream] = []
        self.now = self.most = 0
        self.notes: list[Note] = []

    async def serve(self, stream: Stream, cell: Cell) -> None:
        self.streams.append(stream)
        self.events.append(("serve", cell.id))
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.does(stream, cell)
        finally:
            self.now -= 1

    def cell_sent(self, cell: Identified) -> None:
        self.events.append(("began", cell.id))

    def cell_ended(self, cell: Identified) -> None:
        self.events.append(("ended", cell.id))

    async def close(self) -> None:
        self.events.append(("close", ""))
