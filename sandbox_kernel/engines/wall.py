"""A wall: one combination of engine and runtime, as a person chooses it; texts and nothing else. Standard library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Holds = Literal["yes", "no", "partly"]


class WallCell(NamedTuple):
    """Whether one wall enforces one thing, and what there is to say of it."""

    holds: Holds
    words: str = ""

    def __str__(self) -> str:
        return f"{self.holds}, {self.words}" if self.words else self.holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Wall:
    """One way to be closed in. `settings` choose it; the rest are sentences for people."""

    name: str
    settings: str
    engine: str
    runtime: str = ""
    for_whom: str
    kernel: str
    """Whose kernel a cell's system calls meet."""
    stops: str
    leaves: str
    """What it does not stop."""
    needs: str
    costs: str
    """Against a stock ipykernel, as `python -m benchmarks --engines` prints it; the page has all figures."""
    enforces: Mapping[str, WallCell] = field(default_factory=dict)
    """What it enforces, by the codes of the rows of `plugins.doctor.walls`: all but a plain "yes"."""
