"""TLS over any connection: towards a cell, in the name of a host; towards the host, whose certificate is verified.

The library's own state machine, fed from memory; nothing here knows sockets. Imports the seam only.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

from .exchange import Duplex

PIECE = 128 << 10
"""Bytes that are decrypted, or encrypted, at a time: several records, for each has to be carried."""
ALPN = ["http/1.1"]
"""The relay speaks nothing else."""


def towards_hosts(certificates: str | None = None) -> ssl.SSLContext:
    """Return what verifies hosts: with the certificates of this machine, and of a file if one is given.

    Unlike the library's default it writes no keys to a file that a variable names. Raises OSError for the file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificates and names
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if certificates is not None:
        context.load_verify_locations(cafile=certificates)
    context.set_alpn_protocols(ALPN)
    return context


def as_host(context: ssl.SSLContext, host: str) -> ssl.SSLContext:
    """Let a server's context take connections for one host, and no others; returns it."""

    def named(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
        return None if name is None or name.lower() == host else int(ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME)

    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0  # a cell's client would have nothing of them
    context.set_alpn_protocols(ALPN)
    context.sni_callback = named
    return context


class Inside:
    """The inside of a TLS connection: a `Duplex` over another one. One task may receive while another one sends."""

    def __init__(self, outside: Duplex, context: ssl.SSLContext, *, server: bool, host: str | None = None) -> None:
        """Be the server; or the client, of `host`."""
        self._outside = outside
        self._server = server
        self._came, self._goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._came, self._goes, server_side=server, server_hostname=host)
        self._sending = asyncio.Lock()
        self._failed: ssl.SSLError | None = None
        """What came behind bytes that were read."""

    async def shake_hands(self) -> None:
        """Begin. Raises ssl.SSLError, after the other side was told, and what the connection raises."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._more()
            except ssl.SSLError:
                with suppress(OSError):
                    await self._flush()
                raise
            else:
                await self._flush()
                return

    async def receive(self) -> bytes:
        """Return the next piece; `b""` at the end. A host that ends without a farewell broke off: it may be cut."""
        while True:
            try:
                data = self._read()
            except ssl.SSLWantReadError:
                await self._more()
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLEOFError:
                if self._server:  # the usual end of a client; what a request misses is seen by its length
                    return b""
                raise
            else:
                if self._goes.pending:
                    await self._flush()
                return data

    def _read(self) -> bytes:
        """Return what can be read at once: the library gives one record at a time. Raises ssl.SSLError."""
        if self._failed is not None:
            raise self._failed
        data = self._tls.read(PIECE)
        pieces, size = [data], len(data)
        try:
            while data and size < PIECE and self._came.pending:
                data = self._tls.read(PIECE - size)
                pieces.append(data)
                size += len(data)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._failed = error  # for the next one who asks: what was read before it counts
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def send(self, data: bytes) -> None:
        """Send all of `data`."""
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view[:PIECE]) :]
            await self._flush()

    async def finish(self) -> None:
        """Say farewell."""
        with suppress(ssl.SSLError):  # the other side has not said its own yet
            self._tls.unwrap()
        await self._flush()
        await self._outside.finish()

    def reset(self, code: str) -> None:
        self._outside.reset(code)

    async def _more(self) -> None:
        await self._flush()
        data = await self._outside.receive()
        if data:
            self._came.write(data)
        else:
            self._came.write_eof()

    async def _flush(self) -> None:
        async with self._sending:
            if data := self._goes.read():
                await self._outside.send(data)


def reason(error: ssl.SSLError) -> str:
    """Return why a handshake failed, in the library's words: a bounded text without anything that was sent."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)[:200]
    return str(getattr(error, "reason", None) or "it ended").lower().replace("_", " ")[:100]
