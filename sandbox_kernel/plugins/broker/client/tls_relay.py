"""What a broker's unix socket carries, carried over TLS: packets on one connection, a sandbox's pipe on another.

Both sides have a pair of local sockets for each, and relay between them and the network. So a caller and a broker read
packets and pipes as they do on one machine. In the place of a descriptor goes a pass, with which the same caller opens
the second connection, once. A connection of its own lets the pipe wait for a slow reader while packets do not.

Each side says on the first that it is there. One that is silent for as long as an agent waits for its owner is gone.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable

from ....core.descriptors import send_fds
from ....core.tasks import Tasks
from . import packets

HEAD = struct.Struct("!BI")
"""Of a frame: its kind, and how many bytes follow."""
HELLO, PACKET, PACKET_WITH_PIPE, ALIVE = range(4)
PASS_BYTES = 16
MAX_FRAME = packets.MAX_BYTES + PASS_BYTES
ALIVE_SECONDS = 10.0
"""From one word that a side is there to the next."""
SILENCE_SECONDS = 60.0
"""Without a word, after which the other side is gone: as long as a sandbox waits for its owner."""
TAKE_SECONDS = 30.0
"""For the other side to take a packet in."""
FLUSH_SECONDS = 30.0
"""For the other side to take in the last of a connection that is closed."""
CHUNK_BYTES = 64 << 10
LIMIT_BYTES = 64 << 10
"""Kept of a connection before it is read; the other side waits then."""
WORDS = 200
"""Characters of what the network says of an end."""


class ConnectionBroken(Exception):
    """The other side is gone, or says what is no frame."""


async def send(writer: asyncio.StreamWriter, kind: int, data: bytes = b"") -> None:
    """Send a frame. Raises `ConnectionBroken`, also for a side that does not take it in."""
    try:
        writer.write(HEAD.pack(kind, len(data)) + data)
        async with asyncio.timeout(TAKE_SECONDS):
            await writer.drain()
    except TimeoutError as error:
        raise ConnectionBroken(f"a packet was not taken in {TAKE_SECONDS:g} s") from error
    except OSError as error:
        raise ConnectionBroken(words(error)) from error


async def receive(reader: asyncio.StreamReader, most: int, seconds: float) -> tuple[int, bytes]:
    """Return the kind and the content of the next frame. Raises `ConnectionBroken`."""
    try:
        async with asyncio.timeout(seconds):
            kind, size = HEAD.unpack(await reader.readexactly(HEAD.size))
            if size > most:
                raise ConnectionBroken(f"a frame of {size} bytes is longer than {most}")
            return kind, await reader.readexactly(size)
    except TimeoutError as error:
        raise ConnectionBroken(f"nothing was heard for {seconds:g} s") from error
    except asyncio.IncompleteReadError as error:
        raise ConnectionBroken("the other side closed it") from error
    except OSError as error:
        raise ConnectionBroken(words(error)) from error


def words(error: OSError) -> str:
    """Return what the network says, for people."""
    found = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return str(found or error)[:WORDS] or type(error).__name__


async def closed(writer: asyncio.StreamWriter) -> None:
    """Close a connection; what was written is sent before, within the bound that it was made with."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


class PacketRelay:
    """One connection of packets."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        sock: socket.socket,
        *,
        pass_for: Callable[[int], bytes],
        pipe_of: Callable[[bytes], Awaitable[int]],
    ) -> None:
        """`sock` is this side's end of a local pair, for its own.

        `pass_for` takes a descriptor that is to go over, and `pipe_of` returns the one of a pass that has come; each
        raises `ConnectionBroken` for what is not to be.
        """
        self._reader, self._writer, self._socket = reader, writer, sock
        self._pass_for, self._pipe_of = pass_for, pipe_of
        self.heard = False
        """Whether the other side has said anything."""
        self._loop = asyncio.get_running_loop()
        sock.setblocking(False)

    async def run(self) -> str | None:
        """Relay until either side ends; return why the network did, None if the local side closed its end."""
        tasks = Tasks()
        works = (self._outwards(), self._inwards(), self._alive())
        running = [tasks.hold(work, "relaying packets") for work in works]
        try:
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        except ConnectionBroken as error:
            self._writer.transport.abort()
            return str(error)
        finally:
            await tasks.close()
            for one in running:
                one.cancelled() or one.exception()
        return None

    async def _outwards(self) -> None:
        while True:
            await _ready(self._loop.add_reader, self._loop.remove_reader, self._socket)
            files = array.array("i")
            try:
                data, ancillary, _, _ = self._socket.recvmsg(
                    packets.MAX_BYTES, socket.CMSG_SPACE(files.itemsize), socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                continue
            except OSError:
                return
            if not data:
                return
            for level, kind, content in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    files.frombytes(content[: len(content) - len(content) % files.itemsize])
            if files:
                await send(self._writer, PACKET_WITH_PIPE, self._pass_for(files[0]) + data)
            else:
                await send(self._writer, PACKET, data)

    async def _inwards(self) -> None:
        while True:
            kind, data = await receive(self._reader, MAX_FRAME, SILENCE_SECONDS)
            self.heard = True
            if kind == ALIVE and not data:
                continue
            files = []
            if kind == PACKET_WITH_PIPE and len(data) > PASS_BYTES:
                files.append(await self._pipe_of(data[:PASS_BYTES]))
                data = data[PASS_BYTES:]
            elif kind != PACKET or not data:
                raise ConnectionBroken("a frame is of no kind")
            try:
                await self._hand_over(data, files)
            finally:
                for fd in files:
                    os.close(fd)

    async def _hand_over(self, data: bytes, files: list[int]) -> None:
        while True:
            try:
                send_fds(self._socket, data, files) if files else self._socket.send(data)
            except BlockingIOError:
                await _ready(self._loop.add_writer, self._loop.remove_writer, self._socket)
            except OSError:  # the other task meets the end
                return
            else:
                return

    async def _alive(self) -> None:
        while True:
            await asyncio.sleep(ALIVE_SECONDS)
            await send(self._writer, ALIVE)


async def relay_pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sock: socket.socket) -> bool:
    """Move bytes both ways until either side ends, and close both; return whether the network ended first.

    Neither way reads more than it has handed over.
    """
    loop = asyncio.get_running_loop()
    sock.setblocking(False)

    async def outwards() -> bool:
        with contextlib.suppress(OSError):
            while data := await loop.sock_recv(sock, CHUNK_BYTES):
                try:
                    writer.write(data)
                    await writer.drain()
                except OSError:
                    return True
        return False

    async def inwards() -> bool:
        while True:
            try:
                data = await reader.read(CHUNK_BYTES)
            except OSError:
                return True
            if not data:
                return True
            try:
                await loop.sock_sendall(sock, data)
            except OSError:  # what is not taken any more is refused from here on; what comes is still handed over
                await asyncio.Event().wait()

    tasks = Tasks()
    running = [tasks.hold(work, "relaying a pipe") for work in (outwards(), inwards())]
    try:
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        broke = any(one.result() for one in done)
    finally:
        await tasks.close()
        sock.close()
    await closed(writer)
    return broke


async def _ready(add: Callable[..., object], remove: Callable[[int], object], sock: socket.socket) -> None:
    """Return once a socket can be read or written."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    number = sock.fileno()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    add(number, wake)
    try:
        await future
    finally:
        remove(number)
