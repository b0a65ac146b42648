"""MCP at `/mcp`, for the tenants of this server and with their sandboxes.

A session of a client is a sandbox of its tenant, and counts as one. It ends with the client's connection. The package
`mcp` does the protocol, and bounds the connections of all users together. Here each tenant has a bound of its own. One
connection more ends the tenant's least recently used one.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import orjson
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...core import json_memory
from ...core.codes import Code
from ...core.model import MIB
from ...sdk.client import AsyncSandbox
from ..mcp.clients import McpClient, RefusedCall, ServerLimits
from ..mcp.codes import McpCode
from ..mcp.server import Context, make_server
from ..mcp.tool_descriptions import CALL_BYTES
from .codes import ServeCode
from .guard import RouteGuard
from .replicas import asking
from .requests import Refusal, pieces_of
from .tenants import TEMPLATE, Tenant, Tenants

PATH = "/mcp"
BODY_BYTES = CALL_BYTES * 4 // 3 + MIB
"""One request: a part of a file as base64, and what is around it."""
BODY_VALUES = 4 * MIB
"""Bytes that its lists, objects, strings and numbers may cost: all of them are parsed in one turn of the event loop."""
CONNECTIONS_OF_TENANT = 100
"""Most of them were left without a word; each has no sandbox by itself."""
_KEY = MCP_SESSION_ID_HEADER.lower().encode()


class McpWire:
    """Its connections, which run in `run` and end with `close`."""

    def __init__(self, tenants: Tenants, limits: ServerLimits | None = None) -> None:
        """`limits` are those of `mcp --http`; None has the ones of tenants."""
        self._tenants = tenants
        self._last: dict[str, Request] = {}
        """By tenant: a request with its credentials, with which peers are asked."""
        # What a model is told of datasets is told to all, so those of some tenants alone are not in it.
        settings = tenants.settings_for(None, tenants.templates[TEMPLATE])
        self._limits = limits or ServerLimits(sessions_per_client=tenants.limits.sandboxes_per_tenant)
        manager = StreamableHTTPSessionManager(
            make_server(settings, self._limits, self._client, http=True),
            # What it would compare itself, by how a text begins, the filter of requests compares as values.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            session_idle_timeout=settings.limits.idle_timeout,
            max_request_body_size=BODY_BYTES,
            max_sessions=None,
        )
        self._connections = Connections(PlainAnswers(StreamableHTTPASGIApp(manager)), self._limits.away_seconds)
        self.run = manager.run

    def routes(self, guard: RouteGuard) -> Iterable[BaseRoute]:
        for method in ("GET", "POST", "DELETE"):
            yield guard.route(method, PATH, self._answer)

    async def _answer(self, request: Request, tenants: Tenants, tenant: Tenant) -> ASGIApp:
        """Answer a client of MCP."""
        self._last[tenant.name] = request
        request.scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=tenant.name, scopes=[]))
        if request.method != "POST":
            return self._connections
        try:
            body = b"".join([piece async for piece in pieces_of(request, BODY_BYTES)])
        except Refusal as refusal:
            return _refusal(refusal.status, McpCode.CALL_BYTES, str(refusal))
        if json_memory.crowded(body, BODY_VALUES):
            words = f"The values of a request may cost {BODY_VALUES:,} bytes of memory: it has too many"
            return _refusal(413, McpCode.CALL_BYTES, words)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await self._connections(scope, _again(body, receive), send)

        return app

    def _client(self, context: Context) -> McpClient:
        """Return whose call this is: the manager has checked the connection's id and that it goes with the tenant."""
        request = context.request
        connection = None if request is None else self._connections.find(request)
        if request is None or connection is None:
            raise RefusedCall(McpCode.CONNECTION_CLOSED, "The connection was closed.")
        if connection.client is None:
            make = partial(self._make, request.user.username, secrets.token_hex(4))
            connection.client = McpClient(self._limits, make)
            # The place that is meant for it; a handler has no public way to it.
            context.session._connection.exit_stack.push_async_callback(connection.client.leave)  # noqa: SLF001
        return connection.client

    async def _make(self, owner: str, client: str, name: str) -> AsyncSandbox:
        tenants = self._tenants
        settings, lifetime = tenants.settings_for(owner, tenants.templates[TEMPLATE]), tenants.limits.lifetime

        async def make() -> AsyncSandbox:
            return AsyncSandbox(settings, timeout=lifetime)  # which does not outlive this process, as its connection

        try:
            with asking(self._last[owner], owner):  # what runs here is no request's
                lease = await tenants.named(tenants.tenant(owner), f"mcp/{client}/{name}", lifetime, make=make)
        except Refusal as refusal:
            raise RefusedCall(refusal.code, str(refusal)) from None
        return lease.sandbox

    async def close(self) -> None:
        """End the sessions of all clients. Idempotent."""
        await asyncio.gather(*(client.leave() for client in self._connections.clients()), return_exceptions=True)


@dataclass(slots=True, eq=False)
class McpConnection:
    """One connection of a tenant, or a request that may open one."""

    client: McpClient | None = None
    """Whose it is, once it has called something."""
    requests: int = 0
    """Under way."""
    listened: bool = False
    """Whether it has had a stream open for what the server has to say."""
    timer: asyncio.TimerHandle | None = None
    """Rings when it has had no request for too long."""

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def miss(self) -> None:
        self.listened = False
        if self.client is not None:
            self.client.lose("its client was away for too long")


class Connections:
    """Bounds the connections of each tenant, and ends the sessions of one that listened and is away for too long."""

    def __init__(self, app: ASGIApp, grace_seconds: float) -> None:
        self._app = app
        self._grace = grace_seconds
        self._of: dict[str, OrderedDict[object, McpConnection]] = {}
        """By tenant: each connection, and each request that may open one; the last used at the end."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        known = self._of.setdefault(scope["user"].access_token.client_id, OrderedDict())
        key: object = Request(scope).headers.get(MCP_SESSION_ID_HEADER)
        if key is None:
            if len(known) >= CONNECTIONS_OF_TENANT and not await self._make_room(scope, known):
                words = f"You have {CONNECTIONS_OF_TENANT} connections with requests under way, which is the limit"
                await _refusal(429, ServeCode.CONNECTIONS_OF_USER, words)(scope, receive, send)
                return
            key = object()
        elif key not in known:  # it is another's, or not there any more
            await self._app(scope, receive, send)
            return
        connection = known.setdefault(key, McpConnection())
        known.move_to_end(key)
        connection.requests += 1
        connection.stop()

        async def watch(message: Message) -> None:
            nonlocal key
            if message["type"] == "http.response.start":
                given, status = dict(message["headers"]).get(_KEY), message["status"]
                if not isinstance(key, str) and given is not None and status == 200:
                    known[given.decode()] = known.pop(key)
                    key = given.decode()
                elif status == 404 or (scope["method"] == "DELETE" and status == 200):
                    known.pop(key, None)
                elif scope["method"] == "GET" and status == 200:
                    connection.listened = True
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            connection.requests -= 1
            if not isinstance(key, str):
                known.pop(key, None)
            elif connection.listened and not connection.requests and known.get(key) is connection:
                loop = asyncio.get_running_loop()
                connection.timer = loop.call_later(self._grace, connection.miss)

    def find(self, request: Request) -> McpConnection | None:
        """Return the connection of a request; None for one that is closed."""
        known = self._of.get(request.user.username, OrderedDict())
        return known.get(request.headers[MCP_SESSION_ID_HEADER])

    def clients(self) -> Iterator[McpClient]:
        """Yield those who have called something."""
        return (one.client for known in self._of.values() for one in known.values() if one.client is not None)

    async def _make_room(self, scope: Scope, known: OrderedDict[object, McpConnection]) -> bool:
        """End the connection of a tenant that was not used for the longest time; return whether there was one."""
        oldest = next((key for key, connection in known.items() if not connection.requests), None)
        if oldest is None:
            return False
        known.pop(oldest).stop()
        headers = [one for one in scope["headers"] if one[0] in {b"host", b"accept", b"mcp-protocol-version"}]
        ending = {**scope, "method": "DELETE", "headers": [*headers, (_KEY, str(oldest).encode())]}
        await self._app(ending, _again(b"", _left), _unheard)
        return True


def _again(body: bytes, receive: Receive) -> Receive:
    """Return what gives a body that was read, and then whatever comes."""
    given = [body]

    async def next_message() -> Message:
        if given:
            return {"type": "http.request", "body": given.pop(), "more_body": False}
        return await receive()

    return next_message


async def _left() -> Message:
    return {"type": "http.disconnect"}


async def _unheard(message: Message) -> None:
    """Take an answer for which nobody waits."""


def _refusal(status: int, code: Code, words: str) -> Response:
    error = {"code": -32600, "message": words, "data": {"code": code.code}}
    return Response(orjson.dumps({"jsonrpc": "2.0", "id": None, "error": error}), status, media_type="application/json")


class PlainAnswers:
    """Sends an answer that nothing came before as JSON, and a stream of events only where there is one.

    Clients may refuse a large event: the official one takes 1 MiB. A file as JSON has no such limit.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        held: Message | None = None
        answered = False

        async def forward(message: Message) -> None:
            nonlocal held, answered
            if message["type"] == "http.response.start" and _is_stream(scope, message):
                held = message
                return
            if answered:
                return  # the end of the stream, of which the client has all there was
            if held is not None:
                start, held = held, None
                event = _ANSWER.fullmatch(message.get("body", b""))
                if event is not None:
                    answered = True
                    await send({**start, "headers": _as_json(start["headers"], len(event[1]))})
                    await send({"type": "http.response.body", "body": event[1]})
                    return
                await send(start)
            await send(message)

        await self._app(scope, receive, forward)


_ANSWER = re.compile(
    rb"event: message\r?\ndata: "
    rb'(\{"jsonrpc":"2\.0","id":(?:[0-9]+|"[^"\\]{0,200}"),"(?:result|error)":[^\r\n]*)'
    rb"(?:\r?\n){2}"
)


def _is_stream(scope: Scope, start: Message) -> bool:
    kinds = [value for name, value in start["headers"] if name.lower() == b"content-type"]
    return scope["method"] == "POST" and start["status"] == 200 and kinds[:1] != [] and b"event-stream" in kinds[0]


def _as_json(headers: Iterable[tuple[bytes, bytes]], length: int) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in headers if name.lower() in {b"cache-control", b"mcp-session-id"}]
    return [*kept, (b"content-type", b"application/json"), (b"content-length", str(length).encode())]
