"""Turns for starts on one event loop: a start is work for the engine and an interpreter, and has a time limit."""

from __future__ import annotations

import asyncio
import os
import weakref

STARTS_PER_CPU = 2
"""Sandboxes that start at once on one loop: more of them would only take turns within their time limits."""

_turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = weakref.WeakKeyDictionary()


def turn(loop: asyncio.AbstractEventLoop) -> asyncio.Semaphore:
    """Return what a start holds while it runs."""
    if loop not in _turns:
        _turns[loop] = asyncio.Semaphore(STARTS_PER_CPU * (os.cpu_count() or 1))
    return _turns[loop]
