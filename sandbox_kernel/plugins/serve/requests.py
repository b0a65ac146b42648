"""What a request must be before it is looked at: whose, how large, of which form; and how it is refused.

Errors are JSON with a `message` and the status as `code`, as E2B's clients read them, and our own code as `error`.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from typing import IO, Any, TypeVar, cast

import orjson
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response

from ...core import json_memory
from ...core.codes import Code, EndCode, UsageCode
from ...core.errors import (
    AbilityMissing,
    ConfigurationError,
    FileNotThere,
    FileRefused,
    QuotaExceeded,
    SandboxClosed,
    SandboxDied,
    SandboxError,
    SandboxPaused,
)
from .codes import ServeCode
from .turns import paced

T = TypeVar("T")
MAX_PAGE = 100
"""Entries of a list that one answer has."""
MAX_JSON = 4 << 20
"""Bytes of a body that is JSON: code, mostly."""
PIECE_BYTES = 16 << 10
"""Of a body that are looked at in one turn of the loop."""
MAX_JSON_MEMORY = 32 << 20
"""Bytes that one may cost once it is parsed: any text of `MAX_JSON`, and not a body that is nothing but brackets."""


FLAT = 200
"""Levels that can be said whatever is around them, so that a body with so many brackets needs no closer look."""
NO_CONTEXT = "context-unknown"
"""The code of another plugin, which may be missing."""


class Refusal(Exception):
    """A request that is not served; `status` is HTTP's."""

    def __init__(self, status: int, code: Code, words: str | None = None, *, elsewhere: bool = False) -> None:
        """`elsewhere` says that another replica may serve it, which has the sandbox."""
        super().__init__(words or code.text.capitalize())
        self.elsewhere = elsewhere
        self.status = status
        self.code = code

    def response(self) -> Response:
        return error(self.status, self.code, str(self))


_STATUS: tuple[tuple[type[SandboxError], int], ...] = (
    (FileNotThere, 404),
    (FileRefused, 400),
    (QuotaExceeded, 429),
    (SandboxPaused, 409),
    (AbilityMissing, 400),
    (ConfigurationError, 400),
)


def refusal_of(found: SandboxError) -> Refusal:
    """Return how an error of a sandbox is told."""
    if isinstance(found, (SandboxClosed, SandboxDied)) or found.code is EndCode.SANDBOX_ENDED_BY_OWNER:
        return Refusal(502, ServeCode.NO_SUCH_SANDBOX)
    if found.code.code == NO_CONTEXT:
        return Refusal(404, found.code, found.message)
    status = next((status for kind, status in _STATUS if isinstance(found, kind)), 500)
    return Refusal(status, found.code, str(found))


def error(status: int, code: Code, message: str) -> Response:
    headers = {"Should-Retry": "false"} if status == 429 else {}
    return answer({"code": status, "message": message, "error": code.code}, status, headers)


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return JSON."""
    return Response(orjson.dumps(value), status, headers, media_type="application/json")


def one_header(request: HTTPConnection, name: str) -> str | None:
    """Return the value of a header that may be there once. Raises `Refusal` for more."""
    values = request.headers.getlist(name)
    if len(values) > 1:
        raise Refusal(400, ServeCode.REQUEST_IMPROPER, f"{name} is there {len(values)} times")
    return values[0] if values else None


async def pieces_of(request: Request, limit: int) -> AsyncGenerator[bytes, None]:
    """Yield the body in small pieces, with a turn for others behind each.

    Raises `Refusal` once it is over the limit, and for a client that goes meanwhile.
    """
    said = request.headers.get("content-length", "0")
    if not said.isascii() or not said.isdigit() or len(said) > 18 or int(said) > limit:
        raise _too_large(limit)
    done = 0
    try:
        async for came in request.stream():
            done += len(came)
            if done > limit:
                raise _too_large(limit)
            for begin in range(0, len(came), PIECE_BYTES):
                yield came[begin : begin + PIECE_BYTES]
                await asyncio.sleep(0)
    except ClientDisconnect:
        raise Refusal(400, ServeCode.REQUEST_IMPROPER, "The body was not sent to its end") from None


def spool(memory: int) -> IO[bytes]:
    """Return a file without a name for bytes that come, on disk only once they are more than that."""
    return cast("IO[bytes]", tempfile.SpooledTemporaryFile(memory, prefix="sandbox-file-"))


async def while_there(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return what some work brings; cancel it if the client goes meanwhile. The body has been read."""
    task = asyncio.create_task(paced(work))
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Refusal(400, ServeCode.REQUEST_IMPROPER, "The client has gone")
        return task.result()
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.wait({task, gone})


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _too_large(limit: int) -> Refusal:
    return Refusal(413, ServeCode.BODY_TOO_LARGE, f"The body of this request may have {limit:,} bytes")


async def json_of(request: Request) -> dict[str, Any]:
    """Return a body that is an object of JSON; none is an empty one. Raises `Refusal`."""
    content = b"".join([piece async for piece in pieces_of(request, MAX_JSON)])
    value = object_of(content) if content else {}
    if value is None:
        raise Refusal(400, ServeCode.REQUEST_IMPROPER, "The body of this request is an object in JSON")
    return value


def can_be_said(value: object) -> bool:
    """Return whether an answer can have a value of JSON in it: four times as many levels are read as are written."""
    try:
        orjson.dumps([[[[value]]]])
    except TypeError:
        return False
    return True


def object_of(content: bytes, memory: int = MAX_JSON_MEMORY) -> dict[str, Any] | None:
    """Return an object of JSON that can be said again, None for what is none.

    Raises `Refusal` if it would cost more than that once parsed.
    """
    if (reason := json_memory.heavy(content, memory)) is not None:
        raise Refusal(413, ServeCode.BODY_TOO_LARGE, f"An object in JSON may cost {memory:,} bytes of memory: {reason}")
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    is_flat = content.count(b"[") + content.count(b"{") <= FLAT
    return value if isinstance(value, dict) and (is_flat or can_be_said(value)) else None


def page_of(request: Request, found: Sequence[T]) -> tuple[Sequence[T], dict[str, str]]:
    """Return the page that a request asks for, and the header that says where the next begins. Raises `Refusal`."""
    asked = request.query_params
    size, begin = number_of(asked.get("limit"), MAX_PAGE), number_of(asked.get("nextToken"), 0)
    if not 1 <= size <= MAX_PAGE:
        raise improper("limit", f"is 1 to {MAX_PAGE}")
    more = {"x-next-token": str(begin + size)} if begin + size < len(found) else {}
    return found[begin : begin + size], more


def number_of(text: str | None, usual: int) -> int:
    """Return a number of an address; none is the usual one. Raises `Refusal`."""
    if not text:
        return usual
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise improper("A number of the address", "is not one")
    return int(text)


def improper(name: str, what: str) -> Refusal:
    return Refusal(400, UsageCode.WRONG_ARGUMENT, f"{name} {what}")
