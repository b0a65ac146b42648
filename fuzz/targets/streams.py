"""Streams of connections: the host's end against an agent that says anything, and both of our ends against each other.

What ends a sandbox is decided a second time, by rules that were written for reading. Two honest ends never meet one of
them, however their frames, the cells and the service cross; what arrives is what was sent, and all is given back.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import math
import select
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from sandbox_kernel.container import flow, wire
from sandbox_kernel.core.errors import WireError
from sandbox_kernel.plugins.api import RESET_BY_KERNEL, Cell, Stream
from sandbox_kernel.plugins.streams import cell_streams
from sandbox_kernel.plugins.streams.inside import stream_relay
from sandbox_kernel.session.running_cells import RunningCells

from ..clock import Clock
from ..judge import require
from ..trees import Reader

CHUNK, WINDOW, PIPE_WINDOW, MIN_COST, STREAMS = 16, 64, 128, 4, 3
AHEAD = 32
MAX_STEPS = 60
RECEIVE, SEND, FINISH, RESET, RETURN, FAIL, DRAIN = range(7)

_loop: Clock


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """Small inputs are to reach every bound."""
    global _loop
    bounds = {flow.CREDIT: WINDOW, flow.TAKEN: PIPE_WINDOW, flow.ALLOW: STREAMS}
    with (
        contextlib.closing(Clock()) as _loop,
        patch.object(cell_streams, "AT_ONCE", 40),
        patch.multiple(flow, CHUNK=CHUNK, WINDOW=WINDOW, MIN_COST=MIN_COST, MAX_STREAMS=STREAMS),
        patch.multiple(flow, PIPE_WINDOW=PIPE_WINDOW, PIPE_STEP=PIPE_WINDOW >> 4),
        patch.object(flow, "_BOUNDS", bounds),
        patch.object(stream_relay, "UPLOAD", CHUNK),
        patch.multiple(cell_streams, AHEAD=AHEAD, AHEAD_PIECES=4, SMALL=8),
    ):
        yield


def run(data: bytes) -> None:
    _loop.rewind()
    reader = Reader(data)
    with _loop.entered():
        (hostile if reader.byte() & 1 else honest)(reader)


# --- the host ---


class Link:
    """Takes the frames of the host's end; those with data when they are fetched."""

    def __init__(self) -> None:
        self.sent: collections.deque[list[bytes]] = collections.deque()
        self.spoke = -math.inf
        self._last: Any = lambda: None

    def send(self, kind: int, parts: list[bytes]) -> None:
        require(kind == wire.STREAM, kind)
        self.sent.append(parts)

    def serve_last(self, source: Any) -> None:
        self._last = source

    def wake(self) -> None:
        """The data is fetched when the fuzzer says so."""

    def fetch(self) -> list[bytes] | None:
        """Return the next frame, those without data first; every second time, a message was sent just now."""
        self.spoke = _loop.time() if self.spoke < 0 else -math.inf
        if not self.sent and (frames := self._last()) is not None:
            self.sent += [list(parts) for _, parts in wire.Decoder(1 << 16).feed(b"".join(frames))]
        return self.sent.popleft() if self.sent else None


class Served:
    """Does with each stream what it is told."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.orders: list[asyncio.Queue[tuple[int, int]]] = []
        self.received: list[bytearray] = []
        self.sent: list[int] = []
        self.whole: set[int] = set()
        self.finished: set[int] = set()
        self.failures = 0

    async def serve(self, stream: Stream, cell: Cell) -> None:
        number = len(self.streams)
        self.streams.append(stream)
        self.orders.append(asyncio.Queue())
        self.received.append(bytearray())
        self.sent.append(0)
        while True:
            what, size = await self.orders[number].get()
            if what in {RECEIVE, DRAIN}:
                while data := await stream.receive():
                    self.received[number] += data
                    if what == RECEIVE:
                        break
                else:
                    self.whole.add(number)
            elif what == SEND:
                if number in self.finished:
                    with contextlib.suppress(RuntimeError):
                        await stream.send(b"more")
                        require(False, "more is sent after the end")
                    continue
                data = pattern(self.sent[number], size)
                self.sent[number] += size
                await stream.send(data)
            elif what == FINISH:
                self.finished.add(number)
                await stream.finish()
            elif what == RESET:
                stream.reset("fuzz")
            elif what == RETURN:
                return
            else:
                self.failures += 1
                raise LookupError

    def order(self, number: int, what: int, size: int) -> None:
        if self.orders:
            self.orders[number % len(self.orders)].put_nowait((what, size))


def pattern(start: int, size: int) -> bytes:
    return bytes((start + at) % 251 for at in range(size))


class Host:
    def __init__(self) -> None:
        self.link = Link()
        self.service = Served()
        self.defects: list[BaseException] = []
        self.cells = RunningCells()
        self.carrier = cell_streams.StreamCarrier(
            self.link,  # type: ignore[arg-type]
            self.service,
            self.cells,
            connections=STREAMS,
            report=lambda name, error: self.defects.append(error),
        )

    def check(self) -> None:
        for error in self.defects:
            require(isinstance(error, LookupError), error)  # which the fuzzer told the service to raise
        for stream in self.service.streams:
            require(isinstance(stream, cell_streams.CellConnection), stream)
            held, pieces = stream.held
            require(held <= WINDOW, ("more is held than a window", held))
            require(pieces <= WINDOW // 4, ("more pieces than there need be", pieces))


@contextlib.contextmanager
def begun() -> Iterator[Host]:
    """Have a host whose first cell runs, and its end: it is right after that, too."""
    host = Host()
    host.cells.cell_sent(SimpleNamespace(id="cell"))
    host.carrier.begin()
    try:
        yield host
    finally:
        _loop.finish(host.carrier.close())
        host.check()


def steps(reader: Reader) -> Iterator[int]:
    """Count the steps of an input."""
    for number in range(MAX_STEPS):
        if not reader.left:
            return
        yield number


def turn(host: Host, seconds: float = 0.0) -> None:
    """Let the host's tasks do what they can, and look at what they did."""
    if seconds:
        _loop.let_pass(seconds)
    else:
        _loop.idle()
    host.check()


# --- an agent that says anything ---


class Rules:
    """What an agent may say, from what was said both ways."""

    def __init__(self) -> None:
        self.allowed = self.last = self.late = 0
        self.came = self.sent = 0
        """Of the pipe's credit: what the agent owes, and what the host does."""
        self.of: dict[int, dict[str, Any]] = {}

    def host_says(self, op: int, number: int, amount: int, data: bytes) -> None:
        if op == flow.ALLOW:
            self.allowed += amount
        elif op == flow.TAKEN:
            self.came -= amount
        elif op == flow.DATA:
            self.sent += max(len(data), MIN_COST)
            self.of[number]["sent"] += len(data)
        elif (stream := self.of.get(number)) is not None:  # else it answers what ended the stream
            if op == flow.CREDIT:
                stream["came"] -= amount
            elif op == flow.END:
                stream["ended"] = True
            self._over(number)

    def agent_may_say(self, op: int, number: int, amount: int, data: bytes) -> bool:
        """Return whether a frame of a proper form may come now, and note it if so."""
        if op == flow.OPEN:
            if number != self.last + 1 or not self.allowed:
                return False
            self.last, self.allowed = number, self.allowed - 1
            self.of[number] = {"came": 0, "sent": 0, "ended": False, "end": False}
            return True
        if op == flow.TAKEN:
            self.sent -= amount
            return self.sent >= 0
        if op == flow.ALLOW or number > self.last:
            return False
        self.came += max(len(data), MIN_COST) if data else 0
        if self.came > PIPE_WINDOW:
            return False
        stream = self.of.get(number)
        if stream is None:
            self.late -= 1
            return op in (flow.CREDIT, flow.RESET) and self.late >= 0
        if op == flow.DATA:
            stream["came"] += len(data)
            return not stream["end"] and stream["came"] <= WINDOW
        if op == flow.CREDIT:
            stream["sent"] -= amount
            return bool(stream["sent"] >= 0)
        if op == flow.END:
            fine, stream["end"] = not stream["end"], True
            self._over(number)
            return fine
        del self.of[number]
        self.late += flow.LATE
        return True

    def _over(self, number: int) -> None:
        if self.of[number]["ended"] and self.of[number]["end"]:
            del self.of[number]
            self.late += flow.LATE


def proper(parts: list[bytes]) -> tuple[int, int, int, bytes] | None:
    """Return what a frame says, None if its form is not that of one."""
    if len(parts) not in (1, 2) or len(parts[0]) != 9:
        return None
    op, number, amount = parts[0][0], int.from_bytes(parts[0][1:5], "big"), int.from_bytes(parts[0][5:], "big")
    most = {flow.CREDIT: WINDOW, flow.TAKEN: PIPE_WINDOW, flow.ALLOW: STREAMS}
    data = parts[1] if len(parts) == 2 else b""
    fine = (
        1 <= op <= 7
        and (number == 0) == (op in (flow.TAKEN, flow.ALLOW))
        and (1 <= amount <= most[op] if op in most else amount == 0)
        and (1 <= len(data) <= CHUNK if op == flow.DATA else len(parts) == 1)
    )
    return (op, number, amount, data) if fine else None


def hostile_frame(reader: Reader, what: int, last: int) -> list[bytes]:
    """Return a frame: of any bytes, or one that may have a meaning."""
    if what >= 240:
        return [reader.block() for _ in range(1 + what % 4)]
    op, number, amount = what % 8, reader.byte() % (last + 3), reader.byte()
    if op == flow.DATA:
        return flow.data_frame(number, bytes(reader.byte() % 20))
    return flow.frame(op, number, amount)


def hostile(reader: Reader) -> None:
    rules = Rules()
    with begun() as host:
        for _ in steps(reader):
            while (parts := host.link.sent.popleft() if host.link.sent else None) is not None:
                rules.host_says(*flow.parse(parts))
            what = reader.byte()
            if what < 64:
                host.service.order(reader.byte(), what % 6, what)
            elif what < 96:
                if (fetched := host.link.fetch()) is not None:
                    rules.host_says(*flow.parse(fetched))
            elif what < 104:
                turn(host, what - 95)
            elif not agent_says(host, rules, hostile_frame(reader, what, rules.last)):
                return
            turn(host)
            require(len(rules.of) <= STREAMS, "more streams than may be")


def agent_says(host: Host, rules: Rules, parts: list[bytes]) -> bool:
    """Let a frame come, and return whether the sandbox goes on: it does if an agent may say that, and not otherwise."""
    said = proper(parts)
    legal = said is not None and rules.agent_may_say(*said)
    try:
        host.carrier.take(parts)
    except WireError as error:
        require(not legal, ("what an agent may say is refused", str(error), said))
        return False
    require(legal, ("what no agent says is taken", said))
    return True


# --- two honest ends ---


class Socket:
    """The agent's end of a connection; the cell's end is in the fuzzer's hand."""

    numbers = iter(range(10**9))

    def __init__(self) -> None:
        self.number = next(self.numbers)
        self.written = self.sent = self.room = self.read = 0
        self.eof = self.broken = self.shut = self.closed = False

    def fileno(self) -> int:
        return -1 if self.closed else self.number

    def recv(self, most: int) -> bytes:
        if self.broken:
            raise ConnectionResetError
        data = pattern(self.sent, min(most, self.written - self.sent))
        self.sent += len(data)
        if not data and not self.eof:
            raise BlockingIOError
        return data

    def send(self, data: bytes) -> int:
        if self.broken:
            raise BrokenPipeError
        count = min(len(data), self.room)
        if not count:
            raise BlockingIOError
        require(bytes(data[:count]) == pattern(self.read, count), "what arrives is not what was sent")
        self.room -= count
        self.read += count
        return count

    def shutdown(self, how: int) -> None:
        self.shut = True

    def setsockopt(self, *options: Any) -> None: ...

    def setblocking(self, flag: bool) -> None: ...

    def close(self) -> None:
        self.closed = True

    @property
    def events(self) -> int:
        if self.broken:
            return select.EPOLLIN | select.EPOLLOUT | select.EPOLLERR | select.EPOLLHUP
        reads = select.EPOLLIN if self.eof or self.written > self.sent else 0
        return reads | (select.EPOLLOUT if self.room else 0)


class Listener(Socket):
    def __init__(self) -> None:
        super().__init__()
        self.waiting: collections.deque[Socket] = collections.deque()

    def accept(self) -> tuple[Socket, None]:
        if not self.waiting:
            raise BlockingIOError
        return self.waiting.popleft(), None

    @property
    def events(self) -> int:
        return select.EPOLLIN if self.waiting else 0


class Epoll:
    def __init__(self, sockets: dict[int, Socket]) -> None:
        self.masks: dict[int, int] = {}
        self.sockets = sockets

    def register(self, file: int, mask: int) -> None:
        require(file not in self.masks and mask and file in self.sockets, ("registered", file, mask))
        self.masks[file] = mask

    def modify(self, file: int, mask: int) -> None:
        require(file in self.masks and mask, ("modified", file, mask))
        self.masks[file] = mask

    def unregister(self, file: int) -> None:
        require(file in self.masks and not self.sockets[file].closed, ("unregistered", file))
        del self.masks[file]

    def poll(self, timeout: float, most: int) -> list[tuple[int, int]]:
        ends = select.EPOLLERR | select.EPOLLHUP
        found = [(file, self.sockets[file].events & (mask | ends)) for file, mask in self.masks.items()]
        return [(file, events) for file, events in found if events][:most]


class Relay(stream_relay.Relay):
    """The agent's, on sockets of the fuzzer's."""

    def __init__(self) -> None:
        self.said: collections.deque[list[bytes]] = collections.deque()
        self.sockets: dict[int, Any] = {}
        self.opened: dict[int, Socket] = {}
        self.send = self.note
        self.pending = lambda: 0
        self.epoll: Any = Epoll(self.sockets)
        self.listener: Any = Listener()
        self.sockets[self.listener.number] = self.listener
        self.listening = self.refusing = False
        self.paused_until = 0.0
        self.received = 0
        self.files = {}
        self.forget()

    def note(self, parts: Sequence[bytes]) -> None:
        op, number, _, _ = flow.parse(parts)
        if op == flow.OPEN:
            self.opened[number] = self.numbers[number].socket  # type: ignore[assignment]
        self.said.append(list(parts))

    def connect(self) -> Socket:
        sock = Socket()
        self.sockets[sock.number] = sock
        self.listener.waiting.append(sock)
        return sock


def to_host(host: Host, relay: Relay) -> bool:
    """Let one frame of the agent arrive; return whether there was one."""
    if not relay.said:
        return False
    host.carrier.take(relay.said.popleft())
    return True


def to_agent(host: Host, relay: Relay) -> bool:
    if (parts := host.link.fetch()) is None:
        return False
    relay.take(parts)
    return True


def step(reader: Reader, host: Host, relay: Relay, cells: list[Socket]) -> None:
    what, amount = reader.byte(), reader.byte()
    cell = cells[amount % len(cells)] if cells else None
    if what < 60:
        host.service.order(amount, what % 6, what)
    elif what < 80:
        cells.append(relay.connect())
    elif what < 110 and cell is not None and not cell.eof:
        cell.written += what - 79
    elif what < 130 and cell is not None:
        cell.room += max(1, what - 109)
    elif what < 140 and cell is not None:
        cell.eof = True
    elif what < 145 and cell is not None:
        cell.broken = True
    elif what < 180:
        to_host(host, relay)
    elif what < 210:
        to_agent(host, relay)
    elif what < 240:
        relay.turn()
        relay.resume()
    else:
        relay.kernel_ended()
        host.carrier.reset_all(RESET_BY_KERNEL)


def honest(reader: Reader) -> None:
    relay = Relay()
    cells: list[Socket] = []
    with begun() as host:
        for _ in steps(reader):
            step(reader, host, relay, cells)
            if (seconds := reader.byte()) > 240:
                turn(host, (seconds - 240) / 4)
            turn(host)
            held = [sum(map(len, one.out)) for one in relay.files.values()]
            require(max(held, default=0) <= WINDOW, ("more is held than a window", held))
            require(len(relay.files) <= STREAMS, "more connections than may be")
        settle(host, relay, cells)
    for number, stream in enumerate(host.service.streams):
        cell, received = relay.opened[stream.number], host.service.received[number]
        require(received == pattern(0, len(received)) and len(received) <= cell.sent, "not what the cell sent")
        require(number not in host.service.whole or len(received) == cell.written, "an end before the last byte")
        require(not cell.shut or cell.read == host.service.sent[number], "an end before the last byte for the cell")


def settle(host: Host, relay: Relay, cells: list[Socket]) -> None:
    """Have everybody end: then all is given back, and nothing is left."""
    for cell in cells:
        cell.eof, cell.room = True, 1 << 20
    for number in range(len(host.service.orders)):
        for what in (DRAIN, FINISH, RETURN):
            host.service.order(number, what, 0)
    for _ in range(1000):
        relay.turn()
        relay.resume()
        moved = to_host(host, relay) or relay.said
        moved = to_agent(host, relay) or moved
        turn(host)
        if not moved and not relay.numbers and not relay.files and not relay.listener.waiting:
            break
        if not moved:
            turn(host, 1)
            for number in range(len(host.service.orders)):
                host.service.order(number, RETURN, 0)
    require(not relay.numbers and not relay.files, ("a stream without an end", relay.numbers, relay.files))
    for number in range(len(host.service.orders)):
        host.service.order(number, RETURN, 0)
    turn(host, 60)
    while to_agent(host, relay):
        pass
    require(relay.allowed == STREAMS, ("streams that were not given back", relay.allowed))


# --- seeds ---


def frame(op: int, number: int, amount: int = 0, *data: int) -> bytes:
    """Return the step at which a hostile agent says this; what it is follows from the rest by eight."""
    return bytes([104 + (op - 104) % 8, number, amount, *data])


def does(number: int, *orders: int) -> bytes:
    return b"".join(bytes([order, number]) for order in orders)


def told(number: int, *orders: int) -> bytes:
    return b"".join(bytes([order, number, 0]) for order in orders)


FETCH = b"\x40"
TO_HOST, TO_AGENT, TURN, CONNECT = b"\x92\0\0", b"\xb4\0\0", b"\xd2\0\0", b"\x3c\0\0"


def seeds() -> Iterator[bytes]:
    opened, data = frame(flow.OPEN, 1), frame(flow.DATA, 1, 0, 16)
    yield b"\1" + opened + data * 4 + does(0, 0, 0) + data + frame(flow.END, 1)
    yield b"\1" + opened + data * 12
    yield b"\1" + opened + (data * 2 + does(0, 0)) * 10
    yield b"\1" + opened + does(0, 61, 1, 2) + FETCH * 6 + frame(flow.CREDIT, 1, 20) + frame(flow.TAKEN, 0, 32)
    yield b"\1" + opened + does(0, 2) + FETCH + frame(flow.END, 1) + frame(flow.RESET, 1) * 7
    yield b"\1" + opened + does(0, 3) + data + frame(flow.END, 1) + frame(flow.RESET, 1) + frame(flow.OPEN, 2)
    yield b"\1" + b"".join(frame(flow.OPEN, number) for number in (1, 2, 3, 4))
    three = range(1, 4)
    yield (
        b"\1"
        + b"".join(frame(flow.OPEN, number) for number in three)
        + b"".join(frame(flow.DATA, number, 0, 16) * 4 for number in three)
    )
    yield b"\1" + opened + frame(flow.RESET, 1) + b"\x60" + frame(flow.OPEN, 2) + opened
    for op in range(8):
        yield b"\1" + frame(op, 0, 1, 1) + opened
        yield b"\1" + opened + frame(op, 1, 1, 1) * 2
        yield b"\1" + opened + frame(flow.END, 1) + frame(op, 1, 0, 1)
    yield b"\1\xf0" + bytes(9) + b"\xff" + b"\1\xf1\1\xff\2\xff\1\xf4x\xff"
    one = CONNECT + TURN + TO_HOST
    begun = b"\0" + TO_AGENT + one
    yield begun + b"\x6d\0\0" + TURN + TO_HOST + told(0, 0, 55) + TO_AGENT * 3 + b"\x81\0\0" + TURN
    yield begun + b"\x86\0\0" + TURN + told(0, 0, 2) + TO_HOST + TO_AGENT * 2
    yield begun + told(0, 55, 55, 55) + TO_AGENT * 9 + b"\x8c\0\0" + TURN + told(0, 3) + TO_HOST * 3
    yield begun + one * 4 + told(0, 3) + told(1, 4) + TO_AGENT * 4 + TURN * 3 + TO_HOST * 5
    yield begun + one + b"\xf0\0\0" + one + TO_AGENT * 3 + TO_HOST * 4
