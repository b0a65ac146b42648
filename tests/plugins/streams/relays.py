"""Both ends of cells' connections in one process: the host's link over a real pipe, the agent's relay in a thread.

What the agent says can be written by hand instead, for an agent that is not ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from sandbox_kernel.container import flow, wire
from sandbox_kernel.core.errors import WireError
from sandbox_kernel.engines.demultiplexer import Demultiplexer
from sandbox_kernel.engines.pipe import Pipe
from sandbox_kernel.plugins.api import Cell
from sandbox_kernel.plugins.streams.cell_streams import StreamCarrier
from sandbox_kernel.plugins.streams.inside.stream_relay import Relay
from sandbox_kernel.session.agent_link import Link
from sandbox_kernel.session.running_cells import RunningCells
from tests.support.patience import within
from tests.support.stream_services import Served

HEADER = struct.Struct("!B3xI")
"""The engine's, before each piece of stdout."""


class Pipes:
    """The pipe of a container without one: what a link needs of it."""

    id = "c"

    def __init__(self, sock: socket.socket) -> None:
        self.pipe = Pipe(sock, stream=Demultiplexer())
        self.send, self.offer, self.receive = self.pipe.send, self.pipe.offer, self.pipe.receive

    async def kill(self) -> None:
        self.pipe.close()


class Host:
    """The host's end."""

    def __init__(self, sock: socket.socket, service: Served, connections: int) -> None:
        self.link = Link(Pipes(sock), 1 << 22)  # type: ignore[arg-type]
        self.cells = RunningCells()
        self.defects: list[str] = []
        self.carrier = StreamCarrier(
            self.link,
            service,
            self.cells,
            connections=connections,
            report=lambda name, error: self.defects.append(f"{name}: {error!r}"),
        )
        self.garbage: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.seen = 0
        """Frames of streams that were in order."""
        self.messages: list[tuple[int, list[bytes]]] = []

    async def read(self) -> None:
        try:
            async for kind, parts in self.link.frames():
                if kind == wire.STREAM:
                    self.carrier.take(parts)
                    self.seen += 1
                else:
                    self.messages.append((kind, parts))
        except WireError as error:
            self.garbage.set_result(str(error))


@contextlib.asynccontextmanager
async def hosted(service: Served, *, connections: int = 8, cell: str | None = "cell") -> AsyncIterator[Any]:
    """Yield the host's end, with a cell that runs, and the other end of its pipe."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    host = Host(ours, service, connections)
    if cell is not None:
        for observer in (host.cells, service):
            observer.cell_sent(Cell(cell))
    reading = asyncio.create_task(host.read())
    try:
        async with within(30):
            yield host, theirs
    finally:
        await host.carrier.close()
        await host.link.close()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await host.link.container.kill()
        theirs.close()


class HostileAgent:
    """Says what a test wants, and reads what the host says."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.decoder = wire.Decoder(1 << 22)
        self.heard: deque[tuple[int, int, int, bytes]] = deque()

    async def say(self, *frames: Sequence[bytes]) -> None:
        data = b"".join(b"".join(wire.encode(wire.STREAM, parts)) for parts in frames)
        await asyncio.get_running_loop().sock_sendall(self.sock, HEADER.pack(1, len(data)) + data)

    async def hear(self) -> tuple[int, int, int, bytes]:
        """Return the next frame of a stream: what it is, its number, its amount and its data."""
        while not self.heard:
            data = await asyncio.get_running_loop().sock_recv(self.sock, 1 << 16)
            assert data, "the host hung up"
            self.heard += [flow.parse(parts) for kind, parts in self.decoder.feed(data) if kind == wire.STREAM]
        return self.heard.popleft()


class Agent(threading.Thread):
    """The relay of the agent's in a loop as the agent's is, without a kernel."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(name="agent", daemon=True)
        self.sock = sock
        self.out = bytearray()
        self.turns = 0
        self.decoder = wire.Decoder(1 << 22)
        self.relay = Relay(0, self.send, lambda: len(self.out))
        self.address: tuple[str, int] = self.relay.listener.getsockname()
        self.wake_read, self.wake_write = socket.socketpair()
        self.orders: deque[Callable[[], None]] = deque()
        self.error: BaseException | None = None

    def send(self, parts: Sequence[bytes]) -> None:
        data = b"".join(wire.encode(wire.STREAM, parts))
        self.out += HEADER.pack(1, len(data)) + data

    def order(self, what: Callable[[], None]) -> None:
        """Have something done by the agent's thread."""
        self.orders.append(what)
        self.wake_write.send(b"x")

    def run(self) -> None:
        try:
            while self.turn():
                self.turns += 1
        except BaseException as error:
            self.error = error

    def turn(self) -> bool:
        reads: list[Any] = [self.sock, self.relay.epoll, self.wake_read]
        ready, _, _ = select.select(reads, [self.sock] if self.out else [], [], 10)
        if self.wake_read in ready and not self.wake_read.recv(100):
            return False
        while self.orders:
            self.orders.popleft()()
        if self.sock in ready:
            data = self.sock.recv(1 << 18)
            if not data:
                return False
            for kind, parts in self.decoder.feed(data):
                if kind == wire.STREAM:
                    self.relay.take(parts)
        self.relay.turn()
        if self.out:
            with contextlib.suppress(BlockingIOError):
                del self.out[: self.sock.send(self.out)]
        self.relay.resume()
        return True

    def end(self) -> None:
        self.wake_write.close()
        self.join(10)
        assert not self.is_alive()
        self.relay.forget()
        self.relay.listener.close()
        self.relay.epoll.close()
        self.wake_read.close()


@contextlib.asynccontextmanager
async def related(service: Served, *, connections: int = 8, cell: str | None = "cell") -> AsyncIterator[Any]:
    """Yield the host's end and the agent, with a kernel that is ready and a cell that runs."""
    async with hosted(service, connections=connections, cell=cell) as (host, theirs):
        agent = Agent(theirs)
        agent.start()
        try:
            host.carrier.begin()
            yield host, agent
        finally:
            await asyncio.to_thread(agent.end)
        assert agent.error is None, agent.error
