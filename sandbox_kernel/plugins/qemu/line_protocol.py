"""A channel of lines of JSON over a socket, all of it bounded: what comes may be a hostile machine's."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

from ...core.descriptors import send_fds

READ_BYTES = 65536
LINE_BYTES = 256 << 10
MAX_BYTES = 8 << 20
"""Most bytes that are read between two of our questions: a channel with more is broken."""


class LineChannel:
    def __init__(self, sock: socket.socket, heard: Callable[[dict[str, Any]], None], lost: Callable[[], None]) -> None:
        """`heard` is called with each document, `lost` once at the channel's end, both on the running loop."""
        sock.setblocking(False)
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._heard, self._lost = heard, lost
        self._received = bytearray()
        self._count = 0
        self._turn = asyncio.Lock()
        self._loop.add_reader(sock.fileno(), self.hear)

    def hear(self) -> None:
        if self._socket.fileno() < 0:
            return
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._count += len(data)
        self._received += data
        documents = []
        while (end := self._received.find(b"\n")) >= 0:
            line = bytes(self._received[:end])
            del self._received[: end + 1]
            try:
                document = json.loads(line)
            except (ValueError, RecursionError):
                document = None
            documents.append(document)
        proper = all(isinstance(document, dict) for document in documents)
        if not data or not proper or len(self._received) > LINE_BYTES or self._count > MAX_BYTES:
            self.close()
            documents = [document for document in documents if isinstance(document, dict)]
        for document in documents:
            self._heard(document)
        if self._socket.fileno() < 0:
            self._lost()

    async def send(self, document: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Send one line; `fds` go along with it. Raises OSError."""
        data = json.dumps(document).encode() + b"\n"
        async with self._turn:
            self._count = 0
            if fds:
                sent = send_fds(self._socket, data, fds)
                data = data[sent:]
            await self._loop.sock_sendall(self._socket, data)

    def close(self) -> None:
        """Close it, without a loop, too; nothing more is heard."""
        if self._socket.fileno() >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
