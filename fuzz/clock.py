"""A loop whose time passes when there is nothing else to do: a minute costs nothing.

It is a loop like others, for `run_until_complete`. Whoever goes in small steps is quicker to drive it by hand: a step
of ours is a call then, and no task.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import math
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from .judge import require

T = TypeVar("T")


class Clock(asyncio.SelectorEventLoop):
    """See the module. Without files and sockets."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__()
        self._selector.select = self._pass  # type: ignore[attr-defined]

    def _pass(self, seconds: float | None = None) -> list[Any]:
        require(seconds is not None, "everybody waits, and nothing will ever happen")
        if seconds > 0:
            self._now = math.nextafter(self._now + seconds, math.inf)  # never just short of what is waited for
        return []  # there is no file and no socket to wait for

    def rewind(self) -> None:
        """Begin again, once nobody waits."""
        self._now = 0.0

    def time(self) -> float:
        return self._now

    # --- by hand ---

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Be in the loop, and in none of its tasks."""
        asyncio._set_running_loop(self)  # noqa: SLF001 (as `run_forever` does)
        try:
            yield
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001

    def idle(self) -> None:
        """Do what can be done without any time."""
        ready = self._ready  # type: ignore[attr-defined]
        while ready:
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()  # noqa: SLF001 (a loop does this)

    def let_pass(self, seconds: float) -> None:
        """Do what can be done in so much time."""
        end = self._now + seconds
        while self._next(end):
            pass
        self._now = max(self._now, end)

    def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what comes of `work`, however long that takes."""
        task = self.create_task(work)
        while not task.done():
            require(self._next(math.inf) or task.done(), "everybody waits, and nothing will ever happen")
        return task.result()

    def _next(self, end: float) -> bool:
        """Do what can be done now, and go on to the next moment before `end`; return whether there is one."""
        self.idle()
        waiting = self._scheduled  # type: ignore[attr-defined]
        while waiting and waiting[0].when() <= end:
            handle = heapq.heappop(waiting)
            handle._scheduled = False  # noqa: SLF001
            if not handle.cancelled():
                self._now = max(self._now, handle.when())
                self._ready.append(handle)  # type: ignore[attr-defined]
                return True
        return False
