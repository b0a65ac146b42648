"""MCP at `/mcp`, for the tenants of this server and with their sandboxes.

A session of a client is a sandbox of its tenant, and counts as one. It ends with the client's connection. The package
`mcp` does the protocol, and bounds the connections of all users together. Here each tenant has a number of its own, and
whoever opens one more loses the one that was not used for the longest time.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

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
from ..mcp.clients import Clients, RefusedCall, ServerLimits
from ..mcp.codes import McpCode
from ..mcp.server import make_server
from ..mcp.tool_descriptions import CALL_BYTES
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
        settings, most = tenants.settings_for(None, tenants.templates[TEMPLATE]), tenants.limits
        if limits is None:
            limits = ServerLimits(sessions=most.sandboxes, sessions_per_client=most.sandboxes_per_tenant)
        self._clients = Clients(settings, limits, self._make)
        manager = StreamableHTTPSessionManager(
            make_server(settings, limits, self._clients, http=True),
            # What it would compare itself, by how a text begins, the filter of requests compares as values.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            session_idle_timeout=settings.limits.idle_timeout,
            max_request_body_size=BODY_BYTES,
            max_sessions=None,
        )
        app = PlainAnswers(StreamableHTTPASGIApp(manager))
        self._connections = Connections(app, self._clients.lost, limits.away_seconds)
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

    async def _make(self, owner: str, name: str) -> AsyncSandbox:
        tenants = self._tenants
        settings, lifetime = tenants.settings_for(owner, tenants.templates[TEMPLATE]), tenants.limits.lifetime

        async def make() -> AsyncSandbox:
            return AsyncSandbox(settings, timeout=lifetime)  # which does not outlive this process, as its connection

        try:
            with asking(self._last[owner], owner):  # what runs here is no request's
                return (await tenants.named(tenants.tenant(owner), f"mcp/{name}", lifetime, make=make)).sandbox
        except Refusal as refusal:
            raise RefusedCall(refusal.code, str(refusal)) from None

    async def close(self) -> None:
        """End the sessions of all clients. Idempotent."""
        await self._clients.close()


@dataclass(slots=True, eq=False)
class _Connection:
    requests: int = 0
    """Under way."""
    listened: bool = False
    """Whether it has had a stream open for what the server has to say."""
    timer: asyncio.TimerHandle | None = None
    """Rings when it has had no request for too long."""

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class Connections:
    """Bounds the connections of each tenant, and reports one that listened and has had no request for too long."""

    def __init__(self, app: ASGIApp, gone: Callable[[str], None], grace_seconds: float) -> None:
        self._app = app
        self._gone = gone
        self._grace = grace_seconds
        self._of: dict[str, OrderedDict[object, _Connection]] = {}
        """By tenant: each connection, and each request that may open one; the last used at the end."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        known = self._of.setdefault(scope["user"].access_token.client_id, OrderedDict())
        key: object = Request(scope).headers.get(MCP_SESSION_ID_HEADER)
        if key is None:
            if len(known) >= CONNECTIONS_OF_TENANT and not await self._make_room(scope, known):
                words = f"You have {CONNECTIONS_OF_TENANT} connections with requests under way, which is the limit"
                await _refusal(429, McpCode.CONNECTIONS_OF_USER, words)(scope, receive, send)
                return
            key = object()
        elif key not in known:  # it is another's, or not there any more
            await self._app(scope, receive, send)
            return
        connection = known.setdefault(key, _Connection())
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
                connection.timer = loop.call_later(self._grace, self._missing, key, connection)

    def _missing(self, key: str, connection: _Connection) -> None:
        connection.listened = False
        self._gone(key)

    async def _make_room(self, scope: Scope, known: OrderedDict[object, _Connection]) -> bool:
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
