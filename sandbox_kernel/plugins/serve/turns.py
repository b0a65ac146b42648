"""One event loop serves everybody: how long the turns of each tenant are, and who has taken much of it waits.

A turn is what runs from one wait to the next. Code over the bytes of a caller has a wait between its pieces, so a turn
is short; all turns of one tenant together have a share, whatever number of requests they are part of.
"""

from __future__ import annotations

import time
import types
from asyncio import sleep
from collections.abc import Coroutine, Generator
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

FREE_SECONDS = 0.001
"""A turn up to so long costs nothing: the loop goes from one request to the next by itself."""
SHARE = 0.25
"""Of the loop's time, for the longer turns of one tenant."""
CREDIT_SECONDS = 0.5
"""Until when a debt is paid, from which on a tenant waits: a few large requests wait for nothing."""


class Turns:
    def __init__(self) -> None:
        self.longest = 0.0
        """Seconds, since the server's start."""
        self._paid = 0.0
        """When the share has made up for what was taken."""

    def took(self, seconds: float) -> None:
        self.longest = max(self.longest, seconds)
        if seconds > FREE_SECONDS:
            self._paid = max(self._paid, time.monotonic()) + seconds / SHARE

    def owes(self) -> float:
        """Return how many seconds the next turn has to wait."""
        return max(0.0, self._paid - CREDIT_SECONDS - time.monotonic())


_payer: ContextVar[Turns | None] = ContextVar("payer", default=None)


async def paced(work: Coroutine[Any, Any, T], turns: Turns | None = None) -> T:
    """Return what some work brings, whose turns are those of a tenant: by default of whoever this is done for."""
    turns = turns or _payer.get()
    if turns is None:
        return await work
    token = _payer.set(turns)
    try:
        return await _driven(work, turns)
    finally:
        _payer.reset(token)


@types.coroutine
def _driven(work: Coroutine[Any, Any, T], turns: Turns) -> Generator[Any, None, T]:
    error: BaseException | None = None
    while True:
        began = time.monotonic()
        try:
            wanted = work.send(None) if error is None else work.throw(error)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            turns.took(time.monotonic() - began)
        error = None
        try:
            yield wanted
            while (seconds := turns.owes()) > 0:
                yield from sleep(seconds).__await__()
        except BaseException as thrown:
            error = thrown
