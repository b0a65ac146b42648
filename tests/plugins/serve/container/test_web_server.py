"""Connections of the web server that are held open: half a head, a body that drips, a reader that does not read.

Real sockets on loopback, against the server's own class of connections. Controls are uvicorn as it comes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from sandbox_kernel.plugins.serve import web_server
from sandbox_kernel.plugins.serve.crowd import network_of
from sandbox_kernel.plugins.serve.web_server import Config, Names, RequestFilter
from tests.plugins.serve.container.server import McpServer
from tests.plugins.serve.container.test_mcp_http import INITIALIZE, SMALL, post
from tests.support.kernels import containers_of
from tests.support.mcp_hosts import run, text_of
from tests.support.patience import until, within

HALF = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Half: "
WHOLE = b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = 40_000_000
"""Bytes of an answer: more than the kernel's buffers of both ends take."""
BOUND = 20.0
"""Seconds for what takes less than one on a quiet machine."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer as the path asks: at once and without looking at the body, after the whole body, or with much."""
    if scope["path"] == "/body":
        while (await receive()).get("more_body"):
            pass
    body = bytes(LARGE) if scope["path"] == "/large" else b"fine"
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def serving(config: type[uvicorn.Config] = Config, **options: Any) -> AsyncIterator[tuple[uvicorn.Server, int]]:
    server = uvicorn.Server(
        config(answer, port=0, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=1, **options)
    )
    server.capture_signals = _nothing  # type: ignore[method-assign]
    task = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started)
        yield server, server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


@contextmanager
def _nothing() -> Iterator[None]:
    yield


async def connect(port: int, said: bytes = b"") -> Streams:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    await writer.drain()
    return reader, writer


async def asked(port: int) -> bytes:
    """Return what an honest client is told first."""
    async with within(BOUND):
        reader, writer = await connect(port, WHOLE)
        try:
            return await reader.readline()
        finally:
            writer.close()


async def ended(reader: asyncio.StreamReader) -> None:
    """Wait until the other side has ended the connection."""
    async with within(BOUND):
        try:
            while await reader.read(1 << 16):
                pass
        except ConnectionError:
            pass


async def test_honest_clients_get_through_while_half_sent_heads_are_held() -> None:
    async with serving() as (server, port):
        held = [await connect(port, HALF) for _ in range(web_server.MAX_WAITING + 60)]
        for _ in range(20):
            assert await asked(port) == b"HTTP/1.1 200 OK\r\n"
        assert len(server.server_state.connections) <= web_server.MAX_WAITING
        for _, writer in held:
            writer.close()


async def test_control_uvicorn_as_it_comes_is_closed_by_half_sent_heads() -> None:
    async with serving(uvicorn.Config, limit_concurrency=50) as (server, port):
        held = [await connect(port, HALF) for _ in range(60)]
        await until(lambda: len(server.server_state.connections) >= 60)
        assert await asked(port) == b"HTTP/1.1 503 Service Unavailable\r\n"
        for _, writer in held:
            writer.close()


async def test_a_head_has_few_seconds_however_it_drips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_server, "HEAD_SECONDS", 0.3)
    async with serving() as (_, port):
        for said in (b"", b"\r\n", HALF, WHOLE + HALF):
            async with dripping(port, said) as reader:
                await ended(reader)


@asynccontextmanager
async def dripping(port: int, said: bytes) -> AsyncIterator[asyncio.StreamReader]:
    """Say something, and go on by a byte now and then."""

    async def drip() -> None:
        with suppress(ConnectionError):
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.05)  # the attack itself

    reader, writer = await connect(port, said)
    task = asyncio.create_task(drip())
    yield reader
    task.cancel()
    writer.close()


async def test_control_without_a_clock_a_head_may_drip_for_as_long_as_it_likes() -> None:
    async with serving(uvicorn.Config, timeout_keep_alive=0) as (_, port), dripping(port, HALF) as reader:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await reader.read(1)


@pytest.mark.parametrize(("path", "setting"), [(b"/body", "BODY_SECONDS"), (b"/", "HEAD_SECONDS")])
async def test_a_body_that_drips_is_given_up(path: bytes, setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that nobody reads, because the answer was there before it: a request without a token."""
    monkeypatch.setattr(web_server, setting, 0.3)
    async with serving() as (_, port):
        head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" % path
        async with dripping(port, head) as reader:
            await ended(reader)


async def test_a_reader_that_stops_is_given_up_and_one_that_goes_on_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_server, "READER_SECONDS", 0.3)
    monkeypatch.setattr(web_server, "HEAD_SECONDS", 0.3)
    async with serving() as (server, port):
        large = WHOLE.replace(b"/mcp", b"/large")
        reader, writer = await connect(port, large)
        await until(lambda: not server.server_state.connections)  # without a byte read by us
        writer.close()
        reader, writer = await connect(port, large)
        count = 0
        async with within(BOUND):
            while count < LARGE:
                piece = await reader.read(1 << 20)
                assert piece, f"cut after {count} bytes"
                count += len(piece)
                await asyncio.sleep(0.02)  # slower than it could
        writer.close()


async def test_control_uvicorn_waits_for_a_reader_for_ever() -> None:
    async with serving(uvicorn.Config, timeout_keep_alive=0) as (server, port):
        _, writer = await connect(port, WHOLE.replace(b"/mcp", b"/large"))
        await until(lambda: server.server_state.total_requests == 1)
        with pytest.raises(TimeoutError):
            await until(lambda: not server.server_state.connections, 1.5)
        writer.transport.abort()


async def test_only_so_many_requests_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox_kernel.plugins.serve.web_server.MAX_REQUESTS", 1)
    release, statuses = asyncio.Event(), []

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await release.wait()
        await answer(scope, receive, send)

    async def send(message: Any) -> None:
        statuses.append(message.get("status"))

    gate = RequestFilter(slow, Names())
    scope = {"type": "http", "path": "/", "method": "GET", "headers": [(b"host", b"localhost")]}
    first = asyncio.create_task(gate(scope, None, send))  # type: ignore[arg-type]
    await asyncio.sleep(0)  # it has begun
    await gate(scope, None, send)  # type: ignore[arg-type]
    assert statuses[0] == 503
    release.set()
    await first
    assert statuses[2] == 200


def test_a_machine_s_ipv6_addresses_count_as_one_peer() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:2") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:192.0.2.7") == network_of("192.0.2.7") != network_of("192.0.2.8")
    assert network_of("fe80::1%eth0") == network_of("fe80::2")
    assert network_of("") == network_of("nonsense")


async def test_the_real_server_serves_honest_clients_under_a_flood_of_half_sent_heads() -> None:
    """560 at once locked everybody out for a minute; here they come again and again."""
    server = await asyncio.to_thread(McpServer, *SMALL)
    port = int(server.url.rpartition(":")[2].partition("/")[0])
    stop = threading.Event()
    flood = asyncio.create_task(_flood(port, stop))
    try:
        answered = await post(server.url, INITIALIZE, Authorization=f"Bearer {server.token}")
        assert answered.status_code == 200
        async with server.client() as client:
            assert text_of(await run(client, "6 * 7")).startswith("42")
            assert len(await asyncio.to_thread(containers_of, server.pid)) == 1
    finally:
        stop.set()
        await flood
        await asyncio.to_thread(server.close)
    assert "Traceback" not in "".join(server.log)


async def _flood(port: int, stop: threading.Event) -> None:
    held: list[Streams] = []
    try:
        while not stop.is_set():
            held.append(await connect(port, HALF))
            if len(held) > 560:
                held.pop(0)[1].close()
    finally:
        for _, writer in held:
            writer.close()
