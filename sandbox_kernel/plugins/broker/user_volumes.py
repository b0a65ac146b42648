"""The volumes of a broker's users: each user's apart from others', within the ceilings, one piece of work at a time."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from ...core.errors import QuotaExceeded
from ...core.tasks import Tasks
from ...engines.attachment import Quota, Volume, VolumeFolder, provider
from .ceilings import Policy
from .codes import BrokerCode
from .create_request import CreateRequest

T = TypeVar("T")
NO_LIMIT = 1 << 60
WAITING = 8
"""Pieces of work of one user: each may wait for a volume of that user's that is made or repaired."""


class UserVolumes:
    def __init__(self, policy: Callable[[], Policy], folder: str) -> None:
        """`policy` returns what users may have now; `folder` has a folder for each user, and is the broker's alone."""
        self._policy, self._folder = policy, folder
        self._turns: dict[int, asyncio.Lock] = {}
        self._waiting: Counter[int] = Counter()
        self._starts: dict[int, asyncio.Lock] = {}
        self._starting: Counter[int] = Counter()
        self._tasks = Tasks()

    def source(self, uid: int) -> str:
        """Return the folder of a user's volumes; those of a broker of the user's own are what it has without one."""
        own = self._policy().of(uid).own and uid == os.geteuid()
        return "" if own else f"{self._folder}/{uid}"

    def of(self, uid: int) -> VolumeFolder:
        return provider("volumes").volumes(self.source(uid))

    async def list(self, uid: int) -> tuple[Volume, ...]:
        """Return a user's volumes. This and what follows raise `EngineError`."""
        return await self._done(uid, self.of(uid).list)

    async def create(self, uid: int, name: str, size: int | None, *, exist_ok: bool = False) -> None:
        """Make an empty volume, of the largest size that is usual and allowed if no `size` is said."""
        own, quota = self.of(uid), self._quota(uid)
        await self._done(uid, lambda: own.create(name, size, quota=quota, exist_ok=exist_ok))

    async def remove(self, uid: int, name: str) -> None:
        own = self.of(uid)
        await self._done(uid, lambda: own.remove(name))

    async def rename(self, uid: int, name: str, new: str) -> None:
        own = self.of(uid)
        await self._done(uid, lambda: own.rename(name, new))

    @asynccontextmanager
    async def turn(self, uid: int, order: CreateRequest) -> AsyncIterator[None]:
        """Have what an order names ready, and no other start of that user's with volumes meanwhile.

        So a volume that takes long to be made, repaired or opened holds up its user, and of the starts that may go on
        at once one at most. Raises `EngineError`.
        """
        names = [one.name for one in order.attached if one.kind == "volume"]
        if not names:
            yield
            return
        provider("volumes").check_volumes()
        if self._starting[uid] >= WAITING:
            raise QuotaExceeded(BrokerCode.BROKER_BUSY, limit=f"{WAITING} starts of one user with volumes")
        self._starting[uid] += 1
        try:
            async with self._starts.setdefault(uid, asyncio.Lock()):
                await self.make_missing(uid, order)
                for name in names:
                    await self._done(uid, partial(self.of(uid).repair, name))
                yield
        finally:
            self._starting[uid] -= 1

    async def make_missing(self, uid: int, order: CreateRequest) -> None:
        """Make those that an order writes to and that are not there yet, within the user's ceiling."""
        written = {one.name for one in order.attached if one.kind == "volume" and one.writable}
        for name in sorted(written - {one.name for one in await self.list(uid)} if written else ()):
            await self.create(uid, name, None, exist_ok=True)

    def _quota(self, uid: int) -> Quota:
        ceiling = self._policy().of(uid)
        if ceiling.denied or 0 in {ceiling.volumes, ceiling.volumes_size}:
            by = ceiling.by("volumes")
            raise QuotaExceeded(BrokerCode.BROKER_DENIED, limit="none", setting="volumes", set_by=by)
        most, size = ceiling.volumes, ceiling.volumes_size
        return Quota(NO_LIMIT if most is None else most, NO_LIMIT if size is None else size)

    async def _done(self, uid: int, work: Callable[[], T]) -> T:
        """Do work on files outside of the loop. It goes on without who asked for it, and counts until it is done."""
        if self._waiting[uid] >= WAITING:
            raise QuotaExceeded(BrokerCode.BROKER_BUSY, limit=f"{WAITING} requests of one user for volumes")
        self._waiting[uid] += 1
        doing = self._tasks.hold(self._in_turn(uid, work), "work on volumes")
        doing.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(doing)

    async def _in_turn(self, uid: int, work: Callable[[], T]) -> T:
        try:
            async with self._turns.setdefault(uid, asyncio.Lock()):
                return await asyncio.to_thread(work)
        finally:
            self._waiting[uid] -= 1
