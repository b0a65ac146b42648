"""What the policy and the host refused during a run, cell by cell, and which of it honest code would not have done.

Pure. The texts are the host's own, but names in them may come from the sandbox.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ...core.behaviour import Observation, observed
from ...core.events import MessageDropped, SessionEvent
from .codes import BatchCode

FailOn = Literal["violation", "any", "never"]

MAX_EVENTS = 100
"""Different events kept of one cell and one severity, so that none hides behind many others; the rest is counted."""


def classify(event: SessionEvent) -> Observation | None:
    """Return what an event means for a report, None if nothing was refused."""
    if isinstance(event, MessageDropped) and isinstance(event.last, str):
        code = BatchCode.MORE_DROPPED
        return Observation(code.severity, code, "message", f"dropped: {code.text}", "message")
    found = observed(event)
    return None if found is None or found.is_usual else found


@dataclass(slots=True)
class Events:
    """The events of one cell, each once and counted."""

    counts: dict[Observation, int] = field(default_factory=dict)
    more: int = 0

    def add(self, event: Observation) -> None:
        same = sum(known.severity == event.severity for known in self.counts)
        if event in self.counts or same < MAX_EVENTS:
            self.counts[event] = self.counts.get(event, 0) + 1
        else:
            self.more += 1

    def worst(self, fail_on: FailOn) -> Observation | None:
        """Return the first event that breaks the policy as far as the user wants a run to fail for it."""
        wanted = {"violation": {"violation"}, "any": {"violation", "notice"}, "never": set()}[fail_on]
        return next((event for event in self.counts if event.severity in wanted), None)

    def limit(self) -> Observation | None:
        """Return the first limit that cost a result; one of a connection is for the code that opened it."""
        found = (event for event in self.counts if event.kind != "connection")
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
