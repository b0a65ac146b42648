"""The stdin and stdout of a pod on one socket, as all other parts know a container's.

Attached, the API server brings both over one WebSocket, each message with a byte that says which stream it is of. Two
tasks move them from and to a pair of sockets, whose other end is the pipe. Neither reads more than it has handed over:
who does not read makes the pod wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import weakref

import aiohttp

from ...core.tasks import Tasks
from ...engines.pipe import TAIL_BYTES, Pipe, Plain
from .cluster_api import parsed
from .pod_endings import shown

STDIN, STDOUT, STDERR, STATUS, CLOSED = 0, 1, 2, 3, 255
CLOSE_SECONDS, GOODBYE_SECONDS = 1.0, 0.005
CHUNK_BYTES = 32 << 10
"""What the node hands on at once."""


class PodPipe:
    def __init__(self, wire: aiohttp.ClientWebSocketResponse) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._stream = Plain()
        self.pipe = Pipe(theirs, stream=self._stream)
        self.broken = asyncio.Event()
        """Set once nothing more comes from the pod."""
        self.why = "the API server closed the connection"
        """Why that is."""
        self._ours, self._wire = ours, wire
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks()
        self._down = self._tasks.start(self._from_pod(), "read from a pod")
        self._up = self._tasks.start(self._to_pod(), "write to a pod")
        _open.add(self)

    async def close(self) -> None:
        """End the connection; bounded."""
        self.pipe.close()
        await self._tasks.close()
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):  # it reads until the other side closes, whatever that sends
                await self._wire.close()
                while self._number() >= 0:  # noqa: ASYNC110 (TLS says goodbye, and its transport tells nobody)
                    await asyncio.sleep(GOODBYE_SECONDS)
        self._ours.close()

    def abandon(self) -> None:
        """Break the connection without a loop."""
        self.pipe.abandon()
        self._ours.close()
        if (number := self._number()) >= 0:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as wire:
                wire.shutdown(socket.SHUT_RDWR)

    def forked(self) -> None:
        """Close a child's copies: else a pod would outlive the parent for as long as the child."""
        self._ours.close()
        if (number := self._number()) >= 0:
            # The socket is its transport's, which closes this number some day, whatever has it by then.
            with contextlib.suppress(OSError):
                nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
                os.dup2(nothing, number, inheritable=False)
                os.close(nothing)

    def _number(self) -> int:
        found = self._wire.get_extra_info("socket")
        return -1 if found is None else int(found.fileno())

    async def _from_pod(self) -> None:
        try:
            while True:
                message = await self._wire.receive()
                if message.type is not aiohttp.WSMsgType.BINARY:
                    if isinstance(message.data, BaseException):
                        self.why = shown(message.data)
                    return
                await self._take(message.data)
        except OSError:
            pass  # the owner has closed its end
        finally:
            self.broken.set()
            with contextlib.suppress(OSError):
                self._ours.shutdown(socket.SHUT_WR)

    async def _take(self, data: bytes) -> None:
        kind = data[0] if data else CLOSED
        if kind == STDOUT:
            await self._loop.sock_sendall(self._ours, memoryview(data)[1:])
        elif kind == STDERR:
            self._stream.stderr += data[1:]
            del self._stream.stderr[:-TAIL_BYTES]
        elif kind == STATUS:
            said = parsed(data[1:])
            if said is not None and said.get("status") != "Success":
                self.why = shown(said.get("message", "")) or self.why

    async def _to_pod(self) -> None:
        try:
            while data := await self._loop.sock_recv(self._ours, CHUNK_BYTES):
                await self._wire.send_bytes(b"\x00" + data)
            await self._wire.send_bytes(bytes((CLOSED, STDIN)))
        except (OSError, aiohttp.ClientError):
            # What is not taken any more is refused from here on; what comes is still handed over.
            with contextlib.suppress(OSError):
                self._ours.shutdown(socket.SHUT_RD)
        else:
            await self._wire.close()


_open: weakref.WeakSet[PodPipe] = weakref.WeakSet()


def _forked() -> None:
    for one in list(_open):
        one.forked()


os.register_at_fork(after_in_child=_forked)
