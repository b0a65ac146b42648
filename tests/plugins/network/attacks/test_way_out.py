"""The ways around rules that have worked elsewhere: each is tried at the host's proxy, and each has a control.

The bytes are those that a hostile cell would send; the sandbox itself is left out. All hosts are on loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import httpx
import pytest

from sandbox_kernel.plugins.network import client_hello as hello_module
from sandbox_kernel.plugins.network import egress as tunnel
from sandbox_kernel.plugins.network.policy import NetworkPolicy
from tests.support.authority import Authority
from tests.support.gateway import API, LIMITS, Origin, Way, connect, get, say
from tests.support.loopback import opened
from tests.support.patience import until, within
from tests.support.tls_words import client_hello, extension, record, server_name

OTHER = "other.example.test"
RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")


class Listener(Origin):
    """A host that remembers every byte, and says the given pieces, one after each piece it gets."""

    def __init__(self, *says: bytes) -> None:
        super().__init__(self.listen)
        self.says = says
        self.got = b""

    async def listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pieces = iter(self.says)
        while data := await reader.read(1 << 16):
            self.got += data
            writer.write(next(pieces, b""))
            await writer.drain()


@contextlib.asynccontextmanager
async def two_sites(authority: Authority) -> AsyncIterator[Origin]:
    """Yield one machine with two sites, told apart by the name in TLS: one is allowed, one is not."""
    context = authority.server(API, OTHER)
    async with Origin(tls=context) as origin:
        yield origin


async def reach(way: Way, authority: Authority, port: int, name: str | None) -> bytes:
    """Open a tunnel to the allowed host, and say `name` in TLS; return what comes back."""
    async with opened(way.port) as (reader, writer):
        writer.write(connect(port))
        await reader.readuntil(b"\r\n\r\n")
        context = authority.client()
        context.check_hostname = name is not None
        try:
            await writer.start_tls(context, server_hostname=name or "")
            writer.write(f"GET /reached HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
            async with within(30):
                return await reader.readuntil(b"/reached")
        except (ssl.SSLError, asyncio.IncompleteReadError, ConnectionError) as error:
            return repr(error).encode()


# --- TLS to another server than the tunnel's ---


@pytest.mark.parametrize(
    ("name", "code"),
    [(OTHER, "server-name-other"), (None, "server-name-missing"), (f"sub.{API}", "server-name-other")],
)
async def test_tls_to_another_site_of_the_same_machine(authority: Authority, name: str | None, code: str) -> None:
    async with two_sites(authority) as origin, Way(origin.port).open() as way:
        assert b"/reached" in await reach(way, authority, origin.port, API)
        assert b"ACCESS_DENIED" in await reach(way, authority, origin.port, name)
        await until(lambda: sorted(way.heard.codes) == ["connected", code])
        assert len(origin.requests) == 1


async def test_control_without_the_check_the_other_site_answers(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NetworkPolicy, "check_server_name", lambda *_: None)
    async with two_sites(authority) as origin, Way(origin.port).open() as way:
        assert b"/reached" in await reach(way, authority, origin.port, OTHER)


HIDING = client_hello(server_name(API), extension(0xFE0D, bytes(40)))


async def test_a_name_that_is_encrypted_within_the_hello() -> None:
    async with Listener(b"\x15\x03\x03\x00\x02\x01\x00") as origin, Way(origin.port).open() as way:
        await way.ask(connect(origin.port), HIDING)
        assert way.heard.codes == ["server-name-hidden"]
        assert origin.got == b""


async def test_control_a_hello_that_hides_something_would_go_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hello_module, "_ENCRYPTED_HELLO", frozenset[int]())
    async with Listener(b"\x15\x03\x03\x00\x02\x01\x00") as origin, Way(origin.port).open() as way:
        await way.ask(connect(origin.port), HIDING, finish=True)
        assert origin.got == HIDING


def asking_again() -> bytes:
    """Return what a server says that wants another hello."""
    body = b"\x03\x03" + RETRY + b"\0" + b"\x13\x01" + b"\0"
    return record(b"\x02" + len(body).to_bytes(3, "big") + body)


FIRST, SECOND = client_hello(server_name(API)), client_hello(server_name(OTHER))


WARNING = record(b"\x01\x70", kind=21)
"""That a name is not known, which a server may say before it goes on."""


async def second_hello(way: Way, port: int, *, at_once: bool) -> None:
    """Say the right name first, and another one when the server asks again, or before it could."""
    async with opened(way.port) as (reader, writer):
        writer.write(connect(port))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(FIRST + (record(b"\x01", kind=20) + SECOND if at_once else b""))
        await reader.readexactly(len(asking_again()))
        if not at_once:
            writer.write(SECOND)
        writer.write_eof()
        with contextlib.suppress(OSError):
            async with within(30):
                await reader.read()


@pytest.mark.parametrize("before", [b"", WARNING])
@pytest.mark.parametrize("at_once", [False, True])
async def test_another_name_in_the_second_hello(at_once: bool, before: bytes) -> None:
    async with Listener(before + asking_again()) as origin, Way(origin.port).open() as way:
        await second_hello(way, origin.port, at_once=at_once)
        assert origin.got == FIRST
        assert way.heard.codes == ["server-name-other"]


@pytest.mark.parametrize("at_once", [False, True])
async def test_control_a_second_hello_that_nobody_reads_goes_out(
    at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel, "asks_again", lambda begun: False if begun else None)
    async with Listener(asking_again()) as origin, Way(origin.port).open() as way:
        await second_hello(way, origin.port, at_once=at_once)
        assert origin.got.endswith(SECOND)


async def test_an_honest_client_may_be_asked_again(authority: Authority) -> None:
    """A server that takes another curve than the one that the client begins with: both mean the same host."""
    context = authority.server(API)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_ecdh_curve("secp384r1")
    async with Origin(tls=context) as origin, Way(origin.port).open() as way:
        assert b"/reached" in await reach(way, authority, origin.port, API)
        await until(lambda: way.heard.codes == ["connected"])


# --- a tunnel for what is no TLS ---

PLAIN = {
    "HTTP to another host": f"GET / HTTP/1.1\r\nHost: {OTHER}\r\n\r\n".encode(),
    "a tunnel within": connect(443, OTHER),
    "HTTP/2 without TLS": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a shell": b"SSH-2.0-OpenSSH_9\r\n",
    "an old TLS": b"\x80\x2e\x01\x03\x01\x00\x15",
}


@pytest.mark.parametrize("name", PLAIN)
async def test_a_tunnel_for_what_is_no_tls(name: str) -> None:
    async with Listener(b"served") as origin, Way(origin.port).open() as way:
        answer = await way.ask(connect(origin.port), PLAIN[name])
        assert b"not-tls" in answer
        assert origin.got == b""


@pytest.mark.parametrize("name", PLAIN)
async def test_control_the_same_words_reach_a_host_that_is_near(name: str) -> None:
    async with Listener(b"served") as origin:
        assert await say(origin.port, PLAIN[name], finish=True) == b"served"
        assert origin.got == PLAIN[name]


# --- another host than the one that was decided ---


def host_header(port: int, header: bytes) -> bytes:
    return b"GET http://%s:%d/ HTTP/1.1\r\n%s\r\n\r\n" % (API.encode(), port, header)


@pytest.mark.parametrize(
    "header",
    [
        b"Host: other.example.test",
        b"Host: api.example.test:1",
        b"Host: api.example.test@other.example.test",
        b"Host: other.example.test, api.example.test",
        b"Host:",
        b"Host: \xe1pi.example.test",
    ],
)
async def test_a_host_header_of_another(header: bytes) -> None:
    async with Origin() as origin, Way(origin.port).open() as way:
        assert (await way.ask(host_header(origin.port, header))).startswith(b"HTTP/1.1 403 ")
        assert way.heard.codes == ["host-header-other"]
        assert origin.requests == []


async def test_control_the_header_is_what_a_host_goes_by() -> None:
    async with Listener(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as origin:
        await say(origin.port, host_header(origin.port, b"Host: " + OTHER.encode()), finish=True)
        assert OTHER.encode() in origin.got


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: other.example.test\r\n\r\n"


def post(port: int, *headers: bytes, body: bytes = b"") -> bytes:
    lines = b"".join(b"%s\r\n" % header for header in headers)
    authority = b"%s:%d" % (API.encode(), port)
    return b"POST http://%s/ HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (authority, authority, lines) + body


SMUGGLES: dict[str, Callable[[int], bytes]] = {
    "length and chunks": lambda port: post(
        port, b"Content-Length: 4", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n" + SMUGGLED
    ),
    "two lengths": lambda port: post(port, b"Content-Length: 0", b"Content-Length: 54", body=SMUGGLED),
    "a length with a space": lambda port: post(port, b"Content-Length : 54", body=SMUGGLED),
    "chunks with a space": lambda port: post(port, b"Transfer-Encoding : chunked", body=b"0\r\n\r\n" + SMUGGLED),
    "a folded length": lambda port: post(port, b"X: y\r\n Content-Length: 54", body=SMUGGLED),
    "a bare line feed": lambda port: post(port, b"X: y\n\n" + SMUGGLED[:-2]),
    "a bare carriage return": lambda port: post(port, b"X: y\rContent-Length: 54", body=SMUGGLED),
    "a NUL": lambda port: post(port, b"X: y\0\r\n\r\n" + SMUGGLED[:-2]),
    "a line break in the path": lambda port: b"GET http://%s:%d/ HTTP/1.1\r\n\r\n" % (API.encode(), port) + SMUGGLED,
    "a chunk of no size": lambda port: post(port, b"Transfer-Encoding: chunked", body=b"\r\n0\r\n\r\n" + SMUGGLED),
    "a chunk with a sign": lambda port: post(port, b"Transfer-Encoding: chunked", body=b"-0\r\n\r\n" + SMUGGLED),
    "a body of a tunnel": lambda port: connect(port)[:-2] + b"Content-Length: 54\r\n\r\n" + SMUGGLED,
}


@pytest.mark.parametrize("name", SMUGGLES)
async def test_a_second_request_in_the_first(name: str) -> None:
    async with Listener(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as origin, Way(origin.port).open() as way:
        answer = await way.ask(SMUGGLES[name](origin.port), finish=True)
        assert answer.startswith(b"HTTP/1.1 4")
        assert b"smuggled" not in origin.got
        assert "connected" not in way.heard.codes


async def test_control_the_second_request_is_one_where_bytes_are_passed_on() -> None:
    """What the attacks hope for: a host that goes by the length, behind a proxy that goes by the chunks."""
    async with Origin() as origin:
        raw = post(origin.port, b"Content-Length: 5", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n" + SMUGGLED)
        await say(origin.port, raw, finish=True)
        assert [one.split()[1] for one in origin.requests][-1:] == [b"/smuggled"]


async def test_requests_in_a_row_are_decided_one_by_one() -> None:
    async with Origin() as origin, Way(origin.port).open() as way:
        answers = await way.ask(get(origin.port, "/honest", last=False) + SMUGGLED)
        assert b"/honest" in answers
        assert b"target-improper" in answers
        assert [one.split()[1] for one in origin.requests] == [b"/honest"]


async def test_what_looks_like_a_request_in_a_body_stays_a_body() -> None:
    async with Origin() as origin, Way(origin.port).open() as way:
        raw = post(origin.port, b"Connection: close", b"Transfer-Encoding: chunked")
        raw += b"%x;ext=1\r\n%s\r\n0\r\nTrailer: 1\r\n\r\n" % (len(SMUGGLED), SMUGGLED)
        assert b"POST / %d" % len(SMUGGLED) in await way.ask(raw)
        assert len(origin.requests) == 1


# --- where names lead ---

SPELLINGS = [
    "localhost", "localhost.", "LOCALHOST", "a.localhost", "127.1", "127.0.1", "0x7f.1", "0x7f000001", "2130706433",
    "017700000001", "0177.0.0.1", "127.0.0.01", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]",
    "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1%25lo]", "[::]", "0.0.0.0", "0", "127.0.0.1.", "127.0.0.2",  # noqa: S104
    "169.254.169.254", "100.100.100.200", "metadata.google.internal", "10.0.0.1", "172.17.0.1", "192.168.0.1",
    "100.64.0.1", "224.0.0.1", "api.example.test%00.other.example.test", "api.example.test@other.example.test",
    "api.example.test#.other.example.test", "api.example.test\\.other.example.test", "\u2460\u2461\u2466.0.0.1",
]  # fmt: skip


@pytest.mark.parametrize("host", SPELLINGS)
async def test_the_host_itself_in_every_spelling(host: str) -> None:
    """Rules for everything that a name can be: `*.test` and so on allow no address, and none of these is a name."""
    way = Way(rules=("*.example.test", "*.internal.example.test"))
    async with Listener(b"served") as origin, way.open():
        tunnel_to = f"CONNECT {host}:{origin.port} HTTP/1.1\r\nHost: {host}:{origin.port}\r\n\r\n"
        plain = f"GET http://{host}:{origin.port}/ HTTP/1.1\r\nHost: {host}:{origin.port}\r\n\r\n"
        for raw in (tunnel_to, plain):
            assert (await way.ask(raw.encode(), finish=True)).startswith(b"HTTP/1.1 4")
        assert origin.connections == 0
        assert way.names.asked == []
        assert "connected" not in way.heard.codes


async def test_control_the_very_address_is_reached_by_a_rule_for_it() -> None:
    async with Origin() as origin, Way(rules=(f"127.0.0.1:{origin.port}",)).open() as way:
        raw = f"GET http://127.0.0.1:{origin.port}/x HTTP/1.1\r\nHost: 127.0.0.1:{origin.port}\r\n"
        assert b"GET /x 0" in await way.ask(raw.encode() + b"Connection: close\r\n\r\n")


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.7", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fd00::1"])
async def test_an_allowed_name_that_leads_inside(address: str) -> None:
    async with Listener() as origin:
        way = Way(rules=(f"{API}:{origin.port}",))
        way.names.answers = {API: [[address]]}
        async with way.open():
            for raw in (get(origin.port), connect(origin.port)):
                assert (await way.ask(raw)).startswith(b"HTTP/1.1 403 ")
            assert origin.connections == 0


async def test_a_name_that_leads_elsewhere_the_second_time() -> None:
    """Looked up once and dialled as checked; and where it is looked up again, it is checked again."""
    async with Origin() as origin:
        way = Way(rules=(f"{API}:{origin.port}", f"127.0.0.1:{origin.port}"))
        way.names.answers = {API: [["127.0.0.1"], ["127.0.0.2"]]}
        async with way.open():
            answers = await way.ask(get(origin.port, "/1", last=False) + get(origin.port, "/2"))
            assert answers.count(b"HTTP/1.1 200 ") == 2
            assert way.names.asked == [API]
            assert (await way.ask(get(origin.port))).startswith(b"HTTP/1.1 403 ")
            assert way.heard.codes[-1] == "address-not-public"


async def test_control_the_second_answer_would_be_reached_by_its_rule() -> None:
    async with Origin() as origin:
        way = Way(rules=(f"{API}:{origin.port}", f"127.0.0.1:{origin.port}", f"127.0.0.2:{origin.port}"))
        way.names.answers = {API: [["127.0.0.2", "127.0.0.1"]]}
        async with way.open():
            assert b"GET / 0" in await way.ask(get(origin.port))


async def test_a_redirect_to_a_denied_host_is_a_request_like_any_other() -> None:
    async with (
        Listener(b"HTTP/1.1 302 F\r\nLocation: http://other.example.test/\r\nContent-Length: 0\r\n\r\n") as origin,
        Way(origin.port).open() as way,
    ):

        def follow() -> httpx.Response:
            with httpx.Client(proxy=f"http://127.0.0.1:{way.port}", trust_env=False, follow_redirects=True) as client:
                return client.get(f"http://{API}:{origin.port}/")

        answer = await asyncio.to_thread(follow)
        assert (answer.status_code, answer.headers["sandbox-kernel-code"]) == (403, "host-not-allowed")
        assert len(answer.history) == 1


# --- floods ---


async def test_connections_that_say_nothing_keep_nobody_out_for_long() -> None:
    limits = replace(LIMITS, connections=20, silent_seconds=1.0)
    async with contextlib.AsyncExitStack() as held:
        origin = await held.enter_async_context(Origin())
        way = await held.enter_async_context(Way(origin.port, limits=limits).open())
        began = time.monotonic()
        for _ in range(200):
            await held.enter_async_context(opened(way.port))
        await until(lambda: way.egress.traffic.connections == 200)
        turns = 1 + int((time.monotonic() - began) / limits.silent_seconds)  # a busy machine takes long to open so many
        assert way.egress.open_connections <= 20
        assert way.egress.traffic.refused.keys() == {"too-many-connections"}
        assert 200 - 20 * turns <= way.egress.traffic.refused["too-many-connections"] <= 180
        assert len(way.heard.told) == 1
        await until(lambda: way.egress.open_connections == 0)
        assert b"GET / 0" in await way.ask(get(origin.port))


async def test_a_client_that_reads_nothing_holds_little() -> None:
    """The host's socket is read no faster than the cell takes it."""
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(bytes(1 << 16))
            await writer.drain()
            sent += 1 << 16

    limits = replace(LIMITS, silent_seconds=1.0)
    async with Origin(flood) as origin, Way(origin.port, limits=limits).open() as way:
        async with opened(way.port, limit=1 << 10) as (_, writer):
            writer.write(get(origin.port))
            await until(lambda: way.heard.codes != [])
        assert way.heard.codes == ["connection-silent"]
        assert sent < 64 << 20
