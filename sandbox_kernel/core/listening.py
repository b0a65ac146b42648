"""Connections taken from a socket that listens; where there is no room for one more, none for a moment.

Who waits stays in the system's queue, and that wakes a loop again and again: a process without a file descriptor left
would do nothing else. Standard library only.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

PAUSE_SECONDS = 0.5
"""Until the next try, where no file descriptor is left, or no memory."""
AT_ONCE = 32
"""Connections, before others of the loop have their turn."""


def taken_from(sock: socket.socket) -> socket.socket | None:
    """Return the next connection, None if nobody waits any more. Raises OSError where there is no room for it."""
    while True:
        try:
            return sock.accept()[0]
        except BlockingIOError:
            return None
        except ConnectionError:  # that one has gone meanwhile
            continue


class Listener:
    """A socket that listens, on the loop that runs when it is opened."""

    def __init__(
        self,
        sock: socket.socket,
        taken: Callable[[socket.socket], None],
        *,
        no_room: Callable[[OSError], None] = lambda error: None,
        pause: float = PAUSE_SECONDS,
    ) -> None:
        """`taken` has each connection for its own; `no_room` hears of each pause."""
        self.socket = sock
        self._taken = taken
        self._no_room = no_room
        self._pause = pause
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.TimerHandle | None = None
        sock.setblocking(False)

    def open(self) -> None:
        """Take whoever comes, from now on."""
        self.shut()
        if self.socket.fileno() >= 0:
            self._loop.add_reader(self.socket.fileno(), self._take)

    def shut(self) -> None:
        """Take nobody; the socket is the owner's to close, and who comes waits in its queue."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self.socket.fileno() >= 0:
            self._loop.remove_reader(self.socket.fileno())

    def _take(self) -> None:
        for _ in range(AT_ONCE):
            try:
                sock = taken_from(self.socket)
            except OSError as error:
                self.shut()
                self._again = self._loop.call_later(self._pause, self.open)
                self._no_room(error)
                return
            if sock is None or self.socket.fileno() < 0:
                return
            self._taken(sock)
