"""WebSockets: whose they are, where their page comes from, how many, and how long one is kept that is silent."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.websockets import WebSocket
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from sandbox_kernel.core.errors import SandboxClosed
from sandbox_kernel.core.model import Settings
from sandbox_kernel.plugins.serve import web_server, web_sockets
from sandbox_kernel.plugins.serve.codes import ServeCode
from sandbox_kernel.plugins.serve.guard import RouteGuard
from sandbox_kernel.plugins.serve.requests import Refusal
from sandbox_kernel.plugins.serve.tenants import ServeLimits, Tenant, Tenants
from sandbox_kernel.plugins.serve.token_file import Tokens
from sandbox_kernel.plugins.serve.web_server import FIRST_BYTES, SOCKET_BYTES, Names, RequestFilter, WebServer, known
from tests.plugins.serve import stand_ins
from tests.plugins.serve.stand_ins import running
from tests.support.loopback import opened
from tests.support.patience import until, within

TOKEN = stand_ins.MINE
MINE = {"Authorization": f"Bearer {TOKEN}"}


LEFT = threading.Event()  # of no loop: each test has another one
"""Set when a handler of the test has ended."""


async def echo(websocket: WebSocket, tenants: Tenants, tenant: Tenant) -> None:
    """Say back what comes; `end` is an error of a sandbox, `late` one of the request."""
    if websocket.query_params.get("at") == "once":
        raise Refusal(404, ServeCode.NO_SUCH_SANDBOX)
    if websocket.query_params.get("at") != "stranger":
        known(websocket)
    await websocket.accept()
    LEFT.clear()
    try:
        while True:
            text = await websocket.receive_text()
            if text == "end":
                raise SandboxClosed("it has ended")
            if text == "much":
                with suppress(TimeoutError):
                    async with within(0.5):
                        while True:
                            await websocket.send_text("x" * (8 << 20))
                return
            if text == "late":
                raise Refusal(400, ServeCode.REQUEST_IMPROPER, "that is too late")
            if text == "wide":
                raise Refusal(400, ServeCode.REQUEST_IMPROPER, "€" * 100)
            if text == "token":
                known(websocket)
            await websocket.send_text(f"{tenant.name} {text}")
    finally:
        LEFT.set()


class Serving:
    def __init__(self, tenants: Tenants, port: int, web: WebServer) -> None:
        self.tenants, self.port, self.web = tenants, port, web

    def open(self, query: str = "", **given: Any) -> Any:
        return connect(
            f"ws://127.0.0.1:{self.port}/echo{query}", additional_headers=given.pop("headers", MINE), **given
        )

    async def status_of(self, query: str = "", **given: Any) -> int:
        """Return how a WebSocket is refused."""
        with pytest.raises(InvalidStatus) as refused:
            async with self.open(query, **given):
                pass
        return refused.value.response.status_code


@asynccontextmanager
async def serving(**limits: Any) -> AsyncIterator[Serving]:
    tenants = Tenants({"base": Settings()}, ServeLimits(**limits))
    guard = RouteGuard(tenants, Tokens([("mine", TOKEN)]))
    app = Starlette(routes=[guard.socket("/echo", echo)], middleware=[Middleware(RequestFilter, known=Names())])
    async with running(app) as (port, web):
        yield Serving(tenants, port, web)


async def said(to: ClientConnection, text: str) -> str:
    await to.send(text)
    return str(await to.recv())


async def written(writer: asyncio.StreamWriter, data: bytes, times: int) -> None:
    for _ in range(times):
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(0)


async def test_a_token_opens_one() -> None:
    async with serving() as server:
        async with server.open() as one:
            assert await said(one, "hello") == "mine hello"
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"X-API-Key": TOKEN[:-1]}):
            assert await server.status_of(headers=headers) == 401


async def test_a_page_of_another_site_opens_none() -> None:
    async with serving() as server:
        async with server.open(origin=f"http://localhost:{server.port}") as one:
            assert await said(one, "hello") == "mine hello"
        assert await server.status_of(origin="https://evil.example") == 403
        assert await server.status_of(headers={**MINE, "Host": "evil.example"}) in {400, 421}


async def test_what_is_raised_is_told_before_and_after() -> None:
    async with serving() as server:
        assert await server.status_of("?at=once") == 404
        for word, code in (("end", 1011), ("late", 1008), ("wide", 1008)):
            async with server.open() as one:
                with pytest.raises(ConnectionClosed) as closed:
                    await said(one, word)
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == code
                assert closed.value.rcvd.reason


@pytest.mark.parametrize(
    "more",
    [
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        f"X-A: {'a' * 9000}\r\n",
        "".join(f"X-{number}: a\r\n" for number in range(140)),
        "Sec-WebSocket-Key: another\r\n",
    ],
    ids=["a-body", "chunks", "a-long-line", "many-lines", "two-keys"],
)
async def test_a_head_that_begins_none_keeps_no_connection(more: str) -> None:
    lines = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    key = "Sec-WebSocket-Key: YWFhYWFhYWFhYWFhYWFhYQ==\r\n"
    async with serving() as server, opened(server.port) as (reader, writer), within(10):
        writer.write(f"GET /echo HTTP/1.1\r\nHost: localhost\r\n{lines}{key}{more}\r\n".encode())
        answer = await reader.read()
        assert re.match(rb"HTTP/1.1 4\d\d ", answer)
        await until(lambda: not server.web.server_state.connections, 10)


async def test_each_is_a_request_under_way() -> None:
    async with serving(requests_per_tenant=2) as server:
        async with server.open() as first, server.open() as second:
            assert await server.status_of() == 429
            assert await said(first, "a") + await said(second, "b") == "mine amine b"
        async with server.open() as again:
            assert await said(again, "c") == "mine c"
            assert server.tenants.tenant("mine").requests == 1


async def test_one_message_has_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_server, "SOCKET_BYTES", 1000)
    async with serving() as server, server.open() as one:
        assert len(await said(one, "x" * 900)) == 905
        with pytest.raises(ConnectionClosed) as closed:
            await said(one, "x" * 1001)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


@pytest.mark.slow
@pytest.mark.parametrize(("piece", "count"), [(b"", 10**6), (b"xy", 10**6)])
async def test_a_message_of_very_small_pieces_ends_it(
    monkeypatch: pytest.MonkeyPatch, piece: bytes, count: int
) -> None:
    monkeypatch.setattr(web_server, "MAX_PIECES", 100)
    head = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
    head += f"YWFhYWFhYWFhYWFhYWFhYQ==\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    more = (b"\0" + bytes([0x80 + len(piece)]) + bytes(4) + piece) * 100
    async with serving() as server, opened(server.port) as (reader, writer), within(20):
        writer.write(f"GET /echo HTTP/1.1\r\n{head}\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\1\x80" + bytes(4))  # the first piece, which is empty
        with pytest.raises(ConnectionError):
            await written(writer, more, count // 100)
        await until(lambda: not server.web.server_state.connections, 10)


async def test_control_a_message_may_come_in_many_pieces() -> None:
    async with serving() as server, server.open() as one:
        for _ in range(2):
            await one.send("x" * 100 for _ in range(9000))
            assert len(await one.recv()) == len("mine ") + 900_000


@pytest.mark.parametrize("pieces", [1, 4])
async def test_a_stranger_s_message_is_small(pieces: int) -> None:
    """Be it one frame, or several: all of a message is kept before its handler sees it."""
    async with serving() as server:
        async with server.open("?at=stranger", max_size=None) as one:
            assert await said(one, "token") == "mine token"
            large = "x" * (SOCKET_BYTES - 10)
            await one.send(large)
            assert str(await one.recv()) == f"mine {large}"
        async with server.open("?at=stranger") as one:
            assert len(await said(one, "x" * FIRST_BYTES)) == FIRST_BYTES + 5
            await one.send(["x" * (FIRST_BYTES // pieces + 1)] * pieces)
            with pytest.raises(ConnectionClosed) as closed:
                await one.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1009


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.1, 20.0])
async def test_one_that_does_not_read_is_let_go(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Be it that it is asked whether it is there, or that its handler has had enough."""
    monkeypatch.setattr(web_server, "SOCKET_SECONDS", seconds)
    monkeypatch.setattr(web_sockets, "CLOSE_SECONDS", 0.2)
    async with serving() as server, server.open() as one:
        assert await said(one, "hello") == "mine hello"
        one.transport.pause_reading()
        await one.send("much")
        await until(lambda: not server.web.server_state.connections and LEFT.is_set(), 10)
        one.transport.abort()


@pytest.mark.slow
async def test_a_silent_one_is_kept_while_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of a request's head does not run on: it would have ended it here."""
    monkeypatch.setattr(web_server, "HEAD_SECONDS", 0.05)
    monkeypatch.setattr(web_server, "SOCKET_SECONDS", 0.1)
    async with serving() as server, server.open() as one:
        with pytest.raises(TimeoutError):
            async with within(0.4):
                await one.recv()
        assert await said(one, "hello") == "mine hello"
        one.transport.pause_reading()  # what does not read does not answer
        await until(LEFT.is_set, 10)
        one.transport.abort()
