"""Cases of users and outside testers, from files: tests/browser/README.md says what a file may hold.

Raises `CaseError` for a file that cannot be used, with the file, the case and what is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.corpus import Attack, _numbered

KINDS = {
    "display": "data",
    "stream": "text",
    "error": "traceback",
    "comm": "content",
    "reply": "payload",
    "code": "code",
}
"""Each kind of case, and the key that it cannot do without."""
TYPES = {"data": dict, "text": str, "traceback": list, "content": dict, "payload": list, "code": str}
KEYS = {
    "name",
    "kind",
    "data",
    "metadata",
    "stream",
    "text",
    "ename",
    "evalue",
    "traceback",
    "type",
    "content",
    "payload",
    "code",
    "acts",
}
MODES = ("safe", "strict", "trusted")


class CaseError(ValueError):
    """What is wrong with a file of cases."""


def cases(files: Sequence[str], port: int) -> list[tuple[Attack, bool]]:
    """Return all cases of these files, numbered, each with whether it says that it acts where nothing is filtered."""
    found: list[tuple[Attack, bool]] = []
    for name in files:
        for where, case in _read(Path(name)):
            code = _code(where, case)
            number = len(found) + 1
            found.append((Attack(number, case["name"], _numbered(code, number, port)), bool(case.get("acts"))))
    return found


def _read(path: Path) -> list[tuple[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CaseError(f"{path} cannot be read: {error}") from error
    if text.lstrip().startswith("["):
        try:
            return [(f"{path}, case {number}", case) for number, case in enumerate(json.loads(text), 1)]
        except ValueError as error:
            raise CaseError(f"{path} is not JSON: {error}") from error
    result = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                result.append((f"{path}, line {number}", json.loads(line)))
            except ValueError as error:
                raise CaseError(f"{path}, line {number} is not JSON: {error}") from error
    if not result:
        raise CaseError(f"{path} holds no case")
    return result


def _code(where: str, case: Any) -> str:
    """Return what a cell runs for a case."""
    if not isinstance(case, dict) or not isinstance(case.get("name"), str):
        raise CaseError(f"{where}: a case is an object with a name")
    kind = case.get("kind", "display")
    if kind not in KINDS:
        raise CaseError(f"{where}: kind {kind!r} is none of {', '.join(KINDS)}")
    if unknown := case.keys() - KEYS:
        raise CaseError(f"{where}: unknown keys {', '.join(sorted(unknown))}")
    needed = KINDS[kind]
    if not isinstance(case.get(needed), TYPES[needed]):
        raise CaseError(f"{where}: kind {kind} needs {needed}, of type {TYPES[needed].__name__}")
    value = case[needed]
    if kind == "code":
        return str(value)
    if kind == "reply":
        return f"[ip.payload_manager.write_payload(one) for one in {value!r}]"
    if kind == "comm":
        metadata = case.get("metadata") or {"version": "2.1.0"}
        return f"send({case.get('type', 'comm_open')!r}, {value!r}, metadata={metadata!r})"
    if kind == "stream":
        content: dict[str, Any] = {"name": case.get("stream", "stdout"), "text": value}
    elif kind == "error":
        content = {"ename": case.get("ename", ""), "evalue": case.get("evalue", ""), "traceback": value}
    else:
        content = {"data": value, "metadata": case.get("metadata", {}), "transient": {}}
    return f"send({ {'display': 'display_data'}.get(kind, kind)!r}, {content!r})"
