"""The session as its service knows it: the audit, the running cell, a cell's clock, the agent."""

from __future__ import annotations

from typing import Any, Protocol

from ..core.codes import NetworkCode, Note
from .requests.outbound import Emit
from .requests.scheduler import Scheduler


class _Session(Protocol):
    """The session."""

    id: str
    requests: Scheduler

    @property
    def emit(self) -> Emit: ...

    async def ask(self, op: str, data: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]: ...


class SessionContext:
    """A `ServiceContext`."""

    def __init__(self, session: _Session) -> None:
        self._session = session

    @property
    def id(self) -> str:
        return self._session.id

    async def ask(self, op: str, data: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
        """Ask the agent. Raises `SandboxDied`."""
        return await self._session.ask(op, data, **fields)

    def record(self, event: str, **fields: Any) -> None:
        """Write one line of the audit; their number is bounded."""
        self._session.emit(event, **fields)

    def note(self, note: Note, **fields: object) -> None:
        """Write one line of the audit about the network; how many there are is bounded.

        What reached a host has room of its own: a cell cannot fill it with what is denied, and connect afterwards. Nor
        does it fill it with one host, and turn to another one: each rule, or else each code, has a first line in a
        cell.
        """
        code = note.code.code
        if note.code is NetworkCode.CONNECTED:
            room, about = "network, connected", fields.get("rule", code)
        elif "address" in fields:
            room, about = "network, broken off", fields.get("rule", code)
        else:
            room, about = "network", code
        first = (str(about), f"{fields.get('host')} {code}")
        self._session.emit("network", room, first, code=code, reason=note.text, **fields)

    def tool(self, note: Note, *, bounded: bool, **fields: object) -> None:
        """Write one line of the audit about a call; those that no limit of calls bounds have a room of their own."""
        event = "tool" if bounded else "tool_refused"
        self._session.emit(event, code=note.code.code, reason=note.text, **fields)

    def hold_clock(self, cell: str, *, held: bool) -> None:
        self._session.requests.hold_clock(cell, held=held)

    def tell(self, text: str) -> None:
        """Say one line on stderr of the running cell, unless it was told too much already."""
        self._session.requests.inbound.tell(text)
