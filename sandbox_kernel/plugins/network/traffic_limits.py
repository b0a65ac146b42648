"""What connections of cells may use: how many there are, what they carry, how long they last and are silent.

A cell is charged for the connections it opened. Decides nothing about hosts, and opens nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import TracebackType

from ...core.codes import Code, Note
from ...core.model import GIB
from .codes import NetworkCode
from .interfaces import Duplex
from .policy import RefusedConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressLimits:
    """Of one session."""

    connections: int = 64
    """Open at a time."""
    cell_bytes: int = 2 * GIB
    """What the connections of one cell bring in, and as much again out."""
    session_bytes: int = 64 * GIB
    """The same for all cells together."""
    silent_seconds: float = 120.0
    """How long a connection may carry nothing, and how long it may take to be made."""
    open_seconds: float = 6 * 3600.0
    """How long a connection may last, whatever it carries."""
    head_seconds: float = 15.0
    """How long the head of a request, or the first word of TLS, may take to come in."""
    lookup_seconds: float = 15.0
    lookups: int = 8
    """Names that are looked up at a time; more wait."""


@dataclass(slots=True)
class Traffic:
    """What went through, for reports and metrics."""

    connections: int = 0
    """That cells opened."""
    refused: dict[str, int] = field(default_factory=dict)
    """Refusals, by code."""
    bytes_in: int = 0
    """To the cells, with heads."""
    bytes_out: int = 0


@dataclass(slots=True)
class Account:
    """What one cell has used."""

    limits: EgressLimits
    traffic: Traffic
    bytes_in: int = 0
    bytes_out: int = 0
    open: int = 0
    ended: bool = False

    def came_in(self, count: int) -> None:
        """Count bytes for the cell. Raises Refused over a limit."""
        self.bytes_in += count
        self.traffic.bytes_in += count
        self._check(self.bytes_in, self.traffic.bytes_in)

    def went_out(self, count: int) -> None:
        """Count bytes of the cell. Raises Refused over a limit."""
        self.bytes_out += count
        self.traffic.bytes_out += count
        self._check(self.bytes_out, self.traffic.bytes_out)

    def _check(self, cell: int, session: int) -> None:
        if cell > self.limits.cell_bytes:
            raise RefusedConnection(NetworkCode.CELL_TRAFFIC.note(limit=self.limits.cell_bytes))
        if session > self.limits.session_bytes:
            raise RefusedConnection(NetworkCode.SESSION_TRAFFIC.note(limit=self.limits.session_bytes))


class Ledger:
    def __init__(self, limits: EgressLimits) -> None:
        self.limits = limits
        self.traffic = Traffic()
        self.open = 0
        """Connections that are being served."""
        self._accounts: dict[str, Account] = {}

    def opened(self, cell: str) -> Account:
        """Return the account of a cell that opened a connection. Raises Refused if there are too many."""
        self.traffic.connections += 1
        if self.open >= self.limits.connections:
            raise RefusedConnection(NetworkCode.TOO_MANY_CONNECTIONS.note(limit=self.limits.connections))
        account = self._accounts.setdefault(cell, Account(self.limits, self.traffic))
        account.open += 1
        self.open += 1
        return account

    def closed(self, account: Account) -> None:
        account.open -= 1
        self.open -= 1

    def refused(self, code: Code) -> None:
        self.traffic.refused[code.code] = self.traffic.refused.get(code.code, 0) + 1

    def cell_began(self) -> None:
        """Forget the cells that ended and have no connection. The last that ended may have opened one until now."""
        self._accounts = {cell: one for cell, one in self._accounts.items() if one.open or not one.ended}

    def cell_ended(self, cell: str) -> None:
        if account := self._accounts.get(cell):
            account.ended = True


class MeteredConnection:
    """A cell's connection that is counted. What is over a limit raises Refused, from the call that would carry it."""

    def __init__(self, inner: Duplex, account: Account, watch: Watch) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.asked = False
        """Whether somebody waits: it was the cell that said something last, or it does not take what it is sent."""
        self._inner = inner
        self._account = account
        self._watch = watch

    async def receive(self) -> bytes:
        data = await self._inner.receive()
        self._watch.touch()
        self.asked = True
        self.bytes_out += len(data)
        self._account.went_out(len(data))
        return data

    async def send(self, data: bytes) -> None:
        self.asked = True
        self.bytes_in += len(data)
        self._account.came_in(len(data))
        await self._inner.send(data)
        self.asked = False
        self._watch.touch()

    async def finish(self) -> None:
        await self._inner.finish()

    def reset(self, code: str) -> None:
        self._inner.reset(code)


class Watch:
    """Ends the work of one connection that lasts too long, or is silent for too long: `async with` raises Refused."""

    def __init__(self, limits: EgressLimits) -> None:
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._last = self._began = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelled = 0
        """How often the task was cancelled by others."""
        self._over: Note | None = None

    @property
    def over(self) -> bool:
        """Whether it ended the work."""
        return self._over is not None

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self._loop.time() - self._began

    def touch(self) -> None:
        self._last = self._loop.time()

    async def __aenter__(self) -> Watch:
        self._task = asyncio.current_task()
        self._cancelled = self._task.cancelling() if self._task is not None else 0
        self._look()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._over is None or self._task is None:
            return
        if self._task.uncancel() <= self._cancelled and isinstance(error, asyncio.CancelledError):
            raise RefusedConnection(self._over) from error

    def _look(self) -> None:
        """End the work if it is time; or else look again when that could be."""
        limits, now = self._limits, self._loop.time()
        if now - self._last >= limits.silent_seconds:
            self._over = NetworkCode.CONNECTION_SILENT.note(limit=f"{limits.silent_seconds:g}")
        elif now - self._began >= limits.open_seconds:
            self._over = NetworkCode.CONNECTION_TOO_LONG.note(limit=f"{limits.open_seconds:g}")
        else:
            due = min(self._last + limits.silent_seconds, self._began + limits.open_seconds)
            self._timer = self._loop.call_at(due, self._look)
            return
        if self._task is not None:
            self._task.cancel()
