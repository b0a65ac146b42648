"""The services of one session behind its one port: the first byte of a connection says which one it is for."""

from __future__ import annotations

import asyncio

from ..session.streams import Cell, Service, Stream
from .tool_calls import PREAMBLE, ToolCalls


class Switch:
    """A `Service` of several."""

    def __init__(self, calls: ToolCalls, others: Service | None, seconds: float) -> None:
        """`others` serves what is no call of a tool, None nobody. Who says nothing for `seconds` is left alone."""
        self._calls = calls
        self._others = others
        self._seconds = seconds

    async def serve(self, stream: Stream, cell: Cell) -> None:
        """Serve one connection until its end. Raises StreamReset."""
        data = b""
        stream.idle(idle=True)
        try:
            async with asyncio.timeout(self._seconds):
                while len(data) < len(PREAMBLE) and PREAMBLE.startswith(data):
                    if not (piece := await stream.receive()):
                        break
                    data += piece
        except TimeoutError:
            stream.reset("silent")
            return
        stream.idle(idle=False)
        if data.startswith(PREAMBLE):
            await self._calls.serve(Begun(stream, data[len(PREAMBLE) :]), cell)
        elif self._others is not None:
            await self._others.serve(Begun(stream, data), cell)
        else:
            stream.reset("no-network")

    def cell_began(self, cell: Cell) -> None:
        self._calls.cell_began(cell)
        if self._others is not None:
            self._others.cell_began(cell)

    def cell_ended(self, cell: Cell) -> None:
        self._calls.cell_ended(cell)
        if self._others is not None:
            self._others.cell_ended(cell)

    async def close(self) -> None:
        await self._calls.close()
        if self._others is not None:
            await self._others.close()


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
