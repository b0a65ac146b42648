"""The rows that the doctor fills, and how they are shown: to people as a table, to programs as JSON."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict, dataclass
from typing import Literal

from ..engines import base
from ..policy.safe_text import ours

Status = Literal["ok", "note", "wrong", "skipped"]


@dataclass(frozen=True, slots=True)
class Check:
    """One row: what was looked at, what was found, and how to repair it."""

    name: str
    status: Status
    found: str
    remedy: str = ""
    details: tuple[base.Check, ...] = ()
    """For the attested start: each protection, what was asked for, and what was found."""

    @property
    def ok(self) -> bool:
        return self.status != "wrong"


_MARKS = {"ok": "ok", "note": "note", "wrong": "WRONG", "skipped": "-"}


def table(rows: list[Check], *, details: bool = False) -> str:
    """Return the rows for a terminal, each remedy beneath its row.

    Protections that are missing are listed; with `details`, all of them.
    """
    width = max(len(row.name) for row in rows)
    lines = []
    for row in rows:
        indent = " " * (width + 9)
        lines.append(
            textwrap.fill(f"{_MARKS[row.status]:5}  {row.name:{width}}  {row.found}", 110, subsequent_indent=indent)
        )
        if row.remedy and row.status != "ok":
            lines.append(textwrap.fill(f"remedy: {row.remedy}", 110, initial_indent=indent, subsequent_indent=indent))
        for line in (one for one in row.details if details or not one.ok):
            mark = _MARKS["ok" if line.ok else "wrong"]
            lines.append(
                f"       {mark:5}  {line.name}: {line.found if line.ok else f'{line.found}, not {line.expected}'}"
            )
    wrong = sum(not row.ok for row in rows)
    lines.append(
        "everything a session needs is there" if not wrong else f"{wrong} of {len(rows)} checks found something wrong"
    )
    return "\n".join(ours(part) for line in lines for part in line.split("\n"))  # an engine says what it likes


def as_json(rows: list[Check]) -> str:
    """Return the rows as JSON: {"ok": true, "checks": [{"name", "status", "found", "remedy", "details"}, ...]}."""
    return json.dumps({"ok": all(row.ok for row in rows), "checks": [asdict(row) for row in rows]}, indent=2)
