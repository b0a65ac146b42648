"""A session's container given to the kernel process that follows this one, through a keeper, and taken from it.

Imports keeper, what finds engines, and the types of a session; what is handed over is the session's to say.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.resources import start_helper
from ..engines.select import AUTO, make_engine, of_session
from . import keeper
from .doors import NO_DOORS

if TYPE_CHECKING:
    from ..core.model import Settings
    from ..engines.about import Inspectable
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
    engine: str = ""
    """The address of the container's engine."""


def collect(
    settings: Settings,
    place: keeper.Place,
    *,
    wanted: bool = True,
    known: tuple[int, dict[str, Any]] | None = None,
) -> Left | None:
    """Return what was left at `place`, or is `known` already. One that is not `wanted`, or has other settings, ends."""
    left = known or keeper.collect(place)
    if left is None:
        return None
    fd, state = left
    doors = state.get(keeper.DOORS) or {}
    if wanted and state.get("settings") == _digest(settings):
        listeners, engine = int(state.get("listeners", 0)), str(state.get("engine", ""))
        return Left(fd, state["container"], state.get("way_out"), listeners, doors, engine)
    for each in (fd, *doors.values()):
        os.close(each)
    return None


def engine_of(settings: Settings, left: Left | None) -> Inspectable:
    """Return the engine of what was left, which no other can go on with: "auto" may take another one by now."""
    if left is not None and left.engine and settings.engine == AUTO:
        settings = replace(settings, engine=left.engine)
    return make_engine(of_session(settings))


class Parked(NamedTuple):
    """What a kernel process is about to leave: it has a place to do so, and the container speaks to nobody."""

    listener: socket.socket
    path: str
    fd: int
    container: dict[str, Any]
    doors: Mapping[str, int]
    state: dict[str, Any]
    """All that the next process gets to know; it goes through memory only."""

    def start_keeper(self) -> int:
        """Start a process that gives it to the next one; return its number. Raises `OSError`."""
        given = (self.fd, *self.doors.values())
        arguments = (str(self.listener.fileno()), self.path, *map(str, given))
        process = start_helper(keeper.__file__, *arguments, files=(self.listener.fileno(), *given))
        if process.stdin is not None:
            process.stdin.write(json.dumps(self.state).encode())
            process.stdin.close()
        return process.pid

    def close(self, *, kept: bool) -> None:
        """Close this process's ends; the place stays if the container is `kept` by another one."""
        if not kept:
            keeper.forget(self.path)
        self.listener.close()
        for fd in (self.fd, *self.doors.values()):
            os.close(fd)


async def park(
    session: Session,
    place: keeper.Place,
    way_out: dict[str, Any] | None = None,
    *,
    listeners: int = 0,
    doors: Mapping[str, int] = NO_DOORS,
) -> Parked:
    """Prepare to leave the session's container at `place`. Raises `SandboxError` or `OSError` if it cannot be left.

    `way_out` is what only the two processes and the keeper get to know, in memory; `doors` are sockets that listen.
    """
    with contextlib.ExitStack() as undo:
        listener, path = keeper.listen(place)
        undo.callback(listener.close)
        undo.callback(keeper.forget, path)
        handover = await session.park()
        undo.pop_all()
    known = {"settings": _digest(session.settings), "container": handover.state, "way_out": way_out}
    engine = getattr(session.engine, "address", "")
    state = {**known, "listeners": listeners, "engine": engine, keeper.DOORS: [*doors]}
    return Parked(listener, path, handover.fd, handover.state, doors, state)


def _digest(settings: Settings) -> str:
    return hashlib.sha256(json.dumps(asdict(settings), sort_keys=True).encode()).hexdigest()
