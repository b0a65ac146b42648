"""The table of rules, and how a level or an operator's table changes it.

A rule is met by so much of its signal within so many seconds. A level is the most that comes of any rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ...core.codes import Note
from .codes import MonitorCode

MonitorLevel = Literal["off", "note", "alert", "kill"]
LEVELS: tuple[MonitorLevel, ...] = ("off", "note", "alert", "kill")
MAX_COUNT, MAX_SECONDS = 1_000_000, 86_400.0


@dataclass(frozen=True, slots=True)
class MonitorRule:
    """When a rule of the monitor is met, and what comes of it."""

    code: str
    """Of `MonitorCode`."""
    level: MonitorLevel
    count: int
    """How much of it makes the rule met; for those of busy processors, percent of them."""
    seconds: float
    """Within which it has to come together; for those of busy processors, for how long."""


@dataclass(frozen=True, slots=True)
class Monitoring:
    """The rules of a session's monitor, those that are off left out."""

    rules: tuple[MonitorRule, ...]

    @property
    def watches(self) -> bool:
        """Whether a rule is about what is tried in a sandbox, so that the sandbox has to see it."""
        return any(rule.code in _TRIED for rule in self.rules)


_TRIED = frozenset(code.code for code in (MonitorCode.SECRET_SOUGHT, MonitorCode.PORT_SCAN, MonitorCode.ESCAPE_TRIED))


class RuleDefault(NamedTuple):
    """A rule as it is unless somebody changes it."""

    code: MonitorCode
    level: MonitorLevel
    amount: int
    seconds: float
    unit: str
    """What is counted."""


RULES = (
    RuleDefault(MonitorCode.MANY_DENIALS, "alert", 10, 60, "refused connections"),
    RuleDefault(MonitorCode.METADATA_SOUGHT, "kill", 1, 60, "attempts"),
    RuleDefault(MonitorCode.REMOVED_OUTPUTS, "note", 20, 60, "removals that were violations"),
    RuleDefault(MonitorCode.FORGED_MESSAGES, "alert", 20, 60, "messages"),
    RuleDefault(MonitorCode.UNFIT_FILES, "note", 5, 60, "refusals that were violations"),
    RuleDefault(MonitorCode.WIRE_GARBAGE, "alert", 1, 60, "sandboxes that ended for it"),
    RuleDefault(MonitorCode.MANY_LIMITS, "alert", 10, 600, "limits that were met"),
    RuleDefault(MonitorCode.PROCESSES_REFUSED, "alert", 20, 60, "refused processes"),
    RuleDefault(MonitorCode.KERNELS_DIE_YOUNG, "alert", 3, 60, "deaths"),
    RuleDefault(MonitorCode.MANY_KERNELS, "note", 10, 3600, "deaths and restarts"),
    RuleDefault(MonitorCode.BUSY_IN_SILENCE, "note", 80, 600, "percent of the processors"),
    RuleDefault(MonitorCode.BUSY_WITHOUT_CELL, "alert", 50, 60, "percent of the processors"),
    RuleDefault(MonitorCode.SCRAMBLED_INPUTS, "alert", 3, 600, "files"),
    RuleDefault(MonitorCode.DROPPED_PROGRAM, "alert", 1, 60, "programs"),
    RuleDefault(MonitorCode.SECRET_SOUGHT, "alert", 1, 60, "times"),
    RuleDefault(MonitorCode.PORT_SCAN, "alert", 30, 60, "addresses and ports"),
    RuleDefault(MonitorCode.ESCAPE_TRIED, "alert", 1, 60, "refused calls"),
    RuleDefault(MonitorCode.NOT_WATCHED, "note", 1, 3600, "sandboxes"),
)

UNITS: Mapping[str, str] = {row.code.code: row.unit for row in RULES}


class Signal(NamedTuple):
    """One thing that counts for a rule."""

    code: MonitorCode
    weight: int = 1
    what: str = ""
    """For people; safe to print and bounded."""


class RuleFinding(NamedTuple):
    """A rule that was met."""

    code: MonitorCode
    level: MonitorLevel
    amount: int
    seconds: float
    what: str
    quiet: bool = False
    """It was met shortly before, or too often: nobody is alerted again."""

    @property
    def note(self) -> Note:
        """The code with a text that has the figures."""
        figures = f"{self.amount} {UNITS[self.code.code]} in {self.seconds:g} s"
        return Note(self.code, f"{self.code.text} ({figures}{'; ' + self.what if self.what else ''})")


class BadTable(ValueError):
    """A table of rules that is none; its text says what is wrong and where."""


def of_table(table: Mapping[str, object]) -> Monitoring:
    """Return the rules as a table changes them. Raises `BadTable`.

    `level` is the most that comes of any rule (`alert`); below `rules`, each code may have a `level`, a `count` and
    `seconds` of its own.
    """
    if unknown := sorted(set(map(str, table)) - {"level", "rules"}):
        raise BadTable(f"has {_shown(unknown[0])}; it may have level and rules")
    most, changes = _level("level", table.get("level", "alert")), table.get("rules", {})
    if not isinstance(changes, Mapping):
        raise BadTable("has rules that are no table")
    codes = {row.code.code for row in RULES}
    for name in changes:
        if name not in codes:
            raise BadTable(f"has a rule {_shown(name)}, which there is not; there are {', '.join(sorted(codes))}")
    found = (_changed(row, most, changes.get(row.code.code, {})) for row in RULES)
    return Monitoring(tuple(rule for rule in found if rule.level != "off"))


def code_of(rule: MonitorRule) -> MonitorCode:
    """Return the row of the codes that a rule is for."""
    return next(code for code in MonitorCode if code.code == rule.code)


def _changed(row: RuleDefault, most: MonitorLevel, change: object) -> MonitorRule:
    where = f"rules.{row.code.code}"
    if not isinstance(change, Mapping):
        raise BadTable(f"has {where}, which is no table")
    if unknown := sorted(set(map(str, change)) - {"level", "count", "seconds"}):
        raise BadTable(f"has {_shown(unknown[0])} in {where}; it may have level, count and seconds")
    level = _level(f"{where}.level", change.get("level", row.level))
    count, seconds = change.get("count", row.amount), change.get("seconds", row.seconds)
    if type(count) is not int or not 1 <= count <= MAX_COUNT:
        raise BadTable(f"has {where}.count, which is no whole number from 1 to {MAX_COUNT}")
    if type(seconds) not in (int, float) or not 0.1 <= seconds <= MAX_SECONDS:
        raise BadTable(f"has {where}.seconds, which is no number from 0.1 to {MAX_SECONDS:g}")
    level = LEVELS[min(LEVELS.index(level), LEVELS.index(most))]
    return MonitorRule(row.code.code, level, count, float(seconds))


def _level(where: str, value: object) -> MonitorLevel:
    for level in LEVELS:
        if value == level:
            return level
    raise BadTable(f"has {where}, which is none of {', '.join(LEVELS)}")


def _shown(value: object) -> str:
    return ascii(str(value)[:80])
