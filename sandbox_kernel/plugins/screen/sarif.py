"""Findings of files in SARIF 2.1.0, the form that code hosts show beside a change. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import quote

from ...core.finding import WEIGHTS, Finding, level
from .rule_index import Row, RuleIndex

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


class Place(NamedTuple):
    """A finding in a file."""

    file: str
    line: int
    """Of the file, from 1."""
    cell: int | None
    """The number of its code cell, from 1; None in a file without cells."""
    finding: Finding


def document(places: Iterable[Place], index: RuleIndex, version: str) -> dict[str, Any]:
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


def _rule(row: Row) -> dict[str, Any]:
    tags = ["security", row.family, *([f"external/cwe/cwe-{row.cwe:03}"] if row.cwe is not None else [])]
    return {
        "id": row.code,
        "shortDescription": {"text": _sentence(row.reason)},
        "help": {"text": row.remedy},
        "defaultConfiguration": {"level": _level(row.weight)},
        "properties": {"tags": tags, "precision": "medium", "security-severity": f"{row.weight / 10:.1f}"},
    }


def _result(place: Place, numbers: dict[str, int], before: Counter[tuple[str, str, str]]) -> dict[str, Any]:
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


def _location(place: Place) -> dict[str, Any]:
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
