"""What each user may have of the connections over HTTP, and what one request may cost before it is parsed.

The package `mcp` bounds the connections of all users together. Here each has a number of its own, and whoever opens one
more loses the one that was not used for the longest time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import orjson
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...core import json_memory
from ...core.codes import Code
from ...core.model import MIB
from .codes import McpCode
from .tool_descriptions import CALL_BYTES
from .web_server import admitted

BODY_BYTES = CALL_BYTES * 4 // 3 + MIB
"""One request: a part of a file as base64, and what is around it."""
BODY_VALUES = 4 * MIB
"""Bytes that its lists, objects, strings and numbers may cost: all of them are parsed in one turn of the event loop."""
REQUESTS_OF_USER = 128
"""Under way at once; each connection may keep one open for what the server has to say."""
CONNECTIONS_OF_USER = 100
"""Most of them were left without a word; each has no sandbox by itself."""
_KEY = MCP_SESSION_ID_HEADER.lower().encode()


class ConnectionLimits:
    """Stands before what answers requests whose user is known."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._of: dict[str, OrderedDict[object, int]] = {}
        """By user: the requests under way of each connection, and of what may become one; the last used at the end."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        admitted(scope)
        if scope["method"] == "POST":
            try:
                body = await _body(receive)
            except _TooLarge as error:
                await _refusal(413, McpCode.CALL_BYTES, str(error))(scope, receive, send)
                return
            receive = _again(body, receive)
        known = self._of.setdefault(scope["user"].access_token.client_id, OrderedDict())
        if sum(known.values()) >= REQUESTS_OF_USER:
            words = f"You have {REQUESTS_OF_USER} requests under way, which is the limit"
            await _refusal(429, McpCode.CONNECTIONS_OF_USER, words)(scope, receive, send)
            return
        key: object = Request(scope).headers.get(MCP_SESSION_ID_HEADER)
        if key is None:
            if len(known) >= CONNECTIONS_OF_USER and not await self._make_room(scope, known):
                words = f"You have {CONNECTIONS_OF_USER} connections with requests under way, which is the limit"
                await _refusal(429, McpCode.CONNECTIONS_OF_USER, words)(scope, receive, send)
                return
            key = object()
        elif key not in known:  # it is another's, or not there any more
            await self._app(scope, receive, send)
            return
        known[key] = known.get(key, 0) + 1
        known.move_to_end(key)

        async def watch(message: Message) -> None:
            nonlocal key
            if message["type"] == "http.response.start":
                given = dict(message["headers"]).get(_KEY)
                if not isinstance(key, str) and given is not None and message["status"] == 200:
                    known[given.decode()] = known.pop(key)
                    key = given.decode()
                elif message["status"] == 404 or (scope["method"] == "DELETE" and message["status"] == 200):
                    known.pop(key, None)
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            if not isinstance(key, str):
                known.pop(key, None)
            elif key in known:
                known[key] -= 1

    async def _make_room(self, scope: Scope, known: OrderedDict[object, int]) -> bool:
        """End the connection of a user that was not used for the longest time; return whether there was one."""
        oldest = next((key for key, busy in known.items() if not busy), None)
        if oldest is None:
            return False
        del known[oldest]
        headers = [one for one in scope["headers"] if one[0] in {b"host", b"accept", b"mcp-protocol-version"}]
        ending = {**scope, "method": "DELETE", "headers": [*headers, (_KEY, str(oldest).encode())]}
        await self._app(ending, _again(b"", _gone), _unheard)
        return True


class _TooLarge(Exception):
    pass


async def _body(receive: Receive) -> bytes:
    """Return the body of a request. Raises `_TooLarge`; one that its client did not send to the end is no JSON."""
    content, more = bytearray(), True
    while more:
        message = await receive()
        content += message.get("body", b"")
        if len(content) > BODY_BYTES:
            raise _TooLarge(f"A request may have {BODY_BYTES:,} bytes")
        more = message["type"] == "http.request" and message.get("more_body", False)
    if json_memory.crowded(content, BODY_VALUES):
        raise _TooLarge(f"The values of a request may cost {BODY_VALUES:,} bytes of memory: it has too many")
    return bytes(content)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return what gives a body that was read, and then whatever comes."""
    given = [body]

    async def next_message() -> Message:
        if given:
            return {"type": "http.request", "body": given.pop(), "more_body": False}
        return await receive()

    return next_message


async def _gone() -> Message:
    return {"type": "http.disconnect"}


async def _unheard(message: Message) -> None:
    """Take an answer for which nobody waits."""


def _refusal(status: int, code: Code, words: str) -> Response:
    error: Mapping[str, Any] = {"code": -32600, "message": words, "data": {"code": code.code}}
    return Response(orjson.dumps({"jsonrpc": "2.0", "id": None, "error": error}), status, media_type="application/json")
