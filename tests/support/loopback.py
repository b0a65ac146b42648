"""Servers and connections of a test's own on the loopback, each for as long as a block."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Both = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(handler: Handler, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve; the value is the port. A connection is closed when its handler ends, and with the block."""
    tasks: set[asyncio.Task[object]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            tasks.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await handler(reader, writer)
                writer.close()
                await writer.wait_closed()
        finally:
            await closed(writer)

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
async def opened(
    port: int, *, limit: int = 1 << 16, context: ssl.SSLContext | None = None, host: str | None = None
) -> AsyncIterator[Both]:
    """Connect, within TLS for `host` if there is a context."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit, ssl=context, server_hostname=host)
    try:
        yield reader, writer
    finally:
        await closed(writer)


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with suppress(OSError, asyncio.CancelledError):  # whoever waits meanwhile is ended as well
        await writer.wait_closed()
