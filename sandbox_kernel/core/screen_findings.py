"""What the screen says of a cell: its findings, which of them were allowed, and a score.

Frozen values: they are kept for cells that come again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

WEIGHTS = {"low": 20, "medium": 40, "high": 60, "critical": 80}
"""How grave one finding is, in points. What a cell has adds up."""
MAX_SCORE = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a rule found in a cell, at the first line where it did."""

    code: str
    """As docs/codes.md lists it, or a code of the operator's own."""
    family: str
    weight: int
    """Points."""
    line: int
    """Of the cell, from 1."""
    reason: str
    """What the code looks like it would do."""
    remedy: str
    """What to do instead."""
    detail: str = ""
    """What it was found in: a name or a command, cut. It comes from the code."""
    cwe: int | None = None
    allowed: str | None = None
    """The reason that a comment in the cell gives for it; it does not count then."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "code": self.code,
            "family": self.family,
            "weight": self.weight,
            "line": self.line,
            "reason": self.reason,
            "remedy": self.remedy,
            "detail": self.detail,
            "cwe": self.cwe,
            "allowed": self.allowed,
        }

    def sentence(self) -> str:
        """Return it as a person reads it."""
        what = f" ({self.detail})" if self.detail else ""
        return f"line {self.line}: {self.code}: {self.reason}{what}"


@dataclass(frozen=True, slots=True)
class Screened:
    """All that was found in one cell, in the order of its lines; each code once."""

    findings: tuple[Finding, ...] = ()

    @property
    def counted(self) -> tuple[Finding, ...]:
        """What was found and not allowed."""
        return tuple(one for one in self.findings if one.allowed is None)

    @property
    def score(self) -> int:
        """Points, from 0 to 100."""
        return min(MAX_SCORE, sum(one.weight for one in self.counted))

    def allowing(self, reasons: dict[str, str]) -> Screened:
        """Return it with what a cell's comments allow marked as allowed."""
        if not reasons:
            return self
        return Screened(tuple(replace(one, allowed=reasons.get(one.code)) for one in self.findings))

    def without_first(self, lines: int) -> Screened:
        """Return it as it would be if so many lines at the beginning were not there."""
        return Screened(tuple(replace(one, line=max(one.line - lines, 1)) for one in self.findings))

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {"score": self.score, "findings": [one.to_json() for one in self.findings]}


def level(weight: int) -> str:
    """Return the name of a weight: low, medium, high or critical."""
    return max((points, name) for name, points in WEIGHTS.items() if points <= max(weight, WEIGHTS["low"]))[1]
