"""Background tasks with an owner: held while they run, heard of when they fail, and ended together.

asyncio holds no reference to a task, and says of one that failed only that, once it is thrown away. So code that starts
work and goes on without it starts it here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from .events import DefectMet, Emit

T = TypeVar("T")

Report = Callable[[str, BaseException], None]
"""Takes the name of a task and the error that ended it."""

END_SECONDS = 5.0
"""How long a task that is cancelled may take to end."""


def log_defect(name: str, error: BaseException) -> None:
    """Write to the log that `name` met an unexpected error."""
    logging.getLogger("sandbox_kernel").error("a defect, met in %s", name, exc_info=error)


def noted_in(emit: Emit) -> Report:
    """Return a report that writes to the log, and an event."""

    def report(name: str, error: BaseException) -> None:
        log_defect(name, error)
        emit(DefectMet(type=name, reason=repr(error)))

    return report


async def made_in_thread(make: Callable[[], T], undo: Callable[[T], object]) -> T:
    """Return what `make` returns, which works in a thread; where the caller gives up, that is undone once it is there.

    A thread cannot be cancelled: without this, its result would be lost.
    """
    making = asyncio.get_running_loop().run_in_executor(None, make)
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        making.add_done_callback(lambda done: None if done.cancelled() or done.exception() else _undo(undo, done))
        raise


def _undo(undo: Callable[[T], object], done: asyncio.Future[T]) -> None:
    undo(done.result())


class Tasks:
    """The background tasks of one owner, on the loop that runs when each is started."""

    def __init__(self, report: Report = log_defect) -> None:
        """`report` hears of every task of `start` that fails; it must not raise."""
        self._report = report
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    def start(
        self, work: Coroutine[Any, Any, object], name: str, *, failed: Callable[[BaseException], None] | None = None
    ) -> asyncio.Task[object]:
        """Run `work` in the background. If it fails, that is reported, and then `failed` is called.

        `failed` is for what somebody else is owed all the same. A task that is cancelled has not failed.
        """
        task = self.hold(work, name)
        task.add_done_callback(lambda task: self._look(task, failed))
        return task

    def hold(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run `work`, whose outcome the caller takes. It goes on when the caller is cancelled meanwhile."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        if self._closed:
            task.cancel()
        return task

    async def close(self, patience: float = 0.0) -> None:
        """End all tasks; what is started from now on is cancelled before it begins. Idempotent.

        They may take `patience` seconds to end by themselves. Then they are cancelled, and have `END_SECONDS` for that;
        what still runs is reported and left alone.
        """
        self._closed = True
        running = self._running - {asyncio.current_task()}
        if running and patience > 0:
            _, running = await asyncio.wait(running, timeout=patience)
        for task in running:
            task.cancel()
        if running:
            _, running = await asyncio.wait(running, timeout=END_SECONDS)
        for task in running:
            self._report(task.get_name(), TimeoutError(f"it did not end within {END_SECONDS:g} s"))

    def _look(self, task: asyncio.Task[object], failed: Callable[[BaseException], None] | None) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._report(task.get_name(), error)
        if failed is not None:
            failed(error)
