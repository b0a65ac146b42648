"""HTTP/1.1 over the engine's unix socket: just what the engine's API needs, on asyncio's socket calls.

The engine's own client library takes about 0.35 s to import, more than half of a whole start, and cannot be awaited;
h11 takes 10 ms, which a start does not have. This needs nothing that asyncio has not loaded. One connection carries one
request; every reply has a size limit and the callers bound the time.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from ...core.codes import EndCode
from ...core.errors import EngineError
from .ahead import encode
from .errors import unavailable

HEAD_BYTES = 64 << 10
BODY_BYTES = 16 << 20
"""An inspect is about 10 KiB; a list of a thousand containers is about 1 MiB."""
LINE_BYTES = 1 << 20


class Connection:
    """One request to the engine and its reply. Use `ask` once, then one of `json`, `lines` and `release`."""

    def __init__(self, path: str, asked: socket.socket | None = None) -> None:
        """On a socket that has `asked` already, `answer` takes the place of `ask`."""
        kind = socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        self._path = path
        self._socket = asked or socket.socket(socket.AF_UNIX, kind)
        self._buffer = bytearray()
        self.status = 0
        self.headers: dict[str, str] = {}

    async def ask(self, method: str, target: str, body: object = None, *, upgrade: bool = False) -> int:
        """Send a request and return the reply's status, once its head has arrived.

        Raises `EngineUnavailable` when nothing answers at the socket and `EngineError` for a reply that is not HTTP.
        """
        loop = asyncio.get_running_loop()
        with self._closed_if_it_fails():
            await loop.sock_connect(self._socket, self._path)
            await loop.sock_sendall(self._socket, encode(method, target, body, upgrade=upgrade))
        return await self.answer()

    @contextmanager
    def _closed_if_it_fails(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.close()
            raise unavailable(self._path, error) from error
        except BaseException:
            self.close()
            raise

    async def answer(self) -> int:
        """Return the reply's status, once its head has arrived; raises as `ask` does."""
        with self._closed_if_it_fails():
            lines = (await self._until(b"\r\n\r\n", HEAD_BYTES)).decode("latin-1").split("\r\n")
        try:
            self.status = int(lines[0].split(" ", 2)[1])
        except (IndexError, ValueError) as error:
            self.close()
            raise EngineError(
                EndCode.ENGINE_UNKNOWN_ANSWER, f"{self._path} does not speak HTTP: {lines[0][:80]!r}"
            ) from error
        self.headers = {name.strip().lower(): value.strip() for name, _, value in (x.partition(":") for x in lines[1:])}
        return self.status

    async def json(self) -> Any:
        """Return the reply's body, decoded, and close; None for an empty one."""
        try:
            if self.status in {204, 304}:
                return None
            content = bytearray()
            async for piece in self._pieces():
                content += piece
                if len(content) > BODY_BYTES:
                    raise EngineError(
                        EndCode.ENGINE_UNKNOWN_ANSWER, f"the engine's reply is over the limit of {BODY_BYTES} bytes"
                    )
            return json.loads(content) if content.strip() else None
        except OSError as error:
            raise unavailable(self._path, error) from error
        except ValueError as error:
            raise EngineError(EndCode.ENGINE_UNKNOWN_ANSWER, "the engine's reply is not JSON") from error
        finally:
            self.close()

    async def lines(self) -> AsyncIterator[Any]:
        """Yield the JSON objects of an endless reply, one a line, until the engine ends it. Raises OSError."""
        rest = b""
        async for piece in self._pieces():
            *whole, rest = (rest + piece).split(b"\n")
            if len(rest) > LINE_BYTES:
                raise EngineError(
                    EndCode.ENGINE_UNKNOWN_ANSWER, f"the engine sent a line over the limit of {LINE_BYTES} bytes"
                )
            for line in whole:
                if line.strip():
                    yield json.loads(line)

    def release(self) -> tuple[socket.socket, bytes]:
        """Give away the socket of an upgraded connection, and the bytes that came after the head."""
        return self._socket, bytes(self._buffer)

    def close(self) -> None:
        self._socket.close()

    async def _pieces(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces, whichever of HTTP's three ways tells its end."""
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            while size := int((await self._until(b"\r\n", 1024)).split(b";")[0], 16):
                async for piece in self._exactly(size):
                    yield piece
                await self._until(b"\r\n", 2)
        elif (length := self.headers.get("content-length")) is not None:
            async for piece in self._exactly(int(length)):
                yield piece
        else:
            while self._buffer or await self._fill():
                piece, self._buffer = bytes(self._buffer), bytearray()
                yield piece

    async def _exactly(self, size: int) -> AsyncIterator[bytes]:
        while size > 0:
            if not self._buffer and not await self._fill():
                raise ConnectionResetError("the reply ended in the middle")
            piece = bytes(self._buffer[:size])
            del self._buffer[:size]
            size -= len(piece)
            yield piece

    async def _until(self, end: bytes, limit: int) -> bytes:
        while (position := self._buffer.find(end)) < 0:
            if len(self._buffer) > limit:
                raise EngineError(
                    EndCode.ENGINE_UNKNOWN_ANSWER,
                    f"{self._path} does not speak HTTP: no end of a line within {limit} bytes",
                )
            if not await self._fill():
                raise ConnectionResetError("the reply ended in the middle")
        found = bytes(self._buffer[:position])
        del self._buffer[: position + len(end)]
        return found

    async def _fill(self) -> bool:
        data = await asyncio.get_running_loop().sock_recv(self._socket, 64 << 10)
        self._buffer += data
        return bool(data)
