"""A session's container given to the kernel process that follows this one, through a keeper, and taken from it.

Imports keeper and the types of a session; what is handed over is the session's to say.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.resources import start_helper
from . import keeper
from .doors import NO_DOORS

if TYPE_CHECKING:
    from ..core.model import Settings
    from ..session.session import Session


class Left(NamedTuple):
    """What a kernel process left for the next one."""

    fd: int
    container: dict[str, Any]
    way_out: dict[str, Any] | None
    """What the container's cells know of their way out; it was made before they were."""
    listeners: int
    """Subscriptions to what the process published; they come again in a moment."""
    doors: dict[str, int]
    """Sockets that listen, by channel: whoever connects meanwhile waits there, and finds no port closed."""


def collect(settings: Settings, place: keeper.Place, *, wanted: bool = True) -> Left | None:
    """Return what was left at `place`. A container that is not `wanted`, or has other settings, ends."""
    left = keeper.collect(place)
    if left is None:
        return None
    fd, state = left
    doors = state.get(keeper.DOORS) or {}
    if wanted and state.get("settings") == _digest(settings):
        return Left(fd, state["container"], state.get("way_out"), int(state.get("listeners", 0)), doors)
    for each in (fd, *doors.values()):
        os.close(each)
    return None


async def leave(
    session: Session,
    place: keeper.Place,
    way_out: dict[str, Any] | None = None,
    *,
    listeners: int = 0,
    doors: Mapping[str, int] = NO_DOORS,
) -> None:
    """Leave the session's container at `place`. Raises `SandboxError` or `OSError` if it cannot be left there.

    `way_out` is what only the two processes and the keeper get to know, in memory; `doors` are sockets that listen.
    """
    listener, path = keeper.listen(place)
    with listener, contextlib.ExitStack() as undo:
        undo.callback(keeper.forget, path)
        handover = await session.park()
        try:
            known = {"settings": _digest(session.settings), "container": handover.state, "way_out": way_out}
            state = json.dumps({**known, "listeners": listeners, keeper.DOORS: [*doors]}).encode()
            given = (handover.fd, *doors.values())
            arguments = (str(listener.fileno()), path, *map(str, given))
            process = start_helper(keeper.__file__, *arguments, files=(listener.fileno(), *given))
            if process.stdin is not None:
                process.stdin.write(state)
                process.stdin.close()
            undo.pop_all()
        finally:
            os.close(handover.fd)
    await session.engine.pass_on(handover.state, process.pid)


def _digest(settings: Settings) -> str:
    return hashlib.sha256(json.dumps(asdict(settings), sort_keys=True).encode()).hexdigest()
