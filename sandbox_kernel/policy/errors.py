"""The error of a cell: its name, its value and its traceback, as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import terminal

MAX_NAME = 400
"""Characters of the name of an exception: no class is called so. Filtered twice, a name that was cut is the same."""


def error(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return name, value and traceback of an error as text for a terminal."""
    traceback = content.get("traceback")
    lines = traceback if isinstance(traceback, list) else []
    return {
        "ename": _name(terminal.clean(str(content.get("ename", "")))),
        "evalue": terminal.clean(str(content.get("evalue", ""))),
        "traceback": [terminal.traceback(line) for line in lines if isinstance(line, str)],
    }


def _name(name: str) -> str:
    """Return the name of an exception, the end of a long one left out: front ends write it as often as its text."""
    if len(name) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - 60]}... [sandbox_kernel: {len(name):,} characters]"
