"""What this process holds open; other threads of a test process open and close what is theirs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path


def open_files() -> set[tuple[str, str]]:
    """Return what is open, as pairs of a descriptor's number and its target.

    What others forgot is closed whenever it is collected, so a test asks what is new and never how many there are.
    """
    gc.collect()  # a file stays open as long as its object, or an error that knows it, lives
    return set(open_now())


def open_now() -> Iterator[tuple[str, str]]:
    """Yield the same without a search for what was forgotten, which takes too long for each of a million cases."""
    for link in Path("/proc/self/fd").iterdir():
        try:
            yield link.name, str(link.readlink())
        except OSError:
            continue  # closed meanwhile, or the one that lists them


def open_below(folder: Path) -> list[str]:
    """Return the files and folders at or below a folder that are open, one entry for each descriptor."""
    return sorted(target for _, target in open_files() if Path(target).is_relative_to(folder))
