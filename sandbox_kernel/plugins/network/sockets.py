"""A TCP connection of the host's as a `Duplex`: large pieces, and nothing held between them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

PIECE = 256 << 10
"""Bytes of one read at most."""
IN_A_ROW = 8
"""Pieces that one connection reads before the others have their turn."""


class SocketDuplex:
    """A connected socket. One task may receive while another one sends."""

    def __init__(self, connected: socket.socket, touched: Callable[[], None] = lambda: None) -> None:
        """`touched` is called for each piece that moved."""
        self._socket = connected
        self._touched = touched
        self._loop = asyncio.get_running_loop()
        self._reads = 0
        self._closed = False

    async def receive(self) -> bytes:
        self._check()
        self._reads += 1
        if self._reads % IN_A_ROW == 0:
            await asyncio.sleep(0)  # a read that has something at once does not wait
            self._check()
        data = await self._loop.sock_recv(self._socket, PIECE)
        self._touched()
        return data

    async def send(self, data: bytes) -> None:
        self._check()
        await self._loop.sock_sendall(self._socket, data)
        self._touched()

    async def finish(self) -> None:
        self._check()
        self._socket.shutdown(socket.SHUT_WR)

    def reset(self, code: str) -> None:
        """Close it. Whoever waits for it has to be cancelled."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()

    def _check(self) -> None:
        if self._closed:
            raise ConnectionResetError("it was closed")
