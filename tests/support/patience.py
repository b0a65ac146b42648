"""Bounds on time that hold beside other tests: a second counts for as much as the machine had to give in it.

Where each processor has three programs to serve, a second counts for a third of one; on a quiet machine, for one.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

MIN_FACTOR = 1 / 8
"""What a second counts for at least, whatever goes on: each wait has an end."""
STEP = 0.02
"""Seconds between two looks."""
SLOWNESS = float(os.environ.get("SANDBOX_KERNEL_TEST_SLOWNESS", "1"))
"""How many of this machine's seconds count for one, whatever else goes on: an emulated processor is a slow one."""

_PROCESSORS = len(os.sched_getaffinity(0))


def running() -> int:
    """Return how many threads of this machine want a processor now, but for the one that asks."""
    return int(Path("/proc/loadavg").read_text(encoding="ascii").split()[3].partition("/")[0]) - 1


def share(wanting: int) -> float:
    """Return how much of a processor each of so many gets."""
    return max(MIN_FACTOR, _PROCESSORS / max(_PROCESSORS, wanting))


class Patience:
    """Seconds since it was made, as a quiet machine would have counted them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, wanting: Callable[[], int] = running) -> None:
        self.seconds = 0.0
        self._clock, self._wanting = clock, wanting
        self._last = clock()

    def count(self) -> float:
        """Add the time since the last call, for what it counts; return the sum."""
        now = self._clock()
        self.seconds += (now - self._last) * share(self._wanting()) / SLOWNESS
        self._last = now
        return self.seconds


@contextlib.asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Bound a block as `asyncio.timeout` does, by seconds as `Patience` counts them."""
    loop, patience = asyncio.get_running_loop(), Patience()
    async with asyncio.timeout(None) as bound:
        looking: asyncio.TimerHandle | None = None

        def look() -> None:
            nonlocal looking
            if patience.count() < seconds:
                looking = loop.call_later(STEP, look)
            else:
                bound.reschedule(loop.time())

        looking = loop.call_later(STEP, look)
        try:
            yield
        finally:
            looking.cancel()


async def until(condition: Callable[[], object], seconds: float = 30, *, holds: bool = True) -> None:
    """Wait until a condition holds, or holds no more; it may be one to await. Fails when it does not in time."""
    async with within(seconds):
        while True:
            found = condition()
            if bool(await found if inspect.isawaitable(found) else found) is holds:
                return
            await asyncio.sleep(0.005)  # the step of a bounded wait, not a wait itself


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and see that it ends so."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class Stopwatch:
    """The `seconds` of a block, counted beside it."""

    def __enter__(self) -> Stopwatch:
        self._patience, self._over = Patience(), threading.Event()
        self._thread = threading.Thread(target=self._count, daemon=True)
        self._thread.start()
        return self

    def _count(self) -> None:
        while not self._over.wait(STEP):
            self._patience.count()
        self._patience.count()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        self.seconds = self._patience.seconds
