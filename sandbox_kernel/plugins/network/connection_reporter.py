"""Reports of a session's connections: a line of its audit, a line for the person, a call for the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...core.errors import SandboxError
from ...core.events import ABSENT, ConnectionEnded
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
        return [*super().lines(), self.code.remedy]


class Reporter(Protocol):
    """Where a connection reports. Never blocks and never raises."""

    def note(self, event: ConnectionEnded) -> None:
        """Tell of a connection that is over, or of one request of it."""

    def tell(self, text: str) -> None:
        """Say one line on stderr of the running cell, if there is one that has not been told too much."""


class SessionReporter:
    """The `Reporter` of one session. It tells the caller of denied connections."""

    def __init__(self, session: SessionHandle, heard: Heard | None = None) -> None:
        self._emit = session.emit
        self._heard = heard
        self.tell = session.tell

    def note(self, event: ConnectionEnded) -> None:
        """Tell of a connection; how many are written down is bounded."""
        self._emit(event)
        if self._heard is not None and is_denial(event.code):
            host = None if event.host is ABSENT else event.host
            port = None if event.port is ABSENT else event.port
            self._heard(event.cell, NetworkDenial(code=event.code.code, reason=event.reason, host=host, port=port))
