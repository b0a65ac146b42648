"""`sandbox-kernel ps`: which sandboxes run, what each is for, and what it uses."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import EngineError
from ..core.model import format_bytes
from ..engines.select import others
from ..policy.safe_text import ours
from .commands import FINE, engine_call

if TYPE_CHECKING:
    from ..engines.about import Inspectable, Listed

NAME = b"--display-name="
NOTEBOOK = b"JPY_SESSION_NAME="
"""A variable in which a Jupyter Server tells a kernel the path of its notebook."""


def name_of(pid: int | None) -> str:
    """Return the name that a kernel's process was given by its kernelspec; empty if it has none, or is no kernel."""
    with suppress(OSError):
        words = _words(pid)
        given = [word.removeprefix(NAME) for word in words if word.startswith(NAME)]
        return os.fsdecode(given[-1]) if given and b"sandbox_kernel" in words else ""
    return ""


def work_of(pid: int | None) -> str:
    """Return the notebook of a kernel's process, the folder it was started in, or a command; empty if unknown."""
    if pid is None:
        return ""
    place = Path("/proc", str(pid))
    words: list[str] = []
    with suppress(OSError):
        words = [os.fsdecode(word) for word in _words(pid) if word]
    with suppress(OSError):
        for variable in (place / "environ").read_bytes().split(b"\0"):
            if variable.startswith(NOTEBOOK) and "-f" in words:
                return os.fsdecode(variable.removeprefix(NOTEBOOK))
    if "-f" in words and "sandbox_kernel" in words:
        with suppress(OSError):
            return f"a kernel in {(place / 'cwd').readlink()}"
    return " ".join([os.path.basename(word) for word in words[:1]] + words[1:])[:60]  # noqa: PTH119 (any text)


def _words(pid: int | None) -> list[bytes]:
    return Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")


SECONDS_FOR_USE = 0.5
MAX_ASKED = 200
"""Sandboxes of a list whose use is asked for, one after another."""


def ps(options: argparse.Namespace) -> int:
    """List the running sandboxes: what each is for, and what it uses."""
    rows: tuple[Listed, ...] = engine_call(options, "list")
    used: list[int | None] = engine_call(options, _used, [row.container for row in rows])
    if options.json:
        lines = [
            asdict(row)
            | {"memory_used_bytes": use}
            | {
                "work": work_of(row.owner_pid) if row.owner_alive else "",
                "kernel": name_of(row.owner_pid) if row.owner_alive else "",
            }
            for row, use in zip(rows, used, strict=True)
        ]
        print(json.dumps(lines, indent=2))
    else:
        print(columns([for_people(row, use) for row, use in zip(rows, used, strict=True)]))
    for other in others():
        print(f"not taken: the broker at {other}, which another installation of this package started", file=sys.stderr)
    return FINE


async def _used(engine: Inspectable, containers: list[str]) -> list[int | None]:
    """Return what sandboxes use, in bytes; None for one that ends meanwhile, or whose engine does not say it."""
    from ..engines.about import Metered

    async def one(container: str) -> int | None:
        try:
            async with asyncio.timeout(SECONDS_FOR_USE):
                return await engine.used(container) if isinstance(engine, Metered) else None
        except (EngineError, TimeoutError):
            return None

    return [await one(container) for container in containers[:MAX_ASKED]] + [None] * len(containers[MAX_ASKED:])


def for_people(row: Listed, used: int | None) -> dict[str, str]:
    alive = {True: "", False: " (gone)", None: " (elsewhere)"}[row.owner_alive]
    return {
        "session": row.session[:12],
        "owner": "nobody" if row.state == "detached" else f"{row.owner_pid or 'unknown'}{alive}",
        "state": row.state,
        "age": _duration(row.age_seconds),
        "image": row.image,
        "memory": f"{'?' if used is None else format_bytes(used)} of {format_bytes(row.memory_bytes)}",
        "kernel": name_of(row.owner_pid) if row.owner_alive else "",
        "work": work_of(row.owner_pid) if row.owner_alive else "",
    }


def _duration(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def columns(rows: list[dict[str, str]]) -> str:
    if not rows:
        return "no sandbox is running"
    header = list(rows[0])
    cells = [
        [name.upper().replace("_", " ") for name in header],
        *([ours(str(row[name])) for name in header] for row in rows),
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(header))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in cells)
