"""Starts at once: users take turns. If too many wait, the user with the most waiting starts loses one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from ...core.errors import QuotaExceeded
from .codes import BrokerCode


class StartSlots:
    def __init__(self, slots: int, most: int) -> None:
        """`most` may wait for one."""
        self._free, self._most = slots, most
        self._waiting: dict[int, deque[asyncio.Future[None]]] = {}
        """Whose turn is next stands first."""

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def turn(self, user: int) -> AsyncIterator[None]:
        """Hold a slot. Raises `QuotaExceeded` if too many wait, and no other user has more of them than this one."""
        if self._free:
            self._free -= 1
        else:
            own = len(self._waiting.get(user, ()))
            if len(self) >= self._most:
                largest = max(self._waiting.values(), key=len)
                if own + 1 >= len(largest):
                    raise self._full()
                if not (last := largest.pop()).done():  # one that is cancelled has not left yet, and makes room as well
                    last.set_exception(self._full())
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(user, deque()).append(waiting)
            try:
                await waiting
            except asyncio.CancelledError:
                if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                    self._pass_on()
                elif (queue := self._waiting.get(user)) is not None:
                    with suppress(ValueError):
                        queue.remove(waiting)
                    if not queue:
                        del self._waiting[user]
                raise
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        """Give a slot to the next waiting user, who moves to the end of the queue."""
        while self._waiting:
            user = next(iter(self._waiting))
            queue = self._waiting.pop(user)
            waiting = queue.popleft()
            if queue:
                self._waiting[user] = queue
            if not waiting.done():  # one that is cancelled has not left yet
                waiting.set_result(None)
                return
        self._free += 1

    def _full(self) -> QuotaExceeded:
        return QuotaExceeded(BrokerCode.BROKER_BUSY, limit=f"{self._most} who wait for a sandbox")
