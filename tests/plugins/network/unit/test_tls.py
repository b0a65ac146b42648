"""TLS ends on the host and begins again there: real servers and clients, on the loopback."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from sandbox_kernel.plugins.network import secrets as module
from sandbox_kernel.plugins.network.codes import SecretCode
from sandbox_kernel.plugins.network.interfaces import Duplex
from sandbox_kernel.plugins.network.policy import RefusedConnection
from sandbox_kernel.plugins.network.secrets import Secrets
from tests.support.authority import Authority
from tests.support.loopback import listening, opened
from tests.support.patience import within

from .hosts import HOST, KEY, Connection, Source, trusting


@pytest.fixture
def world(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def secrets(world: Authority) -> Secrets:
    return Secrets.load([Source()], environment={"GIVEN": KEY}, certificates=str(world.bundle))


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()
    await writer.wait_closed()


async def copied(source: Duplex, sink: Duplex) -> None:
    while data := await source.receive():
        await sink.send(data)
    await sink.finish()


@asynccontextmanager
async def gateway(secrets: Secrets, host_port: int, ends: asyncio.Queue[BaseException]) -> AsyncIterator[int]:
    """Serve cells: each connection is TLS of ours, and goes on to the host in TLS of its own."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            cell = await secrets.towards_cell(Connection(reader, writer), HOST, 443)
            async with opened(host_port) as both:
                host = await secrets.towards_host(Connection(*both), HOST, 443)
                await asyncio.gather(copied(cell, host), copied(host, cell))
        except Exception as error:
            ends.put_nowait(error)
            raise OSError from error

    async with listening(serve) as port:
        yield port


async def test_bytes_pass_both_ways_and_each_side_sees_a_certificate_that_it_trusts(
    world: Authority, secrets: Secrets
) -> None:
    data = os.urandom(3_000_000)
    async with (
        listening(echo, world.server(HOST)) as host,
        gateway(secrets, host, asyncio.Queue()) as port,
        opened(port, context=trusting(secrets.certificates), host=HOST) as (reader, writer),
    ):
        connection = writer.get_extra_info("ssl_object")
        assert connection.selected_alpn_protocol() == "http/1.1"
        assert connection.version() == "TLSv1.3"
        writing = asyncio.create_task(sent(writer, data))
        assert await reader.readexactly(len(data)) == data
        await writing


async def sent(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


async def test_a_client_that_does_not_trust_the_authority_is_told_what_to_trust(
    world: Authority, secrets: Secrets
) -> None:
    ends: asyncio.Queue[BaseException] = asyncio.Queue()
    other = Secrets.load([Source()], environment={"GIVEN": KEY})
    async with listening(echo, world.server(HOST)) as host, gateway(secrets, host, ends) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            async with opened(port, context=trusting(other.certificates), host=HOST):
                pass
        async with within(30):
            end = await ends.get()
    assert isinstance(end, RefusedConnection)
    assert end.code is SecretCode.SECRET_CELL_TLS
    assert "SSL_CERT_FILE" in end.code.remedy


async def test_a_tunnel_is_for_one_host(world: Authority, secrets: Secrets) -> None:
    """The server name was checked before; it is checked again where the certificate is chosen."""
    ends: asyncio.Queue[BaseException] = asyncio.Queue()
    async with listening(echo, world.server(HOST)) as host, gateway(secrets, host, ends) as port:
        with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
            async with opened(port, context=trusting(secrets.certificates), host="other.example.test"):
                pass


@pytest.mark.parametrize("old", [ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_old_versions_are_not_spoken(world: Authority, secrets: Secrets, old: ssl.TLSVersion) -> None:
    context = trusting(secrets.certificates)
    context.minimum_version = context.maximum_version = old
    context.set_ciphers("ALL:@SECLEVEL=0")
    async with listening(echo, world.server(HOST)) as host, gateway(secrets, host, asyncio.Queue()) as port:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            async with opened(port, context=context, host=HOST):
                pass


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("another name", "Hostname mismatch"),
        ("expired", "certificate has expired"),
        ("another authority", "unable to get local issuer certificate"),
        ("no TLS", "wrong version number|record layer failure|packet length too long"),
    ],
)
async def test_a_host_that_cannot_show_who_it_is_gets_nothing(
    world: Authority, secrets: Secrets, fault: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    contexts = {
        "another name": world.server("other.example.test"),
        "expired": world.server(HOST, days=-1),
        "another authority": Authority(tmp_path / "other").server(HOST),
        "no TLS": None,
    }

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        await reader.read()

    server = listening(echo if contexts[fault] else plain, contexts[fault])
    async with server as port, opened(port) as both:
        with pytest.raises(RefusedConnection) as raised:
            await secrets.towards_host(Connection(*both), HOST, 443)
    assert raised.value.code is SecretCode.SECRET_HOST_TLS
    assert raised.match(why)
    assert KEY not in str(raised.value)


async def test_control_the_same_host_with_its_certificate_is_talked_to(world: Authority, secrets: Secrets) -> None:
    async with listening(echo, world.server(HOST)) as port, opened(port) as both:
        host = await secrets.towards_host(Connection(*both), HOST, 443)
        await host.send(b"hello")
        assert await host.receive() == b"hello"
        await host.finish()
        assert await host.receive() == b""


class Script:
    """A `Duplex` to a server of the library's own, whose words come when, and as broken as, the test says."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.into, self.out_of = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = context.wrap_bio(self.into, self.out_of, server_side=True)
        self.said: list[bytes] = []

    async def receive(self) -> bytes:
        if self.said:
            return self.said.pop(0)
        with suppress(ssl.SSLWantReadError):
            self.server.do_handshake()
        return self.out_of.read()

    async def send(self, data: bytes) -> None:
        self.into.write(data)

    async def finish(self) -> None: ...

    def reset(self, code: str) -> None: ...

    def record(self, data: bytes) -> bytes:
        with suppress(ssl.SSLWantReadError):
            self.server.do_handshake()
        self.server.write(data)
        return self.out_of.read()


async def test_records_that_come_together_are_received_together_and_what_is_wrong_behind_them_is_heard_of(
    world: Authority, secrets: Secrets
) -> None:
    script = Script(world.server(HOST))
    host = await secrets.towards_host(script, HOST, 443)
    records = [script.record(bytes((65 + number,)) * 1000) for number in range(3)]
    script.said = [b"".join(records[:2]) + records[2][:500], records[2][500:]]
    assert await host.receive() == b"A" * 1000 + b"B" * 1000
    assert await host.receive() == b"C" * 1000
    good, bad = script.record(b"good"), bytearray(script.record(b"bad"))
    bad[-1] ^= 1
    script.said = [good + bad, b""]
    assert await host.receive() == b"good"
    for _ in range(2):
        with pytest.raises(ssl.SSLError, match=r"(?i)bad record mac"):
            await host.receive()


async def test_an_answer_that_is_cut_is_no_end(world: Authority, secrets: Secrets) -> None:
    """Whoever sits between could end it: TLS has a farewell of its own."""

    async def cuts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"half")
        await writer.drain()
        await reader.read(1)
        writer.transport.abort()

    async with listening(cuts, world.server(HOST)) as port, opened(port) as both:
        host = await secrets.towards_host(Connection(*both), HOST, 443)
        assert await host.receive() == b"half"
        await host.send(b"x")
        with pytest.raises((ssl.SSLEOFError, ConnectionError)):
            await host.receive()


@pytest.mark.parametrize("side", ["cell", "host"])
async def test_a_handshake_takes_bounded_time(secrets: Secrets, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.05)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(silent) as port, opened(port) as both:
        with pytest.raises(RefusedConnection) as raised:
            await (secrets.towards_cell if side == "cell" else secrets.towards_host)(Connection(*both), HOST, 443)
    assert raised.value.code is SecretCode.SECRET_TLS_SLOW


async def test_no_keys_are_written_where_a_variable_says(
    world: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "keys"
    monkeypatch.setenv("SSLKEYLOGFILE", str(log))
    assert ssl.create_default_context().keylog_filename == str(log)  # the control: what the library does
    log.unlink()
    secrets = Secrets.load([Source()], environment={"GIVEN": KEY}, certificates=str(world.bundle))
    async with listening(echo, world.server(HOST)) as port, opened(port) as both:
        host = await secrets.towards_host(Connection(*both), HOST, 443)
        host.reset("done")
    assert not log.exists()
