"""What code did that matters: one report of a cell or a run, with one score, from what the session tells anyway.

Pure values. What a sandbox says of itself may be anything; what the host refused is the host's own word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .codes import ActivityCode, Code, MessageCode, Severity
from .errors import SandboxError
from .events import (
    ABSENT,
    CallTried,
    ConnectionEnded,
    FileNotTransferred,
    MessageDropped,
    OutputRemoved,
    RuleMet,
    SessionEvent,
)
from .model import printable
from .screen_findings import WEIGHTS, Finding

Kind = Literal["finding", "program", "connection", "limit", "message", "output", "file", "rule", "end"]
"""finding: the screen, before it ran. program: a program that was started, as the monitor sees it. connection: one that
was made or refused. limit: one that was met. message: a forged one. output and file: what was removed or refused.
rule: another rule of the monitor. end: how the host ended it otherwise."""

SCHEMA = "urn:sandbox-kernel:behaviour:1"
THRESHOLD = 60
"""Points from which code is not safe, unless the setting `screen_threshold` says otherwise."""
MAX_REASON = 300
_BY_HABIT = frozenset({MessageCode.STATUS_OUT_OF_TURN, MessageCode.WELCOME})
"""What each kernel sends by itself: its "starting", which comes when it likes, and its welcome."""
_PROGRAMS = frozenset({"dropped-program", "processes-refused"})
"""Rules of the monitor that are about programs."""
_SCORES: Mapping[Severity, int] = {
    "violation": WEIGHTS["critical"],
    "limit": WEIGHTS["medium"],
    "notice": 10,
    "failure": 10,
}
_END: Mapping[Severity, Kind] = {"violation": "end", "limit": "limit", "notice": "end", "failure": "end"}
_REFUSALS = frozenset({"connection", "output", "file"})
"""Kinds of which even a violation may be honest: high, and not critical."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One thing that was refused, removed, dropped or noticed."""

    severity: Severity
    code: Code
    what: str
    reason: str
    kind: Kind
    is_usual: bool = False
    """Whether it is what honest code does, too: it has no points, and breaks no policy."""
    times: int = 1


def observed(event: SessionEvent) -> Observation | None:
    """Return what an event says of the code, None if that is nothing."""
    match event:
        case MessageDropped(code=code) if code not in _BY_HABIT:
            what = printable(event.type or "message", 80)
            return Observation(code.severity, code, what, f"dropped: {_short(event.reason)}", "message")
        case OutputRemoved(code=code):
            return Observation(code.severity, code, printable(event.type, 80), _short(event.reason), "output")
        case ConnectionEnded(code=code):
            place = "connection" if event.host is ABSENT else printable(f"{event.host}:{event.port}", 160)
            return Observation(code.severity, code, place, _short(event.reason), "connection", event.is_connected)
        case CallTried(call="program"):
            code = ActivityCode.PROGRAM_STARTED
            name = f"{code.text}: {event.target}"
            return Observation(code.severity, code, "program", name, "program", is_usual=True, times=event.count)
        case RuleMet(code=code):
            # What is only noted breaks no policy, whatever it is.
            severity: Severity = "notice" if event.level == "note" else code.severity
            kind: Kind = "program" if code.code in _PROGRAMS else "rule"
            return Observation(severity, code, "behaviour", _short(event.reason), kind)
        case FileNotTransferred(code=code, op="upload" | "download" as op):
            # An upload is a file of the host's own; the code has no part in it.
            severity = "notice" if op == "upload" else code.severity
            path = printable(event.path, 160)
            return Observation(severity, code, "file", f"{op} refused: {path}: {_short(event.reason)}", "file")
    return None


def _short(reason: str) -> str:
    return printable(reason, MAX_REASON)


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviourRow:
    """One kind of thing that code did."""

    kind: Kind
    code: str
    """As docs/codes.md lists it, or a code of the operator's own."""
    severity: Severity
    count: int
    first_cell: int | None
    """The number of the first cell that did it; None outside of any cell, or where cells have no numbers."""
    score: int
    """Points, from 0 to 100."""
    reason: str
    """One sentence, of the first time; names in it may come from the code."""

    @classmethod
    def of(cls, seen: Observation, count: int = 1, cell: int | None = None) -> BehaviourRow:
        """Return the row of something that was seen `count` times."""
        grave = seen.severity == "violation" and seen.kind in _REFUSALS
        points = 0 if seen.is_usual else _SCORES[seen.severity]
        return cls(
            kind=seen.kind,
            code=seen.code.code,
            severity=seen.severity,
            count=count * seen.times,
            first_cell=cell,
            score=WEIGHTS["high"] if grave else points,
            reason=_sentence(seen.reason),
        )

    def and_more(self, other: BehaviourRow) -> BehaviourRow:
        """Return it together with what came later of the same."""
        graver = max(self, other, key=lambda row: row.score)
        return replace(self, count=self.count + other.count, score=graver.score, severity=graver.severity)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What a cell or a run did that matters, gravest first, and what it used. No row does not mean harmless code."""

    rows: tuple[BehaviourRow, ...] = ()
    threshold: int = THRESHOLD
    """Points from which it is not safe."""
    seconds: float | None = None
    cpu_seconds: float | None = None
    """As the sandbox says, as is the peak."""
    memory_peak_bytes: int | None = None

    @property
    def risk_score(self) -> int:
        """Points of the gravest row, from 0 to 100: many small things do not add up, and hide no grave one."""
        return max((row.score for row in self.rows), default=0)

    @property
    def is_safe(self) -> bool:
        """Whether the score is below the threshold."""
        return self.risk_score < self.threshold

    @property
    def reasons(self) -> list[str]:
        """One sentence for each row."""
        return [row.reason for row in self.rows]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON, by the schema of docs/behaviour.md."""
        return {
            "schema": SCHEMA,
            "risk_score": self.risk_score,
            "threshold": self.threshold,
            "is_safe": self.is_safe,
            "reasons": self.reasons,
            "rows": [row.to_json() for row in self.rows],
            "resources": {
                "seconds": None if self.seconds is None else round(self.seconds, 3),
                "cpu_seconds": self.cpu_seconds,
                "memory_peak_bytes": self.memory_peak_bytes,
            },
        }

    def of_cell(self, number: int | None) -> Behaviour:
        """Return it with the number that the cell has."""
        return replace(self, rows=tuple(replace(row, first_cell=number) for row in self.rows))

    @classmethod
    def joined(
        cls, cells: Sequence[Behaviour], beside: Iterable[BehaviourRow] = (), *, threshold: int, seconds: float
    ) -> Behaviour:
        """Return that of a run: of its cells, in their order, and of what was seen beside them."""
        cpu = [one.cpu_seconds for one in cells if one.cpu_seconds is not None]
        peaks = [one.memory_peak_bytes for one in cells if one.memory_peak_bytes is not None]
        return cls(
            rows=ordered([*(row for one in cells for row in one.rows), *beside]),
            threshold=threshold,
            seconds=seconds,
            cpu_seconds=round(sum(cpu), 6) if cpu else None,
            memory_peak_bytes=max(peaks, default=None),
        )


@dataclass(slots=True)
class Observations:
    """What is seen of a cell, or of all cells of a kernel; bounded by how many codes there are."""

    _rows: dict[tuple[str, str], BehaviourRow] = field(default_factory=dict)

    def add(self, seen: Observation, cell: int | None = None) -> None:
        """Count one more."""
        _count(self._rows, BehaviourRow.of(seen, cell=cell))

    def end(self, findings: Iterable[Finding], verdict: SandboxError | None, cell: int | None = None) -> None:
        """Count what the screen found in a cell, and why the host ended it."""
        for one in findings:
            if one.allowed is None:
                _count(self._rows, _of_finding(one, cell))
        if verdict is not None:
            code, kind = verdict.code, _END[verdict.code.severity]
            self.add(Observation(code.severity, code, "cell", _short(verdict.message), kind), cell)

    def rows(self) -> tuple[BehaviourRow, ...]:
        """Return all rows, the gravest first."""
        return ordered(list(self._rows.values()))


def ordered(rows: Iterable[BehaviourRow]) -> tuple[BehaviourRow, ...]:
    """Return rows with those of one code as one, the gravest first."""
    found: dict[tuple[str, str], BehaviourRow] = {}
    for row in rows:
        _count(found, row)
    return tuple(sorted(found.values(), key=lambda row: (-row.score, row.kind != "finding")))


def _count(rows: dict[tuple[str, str], BehaviourRow], row: BehaviourRow) -> None:
    key = row.kind, row.code
    rows[key] = rows[key].and_more(row) if key in rows else row


def _of_finding(one: Finding, cell: int | None) -> BehaviourRow:
    return BehaviourRow(
        kind="finding",
        code=one.code,
        severity="violation" if one.weight >= WEIGHTS["high"] else "notice",
        count=max(1, len(one.places)),
        first_cell=cell,
        score=one.weight,
        reason=_sentence(printable(one.sentence(), MAX_REASON)),
    )


def _sentence(text: str) -> str:
    text = text.rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."
