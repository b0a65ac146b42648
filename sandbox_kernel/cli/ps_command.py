"""`sandbox-kernel ps`: which sandboxes run, what each is for, and what it uses."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from ..core.errors import EngineError
from ..core.model import format_bytes
from ..engines.select import others
from ..engines.sightings import name_of, work_of
from ..policy.safe_text import ours
from .commands import FINE, engine_call

if TYPE_CHECKING:
    from ..engines.about import Inspectable, Listed

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
