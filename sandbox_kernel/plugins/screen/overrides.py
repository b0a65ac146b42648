"""Comments by which a cell allows what is found in it: their form, who answers for them, and when they end. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Literal, NamedTuple

from ...core.screen_findings import Finding

Needs = Literal["off", "owner", "end", "owner-and-end"]
"""What each override has to name besides its reason."""

MAX_COMMENT = 600
"""Characters of a comment that are read."""
MAX_REASON = 201
MAX_SHOWN = 40
"""Characters of what is quoted from a comment that is wrong."""
_COMMENT = re.compile(r"#[^\S\n]*sandbox:[^\S\n]*allow(?=\s|$)([^\n]*)")
_PARTS = re.compile(r"(.*?)(?:\s+(?:—|–|--|-)(?:\s*)(.*))?", re.DOTALL)  # noqa: RUF001 (people's dashes)
_HEAD = re.compile(r"\s+([a-z0-9-]+(?:\s*,\s*[a-z0-9-]+)*)((?:\s+[^\s,]+)*)\s*")
_NAME = re.compile(r"[\w.@+-]{1,100}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Override(NamedTuple):
    """One comment, as it was written."""

    line: int
    """Of the cell, from 1."""
    codes: tuple[str, ...] = ()
    """Empty if the comment is wrong, and does not even name codes."""
    reason: str = ""
    by: str | None = None
    """Who answers for it, as the comment says; nothing proves it."""
    until: str | None = None
    """The last day on which it is in force, in UTC."""
    fault: str = ""
    """What is wrong with its form."""

    def is_over(self, today: date) -> bool:
        return self.until is not None and self.until < today.isoformat()

    def no_effect(self, today: date, needs: Needs = "off") -> str:
        """Return why it allows nothing, empty if it is in force."""
        if self.fault:
            return self.fault
        if self.is_over(today):
            return f"it ended on {self.until}"
        if self.by is None and needs in {"owner", "owner-and-end"}:
            return "it has no owner, which screen_override_needs demands (by=NAME)"
        if self.until is None and needs in {"end", "owner-and-end"}:
            return "it has no end, which screen_override_needs demands (until=YYYY-MM-DD)"
        return ""


def today() -> date:
    """Return the day by which overrides end."""
    return datetime.now(UTC).date()


def overrides_in(code: str) -> list[Override]:
    """Return the overrides in the comments of a cell, also those whose form is wrong."""
    if "sandbox:" not in code:
        return []
    found: list[Override] = []
    line, before = 1, 0
    for match in _COMMENT.finditer(code):
        line += code.count("\n", before, match.start())
        before = match.start()
        found.append(_read(match[1][:MAX_COMMENT], line))
    return found


def _read(text: str, line: int) -> Override:
    parts = _PARTS.fullmatch(text)
    assert parts is not None  # noqa: S101 (for the type: it takes any text)
    head, reason = _HEAD.fullmatch(parts[1]), (parts[2] or "").strip()[:MAX_REASON]
    if head is None:
        return Override(line, fault=f"{_quoted(text)} does not have the form CODE, CODE by=NAME until=DATE -- REASON")
    codes = tuple(one.strip() for one in head[1].split(","))
    given: dict[str, str] = {}
    fault = ""
    for word in head[2].split():
        name, _, value = word.partition("=")
        if name not in {"by", "until"} or name in given:
            fault = fault or f"{_quoted(word)} is not one by=NAME or one until=YYYY-MM-DD"
        elif name == "by" and _NAME.fullmatch(value) is None:
            fault = fault or f"{_quoted(word)} does not name an owner in letters, digits and . @ + - _"
        elif name == "until" and not _is_date(value):
            fault = fault or f"{_quoted(word)} is not a date of the form YYYY-MM-DD"
        else:
            given[name] = value
    if not reason or reason[0] in "—–-":  # noqa: RUF001 (people's dashes)
        fault = fault or "it gives no reason behind a dash"
    return Override(line, codes, reason, given.get("by"), given.get("until"), fault)


def _is_date(text: str) -> bool:
    try:
        return _DATE.fullmatch(text) is not None and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _quoted(text: str) -> str:
    """Return what a comment has, as a literal: it is the code's, and may hold anything."""
    text = " ".join(text.split())
    return ascii(text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "...")


def apply(findings: Iterable[Finding], overrides: list[Override], needs: Needs) -> tuple[Finding, ...]:
    """Return findings with what overrides say of each: that it is allowed, or why its override has no effect."""
    day = today()
    judged = [(one, one.no_effect(day, needs)) for one in overrides]

    def one(finding: Finding) -> Finding:
        mine = [pair for pair in judged if finding.code in pair[0].codes]
        if (last := next((one for one, fault in reversed(mine) if not fault), None)) is not None:
            return replace(finding, allowed=last.reason, by=last.by, until=last.until)
        faults = mine or [pair for pair in judged if not pair[0].codes]
        return replace(finding, override=faults[-1][1]) if faults else finding

    return tuple(map(one, findings)) if judged else tuple(findings)
