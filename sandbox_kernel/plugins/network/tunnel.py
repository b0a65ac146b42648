"""A tunnel: what a cell and a host say to each other over TLS, which stays end to end. It is opaque, but for its start.

Before a byte of the cell's goes out, the server that TLS names is held against the host that the tunnel is for.
Afterwards this is the plainest loop there is: it copies, and counts nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .buffered import Buffered
from .client_hello import HelloReader, asks_again
from .codes import NetworkCode
from .exchange import Duplex
from .policy import Refused

CheckName = Callable[[str | None], None]
"""Raises Refused for a server that a hello must not name."""


async def checked_hello(client: Buffered, check: CheckName, seconds: float, *, second: bool = False) -> bytes:
    """Return the bytes of a client's hello that names the right server, and nothing behind it. Raises Refused."""
    reader = HelloReader(second=second)
    try:
        async with asyncio.timeout(seconds):
            while True:
                data = await client.receive()
                if not data:
                    raise Refused(NetworkCode.NOT_TLS.note())
                try:
                    hello = reader.feed(data)
                except Refused:
                    client.take_back(data)  # for whoever says so in the client's own language
                    raise
                if hello is not None:
                    break
    except TimeoutError:
        raise Refused(NetworkCode.HEAD_TOO_SLOW.note(limit=f"{seconds:g}")) from None
    client.take_back(reader.rest)
    if hello.hides:
        raise Refused(NetworkCode.SERVER_NAME_HIDDEN.note())
    check(hello.server_name)
    return reader.taken


async def run(client: Buffered, host: Buffered, first: bytes, check: CheckName, seconds: float) -> None:
    """Pass on a hello that was checked, and then everything, until both sides have finished.

    A server may ask for another hello, and that one counts. Raises Refused, StreamReset, OSError.
    """
    await host.send(first)
    begun = b""
    while (again := asks_again(begun)) is None and (data := await host.receive()):
        begun += data
    if begun:
        await client.send(begun)
    if again:
        await host.send(await checked_hello(client, check, seconds, second=True))
    await both_ways(client, host)


async def both_ways(client: Duplex, host: Duplex) -> None:
    """Copy until both have finished; raises what breaks either way, and then nothing more is copied."""
    outward = asyncio.get_running_loop().create_task(_copy(client, host))
    inward = asyncio.get_running_loop().create_task(_copy(host, client))
    ways = (outward, inward)
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_EXCEPTION)
        for way in ways:
            if way.done():
                way.result()
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _copy(source: Duplex, sink: Duplex) -> None:
    while data := await source.receive():
        await sink.send(data)
    await sink.finish()
