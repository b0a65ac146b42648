"""What ends a container: the time that it has, and its owner that goes without a word, dropped or with a closed loop.

The connection is what keeps a container alive, so a process that ends, however it ends, takes its containers along.
`Finalizers` are for owners that end before their process does. (A fork's copies of the connections are closed where
they are made, in `engines.pipe`.)
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from ..core.tasks import Tasks

FAR_AWAY = 10 * 365 * 86400.0
"""Seconds until a timer that nobody waits for."""


class Owned(Protocol):
    """What has to go with its owner: a session."""

    async def close(self) -> None: ...

    def abandon(self) -> None:
        """Close what this process holds open, without a loop."""


_closing = Tasks()


Closing = Callable[[], Coroutine[Any, Any, object]]


class Lifetime:
    """When a sandbox has to end, whoever uses it. It does not hold the sandbox, which people may drop."""

    def __init__(self, limit: float | None) -> None:
        self._seconds = limit
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._kill: weakref.WeakMethod[Closing] | None = None
        self._tasks = Tasks()
        self._waits = limit is not None
        """Whether it counts once the sandbox is ready; a start has a limit of its own."""
        self.started: datetime | None = None
        self.ends: datetime | None = None

    def begin(self, loop: asyncio.AbstractEventLoop, kill: Closing) -> None:
        """Note that the sandbox starts, on this loop."""
        self._loop, self._kill, self.started = loop, weakref.WeakMethod(kill), datetime.now(UTC)

    def is_ready(self) -> None:
        """Let it run from now on, unless it runs already."""
        if self._waits and self._seconds is not None:
            self.set(self._seconds)

    def set(self, limit: float) -> None:
        """Have the sandbox end in so many seconds from now on."""
        self._seconds = limit
        if self._loop is None:
            self._waits = True
            return
        self._waits = False
        self.stop()
        self.ends = datetime.now(UTC) + timedelta(seconds=limit)
        self._timer = self._loop.call_later(limit, self._expire)

    @property
    def is_new(self) -> bool:
        """Whether it never began."""
        return self._loop is None

    def known(self, started: datetime | None, ends: datetime) -> None:
        """Note when it was started and when it ends, where that is somebody else's to see to."""
        self.started, self.ends = started, ends

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        kill = self._kill() if self._kill is not None else None
        if kill is not None:
            self._tasks.start(kill(), "the end of a sandbox whose time is up")


class _Guard:
    """Held by a timer of the loop alone, so it is gone when the loop is closed."""

    def ring(self) -> None:
        """Do nothing, in ten years."""


class Finalizers:
    """End a session with the handle that people hold, and with its loop."""

    def __init__(self, handle: object, session: Owned, loop: asyncio.AbstractEventLoop) -> None:
        guard = _Guard()
        self._timer = weakref.ref(loop.call_later(FAR_AWAY, guard.ring))
        self._finalizers: list[weakref.finalize[..., Any]] = [
            weakref.finalize(handle, _dropped, session, loop),
            weakref.finalize(guard, session.abandon),
        ]
        for finalizer in self._finalizers:
            finalizer.atexit = False  # the end of the process is enough, and a loop may be running still

    def detach(self) -> None:
        """Let go: the session was closed properly."""
        for finalizer in self._finalizers:
            finalizer.detach()
        timer = self._timer()
        if timer is not None:
            timer.cancel()


def _dropped(session: Owned, loop: asyncio.AbstractEventLoop) -> None:
    if loop.is_closed():
        session.abandon()
        return
    with contextlib.suppress(RuntimeError):  # closed just now: its guard does the rest
        loop.call_soon_threadsafe(_close, session)


def _close(session: Owned) -> None:
    _closing.start(session.close(), "the end of a sandbox that nobody holds")
