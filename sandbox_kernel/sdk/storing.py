"""`snapshot`, `from_snapshot` and `fork`: a sandbox that is written down as it stands, and others that go on there."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

from ..core.codes import UsageCode
from ..core.errors import ConfigurationError
from ..core.model import Settings
from ..core.tasks import made_in_thread
from ..engines.abilities import Ability
from ..engines.machines import state_bytes
from ..files.snapshot_parts import Snapshot
from ..files.snapshots import Draft, Store
from ..session import remembered
from .cell import submit_silently
from .network import Network
from .opening import OF_A_SERVICE, Opening
from .pausing import Pauses

MOST_FORKS = 20
"""At a time."""


@dataclass(slots=True)
class Origin:
    """What a sandbox that did not start yet goes on from: an open file, and what was said of it."""

    name: str
    said: Mapping[str, Any]
    fd: int

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()  # of one whose sandbox never came to be: its caller gave up, or another of its twins failed


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A snapshot that was taken, by the names of hosted interpreters."""

    snapshot_id: str
    names: list[str] = field(default_factory=list)


class Stores(Pauses):
    """The part of a sandbox that is written down."""

    settings: Settings
    metadata: dict[str, str]
    _network: Network
    _origin: Origin | None = None
    start: Callable[..., Any]
    kill: Callable[..., Any]

    async def snapshot(self, name: str | None = None) -> str:
        """Write the sandbox down as it stands, with variables, files and processes; return the snapshot's name.

        It stands still meanwhile, in which other calls raise `SandboxPaused`, and goes on. `name` has up to 64 letters,
        digits, ".", "-" and "_"; one is made up without it. All that the sandbox has in memory is in the file,
        which lies in this user's data folder, readable for nobody else.

        Raises `AbilityMissing` on an engine that cannot do it, `SandboxPaused`, and `FileRefused` while a cell runs,
        for a name that is taken or cannot be, where there is no room (`snapshots_size`), and for a sandbox of which
        something that counts cannot be written down: connections to the host, its folders, a screen that blocks.
        """
        self._check()
        self._require(Ability.SNAPSHOT)
        await self._ready(fresh=False)
        given = name if name is not None else f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        store, most = Store.of(self.settings), self._most
        draft = await made_in_thread(lambda: store.begin(given, most), Draft.close)
        try:
            said = await self._saved(draft.content)
            await asyncio.to_thread(draft.commit, said)
        finally:
            draft.close()
        return given

    async def create_snapshot(
        self, name: str | None = None, *, mode: str | None = None, **service: Any
    ) -> SnapshotInfo:
        """Do as `snapshot`, by the name of hosted interpreters. Raises `ConfigurationError` for a `mode` but "full"."""
        if mode not in {None, "full"}:
            why = "a snapshot has the memory; to keep files alone, download them"
            raise ConfigurationError(UsageCode.WRONG_ARGUMENT, why, setting="mode")
        taken = await self.snapshot(name)
        return SnapshotInfo(taken, [taken])

    async def fork(self, count: int = 1, *, timeout: float | None = None, **service: Any) -> list[Self]:
        """Return `count` sandboxes that go on from where this one stands, each of its own, in this process.

        Each draws its random numbers anew, as far as a module's own generator makes them; one that the code made
        itself draws what its twins draw. `timeout` is how many seconds they may last. Either all are there, or none,
        and the error of the first that failed. Raises as `snapshot`.
        """
        if type(count) is not int or not 1 <= count <= MOST_FORKS:
            why = f"count must be a whole number from 1 to {MOST_FORKS}, not {count!r}"
            raise ConfigurationError(UsageCode.WRONG_ARGUMENT, why, setting="count")
        self._check()
        self._require(Ability.FORK)
        await self._ready(fresh=False)
        store, most = Store.of(self.settings), self._most
        fd = await made_in_thread(lambda: store.scratch(most), os.close)
        try:
            said = await self._saved(fd)
            name, place = self._session.id[:12], f"/proc/self/fd/{fd}"
            origins = [Origin(name, said, os.open(place, os.O_RDONLY | os.O_CLOEXEC)) for _ in range(count)]
        finally:
            os.close(fd)
        made = []
        for origin in origins:
            made.append(self._made(self.settings, timeout=timeout, metadata=self.metadata))
            made[-1]._origin = origin  # noqa: SLF001 (one of its own kind)
        try:
            done = await asyncio.gather(*(one.start() for one in made), return_exceptions=True)
            if failures := [each for each in done if isinstance(each, BaseException)]:
                raise failures[0]
        except BaseException:  # a caller that gives up as well: nobody would have them
            await asyncio.gather(*(one.kill() for one in made), return_exceptions=True)
            raise
        return made

    @classmethod
    async def from_snapshot(cls, name: str, **keywords: Any) -> Self:
        """Return a sandbox that goes on from a snapshot, in any process of this user, as often as is wanted.

        `keywords` are those of a new one, but for what the sandbox was made with: its image, engine, limits and
        variables are the snapshot's. Its id is new, and so are its policies, which know of no display or widget of
        before; random numbers are drawn anew as in `fork`. Every byte of the snapshot is checked first.

        Raises `FileNotThere` for a name that there is none of, `FileRefused` for one that was changed, is not this
        user's alone or does not fit this machine and version, and as `create`.
        """
        made = await asyncio.to_thread(cls.prepared, name, **keywords)
        try:
            await made.start()
        except BaseException:
            await made.kill()
            raise
        return made

    @classmethod
    def prepared(cls, name: str, **keywords: Any) -> Self:
        """Return the same, not started yet. Reads all of the snapshot, which may take seconds."""
        opening = Opening.of(None, keywords)
        given = {key: value for key, value in keywords.items() if key not in OF_A_SERVICE}
        with Store.of(opening.settings).open(name) as saved:
            said = saved.head.about
            settings = remembered.settings_of(name, said, opening.settings, given)
            remembered.require_whole(settings, tools=opening.tools is not None)
            origin = Origin(name, said, os.dup(saved.content))
        try:
            made = cls._made(settings, timeout=opening.seconds, metadata=opening.metadata)
            made._require(Ability.SNAPSHOT)  # noqa: SLF001 (one of its own kind)
        except BaseException:
            origin.close()
            raise
        made._origin = origin  # noqa: SLF001 (as above)
        return made

    @staticmethod
    async def snapshots(settings: Settings | None = None) -> list[Snapshot]:
        """Return this user's snapshots, the newest first."""
        return list(await asyncio.to_thread(Store.of(settings or Opening.of(None, {}).settings).list))

    @staticmethod
    async def delete_snapshot(snapshot_id: str, **service: Any) -> bool:
        """Remove a snapshot; return whether there was one."""
        return await asyncio.to_thread(Store.of(Opening.of(None, {}).settings).delete, snapshot_id)

    @classmethod
    def _made(cls, settings: Settings, **keywords: Any) -> Self:
        make: Callable[..., Self] = cls
        return make(settings, **keywords)

    @property
    def _most(self) -> int:
        return state_bytes(self.settings.limits.memory_bytes)

    def _require(self, ability: Ability) -> None:
        self._session.standstill.demand(ability)
        remembered.require_whole(self.settings, tools=bool(self._network.tools))

    async def _saved(self, fd: int) -> dict[str, Any]:
        """Write it down, and return what is to be known of that."""
        facts = await self._session.standstill.save(fd)
        return remembered.about(self.settings, self._session.id, self._session.introduction, facts)

    async def _begin_from(self, origin: Origin) -> None:
        """Start where it goes on from. Raises as `start`."""
        session = self._session
        try:
            opens = remembered.opening(session.engine, origin.name, origin.said, origin.fd)
            session.begin_from(dict(origin.said["state"]), opens)
            await session.started()
        finally:
            origin.close()
        session.audit("restored", snapshot=origin.name)
        submit_silently(session, remembered.anew())
