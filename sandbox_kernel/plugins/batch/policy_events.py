"""What the policy and the host refused during a run, cell by cell, and which of it honest code would not have done.

Pure. The texts are the host's own, but names in them may come from the sandbox.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ...core.codes import Code, MessageCode, Severity
from ...core.events import (
    ABSENT,
    ConnectionEnded,
    FileNotTransferred,
    MessageDropped,
    OutputRemoved,
    RuleMet,
    SessionEvent,
)
from ...files.file_rules import printable
from .codes import BatchCode

FailOn = Literal["violation", "any", "never"]

MAX_EVENTS = 100
"""Different events kept of one cell and one severity, so that none hides behind many others; the rest is counted."""
MAX_REASON = 300
_BY_HABIT = frozenset({MessageCode.STATUS_OUT_OF_TURN, MessageCode.WELCOME})
"""What each kernel sends by itself: its "starting", which comes when it likes, and its welcome."""


@dataclass(frozen=True, slots=True)
class PolicyEvent:
    """One thing that was refused, removed or dropped."""

    severity: Severity
    code: Code
    what: str
    reason: str
    of: str | None = None
    """Name of the event; None where that makes no difference."""


def classify(event: SessionEvent) -> PolicyEvent | None:
    """Return what an event means for a report, None if nothing was refused."""
    match event:
        case MessageDropped(last=str()):
            code: Code = BatchCode.MORE_DROPPED
            return PolicyEvent(code.severity, code, "message", f"dropped: {code.text}")
        case MessageDropped(code=code) if code not in _BY_HABIT:
            what = printable(event.type or "message", 80)
            return PolicyEvent(code.severity, code, what, f"dropped: {_short(event.reason)}")
        case OutputRemoved(code=code):
            return PolicyEvent(code.severity, code, printable(event.type, 80), _short(event.reason))
        case ConnectionEnded(code=code) if not event.is_connected:
            place = "connection" if event.host is ABSENT else printable(f"{event.host}:{event.port}", 160)
            return PolicyEvent(code.severity, code, place, _short(event.reason), event.name)
        case RuleMet(code=code):
            # What is only noted breaks no policy, whatever it is.
            return PolicyEvent(
                "notice" if event.level == "note" else code.severity, code, "behaviour", _short(event.reason)
            )
        case FileNotTransferred(code=code, op="upload" | "download" as op):
            # An upload is a file of the host's own; the code has no part in it.
            severity: Severity = "notice" if op == "upload" else code.severity
            path = printable(event.path, 160)
            return PolicyEvent(severity, code, "file", f"{op} refused: {path}: {_short(event.reason)}")
    return None


def _short(reason: str) -> str:
    return printable(reason, MAX_REASON)


@dataclass(slots=True)
class Events:
    """The events of one cell, each once and counted."""

    counts: dict[PolicyEvent, int] = field(default_factory=dict)
    more: int = 0

    def add(self, event: PolicyEvent) -> None:
        same = sum(known.severity == event.severity for known in self.counts)
        if event in self.counts or same < MAX_EVENTS:
            self.counts[event] = self.counts.get(event, 0) + 1
        else:
            self.more += 1

    def worst(self, fail_on: FailOn) -> PolicyEvent | None:
        """Return the first event that breaks the policy as far as the user wants a run to fail for it."""
        wanted = {"violation": {"violation"}, "any": {"violation", "notice"}, "never": set()}[fail_on]
        return next((event for event in self.counts if event.severity in wanted), None)

    def limit(self) -> PolicyEvent | None:
        """Return the first limit that cost a result; one of a connection is for the code that opened it."""
        found = (event for event in self.counts if event.of != "network")
        return next((event for event in found if event.severity == "limit"), None)

    def to_json(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = [
            {
                "severity": event.severity,
                "code": event.code.code,
                "what": event.what,
                "reason": event.reason,
                "count": count,
            }
            for event, count in self.counts.items()
        ]
        if self.more:
            others = {"severity": "notice", "code": None, "what": "events", "reason": "others, not listed"}
            rows.append({**others, "count": self.more})
        return rows
