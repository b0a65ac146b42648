"""Requests that two readers could split in two ways: each gets one answer at most, and its connection ends.

A proxy before the server may see one request where the server sees two, of which it has not checked the second.
Real sockets on loopback, with the server's own class of connections.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from sandbox_kernel.plugins.serve import web_server
from tests.plugins.serve.stand_ins import MINE, Served, running
from tests.support.cases import each
from tests.support.loopback import opened
from tests.support.patience import within

HEAD = f"POST /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {MINE}\r\n"
HIDDEN = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""What is answered with 200 if it is taken as a request."""
CHUNKED = f"0\r\n\r\n{HIDDEN}"
SPLIT = {
    "two lengths": f"{HEAD}Content-Length: 2\r\nContent-Length: {len(HIDDEN) + 2}\r\n\r\n{{}}{HIDDEN}",
    "two lengths in one": f"{HEAD}Content-Length: 2, {len(HIDDEN)}\r\n\r\n{{}}{HIDDEN}",
    "a length and chunks": f"{HEAD}Content-Length: {len(CHUNKED)}\r\nTransfer-Encoding: chunked\r\n\r\n{CHUNKED}",
    "chunks and a length": f"{HEAD}Transfer-Encoding: chunked\r\nContent-Length: {len(CHUNKED)}\r\n\r\n{CHUNKED}",
    "another coding": f"{HEAD}Transfer-Encoding: gzip, chunked\r\n\r\n{CHUNKED}",
    "no coding": f"{HEAD}Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{{}}{HIDDEN}",
    "chunks twice": f"{HEAD}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n{CHUNKED}",
    "a tab before the colon": f"{HEAD}Content-Length\t: 2\r\n\r\n{{}}{HIDDEN}",
    "a space before the colon": f"{HEAD}Transfer-Encoding : chunked\r\n\r\n{CHUNKED}",
    "a sign": f"{HEAD}Content-Length: +2\r\n\r\n{{}}{HIDDEN}",
    "a length below zero": f"{HEAD}Content-Length: -2\r\n\r\n{{}}{HIDDEN}",
    "an underscore": f"{HEAD}Content-Length: 1_0\r\n\r\n{{}}{HIDDEN}",
    "a size of a chunk with a sign": f"{HEAD}Transfer-Encoding: chunked\r\n\r\n+2\r\n{{}}\r\n{CHUNKED}",
    "a size of a chunk in hexadecimal twice": f"{HEAD}Transfer-Encoding: chunked\r\n\r\n0x2\r\n{{}}\r\n{CHUNKED}",
    "a chunk without its end": f"{HEAD}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}{CHUNKED}",
    "a return in a value": f"{HEAD}X-A: b\rContent-Length: 2\r\n\r\n{{}}{HIDDEN}",
    "a nul in a value": f"{HEAD}X-A: b\0c\r\nContent-Length: 2\r\n\r\n{{}}{HIDDEN}",
    "a space before a name": f"{HEAD} Content-Length: 2\r\n\r\n{{}}{HIDDEN}",
    "a whole address of another": "GET http://localhost/healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "two hosts": f"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n{HIDDEN}",
    "a WebSocket that is none": (
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 777\r\n\r\n{HIDDEN}"
    ),
}


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(web_server, "HEAD_SECONDS", 0.3)  # which is how long it waits for another request
    async with running(Served().app) as (port, _):
        yield port


async def answers(port: int, said: str) -> list[int]:
    """Return the status of each answer on one connection, until the server ends it."""
    async with opened(port) as (reader, writer), within(20):
        writer.write(said.encode("latin-1"))
        found = await reader.read()
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", found)]


@each("name", SPLIT)
async def test_what_could_be_two_requests_is_one_at_most(port: int, name: str) -> None:
    found = await answers(port, SPLIT[name])
    assert not [status for status in found if status < 300], found
    assert found[1:] in ([], [400]), found  # the rest is no request, and ends the connection


async def test_control_two_requests_in_a_row_have_two_answers(port: int) -> None:
    assert await answers(port, HIDDEN + HIDDEN.replace("Host", "Connection: close\r\nHost")) == [200, 200]


@pytest.mark.slow
@pytest.mark.parametrize("token", [MINE, "wrong"])
async def test_a_body_is_no_request_where_nobody_reads_it(port: int, token: str) -> None:
    head = f"POST /healthz HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {token}\r\n"
    assert await answers(port, f"{head}Content-Length: {len(HIDDEN)}\r\n\r\n{HIDDEN}") == [405]
    head = f"POST /sandboxes/x/pause HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {token}\r\n"
    assert await answers(port, f"{head}Content-Length: {len(HIDDEN)}\r\n\r\n{HIDDEN}") in ([404], [401])
