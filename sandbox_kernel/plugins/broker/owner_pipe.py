"""What is asked for with a sandbox that is kept, and its owner's end of the pipe."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

from ...core.errors import EngineError
from ...engines.pipe import Pipe
from .client import packets


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachedOptions:
    """What is asked for with a sandbox that is kept."""

    name: str
    """Its id, of its owner's choice; another user may have the same."""
    seconds: float
    """Until it ends."""
    most_seconds: float
    """Until it ends whatever is asked for later."""
    set_by: str
    metadata: dict[str, str]
    settings: str
    """What the next owner needs to know of it, as the first one wrote it."""


class Owner:
    """One end of the pipe between an owner and the broker."""

    def __init__(self, pipe: Pipe, *, began: bool) -> None:
        self.pipe, self.began = pipe, began
        """Before an owner has begun it knows nothing of the cell that runs, and hears of the agent alone."""
        self.turn = asyncio.Lock()

    async def send(self, data: bytes) -> None:
        """Wait until it is written; nothing if the owner is gone."""
        async with self.turn:
            with contextlib.suppress(EngineError):
                await self.pipe.send(data)


def noted(data: bytes) -> dict[str, Any]:
    """Return what an owner notes of its session. Raises LookupError, TypeError or ValueError for what is improper."""
    if len(data) > packets.MAX_NOTE:  # which is known before millions of lists are made of it
        raise ValueError("a note is too long")
    said = packets.unpacked(data)
    session, cell = said.get("session", {}), said.get("cell")
    # It is written anew for the next owner, where a number or a letter can be longer than it came.
    if packets.size(said) > packets.MAX_NOTE or packets.size(session) > packets.MAX_SESSION:
        raise ValueError("a note is too long")
    if not isinstance(session, dict) or not (cell is None or isinstance(cell, dict)):
        raise ValueError("that is no note")
    if cell is not None and not (packets.text(cell["id"], 200) and packets.seconds(cell["seconds"])):
        raise ValueError("that is no cell")
    return said
