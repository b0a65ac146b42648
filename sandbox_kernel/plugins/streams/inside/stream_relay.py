"""The agent's end of the connections that cells open: a listener, and a relay that does not look at a byte.

Runs inside the container, and is shipped only where somebody serves the connections: standard library only, and Python
3.9 and later. All of it is one epoll in the agent's loop. Nothing blocks, and all that is held has a bound, whatever
the cells do with their ends: an unread connection holds a window, and costs no processor.
"""

from __future__ import annotations

import collections
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING or __package__ != "container":  # which it is in a sandbox
    from ....container import flow, wire
    from ....container.agent import READ, STDIN, Agent
    from ....container.kernel import Kernel
else:
    from . import flow, wire
    from .agent import READ, STDIN, Agent
    from .kernel import Kernel

AT_ONCE = 16
"""Connections that are looked at before the kernel's messages get their turn again."""
BACKLOG = 128
BUFFER = 256 << 10
"""Bytes that the system holds of a connection towards a cell that does not read."""
LITTLE = 64 << 10
"""Bytes that wait for the host, from which on nothing is read from connections: a message waits for no more."""
UPLOAD = 64 << 10
"""Bytes that are read of a connection at once: a message waits for one of these, too."""
BULK = 32 << 10
"""Bytes of connections that come at once: what the engine hands over in one piece, so more is on its way."""
GATHER = 0.0003
"""Seconds that these may take to become more: for each piece, a poll and a write cost more than the copying."""
PAUSE = 1.0
"""Seconds without a listener when the system has no room for one more connection."""
LAST_NUMBER = 0xFFFFFFFF
ABORT = struct.pack("ii", 1, 0)
"""With SO_LINGER: closing forgets what the other side did not read, and says so."""


class Connection:
    """One connection of a cell's, and its stream to the host."""

    __slots__ = ("file", "flow", "mask", "out", "socket", "starved")

    def __init__(self, number: int, sock: socket.socket) -> None:
        self.flow = flow.Flow(number)
        self.socket = sock
        self.file = sock.fileno()
        self.mask = 0
        self.out: collections.deque[memoryview] = collections.deque()
        self.starved = False
        """It has something to say, and the host's pipe has no room."""


class Relay:
    """All connections."""

    def __init__(self, port: int, send: Callable[[Sequence[bytes]], None], pending: Callable[[], int]) -> None:
        """`send` takes a frame for the host; `pending` says how many bytes wait to be written to it."""
        self.send = send
        self.pending = pending
        self.epoll = select.epoll()
        self.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.listener.setblocking(False)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)  # each connection inherits it
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen(BACKLOG)
        self.listening = self.refusing = False
        self.paused_until = 0.0
        self.received = 0
        """Bytes that ever came from the host."""
        self.files: dict[int, Connection] = {}
        self.forget()

    def forget(self) -> None:
        """Break all connections without a word: the host is another one from here on, and knows none."""
        for connection in list(self.files.values()):
            self.close(connection, abort=True)
        self.numbers: dict[int, Connection] = {}
        self.number = 0
        self.allowed = 0
        self.credit = flow.Credit(flow.PIPE_WINDOW, flow.PIPE_STEP)
        self.late = flow.Late()
        self.starving: list[Connection] = []
        self.listen()

    def refuse(self) -> None:
        """Break all connections, and each new one at once, until the next host allows some."""
        self.refusing = True
        self.forget()

    # --- from the host ---

    def take(self, parts: Sequence[bytes]) -> None:
        """Act on a frame of the host. Raises `FrameError` for one that no host of ours sends."""
        op, number, amount, data = flow.parse(parts)
        if op == flow.TAKEN:
            self.credit.given(amount)
            return
        if op == flow.ALLOW:
            self.allowed += amount
            self.refusing = False
            self.listen()
            return
        if op == flow.DATA:
            self.received += len(data)
            self.credit.came(flow.cost(data))
            taken = self.credit.release(flow.cost(data))
            if taken:
                self.send(flow.frame(flow.TAKEN, 0, taken))
        connection = self.numbers.get(number)
        if connection is None:
            self.late.take(op)
            return
        stream = connection.flow
        stream.take(op, amount, len(data))
        if op == flow.RESET:
            if not stream.was_reset:
                self.send(flow.frame(flow.RESET, number))
            self.close(connection, abort=True)
        elif not stream.was_reset:
            if op == flow.DATA:
                connection.out.append(memoryview(data))
            if op == flow.CREDIT or len(connection.out) > 1:
                self.watch(connection)
            else:
                self.write(connection)
        self.settle(connection)

    # --- from the cells ---

    def turn(self) -> None:
        """Do what can be done now, a bounded part of it."""
        if not self.listening and (self.allowed or self.refusing) and time.monotonic() >= self.paused_until:
            self.listen()
        for file, events in self.epoll.poll(0, AT_ONCE):
            if file == self.listener.fileno():
                self.accept()
                continue
            connection = self.files.get(file)
            if connection is None:
                continue
            if events & ~select.EPOLLIN and connection.out:
                self.write(connection)
            if events & ~select.EPOLLOUT and connection.mask & select.EPOLLIN:
                self.read(connection)
            self.settle(connection)

    def resume(self) -> None:
        """Listen again to those that had no room, if there is some."""
        if self.starving and self.has_room():
            starving, self.starving = self.starving, []
            for connection in starving:
                connection.starved = False
                self.watch(connection)

    def has_room(self) -> bool:
        return self.credit.may_send >= flow.MIN_COST and self.pending() < LITTLE

    def accept(self) -> None:
        for _ in range(AT_ONCE):
            if not (self.refusing or self.may_accept()):
                break
            try:
                sock, _ = self.listener.accept()
            except (BlockingIOError, ConnectionError, InterruptedError):
                return
            except OSError:  # no file is left, or no memory
                self.paused_until = time.monotonic() + PAUSE
                break
            if self.refusing:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
                sock.close()
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.number += 1
            self.allowed -= 1
            connection = self.files[sock.fileno()] = self.numbers[self.number] = Connection(self.number, sock)
            self.send(flow.frame(flow.OPEN, self.number))
            self.watch(connection)
        self.listen()

    def may_accept(self) -> bool:
        # What a cell does not read of a stream that is over is still held here, so the files are counted too.
        return self.allowed > 0 and len(self.files) < flow.MAX_STREAMS and self.number < LAST_NUMBER

    def listen(self) -> None:
        """Watch the listener if one more connection may be taken; the others wait in the system's queue."""
        wanted = (self.refusing or self.may_accept()) and time.monotonic() >= self.paused_until
        if wanted and not self.listening:
            self.epoll.register(self.listener.fileno(), select.EPOLLIN)
        elif self.listening and not wanted:
            self.epoll.unregister(self.listener.fileno())
        self.listening = wanted

    def read(self, connection: Connection) -> None:
        stream = connection.flow
        if not self.has_room():
            connection.starved = True
            self.starving.append(connection)
            self.watch(connection)
            return
        try:
            data = connection.socket.recv(min(UPLOAD, stream.credit.may_send, self.credit.may_send))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.reset(connection)
            return
        if data:
            stream.credit.spend(len(data))
            self.credit.spend(flow.cost(data))
            self.send(flow.data_frame(stream.number, data))
        else:
            stream.end()
            self.send(flow.frame(flow.END, stream.number))
        self.watch(connection)

    def write(self, connection: Connection) -> None:
        stream, out, written = connection.flow, connection.out, 0
        try:
            while out:
                count = connection.socket.send(out[0])
                written += count
                if count < len(out[0]):
                    out[0] = out[0][count:]
                else:
                    out.popleft()
            if stream.end_came:
                connection.socket.shutdown(socket.SHUT_WR)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.reset(connection)
            return
        credit = stream.release(written)
        if credit:
            self.send(flow.frame(flow.CREDIT, stream.number, credit))
        self.watch(connection)

    # --- ends ---

    def watch(self, connection: Connection) -> None:
        """Ask for what can be acted on, and nothing else: an end of the other side is always reported."""
        stream = connection.flow
        if connection.socket.fileno() < 0:
            return
        reads = not (stream.ended or connection.starved) and stream.credit.may_send
        mask = (select.EPOLLIN if reads else 0) | (select.EPOLLOUT if connection.out else 0)
        if mask == connection.mask:
            return
        if not connection.mask:
            self.epoll.register(connection.file, mask)
        elif not mask:
            self.epoll.unregister(connection.file)
        else:
            self.epoll.modify(connection.file, mask)
        connection.mask = mask

    def reset(self, connection: Connection) -> None:
        """Break a connection; its number is kept until the host has heard of it."""
        if not (connection.flow.was_reset or connection.flow.over):
            connection.flow.reset()
            self.send(flow.frame(flow.RESET, connection.flow.number))
        self.close(connection, abort=True)

    def settle(self, connection: Connection) -> None:
        """Forget a stream that is over, and close its connection when what came is written."""
        stream = connection.flow
        if stream.over and self.numbers.pop(stream.number, None) is not None:
            self.late.over()
        if stream.over and not connection.out:
            self.close(connection)

    def close(self, connection: Connection, *, abort: bool = False) -> None:
        if self.files.get(connection.file) is not connection:
            return  # closed already, and the system may have given its file to another
        del self.files[connection.file]
        if connection.mask:
            self.epoll.unregister(connection.file)
            connection.mask = 0
        connection.out.clear()
        if abort:
            try:
                connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
            except OSError:
                pass
        connection.socket.close()
        self.listen()

    def kernel_ended(self) -> None:
        """Break what the cells of a kernel left behind."""
        for connection in list(self.files.values()):
            self.reset(connection)
            self.settle(connection)
        for _ in range(2 * BACKLOG):
            try:
                self.listener.accept()[0].close()
            except OSError:
                break


class StreamingAgent(Agent):
    """The agent of a sandbox whose cells may open connections."""

    def begin(self, wake_read: int, status: str, filters: dict[str, int | None]) -> None:
        self.relay = Relay(self.config["port"], lambda parts: self.send(wire.STREAM, parts), lambda: self.pending_bytes)
        self.bulk = False
        self.decoder = wire.Decoder(self.config["max_frame"], BULK)
        self.spare = memoryview(bytearray(READ))
        super().begin(wake_read, status, filters)
        self.poller.register(self.relay.epoll.fileno(), select.POLLIN)

    def send(self, kind: int, parts: Sequence[bytes]) -> None:
        pressing = self.pressing
        super().send(kind, parts)
        if kind == wire.STREAM and parts[0][0] in (flow.OPEN, flow.END):
            # The opener of a connection speaks first, and one that ends may be followed by another: this can wait.
            self.pressing = pressing

    def handle(self, kind: int, parts: Sequence[bytes]) -> None:
        if kind == wire.STREAM:
            self.relay.take(parts)
        else:
            super().handle(kind, parts)

    def receive(self) -> None:
        if self.bulk:
            time.sleep(GATHER)
        before = self.relay.received
        try:
            count, frames = self.decoder.receive(lambda room: os.readv(STDIN, room), self.spare)
        except BlockingIOError:
            return
        if not count:
            os._exit(0)
        for kind, parts in frames:
            self.handle(kind, parts)
        self.bulk = self.relay.received - before >= BULK

    def command(self, op: str, request: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        if op == "park":
            self.relay.forget()
        return super().command(op, request, data)

    def orphan(self) -> None:
        self.relay.refuse()
        super().orphan()

    def release(self, kernel: Kernel, status: int) -> None:
        self.relay.kernel_ended()
        super().release(kernel, status)

    def leave(self) -> None:
        self.relay.turn()
        super().leave()
        self.relay.resume()
