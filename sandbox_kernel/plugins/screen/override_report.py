"""`screen --overrides`: all overrides in files, in force or not, for people, as JSON and as SARIF."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import date
from typing import Any, Literal, NamedTuple

from .codes import ScreenCode
from .file_parts import ReadPart
from .overrides import Override, overrides_in, today
from .rule_index import RuleIndex
from .settings import ScreenSettings

State = Literal["in-force", "over", "refused"]
NO_CODE = "override"
"""What stands in place of the code of a comment that names none."""


class OverrideRow(NamedTuple):
    """What one override says of one rule."""

    read: ReadPart
    override: Override
    code: str
    state: State
    fault: str
    """Why it has no effect."""

    @property
    def line(self) -> int:
        return self.read.part.line(self.override.line)

    @property
    def is_needed(self) -> bool:
        """Whether its rule finds something in the cell."""
        return any(one.code == self.code for one in self.read.screened.findings)

    def words(self) -> str:
        """Return it as a person reads it."""
        owner = f", by {self.override.by}" if self.override.by is not None else ""
        end = f", until {self.override.until}" if self.override.until is not None else ""
        state = "in force" if self.state == "in-force" else "over" if self.state == "over" else "without effect"
        fault = f" ({self.fault})" if self.state == "refused" else ""
        unused = "" if self.is_needed else "; nothing is found here"
        reason = f": {self.override.reason}" if self.override.reason else ""
        return f"{self.code}: {state}{fault}{owner}{end}{reason}{unused}"

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        rest = {"code": self.code, "state": self.state, "fault": self.fault, "is_needed": self.is_needed}
        of_comment = {name: getattr(self.override, name) for name in ("reason", "by", "until")}
        return {"cell": self.read.part.cell, "file_line": self.line, **rest, **of_comment}


def rows_of(found: Iterable[ReadPart], settings: ScreenSettings, index: RuleIndex) -> list[OverrideRow]:
    """Return all overrides of files, one row for each rule that they name."""
    known, day = {*index.rows, *(one.code for one in ScreenCode)}, today()
    return [
        OverrideRow(read, one, code, *_state(one, code, settings, known, day))
        for read in found
        for one in overrides_in(read.part.code)
        for code in one.codes or (NO_CODE,)
    ]


def _state(override: Override, code: str, settings: ScreenSettings, known: set[str], day: date) -> tuple[State, str]:
    fault = override.no_effect(day, settings.screen_override_needs)
    if not fault and code not in known:
        fault = "no rule has this code"
    if not fault and settings.screen_overrides == "forbid":
        fault = "screen_overrides forbids all"
    state: State = "over" if override.is_over(day) and not override.fault else "refused" if fault else "in-force"
    return state, fault


def as_json(rows: list[OverrideRow], files: Iterable[str], named: Callable[[str], str]) -> dict[str, Any]:
    """Return the report as plain JSON."""
    of_files = [
        {"file": named(file), "overrides": [row.to_json() for row in rows if row.read.file == file]}
        for file in dict.fromkeys(files)
    ]
    return {"version": 1, "files": of_files}


def as_results(rows: list[OverrideRow], located: Callable[[OverrideRow], dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the results of a SARIF document: what is in force is suppressed, and the rest are warnings."""
    results: list[dict[str, Any]] = []
    for row in rows:
        about = {"owner": row.override.by, "until": row.override.until, "state": row.state}
        result = {"ruleId": row.code, "message": {"text": f"Override of {row.words()}"}, "locations": [located(row)]}
        result |= {"level": "note" if row.state == "in-force" else "warning", "properties": about}
        if row.state == "in-force":
            result["suppressions"] = [{"kind": "inSource", "justification": row.override.reason}]
        results.append(result)
    return results


def lines(rows: list[OverrideRow]) -> Iterator[str]:
    """Yield the report for people."""
    for row in rows:
        cell = "" if row.read.part.cell is None else f" cell {row.read.part.cell},"
        yield f"{row.read.file}:{row.line}:{cell} {row.words()}"
    counts = [sum(row.state == state for row in rows) for state in ("in-force", "over", "refused")]
    yield "{} in force, {} over, {} without effect".format(*counts)
