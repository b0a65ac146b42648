"""The server over HTTP: a token for every request, checks of Host and Origin, and nothing but loopback by default.

The package `mcp` does the protocol and binds a connection to the token that opened it; this module says what may pass.
The web server itself, with its checks and clocks, is that of `web_server`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...core.errors import ConfigurationError
from .clients import Clients
from .codes import McpCode
from .connection_limits import BODY_BYTES, ConnectionLimits
from .web_server import ListenAddress, RequestFilter, token_lines


@dataclass(slots=True)
class _Record:
    requests: int = 0
    listened: bool = False
    """Whether it has had a stream open for what the server has to say."""
    timer: asyncio.TimerHandle | None = None


class Liveness:
    """Counts the open requests of each connection, and reports one that has had none for too long."""

    def __init__(self, app: ASGIApp, gone: Callable[[str], None], grace_seconds: float) -> None:
        self._app = app
        self._gone = gone
        self._grace = grace_seconds
        self._records: dict[str, _Record] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = Request(scope).headers.get(MCP_SESSION_ID_HEADER)
        if key is None:
            await self._app(scope, receive, send)
            return
        record = self._records.setdefault(key, _Record())
        record.requests += 1
        if record.timer is not None:
            record.timer.cancel()

        async def watch(message: Message) -> None:
            if scope["method"] == "GET" and message["type"] == "http.response.start" and message["status"] == 200:
                record.listened = True
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            record.requests -= 1
            if not record.requests:
                if record.listened:
                    record.timer = asyncio.get_running_loop().call_later(self._grace, self._missing, key)
                else:
                    self._records.pop(key, None)

    def _missing(self, key: str) -> None:
        self._records.pop(key, None)
        self._gone(key)


PATH = "/mcp"
TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")


class BearerTokens:
    """Which tokens are ours, compared in a time that tells nothing about them."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._digests = [_digest(token) for token in tokens]

    async def verify_token(self, token: str) -> AccessToken | None:
        given = _digest(token)
        equal = [hmac.compare_digest(given, digest) for digest in self._digests]
        return AccessToken(token="", client_id=f"token {equal.index(True) + 1}", scopes=[]) if any(equal) else None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="backslashreplace")).digest()


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


def new_token() -> str:
    return secrets.token_urlsafe(32)


def tokens_of(path: Path) -> list[str]:
    """Return the tokens of a file, one a line; if there is no file, make it with a new one.

    Raises `ConfigurationError`, also for a file that others may read or write.
    """
    tokens = token_lines(path, McpCode.TOKENS_UNFIT, new_token)
    if not tokens or not all(TOKEN.fullmatch(token) for token in tokens):
        raise ConfigurationError(
            McpCode.TOKENS_UNFIT,
            f"{path} must hold tokens, one a line, of 16 to 512 letters, digits and any of ._~+/=-",
            setting="token-file",
        )
    return tokens


def connections(
    server: Server[Any], clients: Clients
) -> tuple[ASGIApp, Callable[[], AbstractAsyncContextManager[None]]]:
    """Return what answers all requests at `PATH` whose user is known, and what it runs in."""
    manager = StreamableHTTPSessionManager(
        server,
        # What it would compare itself, by how a text begins, the gate compares as values.
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        session_idle_timeout=clients.settings.limits.idle_timeout,
        max_request_body_size=BODY_BYTES,
        max_sessions=None,  # each user has a limit of its own
    )
    app = Liveness(PlainAnswers(StreamableHTTPASGIApp(manager)), clients.lost, clients.limits.away_seconds)
    return ConnectionLimits(app), manager.run


def application(server: Server[Any], clients: Clients, tokens: Sequence[str], place: ListenAddress) -> Starlette:
    """Return the web application: one path, and no request without a token."""
    app, run = connections(server, clients)
    return Starlette(
        routes=[Route(PATH, endpoint=RequireAuthMiddleware(app, []))],
        middleware=[
            Middleware(RequestFilter, known=place.known()),
            Middleware(AuthenticationMiddleware, backend=BearerAuthBackend(BearerTokens(tokens))),
        ],
        lifespan=lambda _: run(),
    )
