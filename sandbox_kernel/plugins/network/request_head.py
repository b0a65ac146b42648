"""Heads of requests: read by h11 after stricter rules of ours, and taken apart into what goes on and what does not.

What another parser could read in another way is refused, and nothing is repaired. Knows no connection: bytes in, values
out. h11 is imported by this and by the relay alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import h11

from .buffered_connection import HEAD_BYTES
from .codes import NetworkCode
from .interfaces import Headers
from .policy import RefusedConnection

MAX_HEADERS = 100
MAX_LENGTH = 1 << 50
"""Of a body that says its length: more is not meant."""

HOP_BY_HOP = frozenset(
    (
        b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"http2-settings", b"expect",
        b"content-length", b"host",
    )
)  # fmt: skip
"""Headers of one connection, or written by us: dropped, as are `proxy-...` and those that a Connection header names."""

METHOD_HEADERS = frozenset((b"x-http-method-override", b"x-http-method", b"x-method-override"))
"""In which many frameworks take another method than that of the request."""

_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_LINE_END = re.compile(rb"\r(?!\n)|(?<!\r)\n")
_METHOD = re.compile(rb"[A-Z][A-Z-]{0,31}")
_ABSOLUTE = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([/?][^#]*)?")
_LENGTHS = re.compile(rb"\r\ncontent-length:([^\r]*)", re.IGNORECASE)
_LENGTH = re.compile(rb"[0-9]{1,16}")
_SIGN = re.compile(rb"[^a-z0-9]")


@dataclass(frozen=True, slots=True)
class CellRequestHead:
    """The head of a request as a cell sent it, free of doubt."""

    method: str
    authority: bytes | None
    """Host and port as the target has them; None for a target that is a path alone."""
    path: bytes
    """Empty for CONNECT."""
    host: bytes | None
    """The Host header; None without one, which only HTTP/1.0 may have."""
    headers: Headers
    """What may go on to the host."""
    length: int | None
    """Of the body in bytes; None for chunks."""


def server() -> h11.Connection:
    """Return a parser for one request of a cell."""
    return h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)


def read(parser: h11.Connection, raw: bytes) -> CellRequestHead:
    """Return the head that is `raw`, as `Buffered.head` returns it. Raises Refused with what is wrong with it."""
    if raw.startswith(b"PRI * HTTP/2"):
        raise RefusedConnection(NetworkCode.HTTP_VERSION.note(version="2"))
    _check_bytes(raw)
    parser.receive_data(raw)
    try:
        request = parser.next_event()
    except h11.RemoteProtocolError as error:
        if error.error_status_hint == 501:
            raise _improper("has a Transfer-Encoding other than chunked") from None
        raise _improper("is not as HTTP has it") from None
    if not isinstance(request, h11.Request):
        raise _improper("is not as HTTP has it")
    if request.http_version not in {b"1.1", b"1.0"}:
        raise RefusedConnection(NetworkCode.HTTP_VERSION.note(version=request.http_version.decode()))
    if not _METHOD.fullmatch(request.method):
        raise _improper("has a method that is not in capitals")
    length = _length(request, raw)
    _check_upgrade(request.headers)
    authority, path = _target(request, length)
    host = next((value for name, value in request.headers if name == b"host"), None)
    return CellRequestHead(
        request.method.decode(), authority, path, host, forwarded(request.headers.raw_items()), length
    )


def forwarded(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers of a request or an answer that concern more than the one connection it came on."""
    headers = tuple((bytes(name), bytes(value)) for name, value in headers)
    named = {
        word.strip().lower() for name, value in headers if name.lower() == b"connection" for word in value.split(b",")
    }
    drop = HOP_BY_HOP | named
    return tuple(
        (name, value)
        for name, value in headers
        if drop.isdisjoint((name.lower(), canonical(name))) and not canonical(name).startswith(b"proxy-")
    )


def canonical(name: bytes) -> bytes:
    """Return a header's name as a server may read it that has no other sign for a hyphen and its like, as CGI does."""
    return _SIGN.sub(b"-", name.lower())


def other_methods(asked: CellRequestHead) -> list[str]:
    """Return the methods that a request asks for besides its own: rules that are for one hold for these as well."""
    return [value.upper().decode("latin-1") for name, value in asked.headers if canonical(name) in METHOD_HEADERS]


def _check_bytes(raw: bytes) -> None:
    """Refuse what h11 or somebody else would forgive: line ends of another kind, continued lines, controls."""
    if _LINE_END.search(raw):
        raise _improper("has a line that does not end with CR and LF")
    if _CONTROL.search(raw):
        raise _improper("has a control character")
    if b"\r\n " in raw or b"\r\n\t" in raw:
        raise _improper("has a header that goes on in a second line")
    if raw.count(b"\r\n") > MAX_HEADERS + 2:
        raise RefusedConnection(NetworkCode.HEAD_TOO_MANY.note(limit=MAX_HEADERS))


def _length(request: h11.Request, raw: bytes) -> int | None:
    """Return the length of the body, None for chunks. Raises Refused for what can be read in two ways.

    h11 joins lengths that agree, and lets chunks win over them; it knows no other coding than chunks.
    """
    chunked = any(name == b"transfer-encoding" for name, _ in request.headers)
    lengths = _LENGTHS.findall(raw)
    if len(lengths) + chunked > 1 or (chunked and request.http_version != b"1.1"):
        raise RefusedConnection(NetworkCode.LENGTH_AMBIGUOUS.note())
    if chunked:
        return None
    if not lengths:
        return 0
    if not _LENGTH.fullmatch(lengths[0].strip(b" \t")) or int(lengths[0]) > MAX_LENGTH:
        raise _improper("has a Content-Length that is none")
    return int(lengths[0])


def _check_upgrade(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuse a change of protocol; an offer of HTTP/2 is no more than an offer, and is not passed on."""
    for name, value in headers:
        if name == b"upgrade" and value.strip().lower() != b"h2c":
            raise RefusedConnection(NetworkCode.UPGRADE_REFUSED.note())


def _target(request: h11.Request, length: int | None) -> tuple[bytes | None, bytes]:
    """Return host and port as they are written, and the path with the query."""
    target = bytes(request.target)
    if request.method == b"CONNECT":
        if length != 0:
            raise _improper("is that of a tunnel, and has a body")
        return target, b""
    if target.startswith(b"/"):
        if b"#" in target:
            raise _improper("has a fragment")
        return None, target
    match = _ABSOLUTE.fullmatch(target)
    if match is None:
        raise _improper("has a target that is no address of the web")
    if match[1].lower() != b"http":
        scheme = match[1].lower().decode()[:20]
        raise RefusedConnection(NetworkCode.SCHEME_OTHER.note(scheme=scheme))
    path = match[3] or b"/"
    return match[2], path if path.startswith(b"/") else b"/" + path


def _improper(what: str) -> RefusedConnection:
    return RefusedConnection(NetworkCode.HEAD_IMPROPER.note(what=what))
