"""Notices the end of the process that started a kernel, as ipykernel does. Imports asyncio."""

from __future__ import annotations

import asyncio
import os

PARENT_SECONDS = 1.0


async def until_left(stopping: asyncio.Event) -> None:
    """Set `stopping` when the process that started this one is gone; nothing is known of one without a starter."""
    starter, parent = os.environ.get("JPY_PARENT_PID"), os.getppid()
    if starter is None or starter == "1":
        return
    # Process 1 inherits the orphans: the starter was gone before this process could look.
    while parent != 1:
        await asyncio.sleep(PARENT_SECONDS)
        if os.getppid() != parent:
            break
    stopping.set()
