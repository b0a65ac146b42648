"""Several servers behind one address: each has its own sandboxes, and passes on what is for another's.

A replica that is asked for a sandbox which it does not have asks its peers, with the credentials of the request, and
passes the request to the one that has it. That one checks the credentials again: no replica believes another. A request
that was passed on is not passed on again. Peers that do not answer in time are left out.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import h11
import orjson
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from ...core import json_memory
from ...core.codes import EndCode
from ...core.errors import ConfigurationError
from ...core.tasks import Tasks
from .codes import ServeCode
from .metrics import wire_of
from .requests import Refusal
from .web_server import admitted, known

MAX_PEERS = 32
"""Addresses that are asked, all names of `--peers` together."""
MAX_ASKS = 16
"""Questions to one peer at a time, for each tenant that has proven to this replica who it is, and for all strangers.

Further ones wait, within their time: a peer that hangs holds up no question to another, and nobody those of others.
"""
RESOLVE_SECONDS = 3.0
RESOLVED_SECONDS = 5.0
"""How long the addresses of a name are taken to be right."""
KEPT_SECONDS = 300.0
"""How long those of a name are kept that cannot be looked up any more."""
CONNECT_SECONDS = 2.0
ASK_SECONDS = 3.0
"""For the whole answer to one question."""
HEAD_BYTES = 64 << 10
PIECE_BYTES = 64 << 10
"""Read of a peer at a time: the next when the client has taken this one."""
LIST_BYTES = 4 << 20
"""Of the list of one peer."""
LIST_MEMORY = 32 << 20
"""Bytes that it may cost once it is parsed."""
MAX_INFORMATION = 8
"""Answers before the answer (1xx)."""
MESSAGE_BYTES = 64 << 20
"""Of one message of a peer's WebSocket."""
END_SECONDS = 5.0

ASKED = "/replica/"
"""Before the path of a request whose sandbox is asked for, with `http` or `websocket` between them."""
_ASKS = "sandbox-kernel.asks"
FORWARDED = b"x-sandbox-kernel-forwarded"
REPLICA = b"x-sandbox-kernel-replica"
"""In the answer to a question: which replica that is."""
OWNER = b"x-sandbox-kernel-owner"
"""In it: whose the sandbox is that it has, whose request is counted then."""
SANDBOXES = b"x-sandbox-kernel-sandboxes"
"""In it: how many sandboxes the tenant has there that asks, with those that start."""
_HOP = frozenset(
    b"connection expect keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer upgrade "
    b"transfer-encoding".split()
)
_ID = re.compile(rb"[0-9a-f]{16}")
_NUMBER = re.compile(rb"[0-9]{1,9}")
_PEER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Locus:
    """Where the sandbox of a request is, as far as this replica knows."""

    is_here: bool
    name: str = ""
    """By which any replica could make it; empty for one that is where it is, or nowhere."""


class ReplicaPeer(NamedTuple):
    address: str
    port: int
    name: str
    """By which its certificate is checked."""


class _Garbage(Exception):
    """A peer that does not speak HTTP, or not within bounds."""


_FAILURES = (OSError, TimeoutError, h11.ProtocolError, _Garbage)  # ssl.SSLError is an OSError


def parsed(given: Sequence[str], port: int) -> list[tuple[str, int]]:
    """Return names and ports of peers. Raises `ConfigurationError`."""
    found = []
    for one in given:
        match = _PEER.fullmatch(one)
        number = int(match[2] or port) if match is not None else 0
        if match is None or not 1 <= number <= 65535:
            words = "a peer is a name or an address, and a port if it is another than this server's: replicas:8443"
            raise ConfigurationError(EndCode.WRONG_SETTING, words, value=repr(one), setting="peers")
        found.append((match[1].strip("[]"), number))
    return found


_asking: ContextVar[tuple[HTTPConnection, str] | None] = ContextVar("asking", default=None)


@contextmanager
def asking(request: HTTPConnection, owner: str) -> Iterator[None]:
    """Have peers be asked with the credentials of a tenant's request meanwhile, and in its turns."""
    token = _asking.set((request, owner))
    try:
        yield
    finally:
        _asking.reset(token)


def is_question(scope: Scope) -> bool:
    """Return whether a peer asks about a request, which is answered without a wait."""
    return bool(scope.get(_ASKS))


def is_forwarded(request: HTTPConnection) -> bool:
    return any(name == FORWARDED for name, _ in request.scope["headers"])


class Replicas:
    """The other servers."""

    def __init__(self, peers: Sequence[tuple[str, int]], tls: ssl.SSLContext | None = None) -> None:
        self.id = secrets.token_hex(8)
        self._given = peers
        self._tls = tls
        self._known: dict[tuple[str, int], _Addresses] = {one: _Addresses() for one in peers}
        self._looking: asyncio.Task[None] | None = None
        self._turns: dict[tuple[ReplicaPeer, str | None], asyncio.Semaphore] = {}
        self._tasks = Tasks()

    async def other(
        self,
        scope: Scope,
        locus: Locus | None,
        *,
        widen: bool = True,
        proven: bool = True,
        owner: str = "",
        has: int = 0,
    ) -> ASGIApp | None:
        """Return what answers a request in place of this replica's handler; None if this one answers.

        `widen` says whether a WebSocket has proven whose it is, and `proven` whether the request has, to this replica:
        it is `owner`'s then, who `has` so many sandboxes here.
        """
        if is_question(scope):
            return _Said(204 if locus is not None and locus.is_here else 404, self.id, owner, has)
        if locus is None or locus.is_here or is_forwarded(HTTPConnection(scope)):
            return None
        found = await self._holder(scope, locus.name, owner if proven else None)
        return None if found is None else _Forward(self, found[0], widen, found[1])

    async def united(self, request: HTTPConnection, own: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
        """Return a list with what peers have for the same request; `key` is the field of a row that names it."""
        if is_forwarded(request):
            return own
        return list({str(row[key]): row for row in (*await self._rows(request.scope), *own) if key in row}.values())

    async def sandboxes(self) -> int:
        """Return how many sandboxes the tenant that is served has at peers, with those that start.

        Raises `Refusal` if one does not say: a limit that a silent peer counts nothing in could be passed. One at whose
        address nobody listens has none.
        """
        if (about := _asking.get()) is None:
            raise Refusal(503, ServeCode.REPLICA_SILENT)
        request, owner = about
        headers = _headers(request.scope)
        if wire_of(request.scope["path"]) == "jupyter":  # which alone takes a token in the address, and has checked it
            headers += [(b"x-api-key", one.encode()) for one in request.query_params.getlist("token")[:1]]
        scope = {"type": "http", "path": "/v2/sandboxes", "headers": headers}
        peers = await self._peers()
        unknown = any(one.failed and not one.found for one in self._known.values())
        said = await asyncio.gather(*(self._ask(peer, scope, owner) for peer in peers))
        if unknown or any(one is None or one.has is None for one in said):
            raise Refusal(503, ServeCode.REPLICA_SILENT)
        return sum({one.id: one.has or 0 for one in said if one is not None and one.id not in {self.id, ""}}.values())

    async def _rows(self, scope: Scope) -> list[dict[str, Any]]:
        found = await asyncio.gather(*(self._list(peer, scope) for peer in await self._peers()))
        return [row for rows in found for row in rows]

    def _turn(self, peer: ReplicaPeer, owner: str | None) -> asyncio.Semaphore:
        """Return what is held for a question of a tenant's; None is any stranger."""
        return self._turns.setdefault((peer, owner), asyncio.Semaphore(MAX_ASKS))

    async def _holder(self, scope: Scope, name: str, owner: str | None) -> tuple[ReplicaPeer, str] | None:
        """Return the peer that has a sandbox, and whose it is there.

        Where none does, the one that is to make it; None is this replica.
        """
        hold = self._tasks.hold
        asks = [hold(self._ask(peer, scope, owner), "a question to a peer") for peer in await self._peers()]
        owners: dict[str, ReplicaPeer | None] = {self.id: None}
        try:
            for ask in asyncio.as_completed(asks):
                said = await ask
                if said is None or said.id in {self.id, ""}:
                    continue
                if said.is_there:
                    return said.peer, said.owner
                owners[said.id] = said.peer
        finally:
            for one in asks:
                one.cancel()
        if not name:
            return None
        peer = owners[max(owners, key=lambda one: hashlib.sha256(f"{one} {name}".encode()).digest())]
        return None if peer is None else (peer, owner or "")

    async def _ask(self, peer: ReplicaPeer, scope: Scope, owner: str | None) -> _Answer | None:
        """Ask a peer whether it has the sandbox of a request; None for one that does not say.

        Nobody at its address is an answer without an id.
        """
        path = f"{ASKED}{scope['type']}".encode() + _target(scope)
        try:
            async with asyncio.timeout(ASK_SECONDS), self._turn(peer, owner), self.connected(peer) as wire:
                headers = _bodiless(scope)
                await wire.send(h11.Request(method=scope.get("method", "GET"), target=path, headers=headers))
                await wire.send(h11.EndOfMessage())
                head = await wire.head()
        except ConnectionRefusedError:
            return _Answer(peer, "", is_there=False, owner="", has=0)
        except _FAILURES:
            return None
        said = {name: bytes(value) for name, value in head.headers if name in {REPLICA, OWNER, SANDBOXES}}
        if not _ID.fullmatch(said.get(REPLICA, b"")):
            return None
        number, whose = said.get(SANDBOXES, b""), said.get(OWNER, b"").decode("latin-1")
        has = int(number) if _NUMBER.fullmatch(number) else None
        return _Answer(peer, said[REPLICA].decode(), is_there=head.status_code == 204, owner=whose, has=has)

    async def _list(self, peer: ReplicaPeer, scope: Scope) -> list[dict[str, Any]]:
        content, about = b"", _asking.get()
        owner = "" if about is None else about[1]
        try:
            async with asyncio.timeout(ASK_SECONDS), self._turn(peer, owner), self.connected(peer) as wire:
                headers = [*_bodiless(scope), (FORWARDED, b"1")]
                await wire.send(h11.Request(method="GET", target=_target(scope), headers=headers))
                await wire.send(h11.EndOfMessage())
                if (await wire.head()).status_code != 200:
                    return []
                async for piece in wire.body():
                    content += piece
                    if len(content) > LIST_BYTES:
                        return []
            if json_memory.heavy(content, LIST_MEMORY) is not None:
                return []
            found = orjson.loads(content)
        except (*_FAILURES, orjson.JSONDecodeError):
            return []
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    async def _peers(self) -> list[ReplicaPeer]:
        """Return the addresses of all peers; this replica may be one of them.

        All who ask meanwhile wait for one lookup. A name that cannot be looked up keeps the addresses that it had.
        """
        now = time.monotonic()
        if any(now - one.when >= RESOLVED_SECONDS for one in self._known.values()):
            if self._looking is None or self._looking.done():
                self._looking = self._tasks.hold(self._look_up(), "looking up the peers")
            await asyncio.shield(self._looking)
        found = list(dict.fromkeys(peer for one in self._known.values() for peer in one.found))[:MAX_PEERS]
        self._turns = {key: turn for key, turn in self._turns.items() if key[0] in found}
        return found

    async def _look_up(self) -> None:
        await asyncio.gather(*(self._resolve(*one) for one in self._known))

    async def _resolve(self, name: str, port: int) -> None:
        known = self._known[name, port]
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
        except (OSError, TimeoutError, UnicodeError) as error:
            # That there is no such name is an answer, as where no other replica is ready yet.
            known.failed = not (isinstance(error, socket.gaierror) and error.errno in _NO_NAME)
            if time.monotonic() - known.good >= KEPT_SECONDS:
                known.found = []
        else:
            known.found = [ReplicaPeer(str(address[0]), port, name) for *_, address in found]
            known.failed, known.good = False, time.monotonic()
        known.when = time.monotonic()

    @asynccontextmanager
    async def connected(self, peer: ReplicaPeer) -> AsyncIterator[_Wire]:
        """Give a connection of HTTP. Raises `OSError`, `TimeoutError`."""
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(
                peer.address,
                peer.port,
                limit=PIECE_BYTES,
                ssl=self._tls,
                server_hostname=peer.name if self._tls else None,
            )
        _keep_alive(writer.get_extra_info("socket"))
        try:
            yield _Wire(reader, writer)
        finally:
            writer.transport.abort()

    async def websocket(self, peer: ReplicaPeer, scope: Scope) -> Any:
        """Return a WebSocket to a peer. Raises `OSError`, `TimeoutError`, `WebSocketException`."""
        left_out = {b"host", b"user-agent"}
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in [*_bodiless(scope), (FORWARDED, b"1")]
            if name not in left_out and not name.startswith(b"sec-websocket-")
        ]
        given = {name: value.decode("latin-1") for name, value in scope["headers"]}
        scheme = "ws" if self._tls is None else "wss"
        more: dict[str, Any] = {} if self._tls is None else {"ssl": self._tls, "server_hostname": peer.name}
        found = await _Connect(
            f"{scheme}://{given[b'host']}{_target(scope).decode('latin-1')}",
            host=peer.address,
            port=peer.port,
            additional_headers=headers,
            user_agent_header=given.get(b"user-agent"),
            subprotocols=[Subprotocol(one) for one in scope.get("subprotocols", ())] or None,
            compression=None,
            proxy=None,
            open_timeout=ASK_SECONDS,
            close_timeout=END_SECONDS,
            max_size=MESSAGE_BYTES,
            max_queue=1,
            **more,
        )
        _keep_alive(found.transport.get_extra_info("socket"))
        return found


class _Connect(connect):
    """Follows no redirect: a peer's answer is for the client, whatever it is."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


@dataclass(slots=True)
class _Addresses:
    """Of one name."""

    found: list[ReplicaPeer] = field(default_factory=list)
    when: float = -RESOLVED_SECONDS
    """When it was looked up last, and when with success."""
    good: float = -KEPT_SECONDS
    failed: bool = False
    """Whether the last lookup says nothing."""


_NO_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


@dataclass(frozen=True, slots=True)
class _Answer:
    peer: ReplicaPeer
    id: str
    is_there: bool
    owner: str
    has: int | None
    """None if it does not say."""


class Questions:
    """Takes the questions of peers: each meets the route of the request that it is about, up to its handler."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(ASKED):
            kind, _, path = scope["path"].removeprefix(ASKED).partition("/")
            if kind not in {"http", "websocket"}:
                await Response(status_code=404)(scope, receive, send)
                return
            scope = {**scope, "type": kind, "path": f"/{path}", _ASKS: True}
            scope.pop("raw_path", None)
            if kind == "websocket":
                # What refuses a WebSocket may answer with HTTP.
                scope["extensions"] = {**scope.get("extensions", {}), "websocket.http.response": {}}
                receive, send = _as_http(send)
        await self._app(scope, receive, send)


def _as_http(send: Send) -> tuple[Receive, Send]:
    """Return both ways of a question about a WebSocket: its answers are those of HTTP, and whoever accepts is alone."""
    came = iter([{"type": "websocket.connect"}])
    is_over = False

    async def receive() -> Message:
        return next(came, {"type": "websocket.disconnect", "code": 1005})

    async def answer(message: Message) -> None:
        nonlocal is_over
        kind = message["type"].removeprefix("websocket.")
        if is_over:
            return
        if kind.startswith("http.response."):
            await send({**message, "type": kind})
        else:
            is_over = True
            await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})

    return receive, answer


class _Said:
    def __init__(self, status: int, identity: str, owner: str, has: int) -> None:
        headers = {REPLICA.decode(): identity, "Connection": "close"}
        if owner:
            headers |= {OWNER.decode(): owner, SANDBOXES.decode(): str(has)}
        self._response = Response(status_code=status, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._response({**scope, "type": "http"}, receive, send)


class _Wire:
    """A connection to a peer, as a client of HTTP."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)

    async def send(self, event: h11.Event) -> None:
        if content := self._http.send(event):
            self._writer.write(content)
            await self._writer.drain()

    async def head(self) -> h11.Response:
        for _ in range(MAX_INFORMATION):
            event = await self._next()
            if isinstance(event, h11.Response):
                return event
        raise _Garbage

    async def body(self) -> AsyncIterator[bytes]:
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)

    async def _next(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(PIECE_BYTES))
        if event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
            raise _Garbage
        return event


class _Forward:
    """Passes one request, or one WebSocket, to the peer that has its sandbox."""

    def __init__(self, replicas: Replicas, peer: ReplicaPeer, widen: bool, owner: str = "") -> None:
        self._replicas, self._peer, self._widen = replicas, peer, widen
        self.owner = owner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._socket(WebSocket(scope, receive, send))
        else:
            await self._request(scope, receive, send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def counted(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            async with self._replicas.connected(self._peer) as wire:
                headers, has_body = [*_headers(scope), (FORWARDED, b"1")], _has_body(scope)
                if has_body and not any(name == b"content-length" for name, _ in headers):
                    headers.append((b"transfer-encoding", b"chunked"))
                await wire.send(h11.Request(method=scope["method"], target=_target(scope), headers=headers))
                sends = asyncio.create_task(_send_body(wire, receive))
                answers = asyncio.create_task(self._answer(wire, counted))
                try:
                    await asyncio.wait({sends, answers}, return_when=asyncio.FIRST_COMPLETED)
                    if answers.done() or sends.exception() is not None:  # a peer may refuse a body before its end
                        await answers
                finally:  # the client has gone otherwise
                    for one in (sends, answers):
                        one.cancel()
                    await asyncio.gather(sends, answers, return_exceptions=True)
        except _FAILURES:
            if not begun:
                await _gone().response()(scope, receive, send)

    @staticmethod
    async def _answer(wire: _Wire, send: Send) -> None:
        head = await wire.head()
        passed = [(name, value) for name, value in head.headers if name not in _HOP]
        await send({"type": "http.response.start", "status": head.status_code, "headers": passed})
        async for piece in wire.body():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _socket(self, client: WebSocket) -> None:
        try:
            peer = await self._replicas.websocket(self._peer, client.scope)
        except InvalidStatus as refused:
            said = refused.response
            response = Response(bytes(said.body or b""), said.status_code, media_type=said.headers.get("Content-Type"))
            await client.send_denial_response(response)
            return
        except (OSError, TimeoutError, WebSocketException):
            await client.send_denial_response(_gone().response())
            return
        try:
            await client.accept(peer.subprotocol)
            if self._widen:
                known(client)
                admitted(client.scope)
            up = asyncio.create_task(_to_peer(client, peer))
            down = asyncio.create_task(_to_client(client, peer))
            try:
                await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in (up, down):
                    one.cancel()
                await asyncio.gather(up, down, return_exceptions=True)
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await peer.close()
            peer.transport.abort()  # of one that does not answer the close; nothing is left of another
        if client.client_state.name == "CONNECTED" and client.application_state.name == "CONNECTED":
            code = peer.close_code if peer.close_code not in {None, 1005, 1006, 1015} else 1011
            await client.close(code, peer.close_reason or "")


async def _send_body(wire: _Wire, receive: Receive) -> None:
    """Pass a body on, and return when the client has gone. Raises what a connection raises."""
    more = True
    while (message := await receive())["type"] != "http.disconnect":
        if not more:
            continue
        if message.get("body"):
            await wire.send(h11.Data(data=message["body"]))
        if not (more := message.get("more_body", False)):
            await wire.send(h11.EndOfMessage())


async def _to_peer(client: WebSocket, peer: Any) -> None:
    with suppress(ConnectionClosed):
        while (message := await client.receive())["type"] != "websocket.disconnect":
            content = message.get("bytes")
            await peer.send(message.get("text", "") if content is None else content)


async def _to_client(client: WebSocket, peer: Any) -> None:
    with suppress(ConnectionClosed):
        while True:
            message = await peer.recv()
            known(client)  # the peer lets no stranger come so far, and counts it
            admitted(client.scope)
            if isinstance(message, str):
                await client.send_text(message)
            else:
                await client.send_bytes(message)


def _gone() -> Refusal:
    return Refusal(502, ServeCode.NO_SUCH_SANDBOX)


def _has_body(scope: Scope) -> bool:
    names = {name for name, _ in scope["headers"]}
    return b"content-length" in names or b"transfer-encoding" in names


def _headers(scope: Scope) -> Headers:
    """Return the headers of a request that are for whoever answers it, with the client's Host."""
    hops = set(_HOP)
    for name, value in scope["headers"]:
        if name == b"connection":
            hops |= {one.strip().lower() for one in value.split(b",")}
    return [(name, value) for name, value in scope["headers"] if name not in hops and name != FORWARDED]


def _bodiless(scope: Scope) -> Headers:
    """Return the headers of a request for one that is sent without its body."""
    return [one for one in _headers(scope) if one[0] != b"content-length"]


def _target(scope: Scope) -> bytes:
    raw: bytes = scope.get("raw_path") or scope["path"].encode("ascii", "backslashreplace")
    query: bytes = scope.get("query_string", b"")
    return raw.partition(b"?")[0] + (b"?" + query if query else b"")


def _keep_alive(connection: Any) -> None:
    """Have the end of a peer's machine be noticed, of which no packet says anything."""
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if sys.platform == "darwin":
            idle = socket.TCP_KEEPALIVE
        else:
            idle = socket.TCP_KEEPIDLE
        for option, value in ((idle, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
