"""A sandbox that is written down as it stands, and others that go on from there."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from ..core.errors import wrong_argument
from ..core.model import Settings
from ..core.tasks import made_in_thread
from ..engines.abilities import Ability, state_bytes
from ..files.snapshots import Draft, Store
from ..session import snapshot_facts
from .instance import Instance, Origin
from .options import SandboxOptions

MAX_FORKS = 20
"""At a time."""


class Startable(Protocol):
    """A sandbox that did not start yet."""

    async def start(self) -> None: ...

    async def kill(self) -> bool: ...


S = TypeVar("S", bound=Startable)


class Snapshots:
    """What is written down of one sandbox."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    async def take(self, name: str | None) -> str:
        """See `AsyncSandbox.snapshot`."""
        self._instance.check()
        self.require(Ability.SNAPSHOT)
        await self._instance.ready(fresh=False)
        given = name if name is not None else f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        store, most = self._store
        draft = await made_in_thread(lambda: store.begin(given, most), Draft.close)
        try:
            said = await self._saved(draft.content)
            await asyncio.to_thread(draft.commit, said)
        finally:
            draft.close()
        return given

    async def fork(self, count: int, make: Callable[[Origin], S]) -> list[S]:
        """Return `count` sandboxes that have started, which `make` makes from where they go on."""
        if type(count) is not int or not 1 <= count <= MAX_FORKS:
            why = f"count must be a whole number from 1 to {MAX_FORKS}, not {count!r}"
            raise wrong_argument("count", why)
        self._instance.check()
        self.require(Ability.FORK)
        await self._instance.ready(fresh=False)
        store, most = self._store
        fd = await made_in_thread(lambda: store.scratch(most), os.close)
        try:
            said = await self._saved(fd)
            name, place = self._instance.session.id[:12], f"/proc/self/fd/{fd}"
            origins = [Origin(name, said, os.open(place, os.O_RDONLY | os.O_CLOEXEC)) for _ in range(count)]
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

    def require(self, ability: Ability) -> None:
        """Raise `AbilityMissing`, or `FileRefused` for a sandbox of which something would be missing."""
        self._instance.session.pauses.demand(ability)
        snapshot_facts.require_whole(self._instance.settings, self._instance.prepared.given)

    @property
    def _store(self) -> tuple[Store, int]:
        """Where they are, and how many bytes this one may have."""
        settings = self._instance.settings
        return Store.of(settings), state_bytes(settings.limits.memory)

    async def _saved(self, fd: int) -> dict[str, Any]:
        """Write it down, and return what is to be known of that."""
        session = self._instance.session
        facts = await session.pauses.save(fd)
        return snapshot_facts.about(self._instance.settings, session.id, session.handshake, facts)


def restored(
    name: str, keywords: Mapping[str, Any], given: Settings | None = None
) -> tuple[Origin, Settings, SandboxOptions]:
    """Return where a sandbox goes on from that is made from a snapshot, with which settings, and what was asked for.

    Reads all of the snapshot, which may take seconds. Raises as `AsyncSandbox.from_snapshot`.
    """
    options = SandboxOptions.of(given, keywords)
    with own_store(options.settings).open(name) as saved:
        said = saved.head.about
        settings = snapshot_facts.settings_of(name, said, options.settings, keywords)
        snapshot_facts.require_whole(settings, options.given)
        return Origin(name, said, os.dup(saved.content)), settings, options


def own_store(settings: Settings | None) -> Store:
    """Return where this user's snapshots are, by default with this user's settings."""
    return Store.of(settings or SandboxOptions.of(None, {}).settings)
