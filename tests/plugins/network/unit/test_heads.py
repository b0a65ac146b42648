"""Heads of requests: what another parser could read in another way is refused, and what goes on is what was meant."""

from __future__ import annotations

import pytest

from sandbox_kernel.plugins.network import request_head
from sandbox_kernel.plugins.network.buffered_connection import HEAD_BYTES, Buffered
from sandbox_kernel.plugins.network.error_responses import refusal
from sandbox_kernel.plugins.network.policy import RefusedConnection
from tests.support.cases import each
from tests.support.gateway import Pieces

HOST = b"Host: api.example.test\r\n"
HONEST = b"GET http://api.example.test/a?b=1 HTTP/1.1\r\n" + HOST


def read(raw: bytes) -> request_head.CellRequestHead:
    return request_head.read(request_head.server(), raw)


def code_of(raw: bytes) -> str:
    with pytest.raises(RefusedConnection) as caught:
        read(raw)
    return caught.value.code.code


def test_a_plain_request_is_taken_apart() -> None:
    asked = read(HONEST + b"Accept: */*\r\nX-Name:  two words \r\n\r\n")
    assert (asked.method, asked.authority, asked.path) == ("GET", b"api.example.test", b"/a?b=1")
    assert asked.host == b"api.example.test"
    assert asked.headers == ((b"Accept", b"*/*"), (b"X-Name", b"two words"))
    assert asked.length == 0


@pytest.mark.parametrize(
    ("target", "authority", "path"),
    [
        (b"http://api.example.test", b"api.example.test", b"/"),
        (b"HTTP://api.example.test:8080/", b"api.example.test:8080", b"/"),
        (b"http://api.example.test?q", b"api.example.test", b"/?q"),
        (b"http://[2001:db8::1]:80/x", b"[2001:db8::1]:80", b"/x"),
        (b"http://u:p@api.example.test/", b"u:p@api.example.test", b"/"),  # the rules refuse it
        (b"http:///x", b"", b"/x"),  # and this
        (b"/only/a/path", None, b"/only/a/path"),  # the relay refuses it, unless it is within TLS
    ],
)
def test_a_target_is_a_host_and_a_path(target: bytes, authority: bytes | None, path: bytes) -> None:
    asked = read(b"GET " + target + b" HTTP/1.1\r\n" + HOST + b"\r\n")
    assert (asked.authority, asked.path) == (authority, path)


@pytest.mark.parametrize(
    ("head", "length"),
    [(b"Content-Length: 12\r\n", 12), (b"content-length: 0\r\n", 0), (b"Transfer-Encoding: Chunked\r\n", None)],
)
def test_a_body_has_one_length(head: bytes, length: int | None) -> None:
    asked = read(b"POST http://api.example.test/ HTTP/1.1\r\n" + HOST + head + b"\r\n")
    assert asked.length == length
    assert asked.headers == ()


def test_what_concerns_one_connection_alone_does_not_go_on() -> None:
    dropped = (
        b"Connection: keep-alive, X-Mine\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nProxy-Connection: keep-alive\r\n"
        b"Proxy-Authorization: Basic x\r\nproxy-anything: 1\r\nTE: trailers\r\nTrailer: X\r\nExpect: 100-continue\r\n"
        b"Upgrade: h2c\r\nHTTP2-Settings: AAM\r\n"
    )
    assert read(HONEST + dropped + b"X-Kept: 1\r\n\r\n").headers == ((b"X-Kept", b"1"),)


@each(
    ("raw", "code"),
    [
        (HONEST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "length-ambiguous"),
        (HONEST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n", "head-improper"),
        (HONEST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\n", "length-ambiguous"),
        (HONEST + b"Content-Length: 3, 3\r\n\r\n", "head-improper"),
        (HONEST + b"Content-Length: +3\r\n\r\n", "head-improper"),
        (HONEST + b"Content-Length: 0x3\r\n\r\n", "head-improper"),
        (HONEST + b"Content-Length: -1\r\n\r\n", "head-improper"),
        (HONEST + b"Content-Length: 99999999999999999\r\n\r\n", "head-improper"),
        (HONEST + b"Content-Length:\r\n\r\n", "head-improper"),
        (HONEST + b"Content-Length : 3\r\n\r\n", "head-improper"),
        (HONEST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "head-improper"),
        (HONEST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "head-improper"),
        (HONEST + b"Transfer-Encoding: xchunked\r\n\r\n", "head-improper"),
        (HONEST + b"Transfer-Encoding:\x0bchunked\r\n\r\n", "head-improper"),
        (HONEST + b"Transfer-Encoding : chunked\r\n\r\n", "head-improper"),
        (HONEST + b"X: 1\r\n Transfer-Encoding: chunked\r\n\r\n", "head-improper"),
        (HONEST + b"X: 1\r\n\tfolded\r\n\r\n", "head-improper"),
        (HONEST + b"X: 1\nY: 2\r\n\r\n", "head-improper"),
        (HONEST + b"X: 1\rY: 2\r\n\r\n", "head-improper"),
        (HONEST + b"X: 1\n\n", "head-improper"),
        (HONEST + b"X: a\0b\r\n\r\n", "head-improper"),
        (HONEST + b"X: a\x7fb\r\n\r\n", "head-improper"),
        (HONEST + b"X: a\x01b\r\n\r\n", "head-improper"),
        (HONEST + b": nothing\r\n\r\n", "head-improper"),
        (HONEST + b"no colon\r\n\r\n", "head-improper"),
        (HONEST + b"X\xc3\xa4: 1\r\n\r\n", "head-improper"),
        (HONEST + HOST + b"\r\n", "head-improper"),
        (b"GET http://api.example.test/ HTTP/1.1\r\nX: 1\r\n\r\n", "head-improper"),
        (b"GET http://api.example.test/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "length-ambiguous"),
        (b"GET  http://api.example.test/ HTTP/1.1\r\n" + HOST + b"\r\n", "head-improper"),
        (b"GET http://api.example.test/ x HTTP/1.1\r\n" + HOST + b"\r\n", "head-improper"),
        (b"GET\thttp://api.example.test/ HTTP/1.1\r\n" + HOST + b"\r\n", "head-improper"),
        (b"get http://api.example.test/ HTTP/1.1\r\n" + HOST + b"\r\n", "head-improper"),
        (b"GET http://api.example.test/\r\n\r\n", "head-improper"),
        (b"GET http://api.example.test/ http/1.1\r\n" + HOST + b"\r\n", "head-improper"),
        (b"GET http://api.example.test/#part HTTP/1.1\r\n" + HOST + b"\r\n", "head-improper"),
        (b"GET /path#part HTTP/1.1\r\n" + HOST + b"\r\n", "head-improper"),
        (b"GET http://api.example.t\xc3\xa4st/ HTTP/1.1\r\n" + HOST + b"\r\n", "head-improper"),
        (b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", "head-improper"),
        (b"GET api.example.test/x HTTP/1.1\r\n" + HOST + b"\r\n", "head-improper"),
        (b"GET https://api.example.test/ HTTP/1.1\r\n" + HOST + b"\r\n", "scheme-other"),
        (b"GET ftp://api.example.test/ HTTP/1.1\r\n" + HOST + b"\r\n", "scheme-other"),
        (b"GET http://api.example.test/ HTTP/1.2\r\n" + HOST + b"\r\n", "http-version"),
        (b"GET http://api.example.test/ HTTP/2.0\r\n" + HOST + b"\r\n", "http-version"),
        (b"PRI * HTTP/2.0\r\n\r\n", "http-version"),
        (HONEST + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n", "upgrade-refused"),
        (b"CONNECT api.example.test:443 HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\n", "head-improper"),
        (b"CONNECT api.example.test:443 HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n", "head-improper"),
        (HONEST + b"X: 1\r\n" * 101 + b"\r\n", "head-too-many"),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(raw: bytes, code: str) -> None:
    assert code_of(raw) == code


def test_as_many_headers_as_are_allowed_pass() -> None:
    assert len(read(HONEST + b"X: 1\r\n" * 99 + b"\r\n").headers) == 99


async def head_of(*pieces: bytes) -> tuple[bytes, bytes]:
    buffered = Buffered(Pieces(*pieces))
    return await buffered.head(), await buffered.receive()


async def test_a_head_comes_in_any_pieces_and_what_is_behind_it_is_next() -> None:
    raw = HONEST + b"\r\n"
    for cut in range(1, len(raw)):
        assert await head_of(raw[:cut], raw[cut:] + b"next") == (raw, b"next")
    assert await head_of(*(raw[at : at + 1] for at in range(len(raw)))) == (raw, b"")


@pytest.mark.parametrize(
    ("pieces", "code"),
    [
        ((b"\x16\x03\x01\x02\x00",), "not-http"),
        ((b"\x05\x01\x00",), "not-http"),
        ((b"\r\n" + HONEST + b"\r\n",), "not-http"),
        ((HONEST,), "head-improper"),
        ((HONEST, b"X: " + b"a" * HEAD_BYTES + b"\r\n\r\n"), "head-too-large"),
        ((HONEST, b"X: ", *([b"a" * 1024] * 65)), "head-too-large"),
    ],
)
async def test_what_is_no_head_is_refused_before_more_is_read(pieces: tuple[bytes, ...], code: str) -> None:
    with pytest.raises(RefusedConnection) as caught:
        await Buffered(Pieces(*pieces)).head()
    assert caught.value.code.code == code


def test_a_refusal_is_an_answer_that_cannot_be_split() -> None:
    """A host's name may be in the words; it is repeated in plain letters, whatever it holds."""
    with pytest.raises(RefusedConnection) as caught:
        read(b"GET ftp://x HTTP/1.1\r\n" + HOST + b"\r\n")
    note = caught.value.note._replace(text="a\r\nSet-Cookie: b\x1b[2J\u2028" + "x" * 1000)
    answer = refusal(note)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"\r\nSet-Cookie" not in answer
    assert answer.isascii()
    assert b"Content-Length: %d\r\n" % len(body) in head
    assert len(head) < 600
    assert body.startswith(b"scheme-other: ")
