"""`sandbox-kernel screen`: what the screen finds in notebooks and scripts, for people, as JSON, and as SARIF.

Nothing of a file is run. Files are opened by the rule by which all files of strangers are.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from ... import __version__
from ...config.sources import SETTINGS, from_files, resolve
from ...core.codes import UsageCode
from ...core.errors import ConfigurationError
from ...core.screen_findings import WEIGHTS, Finding, level
from .file_parts import ReadPart, screened
from .rule_index import RuleIndex, RuleRow, default
from .screen import CellScreen
from .settings import SETTINGS as ROWS
from .settings import ScreenSettings

if TYPE_CHECKING:
    from .judges import Judges

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


class FileFinding(NamedTuple):
    """A finding at one place of a file."""

    file: str
    region: dict[str, int]
    """The place, as SARIF has it."""
    cell: int | None
    """The number of its code cell, from 1; None in a file without cells."""
    finding: Finding


def document(places: Iterable[FileFinding], index: RuleIndex, version: str) -> dict[str, Any]:
    """Return a whole document of one run."""
    places = list(places)
    rows = [index.rows[code] for code in dict.fromkeys(place.finding.code for place in places) if code in index.rows]
    numbers = {row.code: number for number, row in enumerate(rows)}
    before: Counter[tuple[str, str, str]] = Counter()
    return _document(rows, [_result(place, numbers, before) for place in places], version)


def _document(rows: list[RuleRow], results: list[dict[str, Any]], version: str) -> dict[str, Any]:
    driver = {"name": "sandbox-kernel screen", "version": version, "rules": [_rule(row) for row in rows]}
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
    import hashlib

    found, where = place.finding, f" in cell {place.cell}" if place.cell is not None else ""
    detail = f" ({found.detail})" if found.detail else ""
    why = f" Its override has no effect: {found.override}." if found.override else ""
    same = (place.file, found.code, found.detail)
    mark = hashlib.sha256("\0".join((*same, str(before[same]))).encode(errors="replace")).hexdigest()
    before[same] += 1
    result: dict[str, Any] = {
        "ruleId": found.code,
        "ruleIndex": numbers[found.code],
        "level": _level(found.weight),
        "message": {"text": f"{_sentence(found.reason).rstrip('.')}{detail}{where}. {found.remedy}{why}"},
        "locations": [_location(place.file, place.region, place.cell)],
        "partialFingerprints": {"sandboxKernelScreen/v1": mark[:32]},
        "properties": {"weight": found.weight, "name": level(found.weight)},
    }
    if found.allowed is not None:
        about = {name: value for name, value in (("owner", found.by), ("until", found.until)) if value is not None}
        more = {"properties": about} if about else {}
        result["suppressions"] = [{"kind": "inSource", "justification": found.allowed, **more}]
    return result


def _location(file: str, region: dict[str, int], cell: int | None) -> dict[str, Any]:
    artifact = {"uri": _uri(file)}
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": artifact, "region": region}}
    if cell is not None:
        location["logicalLocations"] = [{"name": f"cell {cell}", "kind": "cell"}]
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


_OF_US = tuple(one.name for one in ROWS)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `screen`."""
    add = parser.add_argument
    add("files", metavar="FILE", nargs="*", help="notebooks (.ipynb), scripts (.py, .sh), or - for either from stdin")
    add("--format", choices=("text", "json", "sarif"), default="text", help="how it is printed (default: %(default)s)")
    add(
        "--strict",
        action="store_true",
        help="anything that is found gives exit code 1; with --overrides, each that is over or without effect",
    )
    add("--overrides", action="store_true", help="list the comments that allow something, in force or not")
    add(
        "--hook",
        action="store_true",
        help="in place of files: answer the hook that a coding agent runs before a tool (its JSON on stdin). What "
        "reaches the threshold is denied with --screen block, and the user is asked otherwise",
    )
    add_settings(parser)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the settings of the screen as options."""
    for name in _OF_US:
        setting = SETTINGS[name]
        parser.add_argument(
            setting.flag, metavar=setting.form.metavar, help=f"{setting.help} (default: {setting.default_for_people})"
        )


def screen(options: argparse.Namespace) -> int:
    """Check notebooks and scripts without running them, and report code that looks like an attack.

    Code without findings can still be harmful.
    """
    if options.hook == bool(options.files) or (options.hook and options.overrides):
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, "screen takes files, or --hook in place of them")
    if options.hook:
        from .agent_hook import hook

        return hook(lambda: _settings(options, screen_overrides="forbid"), index_of, judges_of)
    settings = _settings(options)
    index, judges = index_of(settings), None if options.overrides else judges_of(settings)
    found: list[ReadPart] = []
    unread: dict[str, ConfigurationError | None] = {}
    for file in options.files:
        one = CellScreen.of(settings, index)
        try:
            found += screened(file, screen=one, judges=judges)
        except ConfigurationError as error:
            if len(options.files) == 1:
                raise
            unread[file] = None if os.path.isdir(file) else error  # noqa: PTH112 (a name as it was typed)
    read = [file for file in options.files if file not in unread]
    if options.overrides:
        grave = _say_overrides(found, read, settings, index, options.format)
    elif options.format == "sarif":
        print(json.dumps(document(_places(found), index, __version__), indent=2))
    elif options.format == "json":
        print(json.dumps(_as_json(found, read, settings.screen_threshold), indent=2))
    else:
        _say(found, settings.screen_threshold)
    if unread:
        _say_unread(unread)  # the others are told first: what cannot be read hides nothing
    if not read or any(why is not None for why in unread.values()):
        return 2
    if options.overrides:
        return 1 if grave and options.strict else 0
    grave = any(one.screened.score >= settings.screen_threshold for one in found)
    return 1 if grave or (options.strict and any(one.screened.counted for one in found)) else 0


def _say_overrides(
    found: list[ReadPart], files: list[str], settings: ScreenSettings, index: RuleIndex, form: str
) -> bool:
    """Print the report of overrides; return whether one is over, or without effect."""
    from ...policy.safe_text import LogLines, ours
    from .override_report import OverrideRow, as_json, as_results, lines, rows_of

    def located(row: OverrideRow) -> dict[str, Any]:
        return _location(row.read.file, {"startLine": row.line}, row.read.part.cell)

    rows = rows_of(found, settings, index)
    if form == "sarif":
        rules = [index.rows[code] for code in dict.fromkeys(row.code for row in rows) if code in index.rows]
        print(json.dumps(_document(rules, as_results(rows, located), __version__), indent=2))
    elif form == "json":
        print(json.dumps(as_json(rows, files, _named), indent=2))
    else:
        shown = LogLines()
        for line in lines(rows):
            print(shown.feed(ours(line)))
    return any(row.state != "in-force" for row in rows)


def lsp(options: argparse.Namespace) -> int:
    """Serve an editor over stdio until it closes."""
    try:
        from .language_server import server
    except ImportError as error:
        from ...core.remedies import install_words

        words = f"the language server needs more packages: {install_words('lsp')} ({error})"
        raise ConfigurationError(UsageCode.PACKAGE_MISSING, words) from None
    settings = _settings(options)
    index = index_of(settings)
    made = server(lambda: CellScreen.of(settings, index))
    made.start_io(stdout=os.fdopen(os.dup(sys.stdout.fileno()), "wb"))  # it closes what it is given
    return 0


def index_of(settings: ScreenSettings) -> RuleIndex:
    """Return the rules, with an operator's changes."""
    if settings.screen_rules is None:
        return default()
    from .operator_rules import changes

    return RuleIndex(changes(settings.screen_rules))


def judges_of(settings: ScreenSettings) -> Judges | None:
    """Return who else is asked, None for nobody."""
    if not (settings.screen_judges or settings.screen_command):
        return None
    from .judges import Judges

    return Judges(settings)


def _settings(options: argparse.Namespace, **otherwise: str) -> ScreenSettings:
    files = {name: value for name, value in from_files().items() if name in _OF_US}
    given = {name: value for name in _OF_US if (value := getattr(options, name)) is not None}
    return resolve({"screen": "warn"} | otherwise | files | given).of(ScreenSettings)


# --- what is printed -------------------------------------------------------------------------------------------------


def _places(found: list[ReadPart]) -> Iterator[FileFinding]:
    for file, part, seen in found:
        for one in seen.findings:
            for place in one.places:
                region = {"startLine": part.line(place.line)}
                if part.columns:
                    region |= {"endLine": part.line(place.end_line)}
                    region |= {"startColumn": place.column, "endColumn": place.end_column}
                yield FileFinding(file, region, part.cell, one)


def _as_json(found: list[ReadPart], files: list[str], threshold: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for file in dict.fromkeys(files):
        cells = [
            {
                "cell": read.part.cell,
                "score": read.screened.score,
                "findings": [one.to_json() | {"file_line": read.part.line(one.line)} for one in read.screened.findings],
            }
            for read in found
            if read.file == file and read.screened.findings
        ]
        score = max((int(str(cell["score"])) for cell in cells), default=0)
        rows.append({"file": _named(file), "score": score, "blocked": score >= threshold, "cells": cells})
    return {"version": 1, "threshold": threshold, "files": rows}


def _named(file: str) -> str:
    """Return a file's name: it need not be text, and a program that reads JSON strictly would stop at it."""
    return os.fsencode(file).decode(errors="backslashreplace")


def _say(found: list[ReadPart], threshold: int) -> None:
    if any(read.screened.findings for read in found):
        _say_findings(found)
    blocked = [read for read in found if read.screened.score >= threshold]
    noticed = sum(bool(read.screened.counted) for read in found)
    cells = "1 cell" if len(found) == 1 else f"{len(found)} cells"
    print(f"{cells}, {noticed} with findings, {len(blocked)} at {threshold} points or more")


def _say_findings(found: list[ReadPart]) -> None:
    from ...policy.safe_text import LogLines, ours  # most files have no use for it, and somebody waits

    shown = LogLines()
    for read in found:
        cell = "" if read.part.cell is None else f" cell {read.part.cell},"
        told: set[str] = set()
        for place, ones in read.screened.by_place():
            new = [one for one in ones if one.code not in told]
            told |= {one.code for one in new}
            for one in new:
                also = [str(read.part.line(line)) for line in sorted({line for line, *_ in one.places} - {place.line})]
                lines = f"; also on line{'s' * (len(also) > 1)} {', '.join(also)}" if also else ""
                detail = f" ({one.detail})" if one.detail else ""
                allowed = f" [allowed: {one.allowed}]" if one.allowed is not None else one.failed_override()
                where = f"{read.file}:{read.part.line(place.line)}:{cell}" if one is new[0] else "    with"
                print(shown.feed(ours(f"{where} {one.code} ({one.weight}): {one.reason}{detail}{lines}{allowed}")))
                if one is new[0]:
                    print(f"    {one.remedy}")


def _say_unread(unread: dict[str, ConfigurationError | None]) -> None:
    from ...policy.safe_text import ours

    for file, why in unread.items():
        print(f"sandbox-kernel: {ours(f'left out: {file} is a folder' if why is None else str(why))}", file=sys.stderr)
