"""One WebSocket of a client of Jupyter's: the channels of a kernel.

What waits for a client is bounded. A client that does not read loses its connection, at no cost to others.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from ....core.codes import MessageCode
from ....core.errors import ProtocolError
from ....core.model import Message
from ..tenants import Lease, Tenants
from ..turns import paced
from ..web_server import close, known
from . import front as jupyter_front
from . import messages as jupyter_messages
from .messages import ENDED, REFUSED, V1, Closed, Outgoing
from .pieces import fits, limit_of, pieces

MAX_UNSENT = 32 << 20
"""Bytes that wait for a client; one message may be larger."""
MAX_UNSENT_MESSAGES = 20_000
MAX_ANSWERS = 32
"""Requests of one client that are answered at a time; what comes then waits with the client."""
READER_SECONDS = 30.0
"""For a client to take one message."""
LOOK_SECONDS = 5.0
"""Between two looks whether the sandbox is still there."""
NAME_CHARACTERS = 64


class Channels:
    """A `Client` of a sandbox."""

    def __init__(self, socket: WebSocket, tenants: Tenants, lease: Lease) -> None:
        self.client = b"jupyter-" + secrets.token_hex(16).encode()
        self.who = f"jupyter {lease.tenant.name}"
        self._socket, self._tenants, self._lease = socket, tenants, lease
        self._front = jupyter_front.front_of(lease)
        self._v1 = V1 in socket.scope.get("subprotocols", ())
        # A Jupyter Server that stands between reads text alone, and loses the connection over anything else.
        self._text_alone = not self._v1 and socket.headers.get("user-agent", "").startswith("Tornado/")
        self._limit = limit_of(socket.headers.get("user-agent", ""))
        self._waiting: deque[Outgoing] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._end: Closed | None = None
        self._ended = asyncio.Event()
        self._room = asyncio.Semaphore(MAX_ANSWERS - 1)
        """For the next request while so many are answered."""

    # --- to the client ---

    def send(self, message: Outgoing) -> None:
        """Send a message, as soon as the client takes it."""
        if self._end is not None or (message.buffers and self._text_alone):
            return
        if self._waiting and (self._bytes + message.size > MAX_UNSENT or len(self._waiting) >= MAX_UNSENT_MESSAGES):
            self._waiting.clear()
            self._close(Closed(REFUSED, "the client reads too slowly"), at_once=True)
            return
        self._waiting.append(message)
        self._bytes += message.size
        self._news.set()

    def look(self) -> None:
        if not self._lease.is_there and self._end is None:
            self._front.server.status("dead", client=self.client)
            self._close(Closed(ENDED, "the sandbox has ended"))

    def _close(self, why: Closed, *, at_once: bool = False) -> None:
        """End it, behind what waits for the client, or `at_once`."""
        self._end = self._end or why
        self._news.set()
        if at_once:
            self._ended.set()

    async def _write(self) -> None:
        while True:
            while self._waiting:
                message = self._waiting.popleft()
                for one in [message] if fits(message, self._limit) else await self._in_pieces(message):
                    data = one.in_parts if self._v1 else one.in_json
                    kind = "text" if isinstance(data, str) else "bytes"
                    async with asyncio.timeout(READER_SECONDS):
                        await self._socket.send({"type": "websocket.send", kind: data})
                self._bytes -= message.size
            if self._end is not None:
                return
            self._news.clear()
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                self.look()

    async def _in_pieces(self, message: Outgoing) -> list[Outgoing]:
        async def keep(path: str, content: bytes) -> None:
            async with asyncio.timeout(READER_SECONDS):
                await self._lease.sandbox.files.write(path, content)

        return await pieces(message, self._limit or 0, keep)

    # --- from the client ---

    async def _read(self) -> None:
        while True:
            received = await self._socket.receive()
            if received["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(received.get("code", 1005))
            data = received.get("text")
            await self._take(jupyter_messages.decode(received["bytes"] if data is None else data, v1=self._v1))
            await asyncio.sleep(0)  # others have their turn, however much has come

    async def _take(self, request: Message) -> None:
        if not self._lease.is_there:
            self.look()
            return
        self._lease.used = time.monotonic()
        name = request.header.get("username")
        if isinstance(name, str) and name.isprintable():
            self.who = f"jupyter {self._lease.tenant.name}/{name[:NAME_CHARACTERS]}"
        if (answering := self._front.receive(request, self)) is None:
            return
        task = self._tenants.tasks.start(answering, f"a {request.type} of Jupyter's")
        task.add_done_callback(lambda _: self._room.release())
        await self._room.acquire()

    # --- what it asks of the kernel's process ---

    def ports(self) -> dict[str, Any]:
        raise ProtocolError(MessageCode.WRONG_CHANNEL.note(type="connect_request", channel="websocket"))

    async def interrupt(self) -> None:
        await self._lease.sandbox.interrupt()  # of calls of the SDK's, too

    async def restart(self) -> None:
        await self._front.restart()

    async def shut_down(self, request: Message) -> None:
        if not request.content.get("restart"):
            await shut_down(self._tenants, self._lease)

    async def serve(self) -> None:
        """Serve it to its end. Raises `Closed` for what ends it from here, and `WebSocketDisconnect`."""
        self._front.add(self)
        try:
            known(self._socket)  # its token was in the request
            await self._socket.accept(subprotocol=V1 if self._v1 else None)
            self._front.server.say_busy()
            hold = self._tenants.tasks.hold
            reading = hold(paced(self._read()), "what a client of Jupyter's sends")
            writing = hold(self._write(), "what is sent to a client of Jupyter's")
            dropped = hold(self._ended.wait(), "the end of a client of Jupyter's")
            tasks: set[asyncio.Task[Any]] = {reading, writing, dropped}
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if self._end is not None:
                    raise self._end
                for task in done:
                    try:
                        task.result()
                    except TimeoutError:
                        raise Closed(REFUSED, "the client reads too slowly") from None
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                for task in tasks:
                    if not task.cancelled():
                        task.exception()
        finally:
            self._front.remove(self)


def is_own(lease: Lease) -> bool:
    """Return whether a client of Jupyter's made a sandbox."""
    return lease.wire == "jupyter"


async def shut_down(tenants: Tenants, lease: Lease) -> None:
    """End a sandbox that a client of Jupyter's made. One that others made goes on: it was joined, and is left."""
    if is_own(lease):
        await tenants.end(lease)
        jupyter_front.front_of(lease).kernel_gone()


async def channels(socket: WebSocket, tenants: Tenants, lease: Lease) -> None:
    """Serve the channels of a kernel."""
    await tenants.resume(lease)
    try:
        await Channels(socket, tenants, lease).serve()
    except Closed as end:
        try:
            async with asyncio.timeout(1.0):
                await close(socket, end.code, str(end))
        except (TimeoutError, RuntimeError):
            pass
