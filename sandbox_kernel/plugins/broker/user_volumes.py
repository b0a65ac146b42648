"""The volumes of a broker's users: each user's apart from others', within the ceilings, one piece of work at a time."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from ...core.codes import EndCode
from ...core.errors import EngineError, QuotaExceeded
from ...engines import volumes
from ...engines.volumes import Quota, Volume, Volumes
from .ceilings import Policy
from .codes import BrokerCode
from .create_request import CreateRequest

T = TypeVar("T")
NO_LIMIT = 1 << 60
WAITING = 8
"""Pieces of work of one user: each may wait for a volume of that user's that is made or repaired."""


class UserVolumes:
    """The volumes that one broker keeps."""

    def __init__(self, policy: Callable[[], Policy], folder: str) -> None:
        """`policy` returns what users may have now; `folder` has a folder for each user, and is the broker's alone."""
        self._policy, self._folder = policy, folder
        self._turns: dict[int, asyncio.Lock] = {}
        self._waiting: Counter[int] = Counter()

    def source(self, uid: int) -> str:
        """Return the folder of a user's volumes; those of a broker of the user's own are what it has without one."""
        own = self._policy().of(uid).own and uid == os.geteuid()
        return "" if own else volumes.of_owner(self._folder, uid).folder

    def of(self, uid: int) -> Volumes:
        return volumes.at(self.source(uid))

    async def list(self, uid: int) -> tuple[Volume, ...]:
        """Return a user's volumes. This and what follows raise `EngineError`."""
        return await self._done(uid, self.of(uid).list)

    async def create(self, uid: int, name: str, size: int | None) -> None:
        """Make an empty volume, of the largest size that is usual and allowed if no `size` is said."""
        quota = self._quota(uid)
        wanted = min(volumes.DEFAULT_BYTES, quota.total_bytes) if size is None else size
        await self._done(uid, lambda: self.of(uid).create(name, wanted, quota=quota))

    async def remove(self, uid: int, name: str) -> None:
        await self._done(uid, lambda: self.of(uid).remove(name))

    async def rename(self, uid: int, name: str, new: str) -> None:
        await self._done(uid, lambda: self.of(uid).rename(name, new))

    async def make_missing(self, uid: int, order: CreateRequest) -> None:
        """Make those that an order writes to and that are not there yet, within the user's ceiling."""
        written = {one.name for one in order.attached if one.kind == "volume" and one.writable}
        for name in sorted(written - {one.name for one in await self.list(uid)} if written else ()):
            try:
                await self.create(uid, name, None)
            except EngineError as error:
                if error.code is not EndCode.VOLUME_EXISTS:
                    raise

    def _quota(self, uid: int) -> Quota:
        ceiling = self._policy().of(uid)
        if ceiling.denied or 0 in {ceiling.volumes, ceiling.volumes_size}:
            by = ceiling.by("volumes")
            raise QuotaExceeded(BrokerCode.BROKER_DENIED, limit="none", setting="volumes", set_by=by)
        most, size = ceiling.volumes, ceiling.volumes_size
        return Quota(volumes.MAX_VOLUMES if most is None else most, NO_LIMIT if size is None else size)

    async def _done(self, uid: int, work: Callable[[], T]) -> T:
        """Do work on files outside of the loop."""
        if self._waiting[uid] >= WAITING:
            raise QuotaExceeded(BrokerCode.BROKER_BUSY, limit=f"{WAITING} requests of one user for volumes")
        self._waiting[uid] += 1
        try:
            async with self._turns.setdefault(uid, asyncio.Lock()):
                return await asyncio.to_thread(work)
        finally:
            self._waiting[uid] -= 1
