"""Connections of the web server: none is held for longer than it is used, and those half open make room for others.

Whoever reaches the port can open connections without a token. So a request's head has few seconds, its body a bounded
time, a reader of answers must go on reading, and of the connections on which no request is under way only so many are
kept: the oldest goes first. A client that sends its request is never among the oldest.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 5.0
"""For the head of a request, from the connection or the last answer on; also how long an idle connection is kept."""
BODY_SECONDS = 120.0
"""For the body, 30 MB at most."""
READER_SECONDS = 30.0
READER_BYTES = 256 * 1024
"""A reader takes so much of a waiting answer in READER_SECONDS, or all that is left of it."""
HEAD_BYTES = 16 * 1024
MAX_WAITING = 256
"""Connections without a request under way, of all peers together."""
MAX_WAITING_OF_PEER = 224
BACKLOG = 64
"""Accepted in one step: fewer than a third of those that may wait, so that a new one has time to say what it wants."""


class Waiting:
    """The connections on which no request is under way, the oldest first."""

    def __init__(self) -> None:
        self._connections: dict[Connection, str] = {}
        self._of_peer: Counter[str] = Counter()

    def add(self, connection: Connection, peer: str) -> None:
        """Note a connection, and drop the oldest if there are too many."""
        self.discard(connection)
        if self._of_peer[peer] >= MAX_WAITING_OF_PEER:
            self._drop(next(one for one, whose in self._connections.items() if whose == peer))
        elif len(self._connections) >= MAX_WAITING:
            self._drop(next(iter(self._connections)))
        self._connections[connection] = peer
        self._of_peer[peer] += 1

    def discard(self, connection: Connection) -> None:
        peer = self._connections.pop(connection, None)
        if peer is not None:
            self._of_peer[peer] -= 1
            if not self._of_peer[peer]:
                del self._of_peer[peer]

    def _drop(self, connection: Connection) -> None:
        self.discard(connection)
        connection.transport.abort()


class Config(uvicorn.Config):
    """uvicorn's, with what all connections of one server share."""

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(
            app,
            http=Connection,
            h11_max_incomplete_event_size=HEAD_BYTES,
            timeout_keep_alive=int(HEAD_SECONDS),
            backlog=BACKLOG,
            **options,
        )
        self.waiting = Waiting()


class Connection(H11Protocol):
    """One connection, with a clock for whatever it waits for."""

    config: Config
    _phase = ""
    _clock: asyncio.TimerHandle | None = None
    _reader: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self.config.waiting.discard(self)
        self._phase = "lost"
        for clock in (self._clock, self._reader):
            if clock is not None:
                clock.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look(anew=True)
        self._watch_reader()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    # --- clocks ---

    def _now(self) -> str:
        """Return what this connection waits for: a head, a body that will be read, or an answer of ours."""
        if self.conn.their_state is h11.IDLE:
            return "head"
        if self.conn.their_state is h11.SEND_BODY:
            return "body" if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE, h11.SEND_BODY} else "head"
        return "answer"

    def _look(self, *, anew: bool = False) -> None:
        """Start the clock of what this connection waits for now, if that is something else than before."""
        now = self._now()
        if self._phase == "lost" or (now == self._phase and not anew):
            return
        self._phase = now
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
        if now == "head":
            peer = self.client[0] if self.client else ""
            self.config.waiting.add(self, network_of(peer))
        else:
            self.config.waiting.discard(self)
        if now != "answer":
            self._clock = self.loop.call_later(HEAD_SECONDS if now == "head" else BODY_SECONDS, self._late)

    def _late(self) -> None:
        self._clock = None
        if not self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()  # the clock of the reader goes on
            self._watch_reader()

    def _watch_reader(self) -> None:
        if self._reader is None and self._phase != "lost" and (left := self.transport.get_write_buffer_size()):
            self._reader = self.loop.call_later(READER_SECONDS, self._check_reader, left)

    def _check_reader(self, before: int) -> None:
        self._reader = None
        left = self.transport.get_write_buffer_size()
        if left > before - READER_BYTES and (self.flow.write_paused or self._phase == "head"):
            self.transport.abort()
        else:
            self._watch_reader()


def network_of(peer: str) -> str:
    """Return whose connection it is: an address, or the 64 bits of an IPv6 address that one machine has to itself."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.IPv6Network((address, 64), strict=False))
    return str(address)
