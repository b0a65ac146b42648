"""One connection of a cell's, as its service sees it: what came and was not read, what is to be sent.

It knows the rules of a stream, and neither the link nor the other streams: it tells `Outlet` what it has to say.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from typing import Protocol

from ..container import flow
from ..plugins.api import StreamReset
from .streams import RESET_BY_CELL

AHEAD = 256 << 10
"""Bytes that a stream holds for the container beyond what one `send` brings, so that its service can fetch more."""
AHEAD_PIECES = 64
"""In how many pieces, at most: each takes memory of its own."""
SMALL = 1 << 12
"""Bytes below which what came is joined with what comes next."""
LINGER_SECONDS = 30.0
"""How long a cell may take to read what a service that is done has sent, and to close its end."""


class Outlet(Protocol):
    """The way to the container."""

    def say(self, op: int, number: int, amount: int = 0) -> None:
        """Send a frame without data, before all data."""

    def ready(self, stream: Connection) -> None:
        """Note that a stream may have something to send."""


class Connection:
    """See `Stream`."""

    def __init__(self, outlet: Outlet, number: int) -> None:
        self.number = number
        self.flow = flow.Flow(number)
        self._outlet = outlet
        self._came: list[bytes] = []
        self._out: collections.deque[memoryview] = collections.deque()
        self._out_bytes = 0
        self._finishing = False
        self._broken: str | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._idle_since: float | None = None
        self._rests_since: float | None = None

    # --- for the service ---

    def idle(self, *, idle: bool) -> None:
        self._idle_since = asyncio.get_running_loop().time() if idle else None

    async def receive(self) -> bytes:
        while not self._came:
            self._check()
            if self.flow.end_came:
                return b""
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        self._check()
        data = self._came[0] if len(self._came) == 1 else b"".join(self._came)
        self._came.clear()
        if credit := self.flow.release(len(data)):
            self._outlet.say(flow.CREDIT, self.number, credit)
        return data

    async def send(self, data: bytes) -> None:
        if self._finishing:
            raise RuntimeError("nothing is sent after the end of a stream")
        self._check()
        if data:
            self._out.append(memoryview(data))
            self._out_bytes += len(data)
            self._outlet.ready(self)
        while self._has_enough:
            await self._written()

    async def finish(self) -> None:
        self._check()
        self._finishing = True
        self._outlet.ready(self)
        while not self.flow.ended:
            await self._written()

    def reset(self, code: str) -> None:
        if self._broken is not None or self.flow.over:
            return
        self.flow.reset()
        self._outlet.say(flow.RESET, self.number)
        self.tear(code)

    async def linger(self) -> None:
        """Wait for the cell's end of a stream that was finished, for a while; what comes meanwhile is thrown away."""
        if self.flow.ended:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER_SECONDS):
                    while await self.receive():
                        pass

    # --- for the carrier ---

    @property
    def held(self) -> tuple[int, int]:
        """How many bytes came and wait for the service, and in how many pieces."""
        return sum(map(len, self._came)), len(self._came)

    def idles(self, seconds: float, rests: float) -> bool:
        """Return whether a request has been waited for so long, or the service had the last word so long ago."""
        now = asyncio.get_running_loop().time()
        return any(
            since is not None and now - since >= least
            for since, least in ((self._idle_since, seconds), (self._rests_since, rests))
        )

    def tear(self, code: str) -> None:
        """Have the service's next words fail, without a word to the container."""
        self._broken = self._broken or code
        self._came.clear()
        self._out.clear()
        self._out_bytes = 0
        self._wake()

    def take(self, op: int, amount: int, data: bytes) -> None:
        """Act on a frame. Raises `FrameError` for one that cannot come."""
        self.flow.take(op, amount, len(data))
        if data:
            self._rests_since = None
        if op == flow.RESET:
            if not self.flow.was_reset:
                self._outlet.say(flow.RESET, self.number)
            self.tear(RESET_BY_CELL)
        elif self.flow.was_reset:
            return  # it was on its way
        elif op == flow.CREDIT:
            self._outlet.ready(self)
        else:
            if data and self._came and len(self._came[-1]) < SMALL:
                self._came[-1] += data  # a piece of one byte takes fifty
            elif data:
                self._came.append(data)
            _done(self._reader)

    @property
    def can_send(self) -> bool:
        if self._broken is not None or self.flow.ended:
            return False
        return self.fits(self.flow.credit.may_send, flow.WINDOW) if self._out else self._finishing

    def fits(self, room: int, most: int) -> bool:
        """Whether there is room for all that there is to send, or for a frame that is worth its trouble.

        The other end gives back a quarter of the most at a time, so there is enough once it has used what it has.
        """
        return room >= min(self._out_bytes, most >> 3)

    def next_frame(self, most: int) -> list[bytes]:
        """Return the next frame for the container, with `most` bytes at most. It `can_send`."""
        if not self._out:
            self.flow.end()
            _done(self._writer)
            return flow.frame(flow.END, self.number)
        piece = self._out[0][: min(most, flow.CHUNK, self.flow.credit.may_send)]
        if len(piece) < len(self._out[0]):
            self._out[0] = self._out[0][len(piece) :]
        else:
            self._out.popleft()
        self._out_bytes -= len(piece)
        self._rests_since = asyncio.get_running_loop().time()
        self.flow.credit.spend(len(piece))
        if not (self._has_enough or self._finishing):
            _done(self._writer)
        return flow.data_frame(self.number, piece)  # type: ignore[arg-type]

    @property
    def _has_enough(self) -> bool:
        return self._out_bytes > AHEAD or len(self._out) > AHEAD_PIECES

    def _check(self) -> None:
        if self._broken is not None:
            raise StreamReset(self._broken)

    async def _written(self) -> None:
        self._writer = asyncio.get_running_loop().create_future()
        try:
            await self._writer
        finally:
            self._writer = None
        self._check()

    def _wake(self) -> None:
        _done(self._reader)
        _done(self._writer)


def _done(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
