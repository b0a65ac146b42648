"""A web server that everybody may reach: which requests it takes up, and what each connection may cost.

No connection is held for longer than it is used, and those half open make room for others. Everybody who reaches the
port can open connections without a token. So a request's head has few seconds, its body a bounded time, a reader of
answers must go on reading, and only so many connections without a request under way are kept: the oldest goes first. A
client that sends its request is never among the oldest.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import types
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket
from uvicorn.protocols.http.h11_impl import H11Protocol

from .crowd import Crowd, network_of

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_AUTHORITY = re.compile(
    r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?))(?::([0-9]{1,5}))?"
)
_ORIGIN = re.compile(r"https?://([^/?#\\@\s]+)")


class HostPort(NamedTuple):
    """A host and a port, None if none is said."""

    host: str
    """In small letters; an IPv6 address in its short form, without brackets."""
    port: int | None


def authority(text: str) -> HostPort | None:
    """Return what `text` says, if it is a host with or without a port and nothing else: no user, no path, no space."""
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        return None
    address, name, digits = found.groups()
    if digits is not None and (not 1 <= int(digits) <= 65535 or digits[0] == "0"):
        return None
    port = int(digits) if digits is not None else None
    if address is None:
        return HostPort(name.lower(), port)
    try:
        return HostPort(ipaddress.IPv6Address(address).compressed, port)
    except ValueError:
        return None


def origin(text: str) -> HostPort | None:
    """Return host and port of an Origin with the scheme http or https, None for anything else."""
    found = _ORIGIN.fullmatch(text)
    return authority(found[1]) if found is not None else None


class Names:
    """The names under which a server is reached: those of loopback, and those that its operator gave."""

    def __init__(self, given: Iterable[HostPort] = ()) -> None:
        self._known = frozenset((*(HostPort(name, None) for name in LOOPBACK), *given))

    def host(self, values: Sequence[str]) -> bool:
        """Return whether these values of the header Host are one, and name this server."""
        return len(values) == 1 and self._knows(authority(values[0]))

    def origin(self, values: Sequence[str]) -> bool:
        """Return whether these values of the header Origin are none, as from a program, or one of this server's."""
        return not values or (len(values) == 1 and self._knows(origin(values[0])))

    def _knows(self, found: HostPort | None) -> bool:
        """A name that was given without a port goes with every port: tunnels and proxies have their own."""
        return found is not None and (found in self._known or found._replace(port=None) in self._known)


MAX_REQUESTS = 512
"""Under way at once whose sender is not known. A sender that is known has a bound of its own."""
MAX_REQUESTS_OF_PEER = 448


class RequestFilter:
    """The first thing that a request meets: does it come from a page of another site, and is there room for it?"""

    def __init__(self, app: ASGIApp, known: Names) -> None:
        self._app = app
        self._known = known
        self._requests: Counter[str] = Counter()
        """Of strangers, by the networks that they come from."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if header_values(scope, b"content-length") and header_values(scope, b"transfer-encoding"):
            # A proxy may have read one, and we the other: what follows is part of this request, or another one.
            ended = {"Connection": "close"}
            await refuse(Response("Content-Length and Transfer-Encoding", 400, ended), scope, receive, send)
        elif not self._known.host(header_values(scope, b"host")):
            await refuse(Response("Invalid Host header", 421), scope, receive, send)
        elif not self._known.origin(header_values(scope, b"origin")):
            await refuse(Response("Invalid Origin header", 403), scope, receive, send)
        else:
            await self._pass(scope, receive, send)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on. Requests of strangers may not wait where too many of them wait already.

        A sender with a token is known before the first wait, so strangers do not delay it.
        """
        peer = network_of((scope.get("client") or ("",))[0])
        counts = True

        def admit() -> None:
            nonlocal counts
            if counts:
                counts = False
                self._requests -= Counter({peer: 1})

        def may_wait() -> bool:
            return not counts or (
                self._requests.total() <= MAX_REQUESTS and self._requests[peer] <= MAX_REQUESTS_OF_PEER
            )

        self._requests[peer] += 1
        try:
            await _begun(self._app({**scope, ADMIT: admit}, receive, send), may_wait)
        except _TooMany:
            await refuse(Response("Too many requests under way", 503), scope, receive, send)
        finally:
            admit()


ADMIT = "sandbox-kernel.admit"
"""In a scope: what `admitted` calls."""


def admitted(scope: Scope) -> None:
    """Count a request as a stranger's no more: whoever has it has a bound of their own."""
    if (admit := scope.get(ADMIT)) is not None:
        admit()


class _TooMany(Exception):
    """A stranger's request would have to wait for something, and too many do."""


@types.coroutine
def _begun(work: Any, may_wait: Callable[[], bool]) -> Generator[Any, Any, None]:
    """Do some work to its end. Raises `_TooMany` where it has to wait, and may not; it is ended then."""
    try:
        wanted = work.send(None)
    except StopIteration:
        return
    if not may_wait():
        work.close()
        raise _TooMany
    while True:
        try:
            came = yield wanted
        except GeneratorExit:
            work.close()
            raise
        except BaseException as error:
            step = partial(work.throw, error)
        else:
            step = partial(work.send, came)
        try:
            wanted = step()
        except StopIteration:
            return


async def refuse(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a response in place of the handler's, also where a WebSocket was requested."""
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(response)
    else:
        await response(scope, receive, send)


REASON_BYTES = 123
"""Of a WebSocket's close (RFC 6455, 5.5); of a longer reason there is an error, and no close."""


async def close(socket: WebSocket, code: int, reason: str) -> None:
    """End a WebSocket with as much of a reason as there is room for."""
    await socket.close(code, reason.encode(errors="replace")[:REASON_BYTES].decode(errors="ignore"))


def known(socket: WebSocket) -> None:
    """Have a WebSocket take messages of SOCKET_BYTES from now on: its handler knows who sends them."""
    if (widen := socket.scope.get("state", {}).get(KNOWN)) is not None:
        widen()


def header_values(scope: Scope, name: bytes) -> list[str]:
    """Return all values of a header, by its name in small letters."""
    return [value.decode("latin-1") for given, value in scope.get("headers", ()) if given.lower() == name]


class WebServer(uvicorn.Server):
    """The web server, whose owner looks after signals."""

    def __init__(self, app: Starlette, *, sockets: bool = False, **options: Any) -> None:
        """`sockets` says whether it takes WebSockets, for which the package `websockets` is needed."""
        super().__init__(
            Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="on",
                ws=SOCKET_CONNECTION if sockets else "none",
                ws_max_size=SOCKET_BYTES,
                ws_ping_interval=SOCKET_SECONDS,
                ws_ping_timeout=SOCKET_SECONDS,
                ws_per_message_deflate=False,
                timeout_graceful_shutdown=1,
                **options,
            )
        )

    def capture_signals(self) -> Any:
        return nullcontext()


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
SOCKET_CONNECTION = f"{__package__}.web_sockets:SocketConnection"
"""By its name: it needs a package of its own."""
SOCKET_BYTES = 16 << 20
"""Of one message that comes by a WebSocket; a larger one ends it."""
FIRST_BYTES = 16 << 10
"""Of one message whose sender is not known yet: all of it is in memory before a handler sees it."""
SOCKET_SECONDS = 20.0
"""Between two questions whether the other side of a WebSocket is there, and for its answer: one that does not read has
none."""
KNOWN = "sender-known"
"""In the state of a WebSocket's scope: what `known` calls."""
EVENTS_OF_TURN = 16
"""Of HTTP that are taken of a connection in one turn of the loop: a piece of a body of one byte is one."""
MAX_PIECES, PIECE_BYTES = 16 << 10, 64
"""Pieces that a body may have, or a message by a WebSocket, and one more for so many bytes each."""
BACKLOG = 64
"""Accepted in one step: fewer than a third of those that may wait, so that a new one has time to say what it wants."""


class Config(uvicorn.Config):
    """uvicorn's, with what all connections of one server share."""

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(
            app,
            http=ServedConnection,
            h11_max_incomplete_event_size=HEAD_BYTES,
            timeout_keep_alive=int(HEAD_SECONDS),
            backlog=BACKLOG,
            **options,
        )
        self.waiting: Crowd[ServedConnection] = Crowd(MAX_WAITING, MAX_WAITING_OF_PEER, _abort)
        """Those on which no request is under way."""


def _abort(connection: ServedConnection) -> None:
    connection.transport.abort()


_LEFT = ("lost", "upgraded")
"""When there is nothing to wait for any more."""


class _Http(h11.Connection):
    """HTTP of which few events come in one turn of the loop, and few for the bytes of a body."""

    left = EVENTS_OF_TURN
    _pieces = _bytes = 0

    def next_event(self) -> Any:
        if not self.left:
            return h11.NEED_DATA
        self.left -= 1
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._pieces = self._bytes = 0
        elif isinstance(event, h11.Data):
            self._pieces += 1
            self._bytes += len(event.data)
            if self._pieces > MAX_PIECES + self._bytes // PIECE_BYTES:
                raise h11.RemoteProtocolError("the pieces of a body are too small", error_status_hint=400)
        return event


class ServedConnection(H11Protocol):
    """One connection, with a clock for whatever it waits for."""

    config: Config
    conn: _Http
    _goes_on = False
    _phase = ""
    _clock: asyncio.TimerHandle | None = None
    _reader: asyncio.TimerHandle | None = None

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.conn = _Http(h11.SERVER, HEAD_BYTES)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave("lost")
        super().connection_lost(exc)

    def _leave(self, phase: str) -> None:
        self._phase = phase
        self.config.waiting.discard(self)
        for clock in (self._clock, self._reader):
            if clock is not None:
                clock.cancel()

    def handle_events(self) -> None:
        self.conn.left = EVENTS_OF_TURN
        super().handle_events()
        self._look()
        if not self.conn.left and not self._goes_on and self._phase not in _LEFT:
            self._goes_on = True
            self.flow.pause_reading()
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Take what is here already, now that others have had their turn."""
        self._goes_on = False
        if self._phase not in _LEFT and not self.transport.is_closing():
            self.flow.resume_reading()
            self.handle_events()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Leave the connection to the WebSocket, which has clocks of its own."""
        self._leave("upgraded")
        super().handle_websocket_upgrade(event)

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
        if self._phase in _LEFT or (now == self._phase and not anew):
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
        if self._reader is None and self._phase not in _LEFT and (left := self.transport.get_write_buffer_size()):
            self._reader = self.loop.call_later(READER_SECONDS, self._check_reader, left)

    def _check_reader(self, before: int) -> None:
        self._reader = None
        left = self.transport.get_write_buffer_size()
        if left > before - READER_BYTES and (self.flow.write_paused or self._phase == "head"):
            self.transport.abort()
        else:
            self._watch_reader()
