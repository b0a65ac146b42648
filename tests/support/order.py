"""The order in which several workers take tests: browsers at one of them, containers at the others, small tests last.

pytest-xdist gives each worker an equal part of the list in one piece, and lets who is done take from the end of the
longest that is left. So one JupyterLab at a time has the machine's second half, and what is left at the end is small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TypeVar

T = TypeVar("T")


def spread(items: Sequence[T], workers: int, path: Callable[[T], str]) -> list[T]:
    """Return tests in such an order, those of a module one after another as they were; `path` is a test's file."""
    modules: dict[str, list[T]] = {}
    for item in items:
        modules.setdefault(path(item), []).append(item)
    parts: list[list[T]] = [[] for _ in range(workers)]
    small: list[T] = []
    others = 0
    for name, tests in modules.items():
        if "/unit/" in name:
            small += tests
        elif "/browser/" in name:
            parts[0] += tests
        else:
            parts[1 + others % (workers - 1) if workers > 1 else 0] += tests
            others += 1
    for part, size in zip(parts, sizes(len(items), workers), strict=True):
        room = max(0, size - len(part))
        part.extend(small[:room])
        del small[:room]
    return [*chain.from_iterable(parts), *small]


def sizes(count: int, workers: int) -> Iterable[int]:
    """Yield how many tests each worker gets at first."""
    for left in range(workers, 0, -1):
        yield count // left
        count -= count // left
