"""What is said of the connections of a session: a line of its audit, a line for the person, a call for the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...core.codes import Note
from ...core.errors import SandboxError
from ...sdk.values import NetworkDenial
from ..api import SessionHandle
from .codes import NetworkCode
from .error_responses import is_denial

Heard = Callable[[str, NetworkDenial], object]
"""Called with the id of a cell and what it was denied."""


class NetworkDenied(SandboxError):
    """A connection or a request of a cell was not let out; the cell goes on."""

    fault = "policy"
    usual = NetworkCode.HOST_NOT_ALLOWED

    def lines(self) -> list[str]:
        """Return it for people: what was refused, and what to do."""
        return [*super().lines(), self.code.remedy]


class Reporter(Protocol):
    """Where a connection reports. Never blocks and never raises."""

    def note(self, note: Note, **fields: object) -> None:
        """Write one line of the audit, an event "network" with the note's code and text. Their number is bounded."""

    def tell(self, text: str) -> None:
        """Say one line on stderr of the running cell, if there is one that has not been told too much."""


class SessionReporter:
    """The `Reporter` of one session, of which the caller hears what was denied."""

    def __init__(self, session: SessionHandle, heard: Heard | None = None) -> None:
        self._emit = session.emit
        self._heard = heard
        self.tell = session.tell

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
        self._emit("network", room, first, code=code, reason=note.text, **fields)
        if self._heard is not None and is_denial(note.code):
            host, port = fields.get("host"), fields.get("port")
            denial = NetworkDenial(
                code=code,
                reason=note.text,
                host=host if isinstance(host, str) else None,
                port=port if isinstance(port, int) else None,
            )
            self._heard(str(fields.get("cell")), denial)
