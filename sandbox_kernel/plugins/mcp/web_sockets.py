"""A WebSocket of the web server: its messages are small until it is known who sends them, and it ends with its handler.

It does so soon, also where the other side does not read.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from . import web_server

CLOSE_SECONDS = 5.0
"""For the other side to take what was sent before the end: a transport that is closed waits for that for ever."""


class SocketConnection(WebSocketsSansIOProtocol):
    """See the module."""

    _end: asyncio.TimerHandle | None = None

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.conn.max_message_size = min(web_server.FIRST_BYTES, self.config.ws_max_size)

    def _widen(self) -> None:
        self.conn.max_message_size = self.config.ws_max_size

    async def run_asgi(self) -> None:
        self.scope["state"][web_server.KNOWN] = self._widen
        try:
            await super().run_asgi()
        finally:
            self._end_soon()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._end_soon()

    def _end_soon(self) -> None:
        if self._end is None and not self.disconnected:
            self._end = self.loop.call_later(CLOSE_SECONDS, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)
