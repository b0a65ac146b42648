"""`sandbox-kernel screen`: what the screen finds in notebooks and scripts, for people, as JSON, and as SARIF.

Nothing of a file is run. Files are opened by the rule by which all files of strangers are.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from ... import __version__
from ...config.sources import SETTINGS, from_files, resolve
from ...core.codes import UsageCode
from ...core.errors import ConfigurationError
from ...core.screen_findings import WEIGHTS, Finding, level
from ...policy.safe_text import LogLines, ours
from .rule_index import RuleIndex, RuleRow
from .settings import ScreenSettings

if TYPE_CHECKING:
    from ...core.screen_findings import Screened

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


class FileFinding(NamedTuple):
    """A finding in a file."""

    file: str
    line: int
    """Of the file, from 1."""
    cell: int | None
    """The number of its code cell, from 1; None in a file without cells."""
    finding: Finding


def document(places: Iterable[FileFinding], index: RuleIndex, version: str) -> dict[str, Any]:
    """Return a whole document of one run."""
    places = list(places)
    rows = [index.rows[code] for code in dict.fromkeys(place.finding.code for place in places) if code in index.rows]
    numbers = {row.code: number for number, row in enumerate(rows)}
    driver = {"name": "sandbox-kernel screen", "version": version, "rules": [_rule(row) for row in rows]}
    before: Counter[tuple[str, str, str]] = Counter()
    results = [_result(place, numbers, before) for place in places]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _level(weight: int) -> str:
    return "error" if weight >= WEIGHTS["high"] else "warning" if weight >= WEIGHTS["medium"] else "note"


def _rule(row: RuleRow) -> dict[str, Any]:
    tags = ["security", row.family, *([f"external/cwe/cwe-{row.cwe:03}"] if row.cwe is not None else [])]
    return {
        "id": row.code,
        "shortDescription": {"text": _sentence(row.reason)},
        "help": {"text": row.remedy},
        "defaultConfiguration": {"level": _level(row.weight)},
        "properties": {"tags": tags, "precision": "medium", "security-severity": f"{row.weight / 10:.1f}"},
    }


def _result(place: FileFinding, numbers: dict[str, int], before: Counter[tuple[str, str, str]]) -> dict[str, Any]:
    found, where = place.finding, f" in cell {place.cell}" if place.cell is not None else ""
    detail = f" ({found.detail})" if found.detail else ""
    same = (place.file, found.code, found.detail)
    mark = hashlib.sha256("\0".join((*same, str(before[same]))).encode(errors="replace")).hexdigest()
    before[same] += 1
    result: dict[str, Any] = {
        "ruleId": found.code,
        "ruleIndex": numbers[found.code],
        "level": _level(found.weight),
        "message": {"text": f"{_sentence(found.reason).rstrip('.')}{detail}{where}. {found.remedy}"},
        "locations": [_location(place)],
        "partialFingerprints": {"sandboxKernelScreen/v1": mark[:32]},
        "properties": {"weight": found.weight, "name": level(found.weight)},
    }
    if found.allowed is not None:
        result["suppressions"] = [{"kind": "inSource", "justification": found.allowed}]
    return result


def _location(place: FileFinding) -> dict[str, Any]:
    artifact = {"uri": _uri(place.file)}
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": place.line}}}
    if place.cell is not None:
        location["logicalLocations"] = [{"name": f"cell {place.cell}", "kind": "cell"}]
    return location


def _uri(file: str) -> str:
    """Return the URI of a path: relative to where the command ran, or `file:` for one from the root on.

    A colon is escaped, for what stands before one would be a scheme. Bytes of a name that are no text stay themselves.
    """
    path = "/".join(part for part in file.split("/") if part not in ("", "."))
    words = quote(path.encode(errors="surrogateescape"), safe="/@!$&'()*+,;=-._~")
    return f"file:///{words}" if file.startswith("/") else words


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


_TEXT = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_MARKER = re.compile(r"^#\s*%%(?!%).*$", re.MULTILINE)
_OF_US = ("screen_threshold", "screen_rules", "screen_overrides")


class FilePart(NamedTuple):
    """A piece of a file that is read as one cell."""

    code: str
    cell: int | None
    lines: tuple[int, ...]
    """The line of the file for each line of the code; the last one goes on."""


class ReadPart(NamedTuple):
    """One part, and what was found in it."""

    file: str
    part: FilePart
    screened: Screened


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `screen`."""
    add = parser.add_argument
    add("files", metavar="FILE", nargs="+", help="notebooks (.ipynb), scripts (.py, .sh), or - for either from stdin")
    add("--format", choices=("text", "json", "sarif"), default="text", help="how it is printed (default: %(default)s)")
    add("--strict", action="store_true", help="anything that is found gives exit code 1")
    for name in _OF_US:
        setting = SETTINGS[name]
        add(setting.flag, metavar=setting.form.metavar, help=f"{setting.help} (default: {setting.default_for_people})")


def screen(options: argparse.Namespace) -> int:
    """Check notebooks and scripts without running them, and report code that looks like an attack.

    Code without findings can still be harmful.
    """
    from .operator_rules import changes
    from .rule_index import RuleIndex
    from .screen import CellScreen

    settings = _settings(options)
    index = RuleIndex() if settings.screen_rules is None else RuleIndex(changes(settings.screen_rules))
    found: list[ReadPart] = []
    unread: dict[str, ConfigurationError | None] = {}
    for file in options.files:
        one = CellScreen(index, overrides=settings.screen_overrides == "allow")
        try:
            found += [ReadPart(file, part, one.look(part.code)) for part in _parts(file)]
        except ConfigurationError as error:
            if len(options.files) == 1:
                raise
            unread[file] = None if os.path.isdir(file) else error  # noqa: PTH112 (a name as it was typed)
    read = [file for file in options.files if file not in unread]
    if options.format == "sarif":
        print(json.dumps(document(_places(found), index, __version__), indent=2))
    elif options.format == "json":
        print(json.dumps(_as_json(found, read, settings.screen_threshold), indent=2))
    else:
        _say(found, settings.screen_threshold)
    for file, why in unread.items():  # the others are told first: what cannot be read hides nothing
        print(f"sandbox-kernel: {ours(f'left out: {file} is a folder' if why is None else str(why))}", file=sys.stderr)
    if not read or any(why is not None for why in unread.values()):
        return 2
    grave = any(one.screened.score >= settings.screen_threshold for one in found)
    return 1 if grave or (options.strict and any(one.screened.counted for one in found)) else 0


def _settings(options: argparse.Namespace) -> ScreenSettings:
    files = {name: value for name, value in from_files().items() if name in _OF_US}
    given = {name: value for name in _OF_US if (value := getattr(options, name)) is not None}
    return resolve(files | given).of(ScreenSettings)


# --- files -----------------------------------------------------------------------------------------------------------


def _parts(name: str) -> Iterator[FilePart]:
    """Yield the code of a file. Raises `ConfigurationError` for one that cannot be read."""
    from ...files.host_paths import fetch

    text = fetch(name).decode(errors="replace")
    if name.endswith((".sh", ".bash")):
        yield FilePart(f"%%bash\n{text}", None, (1, *range(1, text.count("\n") + 2)))
    elif name.endswith(".ipynb") or (name == "-" and text.lstrip().startswith("{") and '"cells"' in text):
        yield from _of_notebook(name, text)
    else:
        yield from _of_script(text)


def _of_script(text: str) -> Iterator[FilePart]:
    starts = [match.start() for match in _MARKER.finditer(text)]
    if not starts:
        yield FilePart(text, None, (1,))
        return
    edges = [0, *starts, len(text)]
    for number, (start, end) in enumerate(pairwise(edges)):
        if text[start:end].strip():
            yield FilePart(text[start:end], max(number, 1), (text.count("\n", 0, start) + 1,))


def _of_notebook(name: str, text: str) -> Iterator[FilePart]:
    try:
        book = json.loads(text)
        cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
        sources = [[cell["source"]] if isinstance(cell["source"], str) else [*cell["source"]] for cell in cells]
        codes = ["".join(pieces) for pieces in sources]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigurationError(UsageCode.NOT_A_NOTEBOOK, f"{name} is not a proper notebook") from None
    places = _lines_of_texts(text, {piece for pieces in sources for piece in pieces})
    line = 1
    for number, (pieces, code) in enumerate(zip(sources, codes, strict=True), 1):
        lines, begins = list[int](), True
        for piece in pieces:
            there = places.get(piece, [])
            # The first one that does not lie before what was found last; a text may stand in outputs as well.
            line = there[at] if (at := bisect_left(there, line)) < len(there) else line
            lines += [line] * (piece[:-1].count("\n") + begins)
            begins = piece.endswith("\n")
        # A lone half of a pair may stand in JSON, and in no text that is written again.
        yield FilePart(code.encode(errors="replace").decode(), number, tuple(lines or [line]))


def _lines_of_texts(text: str, wanted: set[str]) -> dict[str, list[int]]:
    """Return the lines on which texts stand in JSON, however they are written there, in one walk."""
    found: dict[str, list[int]] = {}
    line, before = 1, 0
    for match in _TEXT.finditer(text):
        line += text.count("\n", before, match.start())
        before = match.start()
        if (value := json.loads(match[0]) if "\\" in match[0] else match[0][1:-1]) in wanted:
            found.setdefault(value, []).append(line)
    return found


def _line(part: FilePart, line: int) -> int:
    """Return the line of the file for a line of a part."""
    last = len(part.lines)
    return part.lines[line - 1] if line <= last else part.lines[-1] + line - last


# --- what is printed -------------------------------------------------------------------------------------------------


def _places(found: list[ReadPart]) -> Iterator[FileFinding]:

    for read in found:
        for one in read.screened.findings:
            yield FileFinding(read.file, _line(read.part, one.line), read.part.cell, one)


def _as_json(found: list[ReadPart], files: list[str], threshold: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for file in dict.fromkeys(files):
        cells = [
            {
                "cell": read.part.cell,
                "score": read.screened.score,
                "findings": [
                    one.to_json() | {"file_line": _line(read.part, one.line)} for one in read.screened.findings
                ],
            }
            for read in found
            if read.file == file and read.screened.findings
        ]
        score = max((int(str(cell["score"])) for cell in cells), default=0)
        # A name need not be text, and a program that reads this strictly would stop at it.
        name = os.fsencode(file).decode(errors="backslashreplace")
        rows.append({"file": name, "score": score, "blocked": score >= threshold, "cells": cells})
    return {"version": 1, "threshold": threshold, "files": rows}


def _say(found: list[ReadPart], threshold: int) -> None:
    shown = LogLines()
    for read in found:
        cell = "" if read.part.cell is None else f" cell {read.part.cell},"
        for one in read.screened.findings:
            detail = f" ({one.detail})" if one.detail else ""
            allowed = f" [allowed: {one.allowed}]" if one.allowed is not None else ""
            where = f"{read.file}:{_line(read.part, one.line)}:{cell}"
            text = f"{where} {one.code} ({one.weight}): {one.reason}{detail}{allowed}"
            print(shown.feed(ours(text)))
            print(f"    {one.remedy}")
    blocked = [read for read in found if read.screened.score >= threshold]
    noticed = sum(bool(read.screened.counted) for read in found)
    cells = "1 cell" if len(found) == 1 else f"{len(found)} cells"
    print(f"{cells}, {noticed} with findings, {len(blocked)} at {threshold} points or more")
