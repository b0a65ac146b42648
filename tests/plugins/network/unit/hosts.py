"""Hosts that speak TLS on the loopback, under names that only these tests know, and connections to them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from sandbox_kernel.plugins.network.settings import SecretSource

HOST = "api.example.test"
KEY = "sk-live-8Jd02kQm3vXz71LpRt5W"

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(SecretSource):
    """A row of the setting, as the configuration makes it."""

    name: str = "API_KEY"
    kind: Literal["env", "file"] = "env"
    place: str = "GIVEN"
    hosts: tuple[str, ...] = (HOST,)


class Connection:
    """A `Duplex` over a TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.codes: list[str] = []

    async def receive(self) -> bytes:
        return await self._reader.read(1 << 16)

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def finish(self) -> None:
        self._writer.write_eof()

    def reset(self, code: str) -> None:
        self.codes.append(code)
        self._writer.transport.abort()


class World:
    """An authority that the host trusts by a file, and certificates of hosts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "the world of these tests")])
        self._made = 0
        authority = self._signed(self._name, self._key, x509.BasicConstraints(ca=True, path_length=None))
        self.file = folder / "world.pem"
        self.file.write_bytes(authority)

    def _signed(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *extensions: x509.ExtensionType, days: int = 1
    ) -> bytes:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder(self._name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=3))
            .not_valid_after(now + timedelta(days=days))
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def context(self, host: str = HOST, *, days: int = 1, alpn: tuple[str, ...] = ("http/1.1",)) -> ssl.SSLContext:
        """Return what a server needs to be `host`."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        names = x509.SubjectAlternativeName([x509.DNSName(host)])
        certificate = self._signed(name, key, names, days=days)
        self._made += 1
        path = self._folder / f"{self._made}.pem"
        path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        context.set_alpn_protocols(list(alpn))
        return context


@asynccontextmanager
async def listening(handler: Handler, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve on the loopback; the value is the port."""
    tasks: set[asyncio.Task[object]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            tasks.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await handler(reader, writer)
        finally:
            await _closed(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    """Connect plainly to a server of these tests."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Connection(reader, writer)
    finally:
        await _closed(writer)


@asynccontextmanager
async def client(
    port: int, context: ssl.SSLContext, host: str = HOST
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect as a cell's client does, within TLS."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host)
    try:
        yield reader, writer
    finally:
        await _closed(writer)


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with suppress(OSError, asyncio.CancelledError):  # whoever waits meanwhile is ended as well
        await writer.wait_closed()


def trusting(certificates: str) -> ssl.SSLContext:
    """Return the context of a cell's client, as strict as a client can be."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=certificates)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context
