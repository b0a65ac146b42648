"""The session of a sandbox whose own kernel nobody hears, for what serves that sandbox's further agents.

Public: plugins may import it.
"""

from __future__ import annotations

from ..core.model import Message, Settings
from ..engines.select import make_engine, of_session
from ..plugins.api import OwnedSession
from ..session.session import Session


class _NoFront:
    def deliver(self, message: Message, client: bytes | None) -> None: ...
    def drain(self) -> None: ...


def bare_session(settings: Settings) -> OwnedSession:
    """Return it; its sandbox is started later. Raises `ConfigurationError`."""
    return Session(settings, make_engine(of_session(settings)), _NoFront())
