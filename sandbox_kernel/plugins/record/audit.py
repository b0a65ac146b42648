"""The audit: one line of JSON for each cell and for each thing that was refused, appended to a file of the host.

Every line is ASCII with all else escaped, so nothing that a cell says can forge a line or act on the terminal of
whoever reads the file. The characters by which a shell runs something are escaped as well: read as a script by whatever
accident, a line is a word that names no command. How lines are sealed and get into the file, beside those of other
sessions and processes, is in `audit_file`.

The processor time and memory of a cell are asked of the sandbox when the cell has ended. Its front end does not wait
for them, and what does not come is left out.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any

from ...core.errors import ConfigurationError, FileRefused
from ...core.events import ABSENT, CellRecorded, ConnectionEnded, FileTransferred, SessionEvent, ToolCalled
from ...core.model import MIB, Settings
from ..api import EndedCell, Figures, SessionHandle, SessionService
from .audit_file import AuditFile, Busy, moment, to_json
from .hash_chain import BEGIN, END, GAP, MAX_BODY, OWN_EVENTS, Gap, Head
from .settings import RecordSettings

MAX_CODES = 12
"""Different codes that one line names; the others are counted together."""
MAX_FILES = 6
"""Files each way that one line names; each file has a line of its own besides."""
MAX_PATH = 120

_INTO = frozenset(("upload", "write"))
_OUT = frozenset(("download", "read"))


class EventCounters:
    """Hears every event of a session."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._codes: Counter[str] = Counter()
        self._files: dict[str, list[dict[str, Any]]] = {"in": [], "out": []}
        self._counts, self._bytes = Counter[str](), Counter[str]()

    def hear(self, event: SessionEvent, line: Mapping[str, Any]) -> None:
        if isinstance(event, CellRecorded):
            return
        if isinstance(code := line.get("code"), str):
            known = code in self._codes or len(self._codes) < MAX_CODES
            self._codes[code if known else "others"] += 1
        match event:
            case FileTransferred():
                self._file(event)
            case ConnectionEnded(is_connected=True):
                self._counts["connections"] += 1
                self._bytes["in"] += event.bytes_in
                self._bytes["out"] += event.bytes_out
            case ToolCalled(name="tool"):
                self._counts["tool_calls"] += 1

    def _file(self, event: FileTransferred) -> None:
        way = "in" if event.op in _INTO else "out" if event.op in _OUT else None
        if way is None:
            return
        size = None if event.bytes is ABSENT else event.bytes
        self._counts[way] += 1
        self._bytes[way] += size or 0
        if len(self._files[way]) < MAX_FILES:
            sha256 = None if event.sha256 is ABSENT else event.sha256
            self._files[way].append({"path": event.path[:MAX_PATH], "bytes": size, "sha256": sha256})

    def take(self) -> dict[str, Any]:
        """Return the counts as fields of a line, and reset them."""
        fields: dict[str, Any] = {
            "codes": dict(self._codes),
            "files_in": self._files["in"],
            "files_in_count": self._counts["in"],
            "files_out": self._files["out"],
            "files_out_count": self._counts["out"],
            "bytes_in": self._bytes["in"],
            "bytes_out": self._bytes["out"],
            "connections": self._counts["connections"],
            "tool_calls": self._counts["tool_calls"],
        }
        self._begin()
        return fields


MAX_TEXT = 500
"""Characters of one text in a line; a longer one is cut, with its length."""
MAX_NAME = 80
"""Characters of an event and of a session."""
CELL_LINES, SESSION_LINES = 200, 10_000
"""Lines of one event, or of one room of it, that are written between two cells' ends, and in a session.

What a sandbox sends makes most of them; the disk of the host is not at its disposal. How many are left out is a line.
"""
MAX_FIRSTS = 4096
"""First lines of a cell that are told from others. Those that are always written have words of ours: rules, codes."""
UNCOUNTED = frozenset(("cell", "file", "file_refused", "tool"))
"""Events of which a front end's request makes one, or limits bound them: each is written, always."""
MAX_ITEMS = 16
"""Members of one list or object, and levels of nesting, in a line."""
MAX_PENDING = 1000
"""Lines that wait while another process holds the file, or the disk is full; what is more is lost, and counted."""
BATCH = 50
"""Lines that are written at once."""
PATIENCE_SECONDS, LAST_PATIENCE_SECONDS = 0.05, 1.0
"""How long a line waits for the file, unless the one before waited in vain; how long the last ones do."""
RESERVED = frozenset(("time", "session", "event", "cut", "n", "chain", "mac"))
"""Fields that are the record's own."""
MAX_SOURCE_LINES = 100
PIECE_CHARACTERS = 250
"""Of a cell's text in a line: twelve bytes each at most."""

Report = Callable[[str], None]


class Audit:
    """Appends lines to a file, or does nothing if there is no path.

    It never raises: a session does not end because its audit cannot be written. The first failure is handed to
    `report`, once; lines wait for a while then, and those that are lost in the end are counted in `lost`.
    """

    def __init__(
        self,
        path: str | None,
        *,
        session: str,
        key: str | None = None,
        limit_bytes: int = 64 * MIB,
        report: Report = lambda text: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`key` is the path of its key, None for the one of this user; over `limit_bytes`, another file is begun."""
        self.lost = 0
        """Lines that could not be written."""
        self.tally = EventCounters()
        """What happened since the last cell."""
        self._session = session
        self._report = report
        self._reported = False
        self._clock = clock
        self._counts: dict[str, list[int]] = {}
        """Lines of each event: in this cell, in this session, and left out since it was last said."""
        self._firsts: set[tuple[str, ...]] = set()
        """What this cell has a line of."""
        self._cells_ended = 0
        """Cells of which the line is still to come."""
        self._pending: deque[bytes] = deque()
        self._unsaid = 0
        """Lines that were lost since that was last said."""
        self._lines = 0
        self._writer = secrets.token_hex(8)
        self._pid = os.getpid()
        self._turn = threading.Lock()
        """Held by whoever writes."""
        self._holder: int | None = None
        """The thread that writes: a finalizer may run in it, and close the audit while a line of it is under way."""
        self._close_later = False
        self._file: AuditFile | None = None
        self._last: Head | None = None
        if path is not None:
            self._open(path, key, limit_bytes)

    def _open(self, path: str, key: str | None, limit_bytes: int) -> None:
        from .keys import open_key

        try:
            self._file = AuditFile(
                path, open_key(key), session=self._session, limit_bytes=limit_bytes, clock=self._clock
            )
        except (OSError, ValueError, FileRefused, ConfigurationError) as error:
            self._complain(f"the audit file cannot be opened: {error}")
            self.lost += 1
        else:
            self._write(BEGIN, {"writer": self._writer})

    @property
    def is_kept(self) -> bool:
        """Whether lines go anywhere."""
        return self._file is not None

    @property
    def waiting(self) -> int:
        """Lines that could not be written yet."""
        return len(self._pending)

    @property
    def head(self) -> Head | None:
        """The last line that this session wrote, also after its end; None if it wrote none."""
        return self._last

    def __call__(
        self, event: str, room: str | None = None, first: tuple[str, str] | None = None, /, **fields: Any
    ) -> None:
        """Append one line: the time, the session, `event`, and the fields.

        How many there are is bounded for each event, or for each `room` that is named. `first` says what the line is
        about, as (category, name). Each cell has the first line of each category. A cell may have invented names, so
        the first lines of names have a bound of their own.
        """
        if self._file is None:
            return
        if event == "cell":
            if self._cells_ended:
                self._cells_ended -= 1
            else:
                self._say_left_out()
        elif event not in UNCOUNTED and not self._has_room(room or event, first):
            return
        self._write(f"other {event}" if event in OWN_EVENTS else event, fields)

    def cell_ended(self) -> dict[str, Any]:
        """Return what happened since the cell before, as fields of a line that may come later, and begin anew."""
        if self._file is not None:
            self._say_left_out()
            self._cells_ended += 1
        return self.tally.take()

    def source(self, sha256: str, text: str) -> None:
        """Write down the text of a cell, in as many lines as it takes, up to a bound."""
        pieces = [text[at : at + PIECE_CHARACTERS] for at in range(0, len(text), PIECE_CHARACTERS)] or [""]
        for number, piece in enumerate(pieces[:MAX_SOURCE_LINES], start=1):
            self._write("source", {"source_sha256": sha256, "part": number, "parts": len(pieces), "text": piece})

    def _has_room(self, room: str, first: tuple[str, str] | None) -> bool:
        """Return whether a line is written: as the first of its kind in this cell, or where there is room for more."""
        if first is not None and len(self._firsts) < MAX_FIRSTS:
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
        if self._file is None or os.getpid() != self._pid:
            return  # a forked child has the parent's lock as well, and could not be kept apart from it
        self._lines += 1
        if len(self._pending) < MAX_PENDING:
            self._pending.append(self._line(event, fields))
        else:
            self.lost += 1
            self._unsaid += 1
        self._flush(0.0 if len(self._pending) > 1 else PATIENCE_SECONDS)

    def _flush(self, seconds: float) -> bool:
        """Write what waits, as far as that can be done; return whether all of it went in."""
        while self._pending and self._turn.acquire(blocking=False):
            self._holder = threading.get_ident()
            try:
                if self._file is None or not self._write_pending(self._file, seconds):
                    return False
            finally:
                self._holder = None
                self._turn.release()
                if self._close_later:
                    self._close_later = False
                    self.close()
        return not self._pending

    def _write_pending(self, file: AuditFile, seconds: float) -> bool:
        try:
            written = file.append(list(islice(self._pending, BATCH)), seconds)
        except Busy:
            self._complain("the audit file is held by another process; lines wait")
            return False
        except (OSError, FileRefused) as error:
            self._complain(f"the audit file cannot be written: {error}")
            return False
        self._last = file.last
        for _ in range(written):
            self._pending.popleft()
        if not self._pending and self._unsaid:
            self._pending.append(self._line(GAP, {"kind": Gap.LOST, "lines": self._unsaid}))
            self._unsaid = 0
        return True

    def close(self) -> None:
        """Write the end of this session and close the file; later lines are ignored. Idempotent."""
        file = self._file
        if file is None:
            return
        if os.getpid() != self._pid:
            self._file = None
            file.close()
            return
        if self._holder == threading.get_ident():
            self._close_later = True
            return
        if any(count[2] for count in self._counts.values()):
            self._say_left_out()
        whole = self._flush(LAST_PATIENCE_SECONDS)
        if self._turn.acquire(timeout=LAST_PATIENCE_SECONDS):  # else another thread is stuck in it, with the file
            if whole:
                self._end(file)
            file.close()
            self._file = None
            self._turn.release()
        self._file = None
        self.lost += len(self._pending)
        self._pending.clear()

    def _end(self, file: AuditFile) -> None:
        fields = {"writer": self._writer, "lines": self._lines, "lost": self.lost}
        try:
            file.anchor(END, fields, LAST_PATIENCE_SECONDS)
        except (Busy, OSError, FileRefused) as error:
            self._complain(f"the end of the audit cannot be written: {error!r}")
        else:
            self._last = file.last

    def _line(self, event: str, fields: dict[str, Any]) -> bytes:
        head = {"time": moment(self._clock()), "session": self._session[:MAX_NAME], "event": event[:MAX_NAME]}
        body = {_key(key): _short(value, 1) for key, value in fields.items() if key not in RESERVED}
        line = to_json(head | body)
        while len(line) > MAX_BODY and body:
            # The longest field goes first; which one is said.
            longest = max(body, key=lambda key: len(to_json(body[key])))
            del body[longest]
            head["cut"] = longest[:40]
            line = to_json(head | body)
        return line.encode("ascii")

    def _complain(self, text: str) -> None:
        if not self._reported:
            self._reported = True
            self._report(text)


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


class Record(SessionService):
    """The record of one session, a `CellRecorder` and an `EventListener`: a line of each event and of each cell."""

    def __init__(self, settings: Settings, session: SessionHandle) -> None:
        """Open the audit. One that cannot be opened ends no session: its person is told in the first cell."""
        self._session = session
        self._unsaid: list[str] = []
        """What is to be said of the audit: lines may be written where nothing can be said, such as in a thread."""
        record = settings.of(RecordSettings)
        self.audit = Audit(
            record.audit,
            session=session.id,
            key=record.audit_key,
            limit_bytes=record.audit_size,
            report=self._unsaid.append,
        )
        self._keeps_text = record.audit_source == "text"
        self._waiting: dict[str, dict[str, Any]] = {}
        """Lines that wait for their figures, by the request of their cell."""

    def _say_unsaid(self) -> None:
        while self._unsaid:
            self._session.say(self._unsaid.pop(0))

    @property
    def head(self) -> str | None:
        return None if self.audit.head is None else str(self.audit.head)

    def begin(self, *, afresh: bool) -> None:
        self._say_unsaid()

    def hear(self, event: SessionEvent) -> None:
        line = event.line()
        self.audit.tally.hear(event, line)
        self.audit(event.name, event.room, event.first, **line)

    def cell_begun(self) -> None:
        self._say_unsaid()
        if self.audit.is_kept:
            self._session.measure()

    def cell_done(self, cell: EndedCell) -> None:
        if not self.audit.is_kept:
            return
        data = cell.code.encode(errors="replace")
        content = cell.reply.content if cell.reply is not None else {}
        fields = {
            "id": cell.id,
            "execution_count": cell.execution_count,
            "seconds": round(cell.seconds, 3),
            "status": content.get("status"),
            "error": content.get("ename"),
            "code": None if cell.verdict is None else cell.verdict.code.code,
            "kept": None if cell.verdict is None else cell.verdict.kept,
            "output_bytes": cell.output_bytes,
            "output_messages": cell.output_messages,
            **self.audit.cell_ended(),
            "source_sha256": hashlib.sha256(data).hexdigest(),
            "source_bytes": len(data),
        }
        if cell.caller:
            fields["caller"] = cell.caller
        if self._keeps_text:
            self.audit.source(fields["source_sha256"], cell.code)
        if not cell.begun:
            self._tell(fields)
            return
        self._waiting[cell.id] = fields
        self._session.measured(cell.id).add_done_callback(partial(self._measured, cell.id))

    def abandon(self) -> None:
        for cell in list(self._waiting):
            self._write(cell, (None, None))
        self.audit.close()

    async def close(self) -> None:
        self.abandon()

    def _measured(self, cell: str, task: asyncio.Task[Figures]) -> None:
        self._write(cell, (None, None) if task.cancelled() or task.exception() is not None else task.result())

    def _write(self, cell: str, figures: Figures) -> None:
        fields = self._waiting.pop(cell, None)
        if fields is not None:
            seconds, peak = figures
            used = {"cpu_seconds": None if seconds is None else round(seconds, 3), "memory_peak_bytes": peak}
            self._tell(fields | used)

    def _tell(self, fields: dict[str, Any]) -> None:
        """Write the line of a cell; all who listen hear of it."""
        self._session.emit(CellRecorded(about=fields))
