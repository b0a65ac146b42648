"""Whether a client over HTTP is still there: many leave without a word, but the stream that they listened on is closed.

A client that never had such a stream open cannot be told from one that thinks for a while; its sessions end when they
are idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send


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
