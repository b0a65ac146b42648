"""A WebSocket of the web server: its messages are small until it is known who sends them, and it ends with its handler.

It does so soon, also where the other side does not read.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from . import web_server

PIECE_BYTES = 1024
"""Of a connection that are looked at in one turn of the loop."""
MAX_UNREAD = 1000
"""Answers to pings that wait for who does not read them."""
CLOSE_SECONDS = 5.0
"""For the other side to take what was sent before the end: a transport that is closed waits for that for ever."""

_IMPROPER = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class SocketConnection(WebSocketsSansIOProtocol):
    _end: asyncio.TimerHandle | None = None
    _feeds = False
    _unread = 0
    _pieces = _bytes = 0
    """Of the message that comes."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._held = bytearray()
        self.conn.max_message_size = min(web_server.FIRST_BYTES, self.config.ws_max_size)

    def data_received(self, data: bytes) -> None:
        """Take what comes in small pieces, with a turn for others behind each: a frame may have six bytes."""
        if not self.handshake_initiated:
            super().data_received(data)
            if not self.handshake_initiated:  # this was the whole head
                self._refuse()
            return
        if len(data) <= PIECE_BYTES and not self._held:
            super().data_received(data)
            return
        self._held += data
        self._feed_soon()

    def _refuse(self) -> None:
        """End a connection whose head begins no WebSocket: nobody else would, as no clock is left for it."""
        self.transport.write(_IMPROPER)
        self.transport.close()
        self._end_soon()

    def _feed_soon(self) -> None:
        if self._held and not self._feeds and not self.read_paused and not self.disconnected:
            self._feeds = True
            self.transport.pause_reading()
            self.loop.call_soon(self._feed)

    def _feed(self) -> None:
        self._feeds = False
        if self.disconnected or self.transport.is_closing():
            self._held.clear()
            return
        piece = bytes(self._held[:PIECE_BYTES])
        del self._held[:PIECE_BYTES]
        super().data_received(piece)
        if self._held:
            self._feed_soon()
        elif not self.read_paused:
            self.transport.resume_reading()

    def handle_cont(self, event: Frame) -> None:
        """Take a piece of a message, of which each takes memory of its own: an empty one as well."""
        self._pieces += 1
        self._bytes += len(event.data)
        if self._pieces > web_server.MAX_PIECES + self._bytes // web_server.PIECE_BYTES:
            self.frames = []
            self.transport.abort()
            return
        super().handle_cont(event)
        if event.fin:
            self._pieces = self._bytes = 0

    async def receive(self) -> Any:
        message = await super().receive()
        self._feed_soon()
        return message

    def handle_ping(self) -> None:
        super().handle_ping()
        self._unread = 0 if self.writable.is_set() else self._unread + 1
        if self._unread > MAX_UNREAD:
            self.transport.abort()

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
