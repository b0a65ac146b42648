"""What ends a container when its owner goes without a word: dropped, with a closed event loop, or in a forked child.

The connection is what keeps a container alive, so a process that ends, however it ends, takes its containers along;
this module is for owners that end before their process does. Standard library only; sessions are handed in.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections.abc import Coroutine
from typing import Any, Protocol

FAR_AWAY = 10 * 365 * 86400.0
"""Seconds until a timer that nobody waits for."""


class Owned(Protocol):
    """What has to go with its owner: a session."""

    async def close(self) -> None: ...

    def abandon(self) -> None:
        """Close what this process holds open, without a loop."""


_open: weakref.WeakSet[Any] = weakref.WeakSet()
_closing: set[asyncio.Task[None]] = set()


class _Guard:
    """Held by a timer of the loop alone, so it is gone when the loop is closed."""

    def ring(self) -> None:
        """Do nothing, in ten years."""


class Tie:
    """Ties a session to the handle that people hold, to its loop, and to this process."""

    def __init__(self, handle: object, session: Owned, loop: asyncio.AbstractEventLoop) -> None:
        guard = _Guard()
        self._timer = weakref.ref(loop.call_later(FAR_AWAY, guard.ring))
        self._finalizers: list[weakref.finalize[..., Any]] = [
            weakref.finalize(handle, _dropped, session, loop),
            weakref.finalize(guard, session.abandon),
        ]
        for finalizer in self._finalizers:
            finalizer.atexit = False  # the end of the process is enough, and a loop may be running still
        self._session = session
        _open.add(session)

    def loosen(self) -> None:
        """Let go: the session was closed properly."""
        for finalizer in self._finalizers:
            finalizer.detach()
        timer = self._timer()
        if timer is not None:
            timer.cancel()
        _open.discard(self._session)


def _dropped(session: Owned, loop: asyncio.AbstractEventLoop) -> None:
    if loop.is_closed():
        session.abandon()
        return
    with contextlib.suppress(RuntimeError):  # closed just now: its guard does the rest
        loop.call_soon_threadsafe(_close, session)


def _close(session: Owned) -> None:
    _keep(session.close())


def _keep(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.get_running_loop().create_task(work)
    _closing.add(task)
    task.add_done_callback(_closing.discard)


def _forked() -> None:
    """In a child, close what it has of its parent's connections: else they would outlive the parent."""
    for session in list(_open):
        session.abandon()
    _open.clear()


os.register_at_fork(after_in_child=_forked)
