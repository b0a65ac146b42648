"""What the SDK asks: a sandbox that is written down as it stands, and others that go on from there."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

from ....core.events import SessionEvent
from ....core.model import Settings
from ....core.package_files import PACKAGE
from ....core.tasks import made_in_thread
from ....engines.shipping import packed_line
from ....sdk.cell_request import submit_silently
from ....sdk.instance import Instance, Origin
from ....sdk.options import SandboxOptions
from ....sdk.snapshots import S
from ....sdk.values import Snapshot
from ....session.session import Session
from ..hardware import state_bytes
from . import capture, facts
from .store import Draft, Store


class SandboxRestored(SessionEvent):
    """A sandbox began where a snapshot goes on."""

    name = "restored"
    snapshot: str


class SavedOrigin:
    """Where a sandbox goes on from: an open file, and what was said of it."""

    def __init__(self, name: str, said: Mapping[str, Any], fd: int) -> None:
        """`fd` is closed by this object."""
        self._name, self._said, self._fd = name, said, fd

    async def begin(self, session: Session) -> None:
        """Start a session where it goes on from. Raises as `start`."""
        try:
            session.begin_from(
                dict(self._said["state"]),
                facts.start_options(session.engine, self._name, self._said, self._fd),
            )
            await session.started()
        finally:
            self.close()
        session.emit(SandboxRestored(snapshot=self._name))
        submit_silently(session, reseeding())

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()  # of one whose sandbox never came to be: its caller gave up, or another of its twins failed


async def take(sandbox: Instance, name: str | None) -> str:
    """See `AsyncSandbox.snapshot`."""
    facts.require_whole(sandbox.settings, sandbox.prepared.given)
    await sandbox.ready(fresh=False)
    given = name if name is not None else f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    store, most = _room(sandbox)
    draft = await made_in_thread(lambda: store.begin(given, most), Draft.close)
    try:
        said = await _saved(sandbox, draft.content)
        await asyncio.to_thread(draft.commit, said)
    finally:
        draft.close()
    return given


async def fork(sandbox: Instance, count: int, make: Callable[[Origin], S]) -> list[S]:
    """Return `count` sandboxes that have started, which `make` makes from where they go on."""
    facts.require_whole(sandbox.settings, sandbox.prepared.given)
    await sandbox.ready(fresh=False)
    store, most = _room(sandbox)
    fd = await made_in_thread(lambda: store.scratch(most), os.close)
    try:
        said = await _saved(sandbox, fd)
        name, place = sandbox.session.id[:12], f"/proc/self/fd/{fd}"
        origins = [SavedOrigin(name, said, os.open(place, os.O_RDONLY | os.O_CLOEXEC)) for _ in range(count)]
    finally:
        os.close(fd)
    made = [make(origin) for origin in origins]
    try:
        done = await asyncio.gather(*(one.start() for one in made), return_exceptions=True)
        if failures := [each for each in done if isinstance(each, BaseException)]:
            raise failures[0]
    except BaseException:  # a caller that gives up as well: nobody would have them
        await asyncio.gather(*(one.kill() for one in made), return_exceptions=True)
        raise
    return made


def restored(name: str, keywords: Mapping[str, Any], given: Settings | None) -> tuple[Origin, Settings, SandboxOptions]:
    """Return where a sandbox goes on from that is made from a snapshot, its settings, and what was asked for.

    Reads all of the snapshot, which may take seconds. Raises as `AsyncSandbox.from_snapshot`.
    """
    options = SandboxOptions.of(given, keywords)
    with _own_store(options.settings).open(name) as saved:
        said = saved.head.about
        settings = facts.settings_of(name, said, options.settings, keywords)
        facts.require_whole(settings, options.given)
        return SavedOrigin(name, said, os.dup(saved.content)), settings, options


def stored(settings: Settings | None) -> tuple[Snapshot, ...]:
    """Return this user's snapshots, the newest first; by default with this user's settings."""
    return _own_store(settings).list()


def delete(name: str) -> bool:
    """Remove a snapshot; return whether there was one."""
    return _own_store(None).delete(name)


def _own_store(settings: Settings | None) -> Store:
    return Store.of(settings or SandboxOptions.of(None, {}).settings)


def _room(sandbox: Instance) -> tuple[Store, int]:
    """Return where snapshots are, and how many bytes that of this sandbox may have."""
    return Store.of(sandbox.settings), state_bytes(sandbox.settings.limits.memory)


async def _saved(sandbox: Instance, fd: int) -> dict[str, Any]:
    """Write it down, and return what is to be known of that."""
    session = sandbox.session
    return facts.about(sandbox.settings, session.id, session.handshake, await capture.save(session, fd))


@cache
def reseeding() -> str:
    """Return an internal cell that reseeds a copied kernel before its first cell."""
    source = (PACKAGE / "plugins" / "qemu" / "inside" / "reseed.py").read_text(encoding="utf-8")
    return packed_line(f"{source}\nreseed()\n", "reseed")
