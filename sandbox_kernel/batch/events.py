"""What the policy and the host refused during a run, cell by cell, and which of it honest code would not have done.

Pure; imports names only. The texts are the host's own, but names in them may come from the sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..files.names import is_habitual, printable

Severity = Literal["violation", "limit", "notice"]
FailOn = Literal["violation", "any", "never"]

MAX_EVENTS = 100
"""Different events kept of one cell and one severity, so that none hides behind many others; the rest is counted."""
MAX_REASON = 300

HARMLESS = (
    r"removed a script from a network: .*",  # folium, bokeh: their pages are shown without it
    r"removed [\w/+-]+: too much markup to look at.*",
    r"showed (HTML|Markdown) as text: too much .*",
    r"showed LaTeX as text: .*",
    r"removed image/svg\+xml: .*",
    r"removed \w+(?:/\w+)?: \d+ million pixels.*",
    r"removed an image: it is none, or larger .*",
    r"left out a part of an SVG: .*",
    r"removed [\w.+/ -]+: not a type that is shown",  # data for front ends with an extension
    r"removed [^:]*: no representation may be shown",
    r"removed [\w/.+-]+: the data are not such an image",
    r"removed application/json: .*",
    r"dropped a widget of [^:]*: only those of ipywidgets .*",
    r"removed a widget: its model is not one .*",
    r"dropped a (message on|comm message|widget).*: no active content in this mode",
    r"dropped (a message on|the end of) a comm that is not open",
    r"dropped a widget: \d+ comms are open",
    r"dropped a payload, ask_exit: .*",  # exit() at the end of a script
    r"dropped an update of a display that is not open",
    r"removed an improper display id",
    r"removed description_allow_html: .*",
    r"removed [\w.+/@-]+ of a widget: \w+ has no such trait",  # a subclass of an honest notebook
    r"removed entries of a widget's list: .*",
    r"dropped a widget's call for the focus: .*",
    r"dropped completions .*",
)
"""What honest libraries do too. All else that the policy removed could have acted, loaded or leaked: a violation."""

_HARMLESS = re.compile("|".join(HARMLESS), re.DOTALL)

_ODD_BUT_HONEST = frozenset(
    ("iopub_welcome may not be published", "out of turn", "its cell has ended", "its request was not sent yet")
)
"""Messages that a real ipykernel sends as well; others are the work of somebody who forges them."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that was refused, removed or dropped."""

    severity: Severity
    what: str
    reason: str


def classify(event: str, fields: Mapping[str, Any]) -> Event | None:
    """Return what an event of the audit means for a report, None if nothing was refused."""
    reason = printable(str(fields.get("reason", "")), MAX_REASON)
    if event == "policy":
        what = printable(str(fields.get("type", "")), 80)
        return Event("notice" if _HARMLESS.fullmatch(reason) else "violation", what, reason)
    if event == "dropped":
        if "last" in fields:
            return Event("violation", "message", "dropped: more messages than are looked at")
        what = printable(str(fields.get("type") or "message"), 80)
        if what == "status" and reason == "out of turn":
            return None  # a kernel's "starting" comes when it likes
        return Event("notice" if reason in _ODD_BUT_HONEST else "violation", what, f"dropped: {reason}")
    if event == "file_refused" and fields.get("op") in ("upload", "download"):
        path = printable(str(fields.get("path", "")), 160)
        if fields["op"] == "upload":
            severity: Severity = "notice"  # of the host's own files; the code has no part in it
        elif "Limit: " in reason:
            severity = "limit"
        else:
            # Caches are honest; a link, a device, or a file that programs of the host act upon is not.
            honest = is_habitual(path, reason) or reason.startswith("it changed while it was copied")
            severity = "notice" if honest else "violation"
        return Event(severity, "file", f"{fields['op']} refused: {path}: {reason}")
    return None


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
        return next((event for event in self.counts if event.severity == "limit"), None)

    def to_json(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = [
            {"severity": event.severity, "what": event.what, "reason": event.reason, "count": count}
            for event, count in self.counts.items()
        ]
        if self.more:
            rows.append({"severity": "notice", "what": "events", "reason": "others, not listed", "count": self.more})
        return rows
