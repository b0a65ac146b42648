"""What the policy and the host refused during a run, cell by cell, and which of it honest code would not have done.

Pure; imports codes and names only. The texts are the host's own, but names in them may come from the sandbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ...core.codes import Code, MessageCode, Severity
from ...files.file_rules import printable
from .. import index
from .codes import BatchCode

FailOn = Literal["violation", "any", "never"]

CONNECTED = "connected"
"""The code of a connection that was let out; it is another plugin's."""
MAX_EVENTS = 100
"""Different events kept of one cell and one severity, so that none hides behind many others; the rest is counted."""
MAX_REASON = 300
_BY_HABIT = frozenset({MessageCode.STATUS_OUT_OF_TURN, MessageCode.WELCOME})
"""What each kernel sends by itself: its "starting", which comes when it likes, and its welcome."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that was refused, removed or dropped."""

    severity: Severity
    code: Code
    what: str
    reason: str
    of: str | None = None
    """The event of the audit; None where that makes no difference."""


def classify(event: str, fields: Mapping[str, Any]) -> Event | None:
    """Return what an event of the audit means for a report, None if nothing was refused."""
    if event == "dropped" and "last" in fields:
        code: Code = BatchCode.MORE_DROPPED
        return Event(code.severity, code, "message", f"dropped: {code.text}")
    if event not in {"policy", "dropped", "file_refused", "network", "monitor"}:
        return None
    code, reason = index.code(str(fields["code"])), printable(str(fields.get("reason", "")), MAX_REASON)
    if event == "network":
        return None if code.code == CONNECTED else Event(code.severity, code, _place(fields), reason, "network")
    if event == "monitor":
        # What is only noted breaks no policy, whatever it is.
        return Event("notice" if fields.get("level") == "note" else code.severity, code, "behaviour", reason)
    if event == "policy":
        return Event(code.severity, code, printable(str(fields.get("type", "")), 80), reason)
    if event == "dropped":
        if code in _BY_HABIT:
            return None
        return Event(code.severity, code, printable(str(fields.get("type") or "message"), 80), f"dropped: {reason}")
    if fields.get("op") not in ("upload", "download"):
        return None
    # An upload is a file of the host's own; the code has no part in it.
    severity: Severity = "notice" if fields["op"] == "upload" else code.severity
    path = printable(str(fields.get("path", "")), 160)
    return Event(severity, code, "file", f"{fields['op']} refused: {path}: {reason}")


def _place(fields: Mapping[str, Any]) -> str:
    """Return what a connection was for, as far as it was read."""
    host, port = fields.get("host"), fields.get("port")
    return "connection" if host is None else printable(f"{host}:{port}", 160)


@dataclass(slots=True)
class Events:
    """The events of one cell, each once and counted."""

    counts: dict[Event, int] = field(default_factory=dict)
    more: int = 0

    def add(self, event: Event) -> None:
        same = sum(known.severity == event.severity for known in self.counts)
        if event in self.counts or same < MAX_EVENTS:
            self.counts[event] = self.counts.get(event, 0) + 1
        else:
            self.more += 1

    def worst(self, fail_on: FailOn) -> Event | None:
        """Return the first event that breaks the policy as far as the user wants a run to fail for it."""
        wanted = {"violation": {"violation"}, "any": {"violation", "notice"}, "never": set()}[fail_on]
        return next((event for event in self.counts if event.severity in wanted), None)

    def limit(self) -> Event | None:
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
