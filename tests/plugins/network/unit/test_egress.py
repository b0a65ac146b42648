"""The way out from end to end, on loopback: what is allowed works with real clients, and what is refused says why."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import httpx
import pytest
import requests

from sandbox_kernel.plugins.api import Cell
from sandbox_kernel.plugins.network.traffic_limits import EgressLimits
from tests.support.authority import Authority
from tests.support.gateway import (
    API,
    CELL,
    LIMITS,
    Origin,
    Way,
    connect,
    get,
    listener_of_proxy,
    proxy,
    say,
)
from tests.support.loopback import opened
from tests.support.patience import until
from tests.support.tls_words import client_hello, record, server_name

# --- real clients --------------------------------------------------------------------------------------------------


def by_requests(proxy: str, url: str, bundle: str) -> str:
    with requests.Session() as session:
        session.trust_env = False
        return session.get(url, proxies={"http": proxy, "https": proxy}, verify=bundle, timeout=20).text


def by_httpx(proxy: str, url: str, bundle: str) -> str:
    with httpx.Client(proxy=proxy, verify=ssl.create_default_context(cafile=bundle), trust_env=False) as client:
        return client.get(url, timeout=20).text


def by_urllib(proxy: str, url: str, bundle: str) -> str:
    handlers = (
        urllib.request.ProxyHandler({"http": proxy, "https": proxy}),
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=bundle)),
    )
    with urllib.request.build_opener(*handlers).open(url, timeout=20) as answer:
        return answer.read().decode()


@pytest.mark.parametrize("client", [by_requests, by_httpx, by_urllib])
async def test_clients_reach_what_is_allowed_plain_and_over_tls(
    client: Callable[[str, str, str], str], authority: Authority
) -> None:
    async with Origin() as plain, Origin(tls=authority.server(API)) as tls, Way(plain.port, tls.port).open() as way:
        for scheme, origin in (("http", plain), ("https", tls)):
            url = f"{scheme}://{API}:{origin.port}/a?b=1"
            text = await asyncio.to_thread(client, f"http://127.0.0.1:{way.port}", url, str(authority.bundle))
            assert text == "GET /a?b=1 0"
        assert way.heard.told == []
    assert set(way.heard.codes) == {"connected"}


async def test_bodies_go_out_whole_with_a_length_and_in_chunks() -> None:
    async with Origin() as origin, Way(origin.port).open() as way:

        def post() -> list[str]:
            with requests.Session() as session:
                session.trust_env = False
                session.proxies = {"http": f"http://127.0.0.1:{way.port}"}
                url = f"http://{API}:{origin.port}/"
                whole = session.post(url, data=b"x" * 300_000, timeout=20)
                chunks = session.post(url, data=(b"y" * 10_000 for _ in range(30)), timeout=20)
                return [whole.text, chunks.text]

        assert await asyncio.to_thread(post) == ["POST / 300000", "POST / 300000"]
        assert origin.connections == 1


# --- what goes on to the host --------------------------------------------------------------------------------------


async def test_a_request_is_written_anew() -> None:
    async with Origin() as origin, Way(origin.port).open() as way:
        port = origin.port
        raw = (
            f"GET http://API.example.test.:{port}/x HTTP/1.1\r\nhost: API.Example.Test:{port}\r\n"
            "Proxy-Connection: x\r\nAccept:   a\r\nConnection: close, X-Own\r\nX-Own: 1\r\n\r\n"
        )
        assert b"GET /x 0" in await way.ask(raw.encode())
    assert origin.requests == [f"GET /x HTTP/1.1\r\nHost: {API}:{port}\r\nAccept: a\r\n\r\n".encode()]


async def test_each_request_of_a_connection_is_decided_anew() -> None:
    async with Origin() as first, Origin() as second, Way(first.port, second.port).open() as way:
        denied = b"GET http://other.example.test/ HTTP/1.1\r\nHost: other.example.test\r\n\r\n"
        answers = await way.ask(
            get(first.port, "/1", last=False) + get(first.port, "/2", last=False) + get(second.port, "/3", last=False)
            + denied + get(first.port, "/never")
        )  # fmt: skip
        assert [word in answers for word in (b"GET /1", b"GET /2", b"GET /3", b"HTTP/1.1 403")] == [True] * 4
        assert b"/never" not in answers
        assert [len(first.requests), len(second.requests)] == [2, 1]
        assert (first.connections, second.connections) == (1, 1)
        assert way.heard.codes == ["connected"] * 3 + ["host-not-allowed"]


async def test_a_method_rule_holds_for_each_request() -> None:
    async with Origin() as origin:
        way = Way(rules=(f"GET {API}:{origin.port}", f"127.0.0.1:{origin.port}"))
        async with way.open():
            answers = await way.ask(get(origin.port, "/1", last=False) + get(origin.port, "/2", method="DELETE"))
            assert b"GET /1" in answers
            assert b"method-not-allowed" in answers
            assert b"method-not-allowed" in await way.ask(connect(origin.port))
    assert len(origin.requests) == 1


async def test_a_client_that_waits_is_told_to_go_on() -> None:
    async with Origin() as origin, Way(origin.port).open() as way:
        head = get(origin.port, method="POST").replace(
            b"\r\n\r\n", b"\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        )
        async with opened(way.port) as (reader, writer):
            writer.write(head)
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 \r\n\r\n"
            writer.write(b"abc")
            assert (await reader.read()).endswith(b"POST / 3")
        assert b"expect" not in origin.requests[0].lower()


async def test_http_1_0_gets_an_answer_that_ends_with_the_connection() -> None:
    async with scripted(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n") as (origin, way):
        answer = await way.ask(f"GET http://{API}:{origin.port}/ HTTP/1.0\r\n\r\n".encode())
        head, _, body = answer.partition(b"\r\n\r\n")
        assert body == b"abc"
        assert b"chunked" not in head
        assert b"Connection: close" in head


@contextlib.asynccontextmanager
async def scripted(*answers: bytes, limits: EgressLimits = LIMITS) -> AsyncIterator[tuple[Origin, Way]]:
    """Yield a host that says these words, each after a request head, and then ends the connection; and a way to it."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()

    async with Origin(handler) as origin, Way(origin.port, limits=limits).open() as way:
        yield origin, way


# --- what comes back -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 200 OK\nContent-Length: 3\n\nabc", b"abc"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 99\r\n\r\n3\r\nabc\r\n0\r\n\r\n", b"abc"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nTrailer: 1\r\n\r\n", b"abc"),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\n\r\nHTTP/1.1 200\r\nContent-Length: 3\r\n\r\nabc",
            b"abc",
        ),
        (b"HTTP/1.0 200 OK\r\n\r\nabc", b"abc"),
    ],
)
async def test_an_answer_is_read_and_written_anew(answer: bytes, body: bytes) -> None:
    async with scripted(answer) as (origin, way):
        raw = await way.ask(get(origin.port))
        head, _, rest = raw.partition(b"\r\n\r\n")
        if b"transfer-encoding: chunked" in head.lower():
            assert rest == b"3\r\n" + body + b"\r\n0\r\n\r\n"
        else:
            assert rest == body
            assert b"content-length: 3\r\n" in head.lower() + b"\r\n"
        assert head.startswith(b"HTTP/1.1 200 ")
        assert head.lower().count(b"content-length") + head.lower().count(b"transfer-encoding") == 1
        assert way.heard.codes == ["connected"]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\nabc",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20,
        b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 300 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
    ],
)
async def test_an_answer_that_is_not_http_is_not_passed_on(answer: bytes) -> None:
    async with scripted(answer) as (origin, way):
        raw = await way.ask(get(origin.port))
        assert raw.startswith(b"HTTP/1.1 502 ")
        assert b"answer-improper" in raw
        assert way.heard.codes == ["answer-improper"]


async def test_an_answer_that_is_cut_breaks_the_connection() -> None:
    async with scripted(b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\nabc") as (origin, way):
        assert (await way.ask(get(origin.port))).endswith(b"\r\n\r\nabc")
        assert way.heard.codes == ["answer-improper"]


async def test_what_a_host_says_unasked_is_not_the_answer_to_the_next_request() -> None:
    honest = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhonest"
    forged = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
    async with scripted(honest + forged, honest) as (origin, way):
        answers = await way.ask(get(origin.port, last=False) + get(origin.port))
        assert answers.count(b"honest") == 2
        assert b"forged" not in answers
        assert origin.connections == 2


async def test_a_kept_connection_that_the_host_closed_is_replaced() -> None:
    async with scripted(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as (origin, way):
        answers = await way.ask(get(origin.port, last=False) + get(origin.port))
        assert answers.count(b"\r\n\r\nok") == 2
        assert origin.connections == 2


async def test_a_host_that_says_nothing_is_named() -> None:
    async with scripted() as (origin, way):
        assert b"host-broke" in await way.ask(get(origin.port))
        assert origin.connections == 1


# --- what is refused -----------------------------------------------------------------------------------------------


async def test_a_denied_host_is_answered_told_and_noted_with_the_rule_to_add() -> None:
    async with Way().open() as way:
        plain = await way.ask(
            b"GET http://other.example.test/secret?key=1 HTTP/1.1\r\nHost: other.example.test\r\n\r\n"
        )
        tunnel = await way.ask(connect(443, "other.example.test"))
        for answer in (plain, tunnel):
            first, _, rest = answer.partition(b"\r\n")
            assert first.startswith(b"HTTP/1.1 403 Not allowed: other.example.test")
            assert b"the rule for it would be other.example.test" in first
            assert b"Sandbox-Kernel-Code: host-not-allowed" in rest
            assert b"the setting network" in rest
        assert len(way.heard.told) == 1  # once a host and cell
        assert "other.example.test" in way.heard.told[0]
        assert "the setting network" in way.heard.told[0]
        assert way.heard.codes == ["host-not-allowed"] * 2
        _, fields = way.heard.notes[0]
        assert (fields["host"], fields["port"], fields["method"]) == ("other.example.test", 80, "GET")
        assert "secret" not in str(way.heard.notes)
        assert way.egress.traffic.refused == {"host-not-allowed": 2}
        assert way.names.asked == []


async def test_the_next_cell_is_told_again() -> None:
    async with Way().open() as way:
        await way.ask(connect(443, "other.example.test"))
        way.egress.cell_ended(CELL)
        way.egress.cell_sent(CELL)
        await way.ask(connect(443, "other.example.test"))
        assert len(way.heard.told) == 2


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"GET / HTTP/1.1\r\nHost: api.example.test\r\n\r\n", 400, "target-improper"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "http-version"),
        (b"\x16\x03\x01\x02\x00\x01", 400, "not-http"),
        (b"CONNECT api.example.test HTTP/1.1\r\nHost: x\r\n\r\n", 403, "port-missing"),
        (b"CONNECT http://api.example.test:443/ HTTP/1.1\r\nHost: x\r\n\r\n", 403, None),
        (b"CONNECT user@api.example.test:443 HTTP/1.1\r\nHost: x\r\n\r\n", 403, "host-character"),
        (b"CONNECT :443 HTTP/1.1\r\nHost: x\r\n\r\n", 403, "host-empty"),
        (b"GET http:///x HTTP/1.1\r\nHost: x\r\n\r\n", 403, "host-empty"),
        (b"GET http://user:p@api.example.test/ HTTP/1.1\r\nHost: api.example.test\r\n\r\n", 403, None),
    ],
)
async def test_what_is_no_request_of_a_proxy_is_answered_with_its_code(
    raw: bytes, status: int, code: str | None
) -> None:
    async with Way(rules=(API,)).open() as way:
        answer = await way.ask(raw, finish=True)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        if code is not None:
            assert way.heard.codes == [code]
        assert way.names.asked == []


async def test_a_body_that_is_not_framed_as_said_ends_the_request() -> None:
    async with Origin() as origin, Way(origin.port).open() as way:
        head = get(origin.port, method="POST", last=False).replace(
            b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        answer = await way.ask(head + b"zz\r\nabc\r\n0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert way.heard.codes == ["body-improper"]


# --- limits --------------------------------------------------------------------------------------------------------


async def test_too_many_connections_are_answered_so() -> None:
    limits = replace(LIMITS, connections=2)
    async with Way(limits=limits).open() as way:
        async with opened(way.port), opened(way.port):
            await until(lambda: way.egress.traffic.connections == 2)
            answer = await way.ask(b"GET http://")
            assert answer.startswith(b"HTTP/1.1 429 ")
            assert b"too-many-connections" in answer
        await until(lambda: way.egress.open_connections == 0)
        assert b"host-not-allowed" in await way.ask(connect(443))


async def test_a_head_that_comes_too_slowly_is_not_waited_for() -> None:
    async with Way(limits=replace(LIMITS, head_seconds=0.1)).open() as way:
        answer = await way.ask(b"GET http://api.exam")
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert way.heard.codes == ["head-too-slow"]


async def test_a_connection_that_is_silent_ends() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    limits = replace(LIMITS, silent_seconds=0.2)
    async with Origin(silent) as origin, Way(origin.port, limits=limits).open() as way:
        assert await way.ask(get(origin.port)) == b""
        assert way.heard.codes == ["connection-silent"]
        assert len(way.heard.told) == 1


async def test_a_connection_that_nobody_waits_for_ends_without_a_word() -> None:
    limits = replace(LIMITS, silent_seconds=0.2)
    async with Origin() as origin, Way(origin.port, limits=limits).open() as way:
        assert (await way.ask(get(origin.port, last=False))).endswith(b"GET / 0")
        assert way.heard.told == []
        assert set(way.heard.codes) == {"connected"}


async def test_a_connection_that_lasts_too_long_ends() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    limits = replace(LIMITS, open_seconds=0.3)
    async with Origin(endless) as origin, Way(origin.port, limits=limits).open() as way:
        await way.ask(get(origin.port))
        assert way.heard.codes == ["connection-too-long"]


@pytest.mark.parametrize("setting", ["cell_bytes", "session_bytes"])
async def test_bytes_are_counted_both_ways(setting: str) -> None:
    limits = replace(LIMITS, **{setting: 50_000})
    body = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + bytes(100_000)
    async with scripted(body, limits=limits) as (origin, way):
        assert len(await way.ask(get(origin.port))) <= 50_000
        assert way.heard.codes == [setting.replace("_bytes", "-traffic")]
        assert way.egress.traffic.refused == {setting.replace("_bytes", "-traffic"): 1}
    async with Origin() as origin, Way(origin.port, limits=limits).open() as way:
        head = get(origin.port, method="POST").replace(b"\r\n\r\n", b"\r\nContent-Length: 100000\r\n\r\n")
        assert b"POST" not in await way.ask(head, bytes(100_000))
        assert way.heard.codes == [setting.replace("_bytes", "-traffic")]


async def test_another_cell_has_its_own_bytes() -> None:
    limits = replace(LIMITS, cell_bytes=50_000)
    async with Origin() as origin:
        way = Way(origin.port, limits=limits)
        post = get(origin.port, method="POST").replace(b"\r\n\r\n", b"\r\nContent-Length: 40000\r\n\r\n")
        async with way.open():
            assert b"POST / 40000" in await way.ask(post, bytes(40_000))
            assert b"POST" not in await way.ask(post, bytes(40_000))
        other = Cell("cell-2")
        async with proxy(way.egress, other) as port:
            assert b"POST / 40000" in await say(port, post, bytes(40_000))


async def test_traffic_is_counted() -> None:
    async with Origin() as origin, Way(origin.port).open() as way:
        sent = get(origin.port)
        got = await way.ask(sent)
        traffic = way.egress.traffic
        assert (traffic.connections, traffic.bytes_out, traffic.bytes_in) == (1, len(sent), len(got))
        _, fields = way.heard.notes[0]
        assert (fields["bytes_out"], fields["bytes_in"]) == (len(sent), len(got))
        assert (fields["address"], fields["status"]) == ("127.0.0.1", 200)
        assert fields["rule"] == f"{API}:{origin.port}"


async def test_nothing_listens_at_the_host() -> None:
    with listener_of_proxy() as closed:
        port = closed.getsockname()[1]
    async with Way(port).open() as way:
        assert b"dial-failed" in await way.ask(connect(port))
        assert b"dial-failed" in await way.ask(get(port))


# --- tunnels -------------------------------------------------------------------------------------------------------


async def test_a_tunnel_is_announced_only_when_the_host_was_reached() -> None:
    async with Origin() as origin, Way(origin.port).open() as way, opened(way.port) as (reader, writer):
        writer.write(connect(origin.port))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        await until(lambda: origin.connections == 1)


async def test_both_halves_of_a_tunnel_close_by_themselves() -> None:
    """What a client still has to read comes after it has finished sending."""
    hello = client_hello(server_name(API))
    alert = record(b"\x01\x00", kind=21)

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(len(hello)) == hello
        writer.write(alert)
        said = await reader.read()
        writer.write(b"%d bytes" % len(said))
        writer.write_eof()

    async with Origin(late) as origin, Way(origin.port).open() as way:
        answer = await way.ask(connect(origin.port), hello, b"x" * 100, finish=True)
        assert answer.endswith(b"\r\n\r\n" + alert + b"100 bytes")
        assert way.heard.codes == ["connected"]
        assert way.heard.notes[0][1]["rule"] == f"{API}:{origin.port}"
