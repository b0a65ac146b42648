"""Attempts to get a value into a cell or to the wrong host: a real proxy, real TLS both ways, hosts that help the cell.

The host of a secret knows the value, for it was sent there. So each test sees that it had it, which is the control:
what did not reach the cell was there to be had.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import html
import json
import random
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import requests

from sandbox_kernel.plugins.network.egress import Egress
from sandbox_kernel.plugins.network.policy import NetworkPolicy
from sandbox_kernel.plugins.network.secrets import Secrets
from sandbox_kernel.plugins.network.traffic_limits import EgressLimits
from tests.support.authority import Authority
from tests.support.codings import CODINGS, is_read, written
from tests.support.gateway import CELL, Heard, Names, Origin, body_of, proxy
from tests.support.loopback import opened
from tests.support.patience import until, within
from tests.support.spellings import SPELLINGS

from .hosts import HOST, KEY, Source

OTHER = "other.example.test"
VALUE = KEY.encode()
LIMITS = EgressLimits(silent_seconds=20, head_seconds=5, lookup_seconds=5)

Answer = Callable[[bytes], bytes]


class Host(Origin):
    """A host that answers as a test says, and remembers every request."""

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(self._answer, tls=tls)
        self._say = answer

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(head + await body_of(head, reader))
            for piece in self._say(head).split(b"<cut>"):
                writer.write(piece)
                await writer.drain()

    @property
    def had_the_value(self) -> bool:
        return any(VALUE in request for request in self.requests)


def answer(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join([*lines, b"", body])


class Way:
    """A sandbox's way out to the host of a secret and to another one, without a sandbox."""

    def __init__(self, certificates: Path, secret: Host, *others: Origin, value: str = KEY) -> None:
        self.host_port = secret.port
        ports = {HOST: secret.port} | dict(zip([OTHER], [one.port for one in others], strict=False))
        rules = [f"{name}:{port}" for name, port in ports.items()] + [f"127.0.0.1:{port}" for port in ports.values()]
        self.heard = Heard()
        self.secrets = Secrets.load(
            [Source(hosts=(f"{HOST}:{secret.port}",))], environment={"GIVEN": value}, certificates=str(certificates)
        )
        self.own = self.secrets.environment()["API_KEY"]
        self._certificates = certificates
        self._egress = Egress(NetworkPolicy(rules), self.heard, limits=LIMITS, resolver=Names(), insight=self.secrets)
        self._egress.cell_sent(CELL)
        self.port = 0

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Way]:
        async with proxy(self._egress) as self.port:
            yield self

    def url(self, path: str = "/") -> str:
        return f"https://{HOST}:{self.host_port}{path}"

    async def ask(
        self, method: str = "GET", url: str | None = None, session: requests.Session | None = None, **options: object
    ) -> requests.Response:
        """Ask as code in a cell does: through the proxy, trusting the certificates that the sandbox has."""
        bundle = self._certificates.with_name("bundle.pem")
        bundle.write_text(self._certificates.read_text() + self.secrets.certificates)

        def asking() -> requests.Response:
            with contextlib.ExitStack() as own:
                asks = session or own.enter_context(requests.Session())
                asks.trust_env = False
                asks.proxies = dict.fromkeys(("http", "https"), f"http://127.0.0.1:{self.port}")
                asks.verify = str(bundle)
                headers = {"Authorization": f"Bearer {self.own}", **options.pop("headers", {})}  # type: ignore[dict-item]
                return asks.request(method, url or self.url(), headers=headers, timeout=20, **options)  # type: ignore[arg-type]

        return await asyncio.to_thread(asking)

    async def say(self, *pieces: bytes) -> bytes:
        """Say bytes within TLS, and return what comes until the end."""
        context = ssl.create_default_context(cadata=self.secrets.certificates)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            place = f"{HOST}:{self.host_port}"
            writer.write(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            await writer.start_tls(context, server_hostname=HOST)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            async with within(30):
                return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    @property
    def said(self) -> str:
        """All that went to the audit and to the person."""
        return repr(self.heard.notes) + repr(self.heard.told)


@contextlib.asynccontextmanager
async def way_to(authority: Authority, say: Answer, *others: Origin) -> AsyncIterator[tuple[Way, Host]]:
    async with Host(say, authority.server(HOST)) as host, Way(authority.bundle, host, *others).open() as way:
        yield way, host
    assert KEY not in way.said


def seen(response: requests.Response) -> bytes:
    """Return all of an answer that code in a cell can look at."""
    heads = "\r\n".join(f"{name}: {value}" for name, value in response.headers.items())
    return f"{response.status_code} {response.reason}\r\n{heads}\r\n".encode("latin-1") + response.content


# --- what a host echoes --------------------------------------------------------------------------------------------


async def test_a_host_that_echoes_the_request_shows_a_placeholder(authority: Authority) -> None:
    async with way_to(authority, answer) as (way, host):
        response = await way.ask()
        assert host.had_the_value
        assert f"Authorization: Bearer {way.own}" in response.text
        assert VALUE not in seen(response)
        assert "connected" in way.heard.codes


@pytest.mark.slow
async def test_a_host_that_echoes_in_any_spelling_shows_nothing(authority: Authority) -> None:
    """Over one connection, as clients keep it."""
    written = {f"/{number}": one.write(VALUE) for number, one in enumerate(SPELLINGS.values())}

    def echo(head: bytes) -> bytes:
        return answer(b"<<" + written[head.split()[1].decode()] + b">>")

    with requests.Session() as session:
        async with way_to(authority, echo) as (way, host):
            for (path, text), name in zip(written.items(), SPELLINGS, strict=True):
                response = await way.ask(url=way.url(path), session=session)
                assert VALUE in host.requests[-1]
                assert len(response.content) == len(text) + 4, name
                assert text not in response.content, name
                assert SPELLINGS[name].read(text).lower() == VALUE.lower()


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
async def test_a_host_that_echoes_in_two_codings_shows_nothing(authority: Authority, packed: bool) -> None:
    """In the body of an error, also in gzip, in a header and in the reason; the cell says words beside the value."""
    pairs = random.sample([(one, two) for one in CODINGS for two in CODINGS], 50)
    texts = [written(names, VALUE, b"id=", b";%") for names in pairs]
    said = [text if text.isascii() and not set(text) & set(b"\r\n\0") else b"-" for text in texts]
    assert len(set(said)) > 25

    def echo(head: bytes) -> bytes:
        number = int(head.split()[1][1:])
        body, headers = texts[number], [b"X-Echo: " + said[number]]
        if packed:
            body, headers = gzip.compress(body), [*headers, b"Content-Encoding: gzip"]
        return answer(body, *headers, status=b"404 " + said[number])

    with requests.Session() as session:
        async with way_to(authority, echo) as (way, host):
            for number, (names, text) in enumerate(zip(pairs, texts, strict=True)):
                response = await way.ask(url=way.url(f"/{number}"), session=session)
                assert VALUE in host.requests[-1]
                assert is_read(names, text, VALUE, b"id=", b";%"), "the control: it could be read"
                assert (response.status_code, len(response.content)) == (404, len(text)), names
                for shown in (response.content, response.headers["X-Echo"].encode(), response.reason.encode()):
                    assert not is_read(names, shown, VALUE, b"id=", b";%"), names


async def test_a_page_that_repeats_a_wrong_address_shows_nothing(authority: Authority) -> None:
    """The cell put half an escape before the value, in an address and in a header: it reads as the start of another."""
    value = "ab3+cdEFghij/klMNopqr=="

    def repeats(head: bytes) -> bytes:
        shown = head.split(b"X-Said: ")[1].split(b"\r\n")[0].decode()
        page = html.escape(shown).replace("+", "&#43;").encode() + json.dumps(shown).replace("+", "\\u002B").encode()
        return answer(b"Cannot GET " + head.split()[1] + b" " + page, status=b"404 Not Found")

    async with Host(repeats, authority.server(HOST)) as host, Way(authority.bundle, host, value=value).open() as way:
        for half in ("%", "%4", "&#x", "\\u000"):
            path = f"/{half}{way.own}" if half[0] == "%" else "/"
            said = f"GET {path} HTTP/1.1\r\nHost: {HOST}:{way.host_port}\r\nX-Said: {half}{way.own}\r\n"
            came = await way.say(f"{said}Connection: close\r\n\r\n".encode())
            assert value.encode() in host.requests[-1]
            assert came.startswith(b"HTTP/1.1 404 ")
            assert b"cdEFghij" not in came


@pytest.mark.parametrize("method", ["HEAD", "GET"])
async def test_the_length_of_a_packed_answer_is_not_said(authority: Authority, method: str) -> None:
    """It says how much a cell's guess in the same answer is like the value: letter by letter."""

    def packs(head: bytes) -> bytes:
        body = gzip.compress(b"key=" + VALUE + b" " + head.split()[1])
        shown = answer(body, b"Content-Encoding: gzip")
        return shown.removesuffix(body) if head.startswith(b"HEAD") else shown

    async with way_to(authority, packs) as (way, host):
        response = await way.ask(method, way.url("/key=sk-live-8"))
        assert host.had_the_value
        assert response.status_code == 200
        assert "content-length" not in response.headers


async def test_control_the_length_of_an_answer_that_is_not_packed_is_said(authority: Authority) -> None:
    async with way_to(authority, lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 70\r\n\r\n") as (way, _):
        assert (await way.ask("HEAD")).headers["content-length"] == "70"


async def test_headers_of_an_answer_show_nothing(authority: Authority) -> None:
    """Names, values, the reason, cookies, and where a redirect leads."""
    headers = (b"X-Echo: " + VALUE, VALUE + b": 1", b"Set-Cookie: k=" + VALUE, b"Location: /?k=" + VALUE)
    async with way_to(authority, lambda _: answer(b"", *headers, status=b"200 " + VALUE)) as (way, host):
        response = await way.ask()
        assert host.had_the_value
        assert (response.reason, response.headers["X-Echo"]) == (way.own, way.own)
        assert VALUE.lower() not in seen(response).lower()


async def test_the_host_is_spoken_to_while_the_cell_still_begins(authority: Authority) -> None:
    """TLS with both takes as long as TLS with the slower one; and a cell that says no more has sent nothing."""
    came, goes = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(came, goes, server_hostname=HOST).do_handshake()
    async with way_to(authority, answer) as (way, host), opened(way.port) as (reader, writer):
        place = f"{HOST}:{way.host_port}"
        writer.write(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        assert host.connections == 0, "not before its name was seen to be right"
        writer.write(goes.read())
        await until(lambda: host.connections == 1)
        assert host.requests == []


async def test_an_interim_answer_and_trailers_are_not_passed_on(authority: Authority) -> None:
    chunks = b"5\r\nhello\r\n0\r\nX-Trailer: " + VALUE + b"\r\n\r\n"
    early = b"HTTP/1.1 103 Early Hints\r\nLink: <" + VALUE + b">\r\n\r\n"
    last = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Trailer\r\n\r\n"
    request = f"GET / HTTP/1.1\r\nHost: {HOST}:PORT\r\nX: OWN\r\nConnection: close\r\n\r\n"
    async with way_to(authority, lambda _: early + last + chunks) as (way, host):
        written = request.replace("PORT", str(way.host_port)).replace("OWN", way.own)
        came = await way.say(written.encode())
        assert host.had_the_value
        assert b"hello" in came
        assert b"X-Trailer: " not in came
        assert VALUE not in came


@pytest.mark.parametrize("cut", [1, 7, 14, 27])
async def test_a_value_in_two_pieces_of_the_network_is_found(authority: Authority, cut: int) -> None:
    body = b"." * 1000 + VALUE[:cut] + b"<cut>" + VALUE[cut:] + b"." * 1000
    length = len(body) - len(b"<cut>")
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length
    async with way_to(authority, lambda _: head + body) as (way, host):
        response = await way.ask()
        assert host.had_the_value
        assert response.content == body.replace(b"<cut>", b"").replace(VALUE, way.own.encode())


async def test_a_value_in_gzip_is_found(authority: Authority) -> None:
    body = gzip.compress((b"<" + VALUE + b"> and other words ") * 50)
    async with way_to(authority, lambda _: answer(body, b"Content-Encoding: gzip")) as (way, host):
        response = await way.ask()
        assert host.had_the_value
        assert response.text.count(way.own) == 50
        assert "content-encoding" not in response.headers
        assert b"accept-encoding: identity" in host.requests[0].lower()


async def test_an_answer_in_a_coding_that_cannot_be_read_is_refused(authority: Authority) -> None:
    async with way_to(authority, lambda _: answer(VALUE[::-1], b"Content-Encoding: br")) as (way, host):
        response = await way.ask()
        assert (response.status_code, host.had_the_value) == (403, True)
        assert "secret-coding-unknown" in response.text
        assert way.heard.codes[0] == "secret-coding-unknown"


@pytest.mark.slow
async def test_an_answer_that_unpacks_without_end_breaks_off(authority: Authority) -> None:
    bomb = gzip.compress(bytes(64 << 20))
    async with way_to(authority, lambda _: answer(bomb, b"Content-Encoding: gzip")) as (way, _):
        with pytest.raises(requests.RequestException):
            await way.ask()
        assert "secret-coding-expands" in way.heard.codes


async def test_a_part_of_an_answer_is_not_to_be_had(authority: Authority) -> None:
    """Two halves of a value in two answers would pass each; so the whole is asked for, and a part refused."""

    def parts(head: bytes) -> bytes:
        partial = b"206 Partial Content" if b"/insists" in head else b"200 OK"
        return answer(VALUE[:14], b"Content-Range: bytes 0-13/28", status=partial)

    async with way_to(authority, parts) as (way, host):
        await way.ask(headers={"Range": "bytes=0-13"})
        assert b"range:" not in host.requests[0].lower().replace(b"content-range:", b"")
        response = await way.ask(url=way.url("/insists"))
        assert (response.status_code, "secret-answer-in-parts" in response.text) == (403, True)


@pytest.mark.parametrize("method", ["TRACE", "TRACK"])
async def test_a_method_that_echoes_does_not_reach_the_host(authority: Authority, method: str) -> None:
    async with way_to(authority, answer) as (way, host):
        response = await way.ask(method)
        assert (response.status_code, host.requests) == (403, [])
        assert "secret-method" in response.text


async def test_another_protocol_cannot_be_switched_to(authority: Authority) -> None:
    """What would follow is looked through by nobody."""
    switching = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n" + VALUE
    async with way_to(authority, lambda _: switching) as (way, host):
        request = f"GET / HTTP/1.1\r\nHost: {HOST}:{way.host_port}\r\nX: {way.own}\r\n"
        came = await way.say(f"{request}Upgrade: echo\r\nConnection: Upgrade\r\n\r\n".encode())
        assert VALUE not in came
        assert b" 101 " not in came
        assert b"upgrade:" not in b"".join(host.requests).lower()


async def test_the_second_protocol_of_the_web_is_not_spoken(authority: Authority) -> None:
    async with way_to(authority, lambda _: answer(b"")) as (way, host):
        came = await way.say(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
        assert host.requests == []
        assert b" 505 " in came


# --- where a value goes --------------------------------------------------------------------------------------------


async def test_another_host_gets_a_placeholder(authority: Authority) -> None:
    """It is allowed, and the TLS to it is the cell's own."""
    other = Host(answer, authority.server(OTHER))
    async with other, way_to(authority, lambda _: answer(b""), other) as (way, _):
        response = await way.ask(url=f"https://{OTHER}:{other.port}/?k={way.own}")
        assert way.own in response.text
        assert not other.had_the_value


async def test_a_redirect_carries_nothing_to_another_host(authority: Authority) -> None:
    """The client follows by itself; what it knows is a placeholder, in the header and in the place it is sent to."""
    other = Host(answer, authority.server(OTHER))

    def redirects(_: bytes) -> bytes:
        place = f"Location: https://{OTHER}:{other.port}/?k={KEY}".encode()
        return answer(b"", place, status=b"307 Temporary Redirect")

    async with other, way_to(authority, redirects, other) as (way, host):
        response = await way.ask("POST", data=way.own)
        assert host.had_the_value
        assert response.url.endswith(f"?k={way.own}")
        assert len(other.requests) == 1
        assert not other.had_the_value


async def test_plain_http_to_the_host_carries_nothing(authority: Authority) -> None:
    async with way_to(authority, lambda _: answer(b"")) as (way, host):
        response = await way.ask(url=f"http://{HOST}:{way.host_port}/?k={way.own}")
        assert (response.status_code, host.connections, host.requests) == (403, 0, [])
        assert "secret-needs-tls" in response.text


async def test_a_body_carries_a_placeholder(authority: Authority) -> None:
    """A cell chooses what is done with a body, and so who reads it later."""
    async with way_to(authority, lambda _: answer(b"")) as (way, host):
        await way.ask("POST", data=json.dumps({"note": way.own}))
        head, _, body = host.requests[0].partition(b"\r\n\r\n")
        assert VALUE in head
        assert body == json.dumps({"note": way.own}).encode()


async def test_a_host_that_cannot_show_who_it_is_gets_nothing(authority: Authority) -> None:
    forged = Host(lambda _: answer(b""), authority.server(OTHER))
    async with forged, Way(authority.bundle, forged).open() as way:
        response = await way.ask()
        assert (response.status_code, forged.requests) == (403, [])
        assert "secret-host-tls" in response.text
        assert KEY not in way.said + response.text


async def test_a_request_within_tls_is_for_the_host_of_the_tunnel(authority: Authority) -> None:
    async with way_to(authority, lambda _: answer(b"")) as (way, host):
        came = await way.say(f"GET / HTTP/1.1\r\nHost: {OTHER}\r\nX: {way.own}\r\n\r\n".encode())
        assert (b" 403 " in came, host.requests) == (True, [])


@pytest.mark.parametrize("size", [1000, 60_000])
async def test_a_request_that_the_host_finds_too_long_says_nothing_of_it(authority: Authority, size: int) -> None:
    """A cell may repeat a placeholder as often as a head can hold it."""
    async with way_to(authority, lambda head: answer(head[:9000], status=b"431 Too Large")) as (way, host):
        response = await way.ask(headers={"X-Many": way.own * (size // len(way.own))})
        assert host.had_the_value
        assert response.status_code == 431
        assert VALUE not in seen(response)


async def test_a_cookie_that_holds_the_value_works_and_shows_nothing(authority: Authority) -> None:
    def remembers(head: bytes) -> bytes:
        return answer(b"yes" if b"Cookie: k=" + VALUE in head else b"no", b"Set-Cookie: k=" + VALUE)

    async with way_to(authority, remembers) as (way, _):
        first = await way.ask()
        assert first.cookies["k"] == way.own
        second = await way.ask(cookies={"k": first.cookies["k"]})
        assert (first.text, second.text) == ("no", "yes")
