"""Writing down the container of a session while no cell runs in it, and no message is cut in two."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from ....core.errors import FileRefused
from ....core.events import SessionEvent
from ....engines.abilities import Ability, Savable, demand
from ....session.agent_link import Link
from ....session.requests.queue import PendingRequest
from ....session.requests.request_states import RequestState
from ....session.session import Session
from ..codes import SnapshotCode

MAX_TRIES = 3
"""A snapshot is begun again if it met the sandbox in the middle of a message: no copy could go on from it."""
TURNS = 20
CALM_SECONDS = 15.0
"""How long a cell of our own is waited for."""


class SnapshotMade(SessionEvent):
    """The state of a sandbox was written down."""

    name = "snapshot"
    engine: str


async def save(session: Session, fd: int) -> dict[str, Any]:
    """Write the container down to `fd`; return what its engine needs to know beside it.

    It goes on afterwards, whatever comes of it. Raises `AbilityMissing`, `SandboxDied` without a container,
    `SandboxPaused`, `EngineError`, and `FileRefused` while something runs in it.
    """

    async def saved(link: Link) -> dict[str, Any]:
        return await _saved(session, link, fd)

    return await session.pauses.alone(saved, "taking a snapshot")


async def _saved(session: Session, link: Link, fd: int) -> dict[str, Any]:
    container = link.container
    demand(Ability.SNAPSHOT, container)
    if any(one.link is not None for one in session.beside):
        raise FileRefused(SnapshotCode.SNAPSHOT_NOT_WHOLE.note(why="it has contexts besides its own kernel"))
    for _ in range(MAX_TRIES):
        await _own_cells_over(session)
        if not isinstance(container, Savable) or session.requests.queue.active or not _is_ready(session):
            raise FileRefused(SnapshotCode.SNAPSHOT_BUSY.note(why="a cell runs, or its kernel is on its way"))
        async with session.pauses.moment(link, container):
            facts = await container.save(fd)
            for _ in range(TURNS):
                await asyncio.sleep(0)  # what came until now is read
            whole = not link.pending
        if whole:
            session.emit(SnapshotMade(engine=type(container).__name__))
            return facts
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
    raise FileRefused(SnapshotCode.SNAPSHOT_BUSY.note(why="a thread in it does not stop to speak"))


def _is_ready(session: Session) -> bool:
    return session.ready and not any(one.is_starting for one in session.beside)


async def _own_cells_over(session: Session) -> None:
    """Wait while nothing but cells of this host's own runs: they are short, and no caller knows of them."""
    queue = session.requests.queue
    closed = asyncio.Event()

    def changed(request: PendingRequest, _: RequestState) -> None:
        if request.state is RequestState.CLOSED:
            closed.set()

    queue.listeners.append(changed)
    try:
        async with asyncio.timeout(CALM_SECONDS):
            while queue.active and queue.has_own_alone and _is_ready(session):
                closed.clear()
                await closed.wait()
    except TimeoutError:
        pass  # it is refused then, as for any other cell
    finally:
        queue.listeners.remove(changed)
