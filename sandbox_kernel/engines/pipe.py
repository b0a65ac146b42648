"""The byte pipe of an attached container: its stdin and stdout on one socket, stderr kept as a short tail.

The engine interleaves stdout and stderr: eight bytes of header (stream, three zeros, length), then a payload. Nothing
is read before it is asked for, so a container that prints more than the host takes in waits. Imports errors only.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
from collections.abc import Callable
from typing import Any

from ..errors import EngineError

READ_BYTES = 256 << 10
TAIL_BYTES = 8 << 10
_HEADER = 8
_STDERR = 2


class Demultiplexer:
    """Takes the engine's headers out of a stream that is cut anywhere. It holds no payload, only a part of a header."""

    def __init__(self, stream: int = 0, remaining: int = 0, header: bytes = b"") -> None:
        self.stream = stream
        self.remaining = remaining
        self.header = header
        self.stderr = bytearray()

    def feed(self, data: memoryview) -> bytes:
        """Return the stdout in `data`; its stderr is added to the tail."""
        pieces = []
        position, end = 0, len(data)
        while position < end:
            if not self.remaining:
                missing = _HEADER - len(self.header)
                self.header += data[position : position + missing]
                position += missing
                if len(self.header) == _HEADER:
                    self.stream = self.header[0]
                    self.remaining = int.from_bytes(self.header[4:], "big")
                    self.header = b""
                continue
            piece = data[position : position + self.remaining]
            position += len(piece)
            self.remaining -= len(piece)
            if self.stream == _STDERR:
                self.stderr += piece
                del self.stderr[:-TAIL_BYTES]
            else:
                pieces.append(piece)
        return b"".join(pieces)


class Pipe:
    """Both directions of an attached container's socket."""

    def __init__(self, sock: socket.socket, received: bytes = b"", demultiplexer: Demultiplexer | None = None) -> None:
        """`received` are bytes, headers included, that were read from the socket already."""
        sock.setblocking(False)
        self._socket = sock
        self._demultiplexer = demultiplexer or Demultiplexer()
        self._received = received
        self._view = memoryview(bytearray(READ_BYTES))
        self._writing = asyncio.Lock()
        self._ready = False
        self._waiting: dict[asyncio.Future[None], Callable[[int], bool]] = {}
        self.ended = asyncio.Event()
        """Set once `receive` has met the end of the stream, or the pipe was closed."""

    @property
    def stderr(self) -> str:
        """The end of what the container wrote to stderr, as far as `receive` has met it."""
        return self._demultiplexer.stderr.decode("utf-8", "replace").strip()

    async def send(self, data: bytes) -> None:
        """Write all of `data`; a cancelled send may have written a part of it. Raises `EngineError`."""
        async with self._writing:
            view = memoryview(data)
            try:
                while view:
                    try:
                        view = view[self._socket.send(view) :]
                    except BlockingIOError:
                        await self._until_ready(for_writing=True)
            except OSError as error:
                raise EngineError("the pipe into the sandbox is gone", survived="nothing") from error

    async def receive(self) -> bytes:
        """Return the next stdout, b"" at its end. Cancelling loses no byte."""
        if self._received:
            received, self._received = self._received, b""
            if data := self._demultiplexer.feed(memoryview(received)):
                return data
        while True:
            if self._ready:
                # Others get their turn before the next piece of a stream that never runs dry.
                self._ready = False
                await asyncio.sleep(0)
            try:
                count = self._socket.recv_into(self._view)
            except BlockingIOError:
                # Not loop.sock_recv_into: cancelled at the wrong moment, it has read bytes that nobody gets.
                await self._until_ready(for_writing=False)
                continue
            except OSError:
                count = 0
            if not count:
                self.ended.set()
                return b""
            self._ready = True
            if data := self._demultiplexer.feed(self._view[:count]):
                return data

    def close(self) -> None:
        """Close the socket, which ends the container; a `receive` that waits returns b""."""
        self.ended.set()
        fd = self._socket.fileno()
        if fd < 0:
            return
        # A closed descriptor's number may be another socket's a moment later: stop waiting for it first.
        for ready, forget in self._waiting.items():
            forget(fd)
            _wake(ready)
        self._waiting.clear()
        with contextlib.suppress(OSError):  # the other side was faster
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def detach(self) -> tuple[int, dict[str, Any]]:
        """Give the file descriptor away, and what `attach` needs with it. No receive or send may be under way."""
        state = {
            "stream": self._demultiplexer.stream,
            "remaining": self._demultiplexer.remaining,
            "header": base64.b64encode(self._demultiplexer.header).decode(),
            "received": base64.b64encode(self._received).decode(),
        }
        return self._socket.detach(), state

    @classmethod
    def attach(cls, fd: int, state: dict[str, Any]) -> Pipe:
        """Continue where `detach` stopped. Raises KeyError, TypeError or ValueError for a state that is not one."""
        demultiplexer = Demultiplexer(
            int(state["stream"]), int(state["remaining"]), base64.b64decode(state["header"], validate=True)
        )
        received = base64.b64decode(state["received"], validate=True)
        return cls(socket.socket(fileno=fd), received, demultiplexer)

    async def _until_ready(self, *, for_writing: bool) -> None:
        loop = asyncio.get_running_loop()
        add, forget = (loop.add_writer, loop.remove_writer) if for_writing else (loop.add_reader, loop.remove_reader)
        fd = self._socket.fileno()
        ready = loop.create_future()
        add(fd, _wake, ready)
        self._waiting[ready] = forget
        try:
            await ready
        finally:
            if self._waiting.pop(ready, None) is not None:
                forget(fd)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
