"""The host's end of the connections that cells open: streams of one container, each served by the session's service.

It believes nothing: a frame that breaks a rule of `flow` ends the sandbox, as bytes do that are no frame. What a
container may make the host hold and do has a bound: windows, streams at once, and streams that are opened in a second.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import math

from ..container import flow, wire
from ..core.codes import EndCode
from ..core.errors import SandboxDied, WireError
from ..core.tasks import Report, Tasks
from ..plugins.api import Cell, StreamReset
from .connection import Connection
from .link import Link
from .streams import (
    RESET_BY_END,
    RESET_CROWDED,
    RESET_LEFT_OPEN,
    RESET_UNCHARGED,
    RunningCells,
    Service,
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
after one second, after two more and so on, so whoever waits for a place longer waits for minutes."""
REST_SECONDS = 15.0
"""The same for one on which the service had the last word: a client keeps it for later. Its bytes are not read, so this
may also be an answer that goes on after a pause."""


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


class Carrier:
    """The streams of one container."""

    def __init__(self, link: Link, service: Service, cells: RunningCells, *, connections: int, report: Report) -> None:
        """`connections` is how many may be open at once; `report` hears of a service that fails."""
        self._link = link
        self._service = service
        self._cells = cells
        self._tasks = Tasks(report)
        self._streams: dict[int, Connection] = {}
        self._serving: dict[int, asyncio.Task[object]] = {}
        self._ready: collections.OrderedDict[int, Connection] = collections.OrderedDict()
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
        stream = self._streams[number] = Connection(self, number)
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
            if stream.idles(IDLE_SECONDS, REST_SECONDS):
                stream.reset(RESET_CROWDED)
        self._crowded = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._make_room)

    async def _serve(self, stream: Connection, cell: Cell) -> None:
        with contextlib.suppress(StreamReset):
            await self._service.serve(stream, cell)
            stream.idle(idle=True)
            await stream.linger()

    def _served(self, stream: Connection) -> None:
        stream.reset(RESET_LEFT_OPEN)
        del self._serving[stream.number]
        self._free(stream)

    def _settle(self, stream: Connection) -> None:
        """Forget a stream that is over for both ends."""
        if stream.flow.over and self._streams.pop(stream.number, None) is not None:
            self._late.over()
            self._free(stream)

    def _free(self, stream: Connection) -> None:
        """Let another stream be opened in place of one that is over, and that nobody serves any more."""
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
            with contextlib.suppress(SandboxDied):  # who reads meets its end too
                self._link.send(wire.STREAM, flow.frame(op, number, amount))

    def ready(self, stream: Connection) -> None:
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
