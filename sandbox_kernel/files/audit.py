"""The audit: one line of JSON for each cell and for each thing that was refused, appended to a file of the host.

Every line is ASCII with all else escaped, so nothing that a cell says can forge a line or act on the terminal of
whoever reads the file. The characters by which a shell runs something are escaped as well: read as a script by whatever
accident, a line is a word that names no command. A line is written by one `write` to a file opened for appending, so
several sessions may share it.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from ..core.errors import FileRefused
from .places import open_log

FIRST_BYTES = b'{"time":"'
"""Of every line, and so of every audit: a file that begins with anything else is not appended to."""
MAX_LINE = 4096
"""Bytes of one line, newline included."""
MAX_TEXT = 500
"""Characters of one text in a line; a longer one is cut, with its length."""
CELL_LINES, SESSION_LINES = 200, 10_000
"""Lines of one event, or of one room of it, that are written between two cells' ends, and in a session.

What a sandbox sends makes most of them; the disk of the host is not at its disposal. How many are left out is a line.
"""
MOST_FIRSTS = 4096
"""First lines of a cell that are told from others. Those that are always written have words of ours: rules, codes."""
UNCOUNTED = frozenset(("cell", "file", "file_refused"))
"""Events of which a front end's request makes one, or a folder's limits bound them: each is written, always."""
MAX_ITEMS = 16
"""Members of one list or object, and levels of nesting, in a line."""

_FOR_SHELLS = str.maketrans({char: f"\\u{ord(char):04x}" for char in "$`!;&|<>"})
"""What is left of a line is one quoted word to a shell. None of them is JSON's own, so they stand within texts only."""

Report = Callable[[str], None]
Observer = Callable[[str, Mapping[str, Any]], None]


def open_audit(path: str | None, *, session: str | None = None, report: Report | None = None) -> Audit:
    """Open the audit of one session; a path of None is an audit that writes nothing."""
    return Audit(path, session=session or secrets.token_hex(8), report=report or _warn)


def _warn(text: str) -> None:
    logging.getLogger("sandbox_kernel").warning("%s", text)


class Audit:
    """Appends lines to a file, or does nothing if there is no path.

    It never raises: a session does not end because its audit cannot be written. The first failure is handed to
    `report`, once, and counted in `lost` with those that follow.
    """

    def __init__(
        self,
        path: str | None,
        *,
        session: str,
        report: Report = lambda text: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.lost = 0
        """Lines that could not be written."""
        self.observer: Observer | None = None
        """Called with each event and its fields, also where nothing is written. Texts in there may be hostile."""
        self._session = session
        self._report = report
        self._clock = clock
        self._counts: dict[str, list[int]] = {}
        """Lines of each event: in this cell, in this session, and left out since it was last said."""
        self._firsts: set[tuple[str, ...]] = set()
        """What this cell has a line of."""
        self._fd: int | None = None
        if path is not None:
            try:
                self._fd = open_log(path, FIRST_BYTES)
            except (OSError, ValueError, FileRefused) as error:
                self._fail(f"the audit file cannot be opened: {error}")

    def observe(self, observer: Observer) -> None:
        """Have `observer` called with each event and its fields, after those that are called already."""
        before = self.observer

        def both(event: str, fields: Mapping[str, Any]) -> None:
            if before is not None:
                before(event, fields)
            observer(event, fields)

        self.observer = both

    def __call__(
        self, event: str, room: str | None = None, first: tuple[str, str] | None = None, /, **fields: Any
    ) -> None:
        """Append one line: the time, the session, `event`, and the fields.

        How many there are is bounded for each event, or for each `room` that is named. `first` says what the line is
        about: a word of ours, of which each cell has its first line whatever else there is, and a name that a cell may
        have invented, of which the first line takes no room from the second.
        """
        if self.observer is not None:
            self.observer(event, fields)
        if self._fd is None:
            return
        if event == "cell":
            self._say_left_out()
        elif event not in UNCOUNTED and not self._has_room(room or event, first):
            return
        self._write(event, fields)

    def _has_room(self, room: str, first: tuple[str, str] | None) -> bool:
        """Return whether a line is written: as the first of its kind in this cell, or where there is room for more."""
        if first is not None and len(self._firsts) < MOST_FIRSTS:
            word, name = first
            if (room, word) not in self._firsts:
                self._firsts |= {(room, word), (room, word, name)}
                return True
            if (room, word, name) not in self._firsts:
                counted = self._counted(f"{room}, names")
                if counted:
                    self._firsts.add((room, word, name))
                return counted
        return self._counted(room)

    def _counted(self, event: str) -> bool:
        """Return whether there is room for one more line of an event."""
        if event not in self._counts and len(self._counts) >= CELL_LINES:
            event = "others"  # our own events are some twenty
        count = self._counts.setdefault(event, [0, 0, 0])
        if count[0] >= CELL_LINES or count[1] >= SESSION_LINES:
            count[2] += 1
            return False
        count[0] += 1
        count[1] += 1
        return True

    def _say_left_out(self) -> None:
        """Write how many lines of which events there was no room for, and make room for those of the next cell."""
        if left_out := {event: count[2] for event, count in self._counts.items() if count[2]}:
            self._write("left_out", {"lines": left_out})
        for count in self._counts.values():
            count[0] = count[2] = 0
        self._firsts.clear()

    def _write(self, event: str, fields: dict[str, Any]) -> None:
        if self._fd is None:
            return
        line = self._line(event, fields)
        try:
            written = os.write(self._fd, line)
        except OSError as error:
            self._fail(f"the audit file cannot be written: {error}")
        else:
            if written != len(line):
                self._fail("the audit file took only a part of a line, and nothing more is written to it")
                self._counts.clear()
                self.close()  # the next line would begin within a text of this one

    def close(self) -> None:
        """Close the file; later lines are ignored. Idempotent."""
        if self._fd is not None and any(count[2] for count in self._counts.values()):
            self._say_left_out()
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _line(self, event: str, fields: dict[str, Any]) -> bytes:
        moment = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        head = {"time": moment, "session": _short(self._session, 0), "event": _short(event, 0)}
        body = {_key(key): _short(value, 1) for key, value in fields.items() if key not in head}
        line = _json(head | body)
        while len(line) >= MAX_LINE and body:
            # The longest field goes first; which one is said.
            longest = max(body, key=lambda key: len(_json(body[key])))
            del body[longest]
            head["cut"] = longest[:40]
            line = _json(head | body)
        return line[: MAX_LINE - 1].encode("ascii") + b"\n"

    def _fail(self, text: str) -> None:
        self.lost += 1
        if self.lost == 1:
            self._report(text)


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).translate(_FOR_SHELLS)


def _key(key: str) -> str:
    return key[:40]


def _short(value: Any, depth: int) -> Any:
    """Return a bounded copy of `value` that JSON can hold."""
    if value is None or isinstance(value, (bool, int)):
        return value if not isinstance(value, int) or abs(value) < 1 << 63 else str(value)[:40]
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}… ({len(value)} characters)"
    if depth > 4:
        return "…"
    if isinstance(value, dict):
        return {_key(str(key)): _short(item, depth + 1) for key, item in list(value.items())[:MAX_ITEMS]}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_short(item, depth + 1) for item in list(value)[:MAX_ITEMS]]
    return f"<{type(value).__name__}>"
