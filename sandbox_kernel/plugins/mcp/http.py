"""The way over HTTP: a token for every request, checks of Host and Origin, and nothing but loopback unless told so.

The package `mcp` does the protocol and binds a connection to the token that opened it; this module says what may pass.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
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
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...core.codes import EndCode, UsageCode
from ...core.errors import ConfigurationError
from ...core.model import MIB
from ...files.host_paths import open_file, open_parent, usable
from .clients import Clients
from .codes import McpCode
from .connections import Config
from .descriptions import CALL_BYTES

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_AUTHORITY = re.compile(
    r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?))(?::([0-9]{1,5}))?"
)
_ORIGIN = re.compile(r"https?://([^/?#\\@\s]+)")


class Authority(NamedTuple):
    """A host and a port, None if none is said."""

    host: str
    """In small letters; an IPv6 address in its short form, without brackets."""
    port: int | None


def authority(text: str) -> Authority | None:
    """Return what `text` says, if it is a host with or without a port and nothing else: no user, no path, no space."""
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        return None
    address, name, digits = found.groups()
    if digits is not None and (not 1 <= int(digits) <= 65535 or digits[0] == "0"):
        return None
    port = int(digits) if digits is not None else None
    if address is None:
        return Authority(name.lower(), port)
    try:
        return Authority(ipaddress.IPv6Address(address).compressed, port)
    except ValueError:
        return None


def origin(text: str) -> Authority | None:
    """Return host and port of an Origin with the scheme http or https, None for anything else."""
    found = _ORIGIN.fullmatch(text)
    return authority(found[1]) if found is not None else None


class Names:
    """The names under which a server is reached: those of loopback, and those that its operator gave."""

    def __init__(self, given: Iterable[Authority] = ()) -> None:
        self._known = frozenset((*(Authority(name, None) for name in LOOPBACK), *given))

    def host(self, values: Sequence[str]) -> bool:
        """Return whether these values of the header Host are one, and name this server."""
        return len(values) == 1 and self._knows(authority(values[0]))

    def origin(self, values: Sequence[str]) -> bool:
        """Return whether these values of the header Origin are none, as from a program, or one of this server's."""
        return not values or (len(values) == 1 and self._knows(origin(values[0])))

    def _knows(self, found: Authority | None) -> bool:
        """A name that was given without a port goes with every port: tunnels and proxies have their own."""
        return found is not None and (found in self._known or found._replace(port=None) in self._known)


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
BODY_BYTES = CALL_BYTES * 4 // 3 + MIB
"""One request: a part of a file as base64, and what is around it."""
MAX_CONNECTIONS = 1000
"""Of clients, most of which left without a word: each is forgotten when it is idle, and has no sandbox by itself."""
MAX_REQUESTS = 512
"""Under way at once; each connection may keep one open for what the server has to say."""
TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")
TOKEN_FILE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the server listens, and under which names it is reached."""

    host: str = "127.0.0.1"
    port: int = 8808
    names: tuple[str, ...] = ()
    """Host names besides those of loopback that requests may carry."""
    remote: bool = False
    """Whether an address that is not of loopback is meant."""

    def listen(self) -> socket.socket:
        """Return the socket to serve on. Raises `ConfigurationError`."""
        try:
            family, kind, _, _, address = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
        except (OSError, UnicodeError) as error:
            raise ConfigurationError(
                UsageCode.ADDRESS_UNUSABLE, f"there is no address {self.host!r}: {error}", setting="host"
            ) from None
        if not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
            self._check_remote()
        self.known()
        listener = socket.socket(family, kind)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(128)
        except OSError as error:
            listener.close()
            raise ConfigurationError(
                UsageCode.ADDRESS_UNUSABLE,
                f"port {self.port} of {self.host} cannot be used: {error.strerror}",
                setting="port",
            ) from None
        return listener

    def _check_remote(self) -> None:
        if not self.remote:
            raise ConfigurationError(
                McpCode.SERVER_EXPOSED,
                f"{self.host} can be reached from other machines. Add --allow-remote if that is meant, and put a proxy "
                "with TLS before it: the token is sent as it is",
                setting="host",
            )
        if not self.names:
            raise ConfigurationError(
                McpCode.SERVER_EXPOSED,
                "with --allow-remote, say with --allowed-host under which names clients reach the server: a request "
                "for any other is refused",
                setting="allowed-host",
            )

    def known(self) -> Names:
        """Return which Host and Origin a request may carry: a page of another site has neither.

        Raises `ConfigurationError` for a name that no request could carry.
        """
        return Names(self._parsed())

    def _parsed(self) -> Iterator[Authority]:
        for name in self.names:
            found = authority(name)
            if found is None:
                raise ConfigurationError(
                    EndCode.WRONG_SETTING,
                    "a name is what stands in a request's Host: box.example.com, box.example.com:8443 or [::1]",
                    value=repr(name),
                    setting="allowed-host",
                )
            yield found


class Tokens:
    """Which tokens are ours, compared in a time that tells nothing about them."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._digests = [_digest(token) for token in tokens]

    async def verify_token(self, token: str) -> AccessToken | None:
        given = _digest(token)
        equal = [hmac.compare_digest(given, digest) for digest in self._digests]
        return AccessToken(token="", client_id=f"token {equal.index(True) + 1}", scopes=[]) if any(equal) else None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="backslashreplace")).digest()


def tokens_of(path: Path) -> list[str]:
    """Return the tokens of a file, one a line; if there is no file, make it with a new one.

    Raises `ConfigurationError`, also for a file that others may read or write.
    """
    with usable(McpCode.TOKENS_UNFIT, f"{path} cannot be made", setting="token-file"):
        folder, name = open_parent(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, 0o600, dir_fd=folder.handle)
        except FileExistsError:
            return _read(path)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        token = new_token()
        file.write(token + "\n")
    return [token]


def new_token() -> str:
    return secrets.token_urlsafe(32)


def _read(path: Path) -> list[str]:
    with usable(McpCode.TOKENS_UNFIT, f"{path} cannot be read", setting="token-file"):
        descriptor = open_file(path)
    status = os.fstat(descriptor)
    with os.fdopen(descriptor, "rb") as file:
        if status.st_mode & 0o077 or status.st_uid not in {0, os.geteuid()}:
            raise ConfigurationError(
                McpCode.TOKENS_UNFIT,
                f"{path} can be read or changed by others: chmod 600",
                setting="token-file",
            )
        lines = file.read(TOKEN_FILE_BYTES).decode("utf-8", "replace").splitlines()
    tokens = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not tokens or not all(TOKEN.fullmatch(token) for token in tokens):
        raise ConfigurationError(
            McpCode.TOKENS_UNFIT,
            f"{path} must hold tokens, one a line, of 16 to 512 letters, digits and any of ._~+/=-",
            setting="token-file",
        )
    return tokens


class RequestFilter:
    """The first thing that a request meets: does it come from a page of another site, and is there room for it?"""

    def __init__(self, app: ASGIApp, known: Names) -> None:
        self._app = app
        self._known = known
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if not self._known.host(_values(scope, b"host")):
            await Response("Invalid Host header", 421)(scope, receive, send)
        elif not self._known.origin(_values(scope, b"origin")):
            await Response("Invalid Origin header", 403)(scope, receive, send)
        elif self._requests >= MAX_REQUESTS:
            await Response("Too many requests under way", 503)(scope, receive, send)
        else:
            self._requests += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._requests -= 1


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for given, value in scope["headers"] if given.lower() == name]


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


def application(server: Server[Any], clients: Clients, tokens: Sequence[str], place: Place) -> Starlette:
    """Return the web application: one path, and no request without a token."""
    manager = StreamableHTTPSessionManager(
        server,
        # What it would compare itself, by how a text begins, the gate compares as values.
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        session_idle_timeout=clients.settings.limits.idle_timeout,
        max_request_body_size=BODY_BYTES,
        max_sessions=MAX_CONNECTIONS,
    )
    app = Liveness(PlainAnswers(StreamableHTTPASGIApp(manager)), clients.lost, clients.limits.away_seconds)
    return Starlette(
        routes=[Route(PATH, endpoint=RequireAuthMiddleware(app, []))],
        middleware=[
            Middleware(RequestFilter, known=place.known()),
            Middleware(AuthenticationMiddleware, backend=BearerAuthBackend(Tokens(tokens))),
        ],
        lifespan=lambda _: manager.run(),
    )


class WebServer(uvicorn.Server):
    """The web server, whose owner looks after signals."""

    def __init__(self, app: Starlette) -> None:
        super().__init__(
            Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="on",
                ws="none",
                timeout_graceful_shutdown=1,
            )
        )

    def capture_signals(self) -> Any:
        return nullcontext()
