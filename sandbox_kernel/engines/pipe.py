"""The byte pipe of an attached container: its stdin and stdout on one socket, stderr kept as a short tail.

Some engines interleave stdout and stderr there; how they do that is theirs to know (`StreamFraming`). Nothing is read
before it is asked for, so a container that prints more than the host takes in waits.

Public: plugins may import it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import socket
import weakref
from collections.abc import Mapping
from typing import Any, Protocol

from ..core.codes import EndCode, Survived
from ..core.errors import EngineError

READ_BYTES, FEW_BYTES = 512 << 10, 32 << 10
"""What is read at once, at most, and where little comes: each idle sandbox has room for that."""
TAIL_BYTES = 8 << 10


class StreamFraming(Protocol):
    """What an engine makes of stdout and stderr on their way through one socket, and how to undo it."""

    stderr: bytearray
    """The end of what came of it."""

    def feed(self, data: memoryview) -> bytes:
        """Return the stdout in `data`, which is cut anywhere."""

    def state(self) -> dict[str, Any]:
        """Return what another process needs to go on in the midst of it, as plain JSON."""


class Plain:
    """Stdout as it is; stderr has a way of its own."""

    def __init__(self) -> None:
        self.stderr = bytearray()

    def feed(self, data: memoryview) -> bytes:
        return bytes(data)

    def state(self) -> dict[str, Any]:
        return {}


class Pipe:
    """Both directions of an attached container's socket."""

    def __init__(self, sock: socket.socket, received: bytes = b"", stream: StreamFraming | None = None) -> None:
        """`received` are bytes that were read from the socket already; `stream` undoes what the engine does to them."""
        sock.setblocking(False)
        self.ended = asyncio.Event()
        """Set once `receive` has met the end of the stream, or the pipe was closed."""
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._stream: StreamFraming = stream or Plain()
        self._received = received
        self._view = memoryview(bytearray(FEW_BYTES))
        self._is_much = False
        """Whether the last receive took as much as comes of a large output."""
        self._filled = 0
        """How much of the view waits for a receive."""
        self._wanted = 1
        """How much of it there must be before a receive is woken."""
        self._over = False
        """Nothing more will come into the view."""
        self._taken = 0
        self._until: int | None = None
        self._watched = False
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._writing = asyncio.Lock()
        self._flowing = asyncio.Event()
        """Not set while nothing is read or written: what is at the other end is written down."""
        self._flowing.set()
        _open.add(self)

    @property
    def stderr(self) -> str:
        """The end of the container's stderr that `receive` has read."""
        return self._stream.stderr.decode("utf-8", "replace").strip()

    async def send(self, data: bytes) -> None:
        """Write all of `data`; a cancelled send may have written a part of it. Raises `EngineError`."""
        async with self._writing:
            view = memoryview(data)
            try:
                while view:
                    if not self._flowing.is_set():
                        await self._flowing.wait()
                    try:
                        view = view[self._socket.send(view) :]
                    except BlockingIOError:
                        await self._until_writable()
            except OSError as error:
                raise EngineError(EndCode.PIPE_GONE, kept=Survived.NOTHING) from error

    async def load(self, program: bytes) -> None:
        """Write a program to a container that has started. Of one that has ended already, its `wait` says why."""
        with contextlib.suppress(EngineError):
            await self.send(program)

    def offer(self, data: bytes) -> int:
        """Write what can be written at once and return how many bytes that was; 0 also if the pipe is gone."""
        if self._writing.locked() or not self._flowing.is_set():
            return 0
        try:
            return self._socket.send(data)
        except OSError:
            return 0

    async def receive(self, minimum: int = 1) -> bytes:
        """Return the next stdout, b"" at its end. Cancelling loses no byte; one task at a time.

        The engine hands a large output over in thousands of small pieces. Who knows that at least `minimum` bytes are
        to come is not woken for each of them; READ_BYTES or the end are enough in any case.
        """
        if self._received:
            received, self._received = self._received, b""
            if data := self._stream.feed(memoryview(received)):
                return data
        self._wanted = min(max(minimum, 1), READ_BYTES)
        size = READ_BYTES if self._is_much or self._wanted > FEW_BYTES else FEW_BYTES
        if size != len(self._view) and not self._filled:
            self._view = memoryview(bytearray(size))
        while True:
            if self._filled < self._wanted and not self._over:
                await self._until_filled()
            if not self._filled:
                self.ended.set()
                return b""
            count, self._filled = self._filled, 0
            self._is_much = count >= FEW_BYTES
            if data := self._stream.feed(self._view[:count]):
                return data

    @property
    def waits_at(self) -> int | None:
        """How many bytes had come when a `receive` began to wait for more; None while none waits."""
        return self._taken if self._reader is not None else None

    def finish(self) -> None:
        """Nothing more will be written at the other end, though it may be open: what has come is the rest."""
        if self._socket.fileno() >= 0:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RD)

    def hold(self) -> None:
        """Read and write nothing: what has not come stays where it is. The caller waits meanwhile."""
        self._flowing.clear()

    def let_go_on(self) -> None:
        """Read and write again."""
        self._flowing.set()
        if self._reader is not None and not self._watched and self._socket.fileno() >= 0:
            self._watched = True
            self._loop.add_reader(self._socket.fileno(), self._fill)

    def refuse(self) -> None:
        """Take nothing more from the other end, and give it nothing more: what has come is the rest, a `send` raises.

        The other side may read nothing; a `send` that waits for it would wait for as long.
        """
        if self._socket.fileno() >= 0:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def end_at(self, count: int) -> None:
        """So many bytes are all that comes, though the other end stays open."""
        self._until = count
        if self._taken >= count:
            self._over = True
            _wake(self._reader)

    def close(self) -> None:
        """Close the socket, which ends the container; a `receive` that waits returns b"", a `send` raises."""
        self.ended.set()
        if self._socket.fileno() < 0:
            return
        self._release()
        with contextlib.suppress(OSError):  # the other side was faster
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._filled, self._over = 0, True
        self._flowing.set()
        _wake(self._reader)
        _wake(self._writer)

    def abandon(self) -> None:
        """Close this process's file descriptor and nothing else; the loop, if it lives, is another process's."""
        self._socket.close()

    def detach(self) -> tuple[int, dict[str, Any]]:
        """Give the file descriptor away, and what `attach` needs with it. No receive or send may be under way."""
        self._release()
        received = self._received + bytes(self._view[: self._filled])
        state = {**self._stream.state(), "received": base64.b64encode(received).decode(), "taken": self._taken}
        return self._socket.detach(), state

    @classmethod
    def attach(cls, fd: int, state: dict[str, Any], stream: StreamFraming | None = None) -> Pipe:
        """Continue where `detach` stopped. Raises KeyError, TypeError or ValueError for a state that is not one."""
        received = base64.b64decode(state["received"], validate=True)
        taken = int(state.get("taken", 0))
        pipe = cls(socket.socket(fileno=fd), received, stream)
        pipe._taken = taken
        return pipe

    # --- waiting ---

    async def _until_filled(self) -> None:
        """Wait for as many bytes in the view as are wanted, or for the end.

        The loop's own sock_recv_into() would do, but it loses bytes when it is cancelled at the wrong moment, and
        starts and stops to watch the socket for each piece, which took half of the time of a large output.
        """
        if self._socket.fileno() < 0:
            self._over = True
            return
        self._reader = self._loop.create_future()
        if not self._watched and self._flowing.is_set():
            self._watched = True
            self._loop.add_reader(self._socket.fileno(), self._fill)
        try:
            await self._reader
        finally:
            self._reader = None

    def _fill(self) -> None:
        if not self._flowing.is_set() or self._reader is None or self._reader.done():
            # Nothing reads: the bytes stay in the socket, and the container waits when that is full.
            self._watched = False
            self._loop.remove_reader(self._socket.fileno())
            return
        try:
            while self._filled < self._wanted and not self._over:
                count = self._socket.recv_into(self._view[self._filled :])
                self._filled += count
                self._taken += count
                self._over = not count or (self._until is not None and self._taken >= self._until)
        except BlockingIOError:
            return
        except OSError:
            self._over = True
        _wake(self._reader)

    async def _until_writable(self) -> None:
        self._writer = self._loop.create_future()
        self._loop.add_writer(self._socket.fileno(), _wake, self._writer)
        try:
            await self._writer
        finally:
            self._writer = None
            if self._socket.fileno() >= 0:
                self._loop.remove_writer(self._socket.fileno())

    def _release(self) -> None:
        """Stop watching the socket: its number may be another's a moment later."""
        self._watched = False
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())


_open: weakref.WeakSet[Pipe] = weakref.WeakSet()


def _forked() -> None:
    """In a forked child, close its copies: else a container would outlive the parent for as long as the child."""
    for pipe in list(_open):
        pipe.abandon()


os.register_at_fork(after_in_child=_forked)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


class OverPipe:
    """What every container hands on to its pipe."""

    _pipe: Pipe
    introduced: Mapping[str, Any] | None = None

    async def send(self, data: bytes) -> None:
        await self._pipe.send(data)

    def offer(self, data: bytes) -> int:
        return self._pipe.offer(data)

    async def receive(self, minimum: int = 1) -> bytes:
        return await self._pipe.receive(minimum)
