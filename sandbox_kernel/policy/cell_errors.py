"""The error of a cell: its name, its value and its traceback, as text for a terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from . import terminal

MAX_NAME = 400
"""Characters of the name of an exception: no class is called so. Filtered twice, a name that was cut is the same."""

_MISSING = re.compile(
    r"\AFileNotFoundError\Z|\[Errno 2\]|No such file or directory|\[Errno 101\] Network is unreachable"
    r"|Temporary failure in name resolution|Name or service not known"
)
"""A file or a network that a sandbox does not have: the line of the library that noticed is no help."""
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_OF_PACKAGES = re.compile(r"File (?:/[^\n]*?/(?:(?:site|dist)-packages|lib(?:64)?/python3\.\d+)/|<frozen )")
_SEARCHED = 600


def error(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return name, value and traceback of an error as text for a terminal."""
    traceback = content.get("traceback")
    lines = traceback if isinstance(traceback, list) else []
    name, value = (terminal.clean(_text(content.get(key))) for key in ("ename", "evalue"))
    lines = [line for line in lines if isinstance(line, str)]
    if any(_MISSING.search(text[:_SEARCHED]) for text in (name, value)):
        lines = _without_packages(lines)
    return {"ename": _name(name), "evalue": value, "traceback": [terminal.traceback(line) for line in lines]}


def _text(value: Any) -> str:
    """Return a text or a number as text, "" for all else: to write out a tree of any depth may not end."""
    return value if isinstance(value, str) else str(value) if isinstance(value, (int, float)) else ""


def _without_packages(lines: list[str]) -> list[str]:
    """Return a traceback whose frames within packages are one line each time they come."""
    kept: list[str] = []
    left_out = 0
    for line in [*lines, ""]:
        if _OF_PACKAGES.match(_COLOUR.sub("", line[:_SEARCHED])):
            left_out += 1
            continue
        if left_out:
            kept.append(f"[{left_out} {'call' if left_out == 1 else 'calls'} within packages left out]")
            left_out = 0
        kept.append(line)
    return kept[:-1]


def _name(name: str) -> str:
    """Return the name of an exception, the end of a long one left out: front ends write it as often as its text."""
    if len(name) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - 60]}... [sandbox_kernel: {len(name):,} characters]"
