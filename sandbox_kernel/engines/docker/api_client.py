"""The calls of the Engine API that an engine and its containers share: over one unix socket, each with a time limit."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from ...core.codes import EndCode
from ...core.errors import EngineError
from .. import container_reaper
from ..demultiplexer import Demultiplexer
from ..owner_process import OwnerProcess
from ..pipe import Pipe
from . import api_version
from .ahead import encode
from .arguments import LABEL
from .engine_errors import BeingRemoved, NoSuchContainer, OtherVersion, refusal, silent, unavailable

HEAD_BYTES = 64 << 10
BODY_BYTES = 16 << 20
"""An inspect is about 10 KiB; a list of a thousand containers is about 1 MiB."""
LINE_BYTES = 1 << 20


REQUEST_SECONDS = 30.0
"""One answer of the engine; a create took 0.1 s here, and takes seconds on a machine that is out of breath."""


class EngineConnection:
    """One request to the engine and its reply. Use `ask` once, then one of `json`, `lines` and `release`."""

    def __init__(self, path: str, asked: socket.socket | None = None) -> None:
        """On a socket that has `asked` already, `answer` takes the place of `ask`."""
        self._path = path
        self._socket = asked or socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
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
        api_version.note(self._path, self.headers.get("api-version", ""))
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


class DockerApi:
    """An engine's API behind a unix socket. Methods raise `EngineError`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.guard = container_reaper.of(path)

    async def request(self, method: str, target: str, body: object = None) -> Any:
        """Return the engine's answer, decoded."""
        return await self.decoded(await self._ask(method, target, body), target)

    async def subscribe(self, session_id: str, since: float) -> EngineConnection:
        """Return the stream of what happens to a session's container, from the time `since` on (seconds)."""
        filters = {
            "type": ["container"],
            "label": [f"{LABEL}.session={session_id}"],
            "event": ["oom", "die", "died", "destroy", "pause"],  # Podman 4 calls it "died" where it is asked
        }
        return await self._ask("GET", f"/events?since={since:.9f}&filters={quote(json.dumps(filters), safe='')}")

    async def attach(self, identity: str) -> Pipe:
        """Return the pipe into a container that was created and is not started yet."""
        target = f"/containers/{identity}/attach?stream=1&stdin=1&stdout=1&stderr=1"
        return Pipe(*(await self._ask("POST", target, upgrade=True)).release(), Demultiplexer())

    async def inspect(self, identity: str) -> dict[str, Any] | None:
        """Return the engine's document on a container, None when there is none of that name."""
        try:
            found: dict[str, Any] = await self.request("GET", f"/containers/{identity}/json")
        except NoSuchContainer:
            return None
        return found

    async def rename(self, identity: str, session_id: str, owner_pid: int) -> str:
        """Write a new owner into a container's name and return it. Raises `EngineError` when the container is gone."""
        name = OwnerProcess.of(owner_pid).container_name(session_id)
        await self.request("POST", f"/containers/{identity}/rename?name={name}")
        return name

    async def remove(self, identity: str) -> bool:
        """End and remove a container; return whether this call did. Returns when it is gone."""
        try:
            await self.request("DELETE", f"/containers/{identity}?force=1&v=1")
        except NoSuchContainer:
            return False
        except BeingRemoved:
            deadline = time.monotonic() + REQUEST_SECONDS
            while await self.inspect(identity) is not None:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.02)
            return False
        return True

    async def _ask(self, method: str, target: str, body: object = None, *, upgrade: bool = False) -> EngineConnection:
        """Send a request and return its reply, the body unread."""
        if api_version.known(self.path) is None:
            probe = EngineConnection(self.path)
            (await self.answered(probe, probe.ask("HEAD", "/_ping"), "/_ping", None, "")).close()
        try:
            return await self._ask_once(method, target, body, upgrade=upgrade)
        except OtherVersion:  # it was upgraded under this process, and has just said to which
            return await self._ask_once(method, target, body, upgrade=upgrade)

    def spoken(self, target: str, body: Any) -> tuple[str, Any]:
        """Return the path and the body that are sent for a request; an engine may have words of its own for some."""
        return (api_version.known(self.path) or "") + target, body

    async def _ask_once(self, method: str, target: str, body: object, *, upgrade: bool) -> EngineConnection:
        path, sent = self.spoken(target, body)
        connection, version = EngineConnection(self.path), api_version.known(self.path) or ""
        asking = connection.ask(method, path, sent, upgrade=upgrade)
        return await self.answered(connection, asking, target, body, version)

    async def answered(
        self, connection: EngineConnection, asking: Awaitable[int], target: str, body: object, version: str
    ) -> EngineConnection:
        """Return the connection once its status is there. Raises `OtherVersion` where another `version` is spoken."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                status = await asking
                if status < 400:
                    return connection
                if status == 400 and version != api_version.known(self.path):
                    raise OtherVersion(EndCode.ENGINE_FAILED, f"the engine no longer speaks {version}")
                answer = await connection.json()
        except TimeoutError as error:
            connection.close()
            raise silent(target, REQUEST_SECONDS) from error
        except BaseException:
            connection.close()
            raise
        raise refusal(status, str(answer.get("message", "")) if isinstance(answer, dict) else "", body)

    async def decoded(self, connection: EngineConnection, target: str) -> Any:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                return await connection.json()
        except TimeoutError as error:
            raise silent(target, REQUEST_SECONDS) from error
