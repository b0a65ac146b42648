"""Whether an audit is as it was written, and how much of that is proven: by a key, by a public key, or by neither.

It reads line by line and keeps little of them, whatever the files hold. It needs no file but those that it is given,
and what is remembered beside a key. `FILE.1`, `FILE.2` and so on are what was in FILE before it was rotated.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from bisect import bisect
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from ...core.codes import Code
from ...core.errors import ConfigurationError, FileRefused
from ...files.file_rules import printable
from ...files.host_paths import open_file
from . import hash_chain
from .codes import RecordCode
from .hash_chain import MAX_LINE, Gap, Head, Sealed, parse
from .keys import RecordKey, signed_by
from .remembered_head import remembered

MAX_FINDINGS = 100
"""Findings of one code that are listed; the others are counted."""
MAX_RANGES = 10_000
"""Gaps of missing lines that are remembered, to tell a line that is elsewhere from one that is nowhere."""
MAX_WRITERS = 100_000
CHUNK = 1 << 16

Mode = Literal["key", "public-key", "none"]


class AuditFinding(NamedTuple):
    """One thing that is not as it should be, or that happened to the file."""

    code: Code
    file: str
    row: int
    """Line of the file, from 1."""
    n: int | None
    """Number of the line in the audit, as far as one is known."""
    text: str
    """Safe to print: it holds nothing of the file but numbers and hashes."""

    def to_json(self) -> dict[str, Any]:
        where = {"file": self.file, "row": self.row, "n": self.n}
        return {"code": self.code.code, "severity": self.code.severity, **where, "text": self.text}


class Raw(NamedTuple):
    data: bytes
    """Without its newline; of one that is too long, the beginning."""
    size: int
    sha256: bytes | None
    """Of one that has no seal."""
    whole: bool
    """Whether it ends with a newline."""


@dataclass(slots=True)
class VerificationResult:
    """What was found. `is_as_written` leaves open what `mode` cannot prove."""

    mode: Mode
    files: list[str] = field(default_factory=list)
    lines: int = 0
    first: int | None = None
    last: Head | None = None
    proven_to: int = 0
    """The last line up to which whoever has the key, or the private key, has vouched for every one."""
    signed_to: int = 0
    """The line that the last good signature reaches."""
    is_end_known: bool = False
    """Whether the last line is the one that is remembered beside the key, or that the caller knows."""
    findings: list[AuditFinding] = field(default_factory=list)
    counts: Counter[Code] = field(default_factory=Counter)
    """How many there are of each code."""
    writers: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Sessions without an end."""

    @property
    def is_as_written(self) -> bool:
        return not any(one.code.severity != "notice" for one in self.findings)

    def add(self, code: Code, file: str, row: int, n: int | None, more: str = "") -> None:
        self.counts[code] += 1
        if self.counts[code] <= MAX_FINDINGS:
            self.findings.append(AuditFinding(code, file, row, n, f"{code.text}{more and ': '}{more}"))

    @property
    def more(self) -> dict[str, int]:
        """How many findings of a code are not listed."""
        return {code.code: count - MAX_FINDINGS for code, count in self.counts.items() if count > MAX_FINDINGS}


class Verifier:
    """Takes the files of one audit, the oldest first."""

    def __init__(self, keys: Mapping[str, RecordKey], public: str | None = None, known: Collection[Head] = ()) -> None:
        """`keys` by their ids. With a public key alone, what an anchor signs is proven, and nothing behind it.

        `known` are lines as they are remembered elsewhere: beside the key, in a receipt, or by whoever verified the
        files before these.
        """
        self._keys = keys
        self._public = public
        self._known = frozenset(known)
        self.result = VerificationResult("key" if keys else "public-key" if public else "none")
        self._head = hash_chain.NOTHING
        self._key = next(iter(keys.values())) if len(keys) == 1 else None
        self._doubtful: Head | None = None
        """What the line before names, which is not as it was written."""
        self._missing: list[tuple[int, int]] = []
        """Ranges of lines that were not seen, in order: the first of each, and the last."""
        self._torn: tuple[Raw, int] | None = None
        """A line without a seal: the next one may say what it is."""
        self._clean = True
        """Whether everything until now is what its seals say."""
        self._file, self._row = "", 0

    def take(self, name: str, file: BinaryIO) -> None:
        """Read one file to its end."""
        self._file, self._row = name, 0
        self.result.files.append(name)
        for raw in _lines(file):
            self._row += 1
            self.result.lines += 1
            self._line(raw)
        if self._torn is not None:
            raw, row = self._torn
            self._torn = None
            self._say(RecordCode.LINE_FOREIGN if raw.whole else RecordCode.END_TORN, row=row)

    def finish(self) -> VerificationResult:
        result = self.result
        for first, last in self._missing:
            self._say(RecordCode.LINES_MISSING, f"{first} to {last}", row=0, n=first)
        self._head = self._doubtful or self._head
        result.last = self._head
        if (last := max((head.n for head in self._known), default=0)) > self._head.n:
            self._say(RecordCode.END_CUT, f"{self._head.n + 1} to {last}", row=0, n=self._head.n + 1)
        if result.mode == "public-key" and not result.signed_to:
            self._say(RecordCode.NOT_SIGNED, row=0)
        for session, n in result.writers.values():
            result.add(RecordCode.NOT_ENDED, self._file, 0, n, session)
        result.is_end_known = self._head in self._known
        return result

    # --- one line ---

    def _line(self, raw: Raw) -> None:
        sealed = parse(raw.data) if raw.sha256 is None and raw.whole else None
        if sealed is None:
            self._explain({})
            self._torn = raw, self._row
            if self._row == 1:
                self._say(RecordCode.BEGINNING_CUT)
            return
        fields = sealed.fields()
        if self._row == 1:
            self._header(sealed, fields)
        gap = fields if fields.get("event") == hash_chain.GAP and self._is_genuine(sealed) else {}
        if self._torn is None and isinstance(gap.get("torn"), dict) and sealed.follows(self._head):
            self._say(RecordCode.LINES_MISSING, "the one that was broken off, before this one", n=sealed.head.n)
        self._explain(gap)
        if (before := self._place(sealed)) is not None:
            self._meaning(sealed, before, fields)

    def _explain(self, gap: Mapping[str, Any]) -> None:
        """Judge the line without a seal that came before, by what the one behind it says."""
        if self._torn is None:
            return
        raw, row = self._torn
        self._torn = None
        said = gap.get("torn")
        digest = (raw.sha256 or hashlib.sha256(raw.data).digest()).hex()
        fits = isinstance(said, dict) and said.get("bytes") == raw.size and said.get("sha256") == digest
        self._say(RecordCode.LINE_TORN if fits else RecordCode.LINE_FOREIGN, row=row)

    def _header(self, sealed: Sealed, fields: Mapping[str, Any]) -> None:
        """Take up the first line of a file: which key it is sealed with, and what came before."""
        if fields.get("event") != hash_chain.HEADER:
            self._say(RecordCode.BEGINNING_CUT, n=sealed.head.n)
            if self.result.first is None:
                self._head = Head(0, bytes(32))
            return
        identity = str(fields.get("key"))
        self._key = self._keys.get(identity)
        if self._keys and self._key is None:
            shown = identity if len(identity) == 32 and identity.isalnum() else "?"
            self._say(RecordCode.KEY_NOT_GIVEN, shown, n=sealed.head.n)
        previous = Head.parse(str(fields.get("previous")))
        if self.result.first is None and previous is not None:
            self._head = previous
            if sealed.follows(previous):
                is_known = previous in self._known
                code = RecordCode.EARLIER_ELSEWHERE if is_known else RecordCode.EARLIER_MISSING
                self._say(code, f"1 to {previous.n}", n=sealed.head.n)

    def _is_genuine(self, sealed: Sealed) -> bool:
        """Return whether the key says that a line was written so; without a key, that cannot be doubted."""
        return self._key is None or sealed.is_by(self._key.mac)

    def _place(self, sealed: Sealed) -> Head | None:
        """Hold a line against the one before it, and go on from it.

        Return the line that it was held against; None for one that is not as it was written, and means nothing.
        """
        n, before = sealed.head.n, self._head
        if self.result.first is None:
            self.result.first = n
        if not self._is_genuine(sealed):
            self._say(RecordCode.LINE_CHANGED, n=n)
            # If it took the place of one, the next line follows what it names; if it was added, that follows `before`.
            if n == (self._doubtful or before).n + 1:
                self._doubtful = sealed.head
            return None
        doubtful, self._doubtful = self._doubtful, None
        if doubtful is not None and sealed.follows(doubtful):
            before = doubtful
        if sealed.follows(before):
            self._head = sealed.head
        elif self._was_missing(n):
            self._say(RecordCode.LINE_MOVED, n=n)
        elif n > before.n + 1:
            if len(self._missing) < MAX_RANGES:
                self._missing.append((before.n + 1, n - 1))
            self._head, self._clean = sealed.head, False
        elif n <= before.n:
            self._say(RecordCode.LINE_REPEATED, n=n)
        else:  # its number is the next one, but another line was there before it
            if self._key is None:
                self._say(RecordCode.LINE_CHANGED, "this one, or the one before it", n=n)
            else:
                self._say(RecordCode.LINES_MISSING, "another line was before it", n=n)
            self._head = sealed.head
        if any(known.n == n and known != sealed.head for known in self._known):
            self._say(RecordCode.HEAD_DIFFERS, n=n)
        if self._clean and self._key is not None:
            self.result.proven_to = n
        return before

    def _was_missing(self, n: int) -> bool:
        """Return whether a line was missing until now, and miss it no more."""
        at = bisect(self._missing, (n, hash_chain.MAX_LINES)) - 1
        if at < 0 or n > self._missing[at][1]:
            return False
        first, last = self._missing[at]
        self._missing[at : at + 1] = [(a, b) for a, b in ((first, n - 1), (n + 1, last)) if a <= b]
        return True

    # --- what a line says of the record itself ---

    def _meaning(self, sealed: Sealed, before: Head, fields: Mapping[str, Any]) -> None:
        event, writer = fields.get("event"), str(fields.get("writer"))[:40]
        if event == hash_chain.BEGIN and len(self.result.writers) < MAX_WRITERS:
            session = str(fields.get("session"))[:80]
            self.result.writers[writer] = session if session.isalnum() and session.isascii() else "?", sealed.head.n
        elif event == hash_chain.GAP:
            kind, n = fields.get("kind"), sealed.head.n
            if kind == Gap.CUT:
                self._say(RecordCode.END_CUT, f"{_number(fields, 'first')} to {_number(fields, 'last')}", n=n)
            elif kind == Gap.ALTERED:
                self._say(RecordCode.AUDIT_ALTERED, n=n)
            elif kind == Gap.LOST:
                self._say(RecordCode.LINES_LOST, _number(fields, "lines"), n=n)
            elif kind == Gap.SET_ASIDE:
                self._say(RecordCode.SET_ASIDE, n=n)
        elif event in (hash_chain.END, hash_chain.ANCHOR):  # compared, and not hashed: it may be a list
            self._anchor(sealed, before, fields)
            if event == hash_chain.END:
                self.result.writers.pop(writer, None)

    def _anchor(self, sealed: Sealed, before: Head, fields: Mapping[str, Any]) -> None:
        """Look at the signature of an anchor, which is over the line before it."""
        public = self._public or (self._key.public if self._key is not None else None)
        signature, n = fields.get("signature"), sealed.head.n
        if public is None or before.n != n - 1 or (signature is None and self._public is None):
            return
        good = False
        with suppress(ValueError):
            good = signed_by(public, hash_chain.anchored(before), bytes.fromhex(str(signature)))
        if not good:
            self._say(RecordCode.ANCHOR_WRONG, n=n)
        elif self._clean:
            self.result.signed_to = before.n
            if self.result.mode == "public-key":
                self.result.proven_to = before.n

    def _say(self, code: RecordCode, more: str = "", *, row: int | None = None, n: int | None = None) -> None:
        self.result.add(code, self._file, self._row if row is None else row, n, more)
        if code.severity != "notice":
            self._clean = False


def _number(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return str(value) if type(value) is int and 0 <= value <= hash_chain.MAX_LINES else "?"


def _lines(file: BinaryIO) -> Iterator[Raw]:
    """Yield the lines of a file. Of one that cannot be ours, only its length and its hash are kept."""
    while data := file.readline(MAX_LINE):
        if data.endswith(b"\n"):
            yield Raw(data[:-1], len(data) - 1, None, True)
            continue
        if len(data) < MAX_LINE:
            yield Raw(data, len(data), None, False)
            return
        digest, size, start, whole = hashlib.sha256(data), len(data), data[:100], False
        while not whole and (data := file.readline(CHUNK)):
            whole = data.endswith(b"\n")
            digest.update(data[:-1] if whole else data)
            size += len(data) - whole
        yield Raw(start, size, digest.digest(), whole)


_PLAIN = re.compile(r"[\w./:+-]+")
"""A value that cannot be mistaken for several."""
MAX_SEGMENTS = 100_000

PROVEN = {
    "key": "lines {first} to {proven}: each is as it was written, by somebody who has the key; none is missing among "
    "them, and none stands twice or elsewhere",
    "public-key": "lines {first} to {proven}: the owner of the key has signed them as they are and in this order",
    "none": "nothing. Without a key, the lines fit together; whoever can write to the file could have made them fit",
}
"""What is proven, by what it was verified with."""
OF_THE_KEY = (
    "that nobody who could read the key has written the file anew, root and the account of the kernels among them"
)
OF_THE_FIGURES = "what the sandbox said of itself: seconds of the processor, memory, what an output means"


def segments(path: Path) -> list[Path]:
    """Return the files of an audit that are there, the oldest first."""
    form = re.compile(re.escape(path.name) + r"\.([1-9][0-9]{0,6})")
    with suppress(OSError):
        there = [(form.fullmatch(file.name), file) for file in path.parent.iterdir()]
        found = sorted((int(match[1]), file) for match, file in there if match)
        return [*(file for _, file in found[:MAX_SEGMENTS]), *([path] if path.exists() else [])]
    return []


def verify(
    path: Path, keys: Sequence[RecordKey], public: str | None = None, known: Sequence[Head] = ()
) -> VerificationResult:
    """Verify an audit, which has to hold the lines that are `known`, and the one that is remembered beside a key.

    Raises `ConfigurationError` if it cannot be read.
    """
    whole = Path(os.path.abspath(path))  # noqa: PTH100 (no link is followed)
    files = segments(whole)
    if not files:
        raise ConfigurationError(RecordCode.AUDIT_UNREADABLE, f"there is no audit {path}", value=str(path))
    heads = [head for key in keys if (head := remembered(key.path, whole)) is not None]
    verifier = Verifier({key.id: key for key in keys}, public, [*sorted(heads)[-1:], *known])
    for file in files:
        with _opened(file) as handle:
            verifier.take(file.name, handle)
    return verifier.finish()


def _opened(path: Path) -> Any:
    try:
        return os.fdopen(open_file(path), "rb")
    except FileRefused as error:
        raise ConfigurationError(RecordCode.AUDIT_UNREADABLE, f"{path}: {error.message}") from None
    except OSError as error:
        raise ConfigurationError(RecordCode.AUDIT_UNREADABLE, f"{path}: {error.strerror}") from None


def proven(result: VerificationResult) -> list[str]:
    if result.mode != "none" and not result.proven_to:
        return []
    first = min(result.first or 1, result.proven_to)
    sentences = [PROVEN[result.mode].format(first=first, proven=result.proven_to)]
    if result.mode == "key" and result.signed_to:
        sentences.append(f"lines {first} to {result.signed_to} to others too, who have the public key only")
    if result.mode != "none" and result.is_end_known:
        sentences.append("that no line is cut off at the end: the last one is known from elsewhere")
    return sentences


def unproven(result: VerificationResult) -> list[str]:
    last = result.last.n if result.last is not None else 0
    sentences = []
    if result.mode != "none" and result.proven_to < last:
        sentences.append(f"lines {result.proven_to + 1} to {last}")
    is_cut = any(finding.code is RecordCode.END_CUT and (finding.n or 0) > last for finding in result.findings)
    if not result.is_end_known and not is_cut:  # where it is, that is found, by what remembers the last line
        sentences.append("that no line is cut off at the end: nothing else is known to remember the last one")
    if result.mode != "none":
        sentences.append(OF_THE_KEY)
    return [*sentences, OF_THE_FIGURES]


def to_json(result: VerificationResult) -> dict[str, Any]:
    return {
        "is_as_written": result.is_as_written,
        "with": result.mode,
        "files": result.files,
        "lines": result.lines,
        "first": result.first,
        "last": None if result.last is None else str(result.last),
        "proven_to": result.proven_to,
        "signed_to": result.signed_to,
        "is_end_known": result.is_end_known,
        "findings": [one.to_json() for one in result.findings],
        "more_findings": result.more,
        "proven": proven(result),
        "not_proven": unproven(result),
    }


# --- for people ---


def rows(path: Path) -> Iterator[Mapping[str, Any] | None]:
    """Yield what the lines of an audit say, None for one that has no seal. Their texts may be hostile."""
    for file in segments(Path(os.path.abspath(path))):  # noqa: PTH100
        with _opened(file) as handle:
            while data := handle.readline(MAX_LINE):
                sealed = parse(data.rstrip(b"\n"))
                yield None if sealed is None else sealed.fields()


def shown(row: Mapping[str, Any] | None) -> str:
    """Return a line for people: safe for a terminal, on one row."""
    if row is None:
        return "    ?  (no line of the record)"
    head = ("time", "session", "event", "n")
    time, session, event, n = (printable(str(row.get(name, "?")), 40) for name in head)
    said = {name: value for name, value in row.items() if name not in {*head, "chain", "mac"} and _is_said(value)}
    try:
        more = "  ".join(f"{_word(name)}={_word(value)}" for name, value in said.items())
    except RecursionError:
        more = "(too deep)"
    return f"{n:>6}  {time[:23]}  {session[:8]:8}  {event:12}  {printable(more, 1000)}"


def _is_said(value: object) -> bool:
    return value is not None and value not in ("", [], {}, 0)


def _word(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_word(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_word, value)) + "]"
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
