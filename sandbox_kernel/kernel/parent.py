"""Notices the end of the process that started a kernel, as ipykernel does. Imports asyncio."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

PARENT_SECONDS = 1.0


async def until_left(pid: int, stopping: asyncio.Event) -> None:
    """Set `stopping` when the process that started process `pid` is gone; nothing is known of one without a starter."""
    starter, parent = os.environ.get("JPY_PARENT_PID"), _parent_of(pid)
    if starter is None or starter == "1":
        return
    # Process 1 inherits the orphans: the starter was gone before this process could look.
    while parent != 1:
        await asyncio.sleep(PARENT_SECONDS)
        if _parent_of(pid) != parent:
            break
    stopping.set()


def _parent_of(pid: int) -> int:
    """Return the parent of this process or of its launcher, 1 if that is gone."""
    if pid == os.getpid():
        return os.getppid()
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 1
