"""Holds requests for the kernel back until their outputs can be heard, also by those who listened before a restart.

Imports asyncio and the model; who listens is asked of the sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from ..core.model import Message

LISTENERS_SECONDS = 5.0
"""How long a request for the kernel waits at most, for those who listened before a restart, or for the first to listen.

Clients connect to each socket by itself, within 0.1 to 0.2 s. A kernel that is ready at once would publish the outputs
of the first cell, and the idle that ends it, before they can be heard. On a busy machine clients are slower, and some
do not come again.
"""


class StartupGate:
    """The requests that came before they could be answered in public."""

    def __init__(self, receive: Callable[[Message, bytes], None]) -> None:
        """`receive` takes what was held back, in order."""
        self._receive = receive
        self._early: list[tuple[Message, bytes]] | None = []
        self.listeners = 1
        """How many are expected to listen."""

    def holds(self, request: Message, client: bytes) -> bool:
        """Return whether a request is held back."""
        if self._early is not None:
            self._early.append((request, client))
        return self._early is not None

    async def open_once_heard(self, until_heard_by: Callable[[int], Awaitable[None]]) -> None:
        """Let requests through once as many listen as are expected, within bounds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LISTENERS_SECONDS):
                await until_heard_by(self.listeners)
        self.open()

    def open(self) -> None:
        """Let requests through."""
        early, self._early = self._early or [], None
        for request, client in early:
            self._receive(request, client)
