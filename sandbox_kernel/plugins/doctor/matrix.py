"""Which engines of this machine could serve: a sandbox of each is started, and what keeps it from that has a remedy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from ...core.model import Settings
from ...core.remedies import wrapped
from ...engines.select import chosen, explained
from ...engines.wall import Wall
from ...policy.safe_text import ours
from .doctor import engine_and_start
from .walls import all_walls, sentences, settings_of


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One engine with one runtime."""

    name: str
    settings: str
    """Which choose it."""
    chosen: bool
    """Whether the settings of the check take it."""
    serves: bool
    """Whether a sandbox started here, was what was asked for, and a cell ran in it."""
    stopped_by: str
    """What was looked at, and what was found; empty if it serves."""
    remedy: str
    """What changes that; empty if it serves."""
    not_enforced: str
    """What it never enforces, whatever machine it is on."""
    accepted: Mapping[str, str]
    """What its attestation here accepted in place of what was asked for: by the name of the comparison, why."""


async def survey(settings: Settings) -> list[MatrixRow]:
    """Start a sandbox of each engine, all at once and within two minutes; leaves nothing behind."""
    taken = await asyncio.to_thread(chosen, settings)

    async def look(wall: Wall) -> MatrixRow:
        own = settings_of(wall, settings)
        rows = await engine_and_start(own, line_by_line=True)
        wrong = next((row for row in rows if not row.ok), None)
        lines = [line for row in rows for line in row.details if line.excuse]
        return MatrixRow(
            wall.name,
            wall.settings,
            (own.engine, own.runtime, own.limits_kept) == (taken, settings.runtime, settings.limits_kept),
            wrong is None,
            "" if wrong is None else f"{wrong.name}: {wrong.found}",
            "" if wrong is None else wrong.remedy,
            sentences(wall)[1],
            {line.name: line.excuse for line in lines},
        )

    return list(await asyncio.gather(*map(look, all_walls())))


def as_json(rows: Iterable[MatrixRow]) -> str:
    """Return a list of what is in `MatrixRow`."""
    return json.dumps([asdict(row) for row in rows], indent=2)


def as_text(rows: Iterable[MatrixRow], settings: Settings) -> str:
    """Return the rows for a terminal, each with what follows from it beneath."""
    lines = [f"engine = {settings.engine} takes {explained(settings)}", ""]
    for row in rows:
        lines.append(f"{'serves' if row.serves else 'does not':9}  {row.name}{' (taken)' if row.chosen else ''}")
        by_reason: dict[str, list[str]] = {}
        for name, why in row.accepted.items():
            by_reason.setdefault(why, []).append(name)
        parts = {
            "stopped by": row.stopped_by,
            "remedy": row.remedy,
            "settings": row.settings,
            "not enforced": row.not_enforced,
            "accepted": "; ".join(f"{', '.join(names)} ({why})" for why, names in by_reason.items()),
        }
        filled = [f"{title}: {text}" for title, text in parts.items() if text]
        lines += [wrapped(text, 110, first=" " * 11, rest=" " * 13) for text in filled]
    return "\n".join(ours(part) for line in lines for part in line.split("\n"))  # an engine says what it likes
