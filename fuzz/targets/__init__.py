"""The fuzzers' targets: each module has `run(data)`, which returns for whatever is right, and `seeds()`.

What a target changes in the product, so that small inputs get everywhere, it changes in `prepared()` only.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

FOUND = Path(__file__).resolve().parent.parent / "found"
"""Inputs that showed a defect once, by target; their names say which."""

NAMES = {
    "wire": 600,
    "messages": 1500,
    "session": 200,
    "streams": 200,
    "terminal": 400,
    "markup": 600,
    "outputs": 300,
    "names": 400,
    "files": 300,
    "secrets": 160,
    "network": 700,
    "requests": 400,
    "tools": 400,
    "packages": 400,
    "guest": 300,
}
"""Each target, and the bytes of its longest input."""


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to fuzz."""

    name: str
    max_bytes: int
    run: Callable[[bytes], None]
    """Raises for an input that shows a defect."""
    seeds: Callable[[], Iterator[bytes]]


def load(name: str) -> Target:
    """Import a target."""
    module = importlib.import_module(f"{__name__}.{name}")
    return Target(name, NAMES[name], module.run, module.seeds)


@contextlib.contextmanager
def ready(name: str) -> Iterator[Target]:
    """Import a target, and hold the product as it needs it: `run` may be called within."""
    target = load(name)
    prepared = getattr(importlib.import_module(f"{__name__}.{name}"), "prepared", contextlib.nullcontext)
    with prepared():
        yield target


def found(name: str) -> list[Path]:
    return sorted((FOUND / name).glob("*"))
