"""What ends a container when its owner goes without a word: dropped, or with an event loop that was closed.

The connection is what keeps a container alive, so a process that ends, however it ends, takes its containers along;
this module is for owners that end before their process does. (A fork's copies of the connections are closed where they
are made, in `engines.pipe`.) Imports tasks; sessions are handed in.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
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
