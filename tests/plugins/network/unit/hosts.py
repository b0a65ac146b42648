"""Hosts that speak TLS on the loopback, under names that only these tests know, and connections to them."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import Literal

from sandbox_kernel.plugins.network.settings import SecretSource

HOST = "api.example.test"
KEY = "sk-live-8Jd02kQm3vXz71LpRt5W"


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


def trusting(certificates: str) -> ssl.SSLContext:
    """Return the context of a cell's client, as strict as a client can be."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=certificates)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context
