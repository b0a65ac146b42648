"""Turns for starts on one event loop: a start is work for the engine and an interpreter, and has a time limit."""

from __future__ import annotations

import asyncio
import os
import weakref

from ..core.errors import SandboxError
from ..session.session import Session

STARTS_PER_CPU = 2
"""Sandboxes that start at once on one loop: more of them would only take turns within their time limits."""

_turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = weakref.WeakKeyDictionary()


def turn(loop: asyncio.AbstractEventLoop) -> asyncio.Semaphore:
    """Return what a start holds while it runs."""
    if loop not in _turns:
        _turns[loop] = asyncio.Semaphore(STARTS_PER_CPU * (os.cpu_count() or 1))
    return _turns[loop]


async def reap(session: Session) -> None:
    """Remove, once in a process, what others left that were killed between creating a container and starting it."""
    try:
        if count := await session.engine.reap():
            session.emit("reaped", containers=count)
    except (SandboxError, TimeoutError, OSError) as error:
        session.emit("reap_failed", reason=str(error))
