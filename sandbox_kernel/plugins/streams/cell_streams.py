"""The connections that cells open: the host's end of a container's streams, each served by the session's service.

It believes nothing: a frame that breaks a rule of `flow` ends the sandbox, as bytes do that are no frame. What a
container may make the host hold and do has a bound: windows, streams at once, and streams that are opened in a second.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import math
from typing import Any

from ...container import flow, wire
from ...core.codes import EndCode
from ...core.errors import SandboxDied, WireError
from ...core.tasks import Report, Tasks
from ..api import (
    RESET_BY_CELL,
    RESET_BY_END,
    RESET_CROWDED,
    RESET_LEFT_OPEN,
    RESET_UNCHARGED,
    Cell,
    ConnectionService,
    StreamReset,
)

AT_ONCE = 256 << 10
"""Bytes of several frames that are written together; a pipe of the engine's takes about as much."""
OPENS_A_SECOND = 200.0
"""How fast streams may follow each other, once as many as may be open were: a loop in a cell must not busy the host."""
FRAMES_A_SECOND = 10_000.0
"""The same for frames with data. Those of a full speed are large, and a tenth as many."""
BESIDE_SECONDS = 0.2
"""How long after a message another one is expected, which should find little on its way."""
LOOK_SECONDS = 0.05
"""How often what came too fast is looked at again."""
IDLE_SECONDS = 1.0
"""How long a stream may wait for a request of the cell's while no more can be opened: the system tries to connect again
after one second, after two more and so on, so a connection that waits longer for a place waits for minutes."""
REST_SECONDS = 15.0
"""The same for one on which the service had the last word: a client keeps it for later. Its bytes are not read, so this
may also be an answer that goes on after a pause."""


AHEAD = 256 << 10
"""Bytes that a stream holds for the container beyond what one `send` brings, so that its service can fetch more."""
AHEAD_PIECES = 64
"""In how many pieces, at most: each takes memory of its own."""
SMALL = 1 << 12
"""Bytes below which what came is joined with what comes next."""
LINGER_SECONDS = 30.0
"""How long a cell may take to read what a service that is done has sent, and to close its end."""


class CellConnection:
    """See `Stream`."""

    def __init__(self, outlet: StreamCarrier, number: int) -> None:
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

    def idles(self) -> bool:
        """Return whether a request has been waited for long, or the service had the last word long ago."""
        now = asyncio.get_running_loop().time()
        return any(
            since is not None and now - since >= least
            for since, least in ((self._idle_since, IDLE_SECONDS), (self._rests_since, REST_SECONDS))
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


class Pace:
    """How many may pass: so many at once, and then so many a second."""

    def __init__(self, most: float, a_second: float) -> None:
        self._most = self._left = most
        self._a_second = a_second
        self._looked = asyncio.get_running_loop().time()

    def spend(self, count: int) -> None:
        self._left -= count

    @property
    def left(self) -> int:
        """How many may pass now; negative if more did."""
        now = asyncio.get_running_loop().time()
        self._left = min(self._most, self._left + (now - self._looked) * self._a_second)
        self._looked = now
        return math.floor(self._left)


class StreamCarrier:
    """The streams of one container."""

    def __init__(self, link: Any, service: ConnectionService, cells: Any, *, connections: int, report: Report) -> None:
        """Take the link to the container's agent (`session.agent_link`), and who is charged (`session.running_cells`).

        `connections` is how many may be open at once; `report` hears of a service that fails.
        """
        self._link = link
        self._service = service
        self._cells = cells
        self._tasks = Tasks(report)
        self._streams: dict[int, CellConnection] = {}
        self._serving: dict[int, asyncio.Task[object]] = {}
        self._ready: collections.OrderedDict[int, CellConnection] = collections.OrderedDict()
        self._credit = flow.Credit(flow.PIPE_WINDOW, flow.PIPE_STEP)
        self._late = flow.Late()
        self._last = 0
        self._allowed = 0
        self._owed = min(connections, flow.MAX_STREAMS)
        """Streams that may be opened more, as soon as they do not come too fast."""
        self._opens = Pace(self._owed, OPENS_A_SECOND)
        self._frames = Pace(FRAMES_A_SECOND, FRAMES_A_SECOND)
        self._untaken = 0
        """Bytes that were read off the pipe, and that the container does not know yet."""
        self._begun = False
        self._timer: asyncio.TimerHandle | None = None
        self._crowded: asyncio.TimerHandle | None = None
        self._closed = False

    def begin(self) -> None:
        """Let streams be opened: a kernel is there. Idempotent."""
        if not self._begun and not self._closed:
            self._begun = True
            self._link.serve_last(self._next_frames)
            self._look()

    def take(self, parts: list[bytes]) -> None:
        """Act on a frame of the container. Raises `WireError` for one that no agent sends."""
        try:
            op, number, amount, data = flow.parse(parts)
            if self._closed:
                return  # it was on its way
            if not self._begun:
                raise wire.FrameError("a stream was never allowed")
            if op == flow.OPEN:
                self._open(number)
            elif op == flow.TAKEN:
                self._credit.given(amount)
                self._link.wake()
            elif op == flow.ALLOW or number > self._last:
                raise wire.FrameError("a stream was not opened")
            else:
                self._take(number, op, amount, data)
        except wire.FrameError as error:
            raise WireError(EndCode.NOT_FRAMES, f"the sandbox sent what is no frame of a stream: {error}") from None

    def reset_all(self, code: str) -> None:
        """Break all streams; who serves them is cancelled."""
        for stream in list(self._streams.values()):
            stream.reset(code)
        for task in list(self._serving.values()):
            task.cancel()

    async def close(self) -> None:
        """End all streams without a word to the container. Idempotent, bounded."""
        self._closed = True
        for timer in (self._timer, self._crowded):
            if timer is not None:
                timer.cancel()
        for stream in self._streams.values():
            stream.tear(RESET_BY_END)
        self._ready.clear()
        await self._tasks.close()

    # --- what comes ---

    def _take(self, number: int, op: int, amount: int, data: bytes) -> None:
        if data:
            self._credit.came(flow.cost(data))
            self._untaken += self._credit.release(flow.cost(data))
            self._frames.spend(1)
            if self._untaken:
                self._look()
        stream = self._streams.get(number)
        if stream is None:
            self._late.take(op)
            return
        stream.take(op, amount, data)
        self._settle(stream)

    def _open(self, number: int) -> None:
        if number != self._last + 1:
            raise wire.FrameError("the number of a stream is not the next one")
        if not self._allowed:
            raise wire.FrameError("more streams are opened than may be")
        self._last, self._allowed = number, self._allowed - 1
        stream = self._streams[number] = CellConnection(self, number)
        cell = self._cells.charged
        if cell is None:
            stream.reset(RESET_UNCHARGED)
            return
        task = self._serving[number] = self._tasks.start(self._serve(stream, cell), "a connection")
        task.add_done_callback(lambda _: self._served(stream))  # it may be cancelled before it begins
        if self._crowded is None:
            self._make_room()

    def _make_room(self) -> None:
        """While no more streams may be opened, break those that have waited for the cell for too long."""
        self._crowded = None
        if self._closed or self._allowed or self._owed:
            return
        for stream in list(self._streams.values()):
            if stream.idles():
                stream.reset(RESET_CROWDED)
        self._crowded = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._make_room)

    async def _serve(self, stream: CellConnection, cell: Cell) -> None:
        with contextlib.suppress(StreamReset):
            await self._service.serve(stream, cell)
            stream.idle(idle=True)
            await stream.linger()

    def _served(self, stream: CellConnection) -> None:
        stream.reset(RESET_LEFT_OPEN)
        del self._serving[stream.number]
        self._free(stream)

    def _settle(self, stream: CellConnection) -> None:
        """Forget a stream that is over for both ends."""
        if stream.flow.over and self._streams.pop(stream.number, None) is not None:
            self._late.over()
            self._free(stream)

    def _free(self, stream: CellConnection) -> None:
        """Let another stream be opened in place of one that is over and not served any more."""
        if stream.number not in self._streams and stream.number not in self._serving:
            self._owed += 1
            self._look()

    def _look(self) -> None:
        """Give the container what it may have again, unless that came too fast."""
        if self._closed or self._timer is not None:
            return
        if count := min(self._owed, max(0, self._opens.left)):
            self._opens.spend(count)
            self._owed -= count
            self._allowed += count
            self.say(flow.ALLOW, 0, count)
        if self._untaken and self._frames.left >= 0:
            self.say(flow.TAKEN, 0, self._untaken)
            self._untaken = 0
        if self._owed or self._untaken:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._look()

    # --- what goes ---

    def say(self, op: int, number: int, amount: int = 0) -> None:
        """Send a frame without data, before all data."""
        if not self._closed:
            with contextlib.suppress(SandboxDied):  # the reader meets its end too
                self._link.send(wire.STREAM, flow.frame(op, number, amount))

    def ready(self, stream: CellConnection) -> None:
        """Note that a stream may have something to send."""
        if stream.can_send and stream.number not in self._ready:
            self._ready[stream.number] = stream
            self._link.wake()

    def _next_frames(self) -> list[bytes] | None:
        """Return the next frames for which there is room in the pipe: one of each stream in turn.

        Several at once, for each write takes as long as the copying; what is on its way is bounded all the same.
        """
        found: list[bytes] = []
        size = 0
        while size < AT_ONCE and self._ready and (room := self._room) >= flow.MIN_COST:
            _, stream = self._ready.popitem(last=False)
            if not stream.can_send:
                continue
            if not stream.fits(room, flow.PIPE_WINDOW):
                self._ready[stream.number] = stream
                self._ready.move_to_end(stream.number, last=False)
                break
            parts = stream.next_frame(room)
            self._credit.spend(flow.cost(parts[1]) if len(parts) > 1 else 0)
            self.ready(stream)
            self._settle(stream)
            found += wire.encode(wire.STREAM, parts)
            size += sum(map(len, parts))
        return found or None

    @property
    def _room(self) -> int:
        """Bytes that may be sent now. Only a quarter of all may be on their way while messages follow each other."""
        beside = asyncio.get_running_loop().time() < self._link.spoke + BESIDE_SECONDS
        return self._credit.may_send - (flow.PIPE_WINDOW * 3 // 4 if beside else 0)
