"""The services of one session behind its one port: the first bytes of a connection say which one it is for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ..core.codes import UsageCode
from ..core.errors import ConfigurationError
from ..plugins.api import Cell, Stream, StreamService
from .streams import RESET_UNSERVED, Service


def switch(services: Iterable[StreamService], seconds: float) -> Service | None:
    """Return what serves all connections; None if nothing does.

    Args:
        services: Of plugins.
        seconds: How long a connection may say nothing at its beginning; then it is reset.

    Raises:
        ConfigurationError: Connections of two plugins begin alike.
    """
    found: dict[bytes, StreamService] = {}
    for one in services:
        if one.preamble in found:
            both = f"{type(found[one.preamble]).__name__} and {type(one).__name__}"
            raise ConfigurationError(UsageCode.PLUGIN_UNUSABLE, f"connections for {both} begin alike")
        found[one.preamble] = one
    plain = found.pop(b"", None)
    return Switch(found, plain, seconds) if found else plain


class Switch:
    """A `Service` of several."""

    def __init__(self, services: dict[bytes, StreamService], others: Service | None, seconds: float) -> None:
        """`services` by preamble; `others` serves the rest, None nobody."""
        self._services = services
        self._others = others
        self._seconds = seconds

    async def serve(self, stream: Stream, cell: Cell) -> None:
        """Serve one connection until its end. Raises StreamReset."""
        data = b""
        stream.idle(idle=True)
        try:
            async with asyncio.timeout(self._seconds):
                while any(len(data) < len(one) and one.startswith(data) for one in self._services):
                    if not (piece := await stream.receive()):
                        break
                    data += piece
        except TimeoutError:
            stream.reset("silent")
            return
        stream.idle(idle=False)
        for preamble, service in self._services.items():
            if data.startswith(preamble):
                await service.serve(Begun(stream, data[len(preamble) :]), cell)
                return
        if self._others is not None:
            await self._others.serve(Begun(stream, data), cell)
        else:
            stream.reset(RESET_UNSERVED)


class Begun:
    """A stream of which something was received already, which comes again."""

    def __init__(self, stream: Stream, data: bytes) -> None:
        self._stream = stream
        self._data = data

    @property
    def number(self) -> int:
        return self._stream.number

    def idle(self, *, idle: bool) -> None:
        self._stream.idle(idle=idle)

    async def receive(self) -> bytes:
        data, self._data = self._data, b""
        return data or await self._stream.receive()

    async def send(self, data: bytes) -> None:
        await self._stream.send(data)

    async def finish(self) -> None:
        await self._stream.finish()

    def reset(self, code: str) -> None:
        self._stream.reset(code)
