"""Requests of a cell to its proxy, for `api.example.test`: honest ones, and such as hide a second request."""

from __future__ import annotations

HONEST = (
    b"GET http://api.example.test/a?b=1 HTTP/1.1\r\nHost: api.example.test\r\nAccept: */*\r\n\r\n",
    b"HEAD http://api.example.test:8080/ HTTP/1.1\r\nHost: api.example.test:8080\r\n\r\n",
    b"POST http://api.example.test/ HTTP/1.1\r\nHost: api.example.test\r\nContent-Length: 3\r\n\r\nabc",
    b"POST http://10.0.0.7/ HTTP/1.1\r\nHost: 10.0.0.7\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
    b"3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\n",
    b"GET http://[fd00::7]:8080/ HTTP/1.1\r\nhost: [fd00::7]:8080\r\nConnection: close, X-Own\r\nX-Own: 1\r\n"
    b"Proxy-Connection: x\r\nTE: trailers\r\nUpgrade: h2c\r\n\r\n",
    b"OPTIONS http://api.example.test?q HTTP/1.0\r\n\r\n",
    b"GET http://data.example.test/ HTTP/1.1\r\nHost: data.example.test\r\nCookie: \xe4\xf6\xfc\r\n\r\n",
)

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: other.example.test\r\n\r\n"


def post(*headers: bytes, body: bytes = b"") -> bytes:
    lines = b"".join(b"%s\r\n" % header for header in headers)
    return b"POST http://api.example.test/ HTTP/1.1\r\nHost: api.example.test\r\n%s\r\n" % lines + body


SMUGGLES: dict[str, bytes] = {
    "length and chunks": post(b"Content-Length: 4", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n" + SMUGGLED),
    "two lengths": post(b"Content-Length: 0", b"Content-Length: 54", body=SMUGGLED),
    "two equal lengths": post(b"Content-Length: 54", b"Content-Length: 54", body=SMUGGLED),
    "a list of lengths": post(b"Content-Length: 54, 54", body=SMUGGLED),
    "a length with a space": post(b"Content-Length : 54", body=SMUGGLED),
    "chunks with a space": post(b"Transfer-Encoding : chunked", body=b"0\r\n\r\n" + SMUGGLED),
    "chunks and more": post(b"Transfer-Encoding: chunked, identity", body=b"0\r\n\r\n" + SMUGGLED),
    "a folded length": post(b"X: y\r\n Content-Length: 54", body=SMUGGLED),
    "a bare line feed": post(b"X: y\n\n" + SMUGGLED[:-2]),
    "a bare carriage return": post(b"X: y\rContent-Length: 54", body=SMUGGLED),
    "a NUL": post(b"X: y\0\r\n\r\n" + SMUGGLED[:-2]),
    "a control character": post(b"X: y\x01z"),
    "a delete": post(b"X: y\x7fz"),
    "a line break in the path": b"GET http://api.example.test/ HTTP/1.1\r\n\r\n" + SMUGGLED,
    "a chunk of no size": post(b"Transfer-Encoding: chunked", body=b"\r\n0\r\n\r\n" + SMUGGLED),
    "a chunk with a sign": post(b"Transfer-Encoding: chunked", body=b"-0\r\n\r\n" + SMUGGLED),
    "a chunk that is too long": post(b"Transfer-Encoding: chunked", body=b"3\r\nabcd\r\n0\r\n\r\n" + SMUGGLED),
    "a path after the body": post(b"Content-Length: 1", body=b"x" + SMUGGLED),
    "a host within the path": b"GET http://api.example.test/http://other.example.test/ HTTP/1.1\r\nHost: other\r\n\r\n",
    "no host": b"GET /smuggled HTTP/1.1\r\nHost: api.example.test\r\n\r\n",
}
"""Each is refused, or goes out as one request without what is hidden in it."""
