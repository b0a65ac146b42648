"""Connections of cells, both ends: bytes arrive, ends and breaks are told, and nobody can make the other hold more."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import hashlib
import os
import socket

import pytest

from sandbox_kernel.container import flow, wire
from sandbox_kernel.core.errors import WireError
from sandbox_kernel.plugins.api import (
    RESET_BY_CELL,
    RESET_BY_END,
    RESET_BY_KERNEL,
    RESET_LEFT_OPEN,
    Cell,
    Stream,
    StreamReset,
)
from sandbox_kernel.plugins.streams import cell_streams
from sandbox_kernel.plugins.streams.cell_streams import CellConnection
from sandbox_kernel.plugins.streams.inside.stream_relay import ABORT, Relay, StreamingAgent
from sandbox_kernel.session.running_cells import NoStreams, RunningCells
from tests.plugins.streams.relays import Host, HostileAgent, hosted, related
from tests.support.patience import until
from tests.support.stream_services import Served

MIB = 1 << 20


async def echo(stream: Stream, cell: Cell) -> None:
    while data := await stream.receive():
        await stream.send(data)
    await stream.finish()


async def opened(address: tuple[str, int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*address, limit=MIB)


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


# --- honest connections ---


def test_the_opening_of_a_connection_goes_with_its_first_words() -> None:
    """Each frame that is sent by itself wakes the engine, its shim and the host."""
    agent = object.__new__(StreamingAgent)
    waits = set()
    for op in range(flow.OPEN, flow.ALLOW + 1):
        agent.parked = agent.pressing = agent.unowned = False
        agent.pending, agent.pending_bytes = collections.deque(), 0
        agent.send(wire.STREAM, flow.frame(op, 1))
        assert agent.pending_bytes > 0
        waits |= set() if agent.pressing else {op}
    assert waits == {flow.OPEN, flow.END}
    agent.pressing = True
    agent.send(wire.STREAM, flow.frame(flow.OPEN, 1))
    assert agent.pressing, "what presses goes, and this with it"


async def test_bytes_go_both_ways_and_each_end_is_told() -> None:
    service = Served(echo)
    async with related(service) as (host, agent):
        reader, writer = await opened(agent.address)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.write_eof()
        assert await reader.read() == b""
        await closed(writer)
        await until(lambda: not agent.relay.numbers and not agent.relay.files)
        assert service.events == [("began", "cell"), ("serve", "cell")]
        assert host.defects == []


async def test_much_arrives_whole_both_ways_at_once() -> None:
    """More than all windows together, in pieces of odd sizes, on several connections."""
    async with related(Served(echo)) as (_, agent):

        async def one(size: int) -> None:
            data = os.urandom(size)
            reader, writer = await opened(agent.address)

            async def write() -> None:
                for start in range(0, size, 100_003):
                    writer.write(data[start : start + 100_003])
                    await writer.drain()
                writer.write_eof()

            writing = asyncio.create_task(write())
            assert hashlib.sha256(await reader.read()).digest() == hashlib.sha256(data).digest()
            await writing
            await closed(writer)

        await asyncio.gather(*(one(size) for size in (0, 1, flow.WINDOW, 3 * MIB + 1, 5 * MIB)))
        await until(lambda: not agent.relay.numbers)


async def test_what_was_sent_before_the_end_is_read_after_it() -> None:
    """A cell that reads slowly gets all, though the service is done."""
    data = os.urandom(2 * MIB)

    async def serve(stream: Stream, cell: Cell) -> None:
        await stream.send(data)
        await stream.finish()

    async with related(Served(serve)) as (_, agent):
        reader, writer = await opened(agent.address)
        received = b""
        while piece := await reader.read(50_000):
            received += piece
            await asyncio.sleep(0)
        assert received == data
        await closed(writer)
        await until(lambda: not agent.relay.numbers)


async def test_a_connection_that_a_service_left_open_is_reset() -> None:
    async def serve(stream: Stream, cell: Cell) -> None:
        await stream.receive()

    service = Served(serve)
    async with related(service) as (_, agent):
        reader, writer = await opened(agent.address)
        writer.write(b"x")
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await closed(writer)
        with pytest.raises(StreamReset) as caught:
            await service.streams[0].receive()
        assert caught.value.code == RESET_LEFT_OPEN


async def test_a_service_that_fails_costs_one_connection_and_is_reported() -> None:
    async def serve(stream: Stream, cell: Cell) -> None:
        raise LookupError("no such thing")

    async with related(Served(serve)) as (host, agent):
        reader, writer = await opened(agent.address)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await closed(writer)
        await until(lambda: host.defects)
        assert host.defects == ["a connection: LookupError('no such thing')"]
        assert not host.garbage.done()


async def test_a_cell_that_breaks_a_connection_breaks_the_stream() -> None:
    broken: list[str] = []

    async def serve(stream: Stream, cell: Cell) -> None:
        try:
            while True:
                await stream.send(bytes(MIB))
        except StreamReset as error:
            broken.append(error.code)
            raise

    async with related(Served(serve)) as (host, agent):
        reader, writer = await opened(agent.address)
        await reader.readexactly(10)
        writer.transport.abort()
        await until(lambda: broken)
        await until(lambda: not agent.relay.numbers)
        assert (broken, host.defects) == ([RESET_BY_CELL], [])


async def test_nothing_is_sent_after_an_end() -> None:
    async def serve(stream: Stream, cell: Cell) -> None:
        await stream.finish()
        await stream.send(b"more")

    async with related(Served(serve)) as (host, agent):
        _, writer = await opened(agent.address)
        await until(lambda: host.defects)
        await closed(writer)
        assert host.defects == ["a connection: RuntimeError('nothing is sent after the end of a stream')"]


# --- whose they are, and how they end ---


async def test_a_connection_before_the_first_cell_is_reset_unheard() -> None:
    service = Served(echo)
    async with related(service, cell=None) as (_, agent):
        reader, writer = await opened(agent.address)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await closed(writer)
    assert service.events == []


async def test_a_connection_is_charged_to_the_cell_that_runs_or_ran_last() -> None:
    cells = RunningCells()
    assert cells.charged is None
    cells.cell_sent(Cell("a"))
    cells.cell_sent(Cell("b"))  # in a subshell
    assert cells.charged == Cell("b")
    cells.cell_ended(Cell("b"))
    assert cells.charged == Cell("a")
    cells.cell_ended(Cell("a"))
    cells.cell_ended(Cell("a"))
    cells.cell_ended(Cell("something else"))
    assert cells.charged == Cell("a")
    cells.kernel_gone()
    assert cells.charged is None


async def test_all_end_with_their_kernel_and_the_next_one_s_begin_anew() -> None:
    codes: list[str] = []

    async def serve(stream: Stream, cell: Cell) -> None:
        try:
            await echo(stream, cell)
        except (StreamReset, asyncio.CancelledError) as error:
            codes.append(type(error).__name__)
            raise

    service = Served(serve)
    async with related(service) as (host, agent):
        one, two = await opened(agent.address), await opened(agent.address)
        await until(lambda: len(service.streams) == 2)
        agent.order(agent.relay.kernel_ended)
        host.carrier.reset_all(RESET_BY_KERNEL)
        for reader, writer in (one, two):
            with pytest.raises(ConnectionResetError):
                await reader.read()
            await closed(writer)
        await until(lambda: not agent.relay.numbers)
        assert len(codes) == 2
        reader, writer = await opened(agent.address)
        writer.write(b"again")
        assert await reader.readexactly(5) == b"again"
        await closed(writer)
        assert not host.garbage.done()


async def test_what_waits_in_the_system_s_queue_ends_with_its_kernel() -> None:
    """The next kernel's cells are not charged with what the last one's left behind."""
    service = Served(echo)
    async with related(service, connections=1) as (_, agent):
        first = await opened(agent.address)
        await until(lambda: len(service.streams) == 1)
        waiting = await opened(agent.address)  # the system takes it, and the agent does not
        agent.order(agent.relay.kernel_ended)
        for reader, writer in (first, waiting):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            await closed(writer)
        assert len(service.streams) == 1


async def test_the_next_host_begins_with_no_connections_of_the_last() -> None:
    """A restart of the host's process: both forget, and numbers begin at one again."""
    service = Served(echo)
    async with related(service) as (host, agent):
        reader, writer = await opened(agent.address)
        writer.write(b"x")
        await reader.readexactly(1)
        await host.carrier.close()
        with pytest.raises(StreamReset) as caught:
            await service.streams[0].receive()
        assert caught.value.code == RESET_BY_END
        done = asyncio.Event()
        loop = asyncio.get_running_loop()
        agent.order(lambda: (agent.relay.forget(), loop.call_soon_threadsafe(done.set)))
        await done.wait()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await closed(writer)
        host.carrier = cell_streams.StreamCarrier(
            host.link, service, host.cells, connections=8, report=lambda *error: host.defects.append(str(error))
        )
        host.carrier.begin()
        reader, writer = await opened(agent.address)
        writer.write(b"new")
        assert await reader.readexactly(3) == b"new"
        assert service.streams[1].number == 1
        await closed(writer)


# --- bounds ---


async def test_a_cell_that_does_not_read_makes_its_service_wait_and_nobody_else() -> None:
    sent = 0

    async def serve(stream: Stream, cell: Cell) -> None:
        nonlocal sent
        if await stream.receive() == b"flood":
            while True:
                await stream.send(bytes(100_000))
                sent += 100_000
        await stream.send(b"there")
        await stream.finish()

    async with related(Served(serve)) as (host, agent):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        with sock:
            await asyncio.get_running_loop().sock_connect(sock, agent.address)
            await asyncio.get_running_loop().sock_sendall(sock, b"flood")
            stalled = -1
            while stalled != sent or not sent:
                stalled = sent
                await asyncio.sleep(0.2)
            # The host's own, the agent's, what is on its way, and two buffers of the system's.
            assert sent <= cell_streams.AHEAD + flow.WINDOW + 200_000 + 3 * 512 * 1024 + MIB
            held = sum(len(piece) for one in list(agent.relay.files.values()) for piece in one.out)
            assert 0 < held <= flow.WINDOW
            turns = agent.turns
            reader, writer = await opened(agent.address)
            writer.write(b"?")
            assert await reader.readexactly(5) == b"there"
            await closed(writer)
            assert agent.turns - turns < 50, "a connection that nobody reads costs the processor"
        assert not host.garbage.done()


async def test_a_service_that_does_not_read_makes_its_cell_wait_and_nobody_else() -> None:
    held: list[Stream] = []

    async def serve(stream: Stream, cell: Cell) -> None:
        held.append(stream)
        if len(held) == 1:
            await asyncio.Event().wait()
        await echo(stream, cell)

    async with related(Served(serve)) as (_, agent):
        _, flood = await opened(agent.address)
        flood.write(bytes(20 * MIB))
        stream = None
        await until(lambda: held)
        stream = held[0]
        assert isinstance(stream, CellConnection)
        await until(lambda: stream.flow.credit.may_come == 0)
        reader, writer = await opened(agent.address)
        turns = agent.turns
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        assert agent.turns - turns < 50, "a connection that nobody reads costs the processor"
        await closed(writer)
        flood.transport.abort()


async def test_only_so_many_are_open_and_the_others_wait_their_turn() -> None:
    service = Served(echo)
    async with related(service, connections=3) as (_, agent):

        async def one(number: int) -> bytes:
            reader, writer = await opened(agent.address)
            writer.write(b"%d" % number)
            writer.write_eof()
            data = await reader.read()
            await closed(writer)
            return data

        found = await asyncio.gather(*(one(number) for number in range(30)))
        assert found == [b"%d" % number for number in range(30)]
        assert service.most == 3


async def test_streams_follow_each_other_at_a_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """However fast a cell opens and closes, the host looks at so many in a second."""
    monkeypatch.setattr(cell_streams, "OPENS_A_SECOND", 100.0)
    service = Served(echo)
    async with related(service, connections=10) as (_, agent):
        began = asyncio.get_running_loop().time()

        async def one() -> None:
            reader, writer = await opened(agent.address)
            writer.write_eof()
            await reader.read()
            await closed(writer)

        for _ in range(40):
            await one()
        seconds = asyncio.get_running_loop().time() - began
        assert len(service.streams) <= 10 + 100 * seconds + 1
        assert seconds >= 0.25


@pytest.mark.slow
async def test_small_frames_come_at_a_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that sends a byte at a time is not told that they were taken before as many may come again."""
    monkeypatch.setattr(cell_streams, "FRAMES_A_SECOND", 1000.0)
    received = 0

    async def serve(stream: Stream, cell: Cell) -> None:
        nonlocal received
        while piece := await stream.receive():
            received += len(piece)

    async with hosted(Served(serve)) as (host, theirs):
        host.carrier.begin()
        agent = HostileAgent(theirs)
        await agent.say(OPEN_1)
        began, sent, room = asyncio.get_running_loop().time(), 0, flow.PIPE_WINDOW
        while sent < 5000:
            if room < flow.MIN_COST:
                op, _, amount, _ = await agent.hear()
                room += amount if op == flow.TAKEN else 0
                continue
            await agent.say(data(1))
            room -= flow.MIN_COST
            sent += 1
        await until(lambda: received == sent)
        # 1000 at once, and what the pipe may hold without a word of the host.
        assert asyncio.get_running_loop().time() - began >= (sent - 1000 - flow.PIPE_WINDOW // flow.MIN_COST) / 1000


async def greeted(host: Host, theirs: socket.socket) -> HostileAgent:
    """Let a host begin with an agent that is hostile; it says first how many connections there may be."""
    host.carrier.begin()
    agent = HostileAgent(theirs)
    assert (await agent.hear())[0] == flow.ALLOW
    return agent


async def test_messages_go_before_what_a_stream_sends() -> None:
    """A message is sent while a download fills the pipe: not much of the download comes before it."""

    async def serve(stream: Stream, cell: Cell) -> None:
        while True:
            await stream.send(bytes(MIB))

    async with hosted(Served(serve)) as (host, theirs):
        agent = await greeted(host, theirs)
        await agent.say(*(flow.frame(flow.OPEN, number) for number in range(1, 9)))
        await asyncio.sleep(0.05)
        host.link.send(wire.SHELL, [b"message"])
        before = 0
        frames: list[object] = []
        while not frames:
            data = await asyncio.get_running_loop().sock_recv(theirs, 1 << 16)
            for kind, parts in agent.decoder.feed(data):
                if kind == wire.SHELL:
                    frames.append(parts)
                else:
                    before += sum(map(len, parts))
        # Nothing was read before: the pipe was full, or as full as it may get.
        assert before <= flow.PIPE_WINDOW + flow.CHUNK + 9 * 64


# --- agents that are not ours ---

OPEN_1 = flow.frame(flow.OPEN, 1)


def data(number: int, size: int = 1) -> list[bytes]:
    return flow.data_frame(number, bytes(size))


GARBAGE: dict[str, list[list[bytes]]] = {
    "no parts": [[]],
    "a short head": [[b"\1"]],
    "three parts": [[*data(1), b"x"]],
    "no kind 0": [[b"\0" + bytes(3) + b"\1" + bytes(4)]],
    "no kind 8": [[b"\x08" + bytes(3) + b"\1" + bytes(4)]],
    "a number of none": [flow.frame(flow.OPEN, 0)],
    "a number where none is": [flow.frame(flow.TAKEN, 1, 1)],
    "an amount where none is": [flow.frame(flow.OPEN, 1, 1)],
    "data with an OPEN": [[*OPEN_1, b"x"]],
    "a DATA without data": [OPEN_1, flow.frame(flow.DATA, 1)],
    "a DATA with no bytes": [OPEN_1, data(1, 0)],
    "a DATA that is too large": [OPEN_1, data(1, flow.CHUNK + 1)],
    "credit of 0": [OPEN_1, flow.frame(flow.CREDIT, 1, 0)],
    "credit that is negative": [OPEN_1, [b"\3" + bytes(3) + b"\1" + b"\xff\xff\xff\xff"]],
    "credit that was not used": [OPEN_1, flow.frame(flow.CREDIT, 1, 1)],
    "bytes taken that were not sent": [flow.frame(flow.TAKEN, 0, 1)],
    "bytes taken, too many": [flow.frame(flow.TAKEN, 0, flow.PIPE_WINDOW + 1)],
    "streams that it allows itself": [flow.frame(flow.ALLOW, 0, 1)],
    "a number that was skipped": [flow.frame(flow.OPEN, 2)],
    "a number that is used": [OPEN_1, OPEN_1],
    "one stream too many": [flow.frame(flow.OPEN, number) for number in range(1, 6)],
    "data of no stream": [data(1)],
    "an end of no stream": [flow.frame(flow.END, 1)],
    "a reset of no stream": [flow.frame(flow.RESET, 1)],
    "data after the end": [OPEN_1, flow.frame(flow.END, 1), data(1)],
    "a second end": [OPEN_1, flow.frame(flow.END, 1), flow.frame(flow.END, 1)],
    "data after the reset": [OPEN_1, flow.frame(flow.RESET, 1), data(1)],
    "an end after the reset": [OPEN_1, flow.frame(flow.RESET, 1), flow.frame(flow.END, 1)],
    "an open after the reset": [OPEN_1, flow.frame(flow.RESET, 1), OPEN_1],
    "resets without an end": [OPEN_1] + [flow.frame(flow.RESET, 1)] * (flow.LATE + 2),
    "more data than a stream may send": [OPEN_1] + [data(1, flow.CHUNK)] * (flow.WINDOW // flow.CHUNK) + [data(1)],
    "more data than all may send": [flow.frame(flow.OPEN, number) for number in range(1, 5)]
    + [data(1 + number % 4, flow.CHUNK) for number in range(flow.PIPE_WINDOW // flow.CHUNK)]
    + [data(1)],
}


async def stuck(stream: Stream, cell: Cell) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("what", GARBAGE)
async def test_what_no_agent_of_ours_sends_ends_the_sandbox(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if what == "more data than all may send":  # what is read is given back at once, or else it is met
        monkeypatch.setattr(flow.Credit, "release", lambda self, size: 0)
    async with hosted(Served(stuck), connections=4) as (host, theirs):
        host.carrier.begin()
        agent = HostileAgent(theirs)
        *before, last = GARBAGE[what]
        await agent.say(*before)
        await until(lambda: not before or host.seen == len(before) or host.garbage.done())
        assert not host.garbage.done(), "the control: all but the last frame is in order"
        await agent.say(last)
        assert (await host.garbage).startswith("the sandbox sent what is no frame of a stream: ")


async def test_a_frame_before_a_kernel_was_ready_ends_the_sandbox() -> None:
    async with hosted(Served(echo)) as (host, theirs):
        await HostileAgent(theirs).say(OPEN_1)
        assert "never allowed" in await host.garbage


async def test_a_frame_without_a_service_ends_the_sandbox() -> None:
    with pytest.raises(WireError, match="was never allowed"):
        NoStreams().take(OPEN_1)


async def test_bytes_one_at_a_time_are_held_as_few_pieces() -> None:
    """Each piece takes memory of its own, fifty times as much as a byte."""
    received = asyncio.Event()
    found: list[int] = []

    async def serve(stream: Stream, cell: Cell) -> None:
        await received.wait()
        found.append(len(await stream.receive()))

    service = Served(serve)
    async with hosted(service) as (host, theirs):
        host.carrier.begin()
        agent = HostileAgent(theirs)
        await agent.say(OPEN_1, *[data(1)] * 20_000)
        await until(lambda: service.streams)
        stream = service.streams[0]
        assert isinstance(stream, CellConnection)
        await until(lambda: stream.flow.credit.may_come == flow.WINDOW - 20_000)
        assert stream.held[1] <= 20_000 // cell_streams.SMALL + 1
        received.set()
        await until(lambda: found)
        assert found == [20_000]


async def test_frames_that_cross_a_reset_are_no_garbage() -> None:
    """What an agent sent before it heard of the reset: it counts against its credit, and goes nowhere."""

    async def serve(stream: Stream, cell: Cell) -> None:
        stream.reset("denied")

    async with hosted(Served(serve)) as (host, theirs):
        agent = await greeted(host, theirs)
        await agent.say(OPEN_1)
        assert (await agent.hear())[:2] == (flow.RESET, 1)
        await agent.say(data(1, 1000), flow.frame(flow.END, 1), flow.frame(flow.RESET, 1))
        assert (await agent.hear())[:3] == (flow.ALLOW, 0, 1)
        assert not host.garbage.done()


async def test_a_stream_that_ends_before_its_service_began_is_given_back() -> None:
    """Its kernel ends in the same breath in which it was opened."""
    service = Served(echo)
    async with hosted(service, connections=1) as (host, theirs):
        agent = await greeted(host, theirs)
        host.carrier.take(OPEN_1)
        host.carrier.reset_all(RESET_BY_KERNEL)
        assert (await agent.hear())[:2] == (flow.RESET, 1)
        await agent.say(flow.frame(flow.RESET, 1))
        assert (await agent.hear())[:3] == (flow.ALLOW, 0, 1)
        assert service.streams == []


async def test_a_reset_that_crosses_an_end_is_no_garbage() -> None:
    async def serve(stream: Stream, cell: Cell) -> None:
        await stream.finish()

    async with hosted(Served(serve)) as (host, theirs):
        agent = await greeted(host, theirs)
        await agent.say(OPEN_1)
        assert (await agent.hear())[:2] == (flow.END, 1)
        await agent.say(flow.frame(flow.END, 1), flow.frame(flow.RESET, 1), flow.frame(flow.OPEN, 2))
        assert {(await agent.hear())[:2], (await agent.hear())[:2]} == {(flow.ALLOW, 0), (flow.END, 2)}
        assert not host.garbage.done()


# --- files that the system gives a second time ---


def test_a_break_that_is_answered_late_leaves_alone_who_has_the_file_now() -> None:
    """A connection breaks, the next one gets its file, and only then does the host answer: the next one is heard."""
    sent: list[tuple[int, int]] = []
    relay = Relay(0, lambda parts: sent.append(flow.parse(parts)[:2]), lambda: 0)
    with contextlib.ExitStack() as kept:
        kept.callback(relay.epoll.close)
        kept.enter_context(relay.listener)
        relay.take(flow.frame(flow.ALLOW, 0, 2))
        with socket.create_connection(relay.listener.getsockname()) as first:
            relay.turn()
            (file,) = relay.files
            first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
        relay.turn()
        assert sent == [(flow.OPEN, 1), (flow.RESET, 1)]
        second = kept.enter_context(socket.create_connection(relay.listener.getsockname()))
        relay.turn()
        assert list(relay.files) == [file]
        relay.take(flow.frame(flow.RESET, 1))
        second.sendall(b"hello")
        relay.turn()
        assert sent[2:] == [(flow.OPEN, 2), (flow.DATA, 2)]
        kept.callback(relay.forget)
