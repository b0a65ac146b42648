"""What the screen says of a cell: its findings, which of them were allowed, and a score.

Frozen values: they are kept for cells that come again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

WEIGHTS = {"low": 20, "medium": 40, "high": 60, "critical": 80}
"""How grave one finding is, in points. What a cell has adds up."""
MAX_SCORE = 100
MAX_PASTED, MAX_SAID = 1_000_000, 10
"""Characters of a text to be pasted that are read, and sentences about it."""
OPINIONS = "judge"
"""The family of what others than rules say of a whole cell, with all findings of the rules before them."""


class Place(NamedTuple):
    """Where something stands in a cell: lines and characters from 1; the end is just behind its last character."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a rule found in a cell, with all places where it did."""

    code: str
    """As docs/codes.md lists it, or a code of the operator's own."""
    family: str
    weight: int
    """Points."""
    line: int
    """The first one, of the cell, from 1."""
    reason: str
    """What the code looks like it would do."""
    remedy: str
    """What to do instead."""
    detail: str = ""
    """What it was found in: a name or a command, cut. It comes from the code."""
    cwe: int | None = None
    allowed: str | None = None
    """The reason that a comment in the cell gives for it; it does not count then."""
    by: str | None = None
    """Who answers for that, as the comment says."""
    until: str | None = None
    """The last day on which it is allowed."""
    override: str | None = None
    """Why a comment that should allow it has no effect."""
    places: tuple[Place, ...] = ()
    """In their order; none overlaps another."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return asdict(self) | {"places": [place._asdict() for place in self.places]}

    def sentence(self) -> str:
        """Return it as a person reads it."""
        return f"line {self.line}: {self.code}: {self.reason}{self.in_brackets()}{self.failed_override()}"

    def in_brackets(self) -> str:
        """Return, behind a reason, what it was found in."""
        return f" ({self.detail})" if self.detail else ""

    def failed_override(self) -> str:
        """Return, behind a sentence, why its override has no effect; empty if there is none."""
        return f"; its override has no effect: {self.override}" if self.override else ""


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
        """Points, from 0 to 100: those of the rules add up, and an opinion counts if it is higher."""
        opinions = [one.weight for one in self.counted if one.family == OPINIONS]
        return min(MAX_SCORE, max([sum(one.weight for one in self.counted) - sum(opinions), *opinions]))

    def reasons(self) -> list[str]:
        """Return a sentence for each warning and error, for whoever would put this into a document."""
        grave = (one for one in self.counted if one.weight >= WEIGHTS["medium"])
        return [f"{one.reason}{one.in_brackets()} [{one.code}]" for one in grave]

    def without_first(self, lines: int) -> Screened:
        """Return it as it would be if so many lines at the beginning were not there."""

        def moved(place: Place) -> Place:
            return place._replace(line=max(place.line - lines, 1), end_line=max(place.end_line - lines, 1))

        return Screened(
            tuple(
                replace(one, line=max(one.line - lines, 1), places=tuple(map(moved, one.places)))
                for one in self.findings
            )
        )

    def by_place(self) -> list[tuple[Place, list[Finding]]]:
        """Return each place with its findings, the gravest first. Places that overlap are one."""
        pairs = sorted(((place, one) for one in self.findings for place in one.places), key=lambda pair: pair[0])
        rows: list[tuple[Place, list[Finding]]] = []
        for place, one in pairs:
            last, found = rows[-1] if rows else (place, [])
            if rows and (place[:2] < last[2:] or place == last):
                rows[-1] = Place(*last[:2], *max(last[2:], place[2:])), [*found, *([] if one in found else [one])]
            else:
                rows.append((place, [one]))
        return [(place, sorted(found, key=lambda one: (-one.weight, one.code))) for place, found in rows]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {"score": self.score, "findings": [one.to_json() for one in self.findings]}


def level(weight: int) -> str:
    """Return the name of a weight: low, medium, high or critical."""
    return max((points, name) for name, points in WEIGHTS.items() if points <= max(weight, WEIGHTS["low"]))[1]
