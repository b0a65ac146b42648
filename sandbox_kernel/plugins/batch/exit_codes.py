"""How a run ends: its exit code, and the rules that choose it from what its cells did. Pure.

A run can meet several things at once. The first of this list decides: it was stopped from outside; the sandbox or its
engine failed; the policy was broken; a limit was reached; the code failed.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal

from ...core.errors import CellTimeout, ConfigurationError, OutOfMemory, OutputLimit, SandboxError

Kind = Literal[
    "fine", "code failed", "usage", "platform failed", "limit reached", "policy broken", "behaves otherwise", "stopped"
]

CODES: dict[Kind, int] = {
    "fine": 0,
    "code failed": 1,
    "usage": 2,
    "platform failed": 3,
    "limit reached": 4,
    "policy broken": 5,
    "behaves otherwise": 6,
}
"""The codes of the other commands, 0 to 3, mean the same here; one stopped by a signal is 128 and its number."""

WEIGHT: tuple[Kind, ...] = (
    "stopped",
    "usage",
    "platform failed",
    "policy broken",
    "limit reached",
    "behaves otherwise",
    "code failed",
    "fine",
)
LIMITS = frozenset(error.__name__ for error in (CellTimeout, OutOfMemory, OutputLimit))
HELP = {
    "0": "every cell ran",
    "1": "the code failed",
    "2": "a wrong argument, setting or notebook",
    "3": "the sandbox or its engine failed",
    "4": "a limit was reached (time, memory, output, files)",
    "5": "the policy was broken",
    "6": "of several runs of one source, one did otherwise (--repeat, --for, --dates, --time-bomb)",
    "128+N": "stopped by signal N; 130 is Ctrl-C",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """One reason why a run may end as it does; `cell` counts code cells from 1, None if it was none of them."""

    kind: Kind
    reason: str
    cell: int | None = None
    signal: int | None = None
    why: str | None = None
    """The code of what was reached or refused, where there is one."""

    @property
    def code(self) -> int:
        return 128 + (self.signal or signal.SIGTERM) if self.kind == "stopped" else CODES[self.kind]


FINE = End(kind="fine", reason="every cell ran")


def decide(found: list[End]) -> End:
    """Return what decides among all that was found, the earliest of its kind."""
    return min(found, key=lambda end: WEIGHT.index(end.kind), default=FINE)


def of_error(error: SandboxError, cell: int | None = None) -> End:
    """Return what an error of ours means for a run."""
    reason = f"{error.name}: {error}"
    return End(kind=kind_of(error.name, error.fault), reason=reason, cell=cell, why=error.code.code)


def kind_of(name: str, fault: str) -> Kind:
    """Return what the error of that name and fault means; a name counts only if the host, not the code, gave it."""
    if name in LIMITS:
        return "limit reached"
    if name == ConfigurationError.__name__:
        return "usage"
    return {"user code": "code failed", "policy": "policy broken"}.get(fault, "platform failed")  # type: ignore[return-value]
