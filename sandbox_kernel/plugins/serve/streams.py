"""Answers that are sent piece by piece, while a task in a sandbox goes on. A client that goes ends the task."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ...core.errors import SandboxError
from ...sdk.files import OpenedFile
from .requests import Refusal
from .tenants import Lease, Tenants
from .turns import paced

_RANGE = re.compile("bytes=([0-9]{0,18})-([0-9]{0,18})")
KEEP_ALIVE_SECONDS = 5.0
"""Between two pieces."""
FIRST_SECONDS = 1.0
"""For what refuses the task; after that the answer has begun."""
MAX_BACKLOG = 64
"""Pieces that wait for the client, which holds up the task and not the server."""

Piece = dict[str, Any]
Put = Callable[[Piece], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamForm:
    """How pieces look on a wire."""

    media_type: str
    encode: Callable[[Piece], bytes]
    keep_alive: Piece
    """A piece that means nothing."""
    failed: Callable[[SandboxError | Refusal], bytes]
    """What is sent if the task fails once the answer has begun."""
    end: bytes = b""


class TaskResponse:
    """One task, as the answer to a request."""

    def __init__(
        self, tenants: Tenants, lease: Lease, work: Callable[[Put], Awaitable[None]], form: StreamForm
    ) -> None:
        """Start it. Raises `Refusal` if the sandbox has as many as it may have."""
        lease.check_calls(tenants.limits.calls_per_sandbox)
        self._pieces: asyncio.Queue[Piece | None] = asyncio.Queue(MAX_BACKLOG)
        self._lease, self._form = lease, form
        self._first: Piece | None = None
        lease.calls += 1
        self._task = tenants.tasks.hold(paced(self._run(work)), "a call of a client")
        self._task.add_done_callback(self._ended)

    async def settle(self) -> None:
        """Wait until it has said something, for a moment. Raises what refuses it before."""
        try:
            self._first = await self._next(FIRST_SECONDS)
            if self._first is None:
                await self._task
        except BaseException:
            self._task.cancel()
            raise

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._lease.calls -= 1
        if not task.cancelled():
            task.exception()  # whoever reads the pieces tells of it, unless the client is gone

    async def _run(self, work: Callable[[Put], Awaitable[None]]) -> None:
        try:
            await work(self._pieces.put)
        finally:
            if not self._pieces.full():
                self._pieces.put_nowait(None)

    async def _next(self, seconds: float) -> Piece | None:
        """Return the next piece, None at the end; after so many seconds, one that means nothing."""
        waiting = asyncio.create_task(self._pieces.get())
        try:
            await asyncio.wait({waiting, self._task}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
            if self._task.done():
                return None if self._pieces.empty() else self._pieces.get_nowait()
            return self._form.keep_alive
        finally:
            waiting.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send its pieces; cut the connection where the sandbox has ended, as clients of E2B expect it."""
        listening = asyncio.create_task(self._watch(receive))
        form = self._form

        async def write(content: bytes) -> None:
            await send({"type": "http.response.body", "body": content, "more_body": True})

        try:
            headers = [(b"content-type", form.media_type.encode()), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            piece = self._first if self._first is not None else await self._next(KEEP_ALIVE_SECONDS)
            while piece is not None:
                await write(form.encode(piece))
                piece = await self._next(KEEP_ALIVE_SECONDS)
            await asyncio.wait({self._task})
            error = None if self._task.cancelled() else self._task.exception()
            if not self._lease.is_there:
                return
            if isinstance(error, (SandboxError, Refusal)):
                await write(form.failed(error))
            elif error is not None:
                raise error
            else:
                await write(form.end)
            await send({"type": "http.response.body", "body": b""})
        finally:
            listening.cancel()
            self._task.cancel()

    async def _watch(self, receive: Receive) -> None:
        """End the task when the client goes."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._task.cancel()


class Download(StreamingResponse):
    """A file that is sent piece by piece.

    What refuses the rest of it cuts the connection, by which a client knows that it has not all of it: the answer has
    begun, and there is no second one.
    """

    async def stream_response(self, send: Send) -> None:
        with suppress(Refusal, SandboxError):
            await super().stream_response(send)


async def sent(request: Request, file: OpenedFile, headers: Mapping[str, str], media_type: str) -> Response:
    """Send a file, or the one part of it that is asked for, as a client does that goes on after a lost connection.

    What is asked for in another way is sent as a whole, as RFC 9110 has it. Raises what refuses the first piece.
    """
    tag = f'"{file.state}"'
    headers = {**headers, "Accept-Ranges": "bytes", "ETag": tag}
    begin, end, status = 0, file.size, 200
    found = _RANGE.fullmatch(request.headers.get("range", ""))
    if found is not None and request.headers.get("if-range", tag) == tag and any(found.groups()):
        first, last = found.groups()
        if first:
            begin, end = int(first), min(int(last) + 1, file.size) if last else file.size
        else:
            begin = max(0, file.size - int(last))
        if begin >= end:
            return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{file.size}"})
        status = 206
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{file.size}"
    headers["Content-Length"] = str(end - begin)
    return Download(await begun(file.pieces(begin, end)), status, headers, media_type)


async def begun(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Return pieces of which the first is there. Raises what refuses it, while there is no answer yet."""
    first = await anext(pieces, b"")

    async def whole() -> AsyncIterator[bytes]:
        yield first
        async for piece in pieces:
            yield piece

    return whole()
