"""What happened between the ends of two cells, for the line of the second: codes, files, connections. Bounded, pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

MAX_CODES = 12
"""Different codes that one line names; the others are counted together."""
MAX_FILES = 6
"""Files each way that one line names; each file has a line of its own besides."""
MAX_PATH = 120

_INTO = frozenset(("upload", "write"))
_OUT = frozenset(("download", "read"))


class Tally:
    """Hears every event of an audit."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._codes: Counter[str] = Counter()
        self._files: dict[str, list[dict[str, Any]]] = {"in": [], "out": []}
        self._counts, self._bytes = Counter[str](), Counter[str]()

    def hear(self, event: str, fields: Mapping[str, Any]) -> None:
        """Count an event."""
        if isinstance(code := fields.get("code"), str) and event != "cell":
            known = code in self._codes or len(self._codes) < MAX_CODES
            self._codes[code if known else "others"] += 1
        if event == "file":
            self._file(fields)
        elif event == "network" and fields.get("code") == "connected":
            self._counts["connections"] += 1
            for name, way in (("bytes_in", "in"), ("bytes_out", "out")):
                self._bytes[way] += _count(fields.get(name))
        elif event == "tool":
            self._counts["tool_calls"] += 1

    def _file(self, fields: Mapping[str, Any]) -> None:
        op = fields.get("op")
        way = "in" if op in _INTO else "out" if op in _OUT else None
        if way is None:
            return
        self._counts[way] += 1
        self._bytes[way] += _count(fields.get("bytes"))
        if len(self._files[way]) < MAX_FILES:
            path = str(fields.get("path", ""))
            row = {"path": path[:MAX_PATH], "bytes": fields.get("bytes"), "sha256": fields.get("sha256")}
            self._files[way].append(row)

    def take(self) -> dict[str, Any]:
        """Return what was counted as fields of a line, and begin anew."""
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


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
