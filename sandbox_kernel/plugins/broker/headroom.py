"""What the machine has to spare, as it says itself: whether something may be made that nobody asked for yet."""

from __future__ import annotations

from pathlib import Path

from ...core.model import GIB

PRESSURE = 60.0
"""Percent of the last ten seconds in which something waited for a processor; above it nothing is made ahead."""
SPARE_BYTES = GIB
"""Of memory that must be left over."""


def under_pressure() -> bool:
    """Return whether somebody waits for a processor, or there is little memory left."""
    try:
        first = Path("/proc/pressure/cpu").read_text(encoding="ascii").split("\n", 1)[0]
        share = float(first.partition("avg10=")[2].split(" ", 1)[0])
    except (OSError, ValueError):
        share = 0.0  # a kernel that does not say so
    return share > PRESSURE or spare_memory() < SPARE_BYTES


def spare_memory() -> int:
    """Return the bytes that could be had without swapping."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return 1 << 62
