"""What this process holds open of a folder; other threads of a test process open and close what is theirs."""

from __future__ import annotations

import gc
from pathlib import Path


def open_below(folder: Path) -> list[str]:
    """Return the files and folders at or below a folder that are open, one entry for each descriptor."""
    gc.collect()  # a folder stays open as long as its object, or an error that knows it, lives
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = link.readlink()
        except OSError:
            continue  # closed meanwhile, or the one that lists them
        if target.is_relative_to(folder):
            found.append(str(target))
    return sorted(found)
