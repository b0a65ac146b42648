"""The protocol in which E2B's clients ask for folders and commands: Connect, with JSON.

A call is a POST of an object. One whose answer is a stream has an envelope around each object, and a last one that says
how it ended. What refuses a call is a word, and a text for people.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Generic, TypeVar, get_args, get_type_hints

import orjson
from starlette.requests import Request
from starlette.responses import Response

from ....core.codes import EndCode
from ....core.errors import CellTimeout, SandboxError, SandboxPaused
from ..bodies import Body, described
from ..codes import ServeCode
from ..home import check_user
from ..requests import MAX_JSON, Refusal, answer, improper, json_of, object_of, one_header, pieces_of, refusal_of
from ..streams import Piece, Put, StreamForm, TaskResponse
from ..tenants import Lease, Tenants

MAX_STREAM = 256 << 20
"""Bytes of a stream that comes."""
UNARY, STREAMED = "application/json", "application/connect+json"
_WORDS = {
    400: "invalid_argument",
    401: "unauthenticated",
    404: "not_found",
    409: "already_exists",
    413: "resource_exhausted",
    415: "invalid_argument",
    429: "resource_exhausted",
    501: "unimplemented",
    502: "unavailable",
    503: "unavailable",
    504: "deadline_exceeded",
}
_LAST = 2
"""The flag of an envelope that ends a stream."""

B = TypeVar("B", bound=Body)
Handler = Callable[[Request, Tenants, Lease], Awaitable[Any]]


class RpcCall(Generic[B]):
    """One call: what is asked, and of which sandbox."""

    def __init__(self, tenants: Tenants, lease: Lease, body: B, request: Request) -> None:
        self.tenants = tenants
        self.lease = lease
        self.body = body
        check_user(_user(request))
        self.seconds = _seconds(request)
        """How long the client waits; None is without end."""


def _user(request: Request) -> str | None:
    """Return the user that a client names, as a name without a password."""
    scheme, _, word = (one_header(request, "Authorization") or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(word, validate=True).decode().partition(":")[0] or None
    except ValueError:
        raise improper("Authorization", "is Basic with a name in base64") from None


def _seconds(request: Request) -> float | None:
    text = one_header(request, "Connect-Timeout-Ms")
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise improper("Connect-Timeout-Ms", "is a number of up to ten digits")
    return max(int(text), 1) / 1000


def envelope(piece: Piece, flags: int = 0) -> bytes:
    content = orjson.dumps(piece)
    return bytes([flags]) + len(content).to_bytes(4) + content


_END = envelope({}, _LAST)


def _kind(call: Callable[..., Any]) -> type[Any]:
    """Return what the body of a call is, as its signature says: `RpcCall[kind]`."""
    kind: type[Any] = get_args(get_type_hints(call)["asked"])[0]
    return kind


def _named(handler: Handler, call: Callable[..., Any], media: str) -> Handler:
    handler.__doc__ = call.__doc__  # for our page
    return described(handler, _kind(call), media=media)


def unary(call: Callable[[RpcCall[B]], Awaitable[Piece]]) -> Handler:
    """Return the handler of a call with one answer."""
    kind = _kind(call)

    async def handler(request: Request, tenants: Tenants, lease: Lease) -> Response:
        try:
            _check_type(request, UNARY)
            return answer(await call(RpcCall(tenants, lease, kind.of(await json_of(request)), request)))
        except (SandboxError, Refusal) as error:
            refusal = _counted(error, lease)
            return answer(_said(refusal), 503 if refusal.status == 502 else refusal.status)

    return _named(handler, call, UNARY)


def streamed(work: Callable[[RpcCall[B], Put], Awaitable[None]], keep_alive: Piece) -> Handler:
    """Return the handler of a call whose answer is a stream; `keep_alive` is a piece that means nothing in it."""
    kind = _kind(work)
    form = StreamForm(media_type=STREAMED, encode=envelope, keep_alive=keep_alive, failed=_failed, end=_END)

    async def handler(request: Request, tenants: Tenants, lease: Lease) -> Any:
        try:
            _check_type(request, STREAMED)
            [fields] = [piece async for piece in envelopes(pieces_of(request, MAX_JSON + 5), most=1)]
            asked = RpcCall(tenants, lease, kind.of(fields), request)
            return TaskResponse(tenants, lease, lambda put: work(asked, put), form)
        except (SandboxError, Refusal) as error:
            return Response(_failed(_counted(error, lease)), media_type=STREAMED)

    return _named(handler, work, STREAMED)


def taken(call: Callable[[RpcCall[B], AsyncIterator[Piece]], Awaitable[None]]) -> Handler:
    """Return the handler of a call that is a stream, with one answer; the first piece of the stream is its body."""
    kind = _kind(call)

    async def handler(request: Request, tenants: Tenants, lease: Lease) -> Response:
        try:
            _check_type(request, STREAMED)
            pieces = envelopes(pieces_of(request, MAX_STREAM))
            nothing: Piece = {}
            first = await anext(pieces, nothing)
            with lease.calling(tenants.limits.calls_per_sandbox):
                await call(RpcCall(tenants, lease, kind.of(first), request), pieces)
        except (SandboxError, Refusal) as error:
            return Response(_failed(_counted(error, lease)), media_type=STREAMED)
        return Response(envelope({}) + _END, media_type=STREAMED)

    return _named(handler, call, STREAMED)


def _check_type(request: Request, wanted: str) -> None:
    given = (one_header(request, "Content-Type") or "").partition(";")[0].strip().lower()
    if given != wanted:
        raise Refusal(415, ServeCode.REQUEST_IMPROPER, f"The body of this call is {wanted}")


async def envelopes(pieces: AsyncIterator[bytes], most: int | None = None) -> AsyncIterator[Piece]:
    """Yield the objects of a stream that comes. Raises `Refusal` for what is none, or is not `most` objects."""
    held, count = bytearray(), 0
    async for piece in pieces:
        held += piece
        while len(held) >= 5 and len(held) >= 5 + (size := int.from_bytes(held[1:5])):
            fields = object_of(bytes(held[5 : 5 + size])) if held[0] == 0 else None
            del held[: 5 + size]
            count += 1
            if fields is None or (most is not None and count > most):
                raise _no_stream()
            yield fields
            await asyncio.sleep(0)  # a piece may have thousands
        if len(held) >= 5 and int.from_bytes(held[1:5]) > MAX_JSON:
            raise Refusal(413, ServeCode.BODY_TOO_LARGE, f"An object of a stream may have {MAX_JSON:,} bytes")
    if held or (most is not None and count != most):
        raise _no_stream()


def _no_stream() -> Refusal:
    return Refusal(400, ServeCode.REQUEST_IMPROPER, "The body of this call is objects in JSON, each in an envelope")


def _refusal(error: SandboxError | Refusal) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, SandboxPaused):
        return Refusal(502, ServeCode.NO_SUCH_SANDBOX)
    if isinstance(error, CellTimeout):
        return Refusal(504, error.code, str(error))
    if error.code is EndCode.COMMAND_GONE:
        return Refusal(404, error.code, str(error))
    return refusal_of(error)


def _counted(error: SandboxError | Refusal, lease: Lease) -> Refusal:
    """Return how an error is told, and count it for the figures of the tenant."""
    refusal = _refusal(error)
    lease.tenant.figures.refused[refusal.code.code] += 1
    return refusal


def _said(refusal: Refusal) -> Piece:
    return {"code": _WORDS.get(refusal.status, "internal"), "message": str(refusal)}


def _failed(error: SandboxError | Refusal) -> bytes:
    return envelope({"error": _said(_refusal(error))}, _LAST)


def bytes_of(value: object) -> bytes:
    """Return bytes that came as base64. Raises `Refusal`."""
    try:
        return base64.b64decode(value if isinstance(value, str) else "", validate=True)
    except ValueError:
        raise improper("input", "is base64") from None
