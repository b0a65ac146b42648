"""When a sandbox that nobody uses has to go: one timer, which looks again when it was used meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Idleness:
    """Counts from the last use."""

    def __init__(
        self, seconds: float, *, watched: Callable[[], bool], working: Callable[[], bool], expired: Callable[[], None]
    ) -> None:
        """`watched` says whether there is a sandbox that could go, `working` whether it is in use by itself."""
        self._seconds = seconds
        self._watched = watched
        self._working = working
        self._expired = expired
        self._used = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def touch(self) -> None:
        """Note a use."""
        loop = asyncio.get_running_loop()
        self._used = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._look)

    def left(self) -> float | None:
        """Return the seconds until it has to go if nobody uses it; None while it is used, or there is none."""
        if self._timer is None or not self._watched() or self._working():
            return None
        return max(0.0, self._used + self._seconds - asyncio.get_running_loop().time())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if not self._watched():
            return  # the next use begins again
        if self._working():
            self.touch()
            return
        loop = asyncio.get_running_loop()
        if (left := self._used + self._seconds - loop.time()) > 0:
            self._timer = loop.call_later(left, self._look)
        else:
            self._expired()
