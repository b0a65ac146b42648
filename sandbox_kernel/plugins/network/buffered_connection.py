"""A connection of which more was read than was wanted: what is left over is received again."""

from __future__ import annotations

import re
from collections import deque

from .codes import NetworkCode
from .interfaces import Duplex
from .policy import RefusedConnection

HEAD_BYTES = 64 << 10
"""Of one request's head, from its first byte to the empty line."""

_END = re.compile(rb"\n\r?\n")
"""Of a head, as lax parsers see it: what is not written properly is refused once it is complete."""
_FIRST = re.compile(rb"[A-Za-z]")


class Buffered:
    """A `Duplex` that takes bytes back."""

    def __init__(self, inner: Duplex) -> None:
        self._inner = inner
        self._kept: deque[bytes] = deque()

    async def receive(self) -> bytes:
        return self._kept.popleft() if self._kept else await self._inner.receive()

    def take_back(self, data: bytes) -> None:
        """Let `data` be the next that is received."""
        if data:
            self._kept.appendleft(data)

    async def send(self, data: bytes) -> None:
        await self._inner.send(data)

    async def finish(self) -> None:
        await self._inner.finish()

    def reset(self, code: str) -> None:
        self._inner.reset(code)

    async def begins(self) -> bool:
        """Wait for the next byte; False if there is none, since the other side has finished."""
        if not self._kept:
            self.take_back(await self._inner.receive())
        return bool(self._kept)

    async def head(self) -> bytes:
        """Return the next head with its empty line. Raises Refused if it is malformed or too large."""
        data = bytearray(await self.receive())
        if not _FIRST.match(data):
            raise RefusedConnection(NetworkCode.NOT_HTTP.note())
        seen = 0
        while not (end := _END.search(data, max(0, seen - 2))):
            seen = len(data)
            if seen >= HEAD_BYTES:
                raise RefusedConnection(NetworkCode.HEAD_TOO_LARGE.note(limit=HEAD_BYTES))
            piece = await self.receive()
            if not piece:
                raise RefusedConnection(NetworkCode.HEAD_IMPROPER.note(what="ends in the middle"))
            data += piece
        if end.end() > HEAD_BYTES:
            raise RefusedConnection(NetworkCode.HEAD_TOO_LARGE.note(limit=HEAD_BYTES))
        self.take_back(bytes(data[end.end() :]))
        return bytes(data[: end.end()])
