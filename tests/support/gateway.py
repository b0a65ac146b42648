"""Egress without a sandbox: an `Egress` behind a port of the loopback, hosts to reach, a reporter that remembers."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import random
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

from sandbox_kernel.core.codes import Note
from sandbox_kernel.core.events import ConnectionEnded, SessionEvent, ToolCalled, ToolRefused
from sandbox_kernel.plugins.api import Cell
from sandbox_kernel.plugins.network.codes import NetworkCode
from sandbox_kernel.plugins.network.dial import SocketDuplex
from sandbox_kernel.plugins.network.egress import Egress
from sandbox_kernel.plugins.network.policy import Address, NetworkPolicy, RefusedConnection
from sandbox_kernel.plugins.network.traffic_limits import EgressLimits
from tests.support.loopback import Handler, listening
from tests.support.patience import within

CELL = Cell("cell-1")
API = "api.example.test"
LIMITS = EgressLimits(silent_seconds=20, head_seconds=5, lookup_seconds=5)
LOOPBACK = ipaddress.ip_address("127.0.0.1")


@dataclass
class Heard:
    """A `SessionHandle`, and a `Reporter`, that remembers."""

    id: str = "session-1"
    calls: list[tuple[str, bool, dict[str, Any]]] = field(default_factory=list)
    held: list[tuple[str, bool]] = field(default_factory=list)
    notes: list[tuple[Note, dict[str, object]]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def note(self, event: ConnectionEnded) -> None:
        about = {name: value for name, value in event.line().items() if name not in {"code", "reason"}}
        self.notes.append((Note(event.code, event.reason), about))

    def tell(self, text: str) -> None:
        self.told.append(text)

    def emit(self, event: SessionEvent) -> None:
        if isinstance(event, ToolCalled):
            fields = event.line()
            self.calls.append((fields.pop("code"), not isinstance(event, ToolRefused), fields))

    def hold_clock(self, cell: str, *, held: bool) -> None:
        self.held.append((cell, held))

    @property
    def codes(self) -> list[str]:
        return [note.code.code for note, _ in self.notes]


class Names:
    """A resolver of invented names, each with its answers: the first time, the second time, and so on."""

    def __init__(self, answers: dict[str, Sequence[Sequence[str]]] | None = None) -> None:
        self.answers = answers or {}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        self.asked.append(host)
        if host not in self.answers:
            if host.endswith(".example.test"):
                return [LOOPBACK]
            raise RefusedConnection(NetworkCode.NO_ADDRESS.note(host=host))
        answers = self.answers[host]
        turn = min(self.asked.count(host), len(answers)) - 1
        return [ipaddress.ip_address(one) for one in answers[turn]]


class Pieces:
    """A `Duplex` of which the other side says these pieces, and remembers what it is told."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)
        self.got = b""
        self.finished = False
        self.broken: str | None = None

    async def receive(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    async def send(self, data: bytes) -> None:
        self.got += data

    async def finish(self) -> None:
        self.finished = True

    def idle(self, *, idle: bool) -> None:
        """Nobody waits for its place."""

    def reset(self, code: str) -> None:
        self.broken = self.broken or code


@contextlib.asynccontextmanager
async def proxy(egress: Egress, cell: Cell = CELL) -> AsyncIterator[int]:
    """Yield a port of the loopback whose connections are served as if they had come out of a sandbox."""
    loop = asyncio.get_running_loop()
    numbers = count(1)
    tasks: set[asyncio.Task[None]] = set()
    with listener_of_proxy() as listener, contextlib.ExitStack() as held:  # also what is cancelled before it begins

        async def serve(accepted: socket.socket) -> None:
            stream = CellEnd(accepted, next(numbers))
            try:
                await egress.serve(stream, cell)
            finally:
                stream.reset("left-open")

        def accept() -> None:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                accepted, _ = listener.accept()
                held.enter_context(accepted).setblocking(False)
                tasks.add(asyncio.create_task(serve(accepted)))

        loop.add_reader(listener, accept)
        try:
            yield listener.getsockname()[1]
        finally:
            loop.remove_reader(listener)
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            faults = [one for one in outcomes if isinstance(one, Exception)]
            assert not faults, faults


class CellEnd(SocketDuplex):
    """A connection of a cell's; one that is reset ends as TCP does then."""

    def __init__(self, accepted: socket.socket, number: int) -> None:
        super().__init__(accepted)
        self.number = number

    def idle(self, *, idle: bool) -> None: ...


def listener_of_proxy() -> socket.socket:
    """Return a listener at a port that the system gives to nobody.

    Clients of kernels that have ended knock for a while at ports that the system gave to those, and may give again.
    """
    while True:
        with contextlib.suppress(OSError):
            listener = socket.create_server(("127.0.0.1", random.randrange(20_000, 32_000)), backlog=128)
            listener.setblocking(False)
            return listener


class Origin:
    """A host to reach: what it got, byte by byte, and how many connections there were."""

    def __init__(self, handler: Handler | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        self.connections = 0
        self.requests: list[bytes] = []
        """Heads, of the handler that is the default."""
        self._handler = handler or self.answer
        self._tls = tls
        self.port = 0

    async def __aenter__(self) -> Self:
        self._serving = listening(self._served, self._tls)
        self.port = await self._serving.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._serving.__aexit__(*error)

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await self._handler(reader, writer)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer each request with its method and path."""
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(head)
            body = await body_of(head, reader)
            method, path, _ = head.split(b" ", 2)
            said = b"%s %s %d" % (method, path, len(body))
            shown = b"" if method == b"HEAD" else said
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(said) + shown
            )
            await writer.drain()


async def body_of(head: bytes, reader: asyncio.StreamReader) -> bytes:
    """Return the body of a well-formed request."""
    fields = {line.partition(b":")[0].lower(): line.partition(b":")[2].strip() for line in head.split(b"\r\n")[1:]}
    if b"content-length" in fields:
        return await reader.readexactly(int(fields[b"content-length"]))
    body = b""
    if fields.get(b"transfer-encoding") == b"chunked":
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readuntil(b"\r\n")
    return body


async def say(port: int, *pieces: bytes, finish: bool = False) -> bytes:
    """Send pieces over a new connection to a port of the loopback, and return what comes until its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if finish:
            writer.write_eof()
        async with within(30):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


class Way:
    """An egress that allows `api.example.test` at some ports of the loopback, and a proxy in front of it."""

    def __init__(self, *ports: int, limits: EgressLimits = LIMITS, rules: tuple[str, ...] = ()) -> None:
        self.heard = Heard()
        self.names = Names()
        allowed = [f"{API}:{port}" for port in ports] + [f"127.0.0.1:{port}" for port in ports]
        policy = NetworkPolicy([*allowed, *rules])
        self.egress = Egress(policy, self.heard, limits=limits, resolver=self.names)
        self.egress.cell_sent(CELL)
        self.port = 0

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Way]:
        async with proxy(self.egress) as self.port:
            yield self

    async def ask(self, *pieces: bytes, finish: bool = False) -> bytes:
        return await say(self.port, *pieces, finish=finish)


def get(port: int, path: str = "/", *, last: bool = True, method: str = "GET") -> bytes:
    end = "Connection: close\r\n\r\n" if last else "\r\n"
    return f"{method} http://{API}:{port}{path} HTTP/1.1\r\nHost: {API}:{port}\r\n{end}".encode()


def connect(port: int, host: str = API) -> bytes:
    return f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
