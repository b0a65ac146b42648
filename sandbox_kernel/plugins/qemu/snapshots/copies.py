"""What the SDK asks: a sandbox that is written down as it stands, and others that go on from there."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

from ....core.errors import FileRefused
from ....core.events import SessionEvent
from ....core.model import Settings
from ....core.package_files import PACKAGE
from ....core.tasks import made_in_thread
from ....engines.shipping import module_line
from ....sdk.snapshots import S
from ....sdk.values import Snapshot
from ...api import NotStill, NotWhole, Origin, OwnedSession, SandboxHandle
from ..codes import SnapshotCode
from ..hardware import state_bytes
from . import facts
from .store import Draft, Store


class SnapshotMade(SessionEvent):
    """The state of a sandbox was written down."""

    name = "snapshot"
    engine: str


class SandboxRestored(SessionEvent):
    """A sandbox began where a snapshot goes on."""

    name = "restored"
    snapshot: str


class SavedOrigin:
    """Where a sandbox goes on from: an open file, and what was said of it."""

    def __init__(self, name: str, said: Mapping[str, Any], fd: int) -> None:
        """`fd` is closed by this object."""
        self._name, self._said, self._fd = name, said, fd

    async def begin(self, session: OwnedSession) -> None:
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
        session.submit_silently(reseeding())

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()  # of one whose sandbox never came to be: its caller gave up, or another of its twins failed


async def take(sandbox: SandboxHandle, name: str | None) -> str:
    """See `AsyncSandbox.snapshot`."""
    facts.require_whole(sandbox.settings, sandbox.given)
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


async def fork(sandbox: SandboxHandle, count: int, make: Callable[[Origin], S]) -> list[S]:
    """Return `count` sandboxes that have started, which `make` makes from where they go on."""
    facts.require_whole(sandbox.settings, sandbox.given)
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


def restored(
    name: str, keywords: Mapping[str, Any], settings: Settings, given: Mapping[str, object]
) -> tuple[Origin, Settings]:
    """See `sdk.snapshots.Snapshots.restored`."""
    with Store.of(settings).open(name) as saved:
        said = saved.head.about
        settings = facts.settings_of(name, said, settings, keywords)
        facts.require_whole(settings, given)
        return SavedOrigin(name, said, os.dup(saved.content)), settings


def stored(settings: Settings) -> tuple[Snapshot, ...]:
    """Return this user's snapshots, the newest first."""
    return Store.of(settings).list()


def delete(name: str, settings: Settings) -> bool:
    return Store.of(settings).delete(name)


def _room(sandbox: SandboxHandle) -> tuple[Store, int]:
    """Return where snapshots are, and how many bytes that of this sandbox may have."""
    return Store.of(sandbox.settings), state_bytes(sandbox.settings.limits.memory)


async def _saved(sandbox: SandboxHandle, fd: int) -> dict[str, Any]:
    """Write it down, and return what is to be known of that."""
    session = sandbox.session
    try:
        saved = await session.save(fd)
    except NotStill as error:
        raise FileRefused(SnapshotCode.SNAPSHOT_BUSY.note(why=str(error))) from None
    except NotWhole as error:
        raise FileRefused(SnapshotCode.SNAPSHOT_NOT_WHOLE.note(why=str(error))) from None
    about = facts.about(sandbox.settings, session.id, session.kernel_info, saved)
    session.emit(SnapshotMade(engine=about["spec"]["engine"]))
    return about


@cache
def reseeding() -> str:
    """Return an internal cell that reseeds a copied kernel before its first cell."""
    source = (PACKAGE / "plugins" / "qemu" / "inside" / "reseed.py").read_text(encoding="utf-8")
    return module_line(f"{source}\nreseed()\n", "reseed")
