"""The files of an audit, found by the name of the newest, and what a verifier says of them.

`FILE.1`, `FILE.2` and so on are what was in FILE before it was rotated.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...core.errors import ConfigurationError, FileRefused
from ...files.file_rules import printable
from ...files.host_paths import open_file
from .chain import MAX_LINE, Head, parse
from .codes import RecordCode
from .keys import RecordKey
from .tail_pin import remembered
from .verifying import Result, Verifier

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


def verify(path: Path, keys: Sequence[RecordKey], public: str | None = None, known: Sequence[Head] = ()) -> Result:
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


def proven(result: Result) -> list[str]:
    """Say what is proven."""
    if result.mode != "none" and not result.proven_to:
        return []
    first = min(result.first or 1, result.proven_to)
    said = [PROVEN[result.mode].format(first=first, proven=result.proven_to)]
    if result.mode == "key" and result.signed_to:
        said.append(f"lines {first} to {result.signed_to} to others too, who have the public key only")
    if result.mode != "none" and result.is_end_known:
        said.append("that no line is cut off at the end: the last one is known from elsewhere")
    return said


def unproven(result: Result) -> list[str]:
    """Say what is not proven."""
    last = result.last.n if result.last is not None else 0
    said = []
    if result.mode != "none" and result.proven_to < last:
        said.append(f"lines {result.proven_to + 1} to {last}")
    if not result.is_end_known:
        said.append("that no line is cut off at the end: nothing else is known to remember the last one")
    if result.mode != "none":
        said.append(OF_THE_KEY)
    return [*said, OF_THE_FIGURES]


def to_json(result: Result) -> dict[str, Any]:
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
