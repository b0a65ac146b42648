"""Disks of sandboxes as a test finds its own among all of the machine's: each has a size that no other has."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

from sandbox_kernel.core.model import MIB

SECTOR, BLOCK = 512, 4096


def size_of_its_own(least: int = 48 * MIB) -> int:
    """Return a size in bytes, up to 16 MiB more than `least`."""
    return least + secrets.randbelow(16 * MIB // BLOCK) * BLOCK


def loops_of(size: int) -> list[str]:
    """Return the loop devices of the machine that have a size."""
    found = []
    for path in Path("/sys/block").glob("loop*/size"):
        with contextlib.suppress(OSError):
            if int(path.read_text(encoding="ascii")) * SECTOR == size:
                found.append(path.parent.name)
    return found
