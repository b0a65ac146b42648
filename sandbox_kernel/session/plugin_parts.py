"""The plugins' parts of one session: made with it, called by what they have, and ended with it.

What a guard raises ends the cell that it should have read: the scheduler sees to that. What any other part raises is
logged, and neither a cell's nor another part's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..core.codes import UsageCode
from ..core.errors import ConfigurationError
from ..core.events import SessionEvent
from ..core.model import Message
from ..core.tasks import log_defect
from ..engines.preparations import Preparations
from ..plugins import index
from ..plugins.api import (
    RESET_UNSERVED,
    Cell,
    CellGuard,
    CellObserver,
    CellRecorder,
    ConnectionService,
    EndedCell,
    EventListener,
    OwnedSession,
    Plugin,
    RunningCell,
    SessionService,
    Stream,
    StreamService,
    TransferListener,
)
from .requests.queue import PendingRequest


def switch(services: Iterable[StreamService], seconds: float) -> ConnectionService | None:
    """Return what serves all connections; None if nothing does.

    Args:
        services: Of plugins.
        seconds: How long a connection may say nothing at its beginning; then it is reset.

    Raises:
        ConfigurationError: Connections of two plugins begin alike.
    """
    found: dict[bytes, StreamService] = {}
    for one in services:
        if one.preamble in found:
            both = f"{type(found[one.preamble]).__name__} and {type(one).__name__}"
            raise ConfigurationError(UsageCode.PLUGIN_UNUSABLE, f"connections for {both} begin alike")
        found[one.preamble] = one
    plain = found.pop(b"", None)
    return Switch(found, plain, seconds) if found else plain


class Switch:
    """A `ConnectionService` of several."""

    def __init__(self, services: dict[bytes, StreamService], others: ConnectionService | None, seconds: float) -> None:
        """`services` by preamble; `others` serves the rest, if it is not None."""
        self._services = services
        self._others = others
        self._seconds = seconds

    async def serve(self, stream: Stream, cell: Cell) -> None:
        """Serve one connection until its end. Raises StreamReset."""
        data = b""
        stream.idle(idle=True)
        try:
            async with asyncio.timeout(self._seconds):
                while any(len(data) < len(one) and one.startswith(data) for one in self._services):
                    if not (piece := await stream.receive()):
                        break
                    data += piece
        except TimeoutError:
            stream.reset("silent")
            return
        stream.idle(idle=False)
        for preamble, service in self._services.items():
            if data.startswith(preamble):
                await service.serve(BegunStream(stream, data[len(preamble) :]), cell)
                return
        if self._others is not None:
            await self._others.serve(BegunStream(stream, data), cell)
        else:
            stream.reset(RESET_UNSERVED)


class BegunStream:
    """A stream whose first bytes were read, and are given again."""

    def __init__(self, stream: Stream, data: bytes) -> None:
        self._stream = stream
        self._data = data

    @property
    def number(self) -> int:
        return self._stream.number

    def idle(self, *, idle: bool) -> None:
        self._stream.idle(idle=idle)

    async def receive(self) -> bytes:
        data, self._data = self._data, b""
        return data or await self._stream.receive()

    async def send(self, data: bytes) -> None:
        await self._stream.send(data)

    async def finish(self) -> None:
        await self._stream.finish()

    def reset(self, code: str) -> None:
        self._stream.reset(code)


CLOSE_SECONDS = 5.0
"""How long one part may take to end with its session."""


class Services:
    """See the module; a `CellObserver` and a `TransferListener` for all of them, and what tells them of events."""

    def __init__(self, session: OwnedSession, prepared: Preparations, outer: Services | None = None) -> None:
        """Make the parts that the settings ask for, or that were prepared.

        `outer` are those of the session within which this one is: its cells have the connections of that one.
        Raises `ConfigurationError` for one that cannot be had.
        """
        self._session = session
        self._prepared = prepared
        self.guards: list[CellGuard] = []
        self._made: dict[str, SessionService] = {}
        self._observers: list[CellObserver] = []
        self._listeners: list[EventListener] = []
        self._recorders: list[CellRecorder] = []
        self._transfers: list[TransferListener] = []
        self._outer = outer
        if outer is not None:
            self._observers += outer.observers_of_all
        for plugin in index.services(session.settings, prepared.given):
            self._make(plugin)
        connected = [one for one in self._made.values() if isinstance(one, StreamService)]
        self.streams: ConnectionService | None = switch(connected, session.settings.limits.network_timeout)
        """What serves the connections of cells; None if nothing does."""
        self.carrier: Any = None if self.streams is None else index.streams()
        """The class of what carries them."""

    @property
    def observers_of_all(self) -> list[CellObserver]:
        """Those that charge cells of all kernels of the sandbox: for connections, or for what it opens."""
        of_sandbox = (one for one in self._made.values() if isinstance(one, StreamService) or one.of_sandbox)
        return [one for one in of_sandbox if isinstance(one, CellObserver)]

    def of(self, name: str) -> SessionService | None:
        """Return the part of a plugin, None if it has none."""
        return self._made.get(name)

    def _make(self, plugin: Plugin) -> None:
        if plugin.prepare is None:
            assert plugin.service is not None  # noqa: S101 (for the type: the index names none else)
            one = plugin.service(self._session.settings, self._session)
        elif (prepared := self._prepared.of(plugin.name)) is not None:
            one = prepared.service(self._session)
        else:
            return  # nothing of it is in the sandbox, and it serves nothing
        self._made[plugin.name] = one
        if isinstance(one, CellGuard):
            self.guards.append(one)
        if isinstance(one, CellObserver):
            self._observers.append(one)
        if isinstance(one, CellRecorder):
            self._recorders.append(one)
        if isinstance(one, EventListener):
            self.listen(one)
        if isinstance(one, TransferListener):
            self._transfers.append(one)

    def listen(self, listener: EventListener) -> None:
        """Have a listener hear all events, before those are told that write them down."""
        self._listeners.append(listener)
        self._listeners.sort(key=lambda one: isinstance(one, CellRecorder))

    def _each(self) -> list[SessionService]:
        """Return all of them; the one that records what the others report comes last."""
        return sorted(self._made.values(), key=lambda one: isinstance(one, CellRecorder))

    @property
    def head(self) -> str | None:
        """What names the last line that was written of this session; None if there is none."""
        return next((one.head for one in self._recorders if one.head is not None), None)

    # --- what they are told of ---

    def emit(self, event: SessionEvent) -> None:
        """Tell all listeners of an event. Never raises."""
        self._hear(event, self._listeners)
        if self._outer is not None:  # it watches over the whole sandbox; what is written down is written once
            self._outer.hear_beside(event)

    def hear_beside(self, event: SessionEvent) -> None:
        """Take an event of a session within this one."""
        others = (one for one in self._listeners if not isinstance(one, CellRecorder))
        self._hear(event, [one for one in others if not getattr(one, "own_events", False)])

    def _hear(self, event: SessionEvent, listeners: Iterable[EventListener]) -> None:
        for one in listeners:
            with _logged("what hears events"):
                one.hear(event)

    def cell_begun(self) -> None:
        for one in self._recorders:
            with _logged("what is told of a cell that begins"):
                one.cell_begun()

    def cell_done(self, request: PendingRequest, reply: Message | None) -> None:
        """Have a cell written down that has its reply; its content must still be there."""
        if not self._recorders:
            return
        budget = request.budget
        cell = EndedCell(
            id=request.id,
            code=str(request.message.content.get("code", "")),
            begun=request.busy,
            seconds=time.monotonic() - request.started if request.started else 0,
            execution_count=request.execution_count,
            reply=reply,
            verdict=request.verdict,
            output_bytes=budget.bytes if budget is not None else 0,
            output_messages=budget.messages if budget is not None else 0,
            caller=request.caller,
        )
        for one in self._recorders:
            with _logged("what writes cells down"):
                one.cell_done(cell)

    def cell_sent(self, cell: RunningCell) -> None:
        for one in self._observers:
            with _logged("what is told of a cell that is sent"):
                one.cell_sent(cell)

    def cell_ended(self, cell: RunningCell) -> None:
        for one in self._observers:
            with _logged("what is told of a cell's end"):
                one.cell_ended(cell)

    def kernel_gone(self) -> None:
        for one in self._made.values():
            with _logged("what is told of a kernel's end"):
                one.kernel_gone()

    def transferred(
        self, op: str, data: bytes, fields: Mapping[str, Any], reply: Mapping[str, Any], answer: bytes
    ) -> None:
        for one in self._transfers:
            with _logged("what sees files pass"):
                one.transferred(op, data, fields, reply, answer)

    # --- from a start to the end ---

    def begin(self, *, afresh: bool) -> None:
        for one in self._made.values():
            with _logged("what begins with a sandbox"):
                one.begin(afresh=afresh)

    def abandon(self) -> None:
        for one in self._each():
            with _logged("what ends without a loop"):
                one.abandon()

    async def close(self) -> None:
        for one in self._each():
            with _logged("what ends with a session"):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await one.close()


@contextmanager
def _logged(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as defect:
        log_defect(what, defect)
