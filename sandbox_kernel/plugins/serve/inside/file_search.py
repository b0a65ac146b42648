"""Looks for files of the sandbox by their names and contents, and packs them: `python3 -c SOURCE '{"op": ...}'`.

Patterns are a client's, and may take for ever: here they take the time of the sandbox, and not that of the host.
Standard library only, and Python 3.9 and later.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import stat
import sys
import zipfile
from collections.abc import Iterator
from typing import Any

MAX_LINE = 2000
"""Characters of a line that is shown."""
MAX_SEARCHED = 1 << 20
"""Bytes of a file that `matches` looks into."""
MAX_SHOWN = 3
"""Lines of one file that `matches` shows."""


def below(root: str, hidden: bool) -> Iterator[tuple[str, str]]:
    """Yield what lies below a folder, with what it is."""
    for folder, folders, files in os.walk(root):
        if not hidden:
            folders[:] = [name for name in folders if not name.startswith(".")]
        for name in sorted([*folders, *files]):
            if hidden or not name.startswith("."):
                yield os.path.join(folder, name), "directory" if name in folders else "file"


def lines(path: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a regular file that is text; nothing of another."""
    try:
        if stat.S_ISREG(os.stat(path).st_mode):
            with open(path, encoding="utf-8") as file:
                yield from enumerate(file, 1)
    except (OSError, ValueError):
        return


def grep(asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    words = asked["query"] if asked["regex"] else re.escape(asked["query"])
    pattern = re.compile(words, re.IGNORECASE if asked["case_insensitive"] else 0)
    root = asked["path"]
    paths = [root] if os.path.isfile(root) else [path for path, kind in below(root, True) if kind == "file"]
    for path in paths:
        if asked["include"] and not any(fnmatch.fnmatch(os.path.basename(path), one) for one in asked["include"]):
            continue
        for number, line in lines(path):
            if pattern.search(line):
                if not asked["match_per_line"]:
                    yield {"file": path}
                    break
                yield {"file": path, "line": number, "content": line.rstrip("\r\n")[:MAX_LINE]}


def glob(asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path, kind in below(asked["path"], True):
        name, place = os.path.basename(path), os.path.relpath(path, asked["path"])

        def fits(pattern: str, name: str = name, place: str = place) -> bool:
            return fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(place, pattern)

        if asked["type"] in ("any", kind) and fits(asked["pattern"]) and not any(map(fits, asked["exclude"])):
            yield {"path": place, "type": kind, **measured(path)}


def measured(path: str) -> dict[str, Any]:
    found = os.lstat(path)
    return {"size": found.st_size, "modified": found.st_mtime}


def rank(query: str, name: str, place: str) -> int:
    """Return how well a name fits: 0 is best, 4 does not."""
    return next(
        (
            number
            for number, fits in enumerate((name == query, name.startswith(query), query in name, query in place))
            if fits
        ),
        4,
    )


def search(asked: dict[str, Any]) -> dict[str, Any]:
    found = []
    for path, kind in below(asked["path"], asked["show_hidden"]):
        name = os.path.basename(path)
        fit = rank(asked["query"].lower(), name.lower(), "")
        if fit < 4 and asked["type"] in ("any", kind):
            found.append((fit, len(name), path, {"path": path, "name": name, "type": kind, **measured(path)}))
    return {"results": [one[3] for one in sorted(found)[: asked["limit"]]]}


def matches(asked: dict[str, Any]) -> dict[str, Any]:
    query, found = asked["query"].lower(), []
    for path, kind in below(asked["path"], asked["show_hidden"]):
        name, place = os.path.basename(path), os.path.relpath(path, asked["path"])
        fit = rank(query, name.lower(), place.lower())
        shown: list[dict[str, Any]] = []
        if kind == "file" and os.lstat(path).st_size <= MAX_SEARCHED:
            for number, line in lines(path):
                at = line.lower().find(query)
                if at >= 0 and len(shown) < MAX_SHOWN:
                    column = len(line[:at].encode("utf-16-le")) // 2 + 1
                    shown.append({"line": number, "column": column, "text": line.rstrip("\r\n")[:MAX_LINE]})
        if fit < 4 or shown:
            row = {"path": path, "relative_path": place, "name": name, "type": kind}
            found.append((fit, len(place), place, {**row, "name_match": fit < 4, "content_matches": shown}))
    end = asked["offset"] + asked["limit"]
    rows = [one[3] for one in sorted(found)[asked["offset"] : end]]
    return {"results": rows, "next_offset": end if len(found) > end else None}


def pack(asked: dict[str, Any]) -> dict[str, Any]:
    with zipfile.ZipFile(asked["into"], "x", zipfile.ZIP_DEFLATED, strict_timestamps=False) as packed:
        for root in asked["paths"]:
            above = os.path.dirname(root.rstrip("/"))
            inside = [root] if os.path.isfile(root) else [path for path, kind in below(root, True) if kind == "file"]
            for path in inside:
                if os.path.isfile(path) and path != asked["into"]:
                    packed.write(path, os.path.relpath(path, above))
    return {"done": True}


def limited(found: Iterator[dict[str, Any]], limit: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for row in found:
        rows.append(row)
        if len(rows) >= limit:
            break
    return {"matches": rows, "truncated": len(rows) >= limit}


def main() -> None:
    asked = json.loads(sys.argv[1])
    op = asked["op"]
    try:
        if op in ("grep", "glob"):
            answer: Any = limited({"grep": grep, "glob": glob}[op](asked), asked["max_results"])
        else:
            answer = {"search": search, "matches": matches, "pack": pack}[op](asked)
    except re.error as error:
        answer = {"wrong": "Invalid regex: %s" % error}
    except OSError as error:
        answer = {"wrong": "%s: %s" % (error.filename, error.strerror)}
    # A name may be no text; what stands for its bytes is nothing that JSON can say.
    text = json.dumps(answer, ensure_ascii=False).encode(errors="surrogateescape").decode(errors="replace")
    sys.stdout.write(json.dumps(json.loads(text)) + "\n")


main()
