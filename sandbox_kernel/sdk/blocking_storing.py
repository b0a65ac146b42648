"""Snapshots and forks without `await`."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from ..core.model import Settings
from ..files.snapshot_parts import Snapshot
from ..files.snapshots import Store
from .client import AsyncSandbox
from .opening import Opening
from .storing import SnapshotInfo

T = TypeVar("T")


class BlockingStores:
    """The part of a blocking sandbox that is written down. What each does is told at `AsyncSandbox`."""

    _inner: AsyncSandbox
    _call: Callable[[Coroutine[Any, Any, Any]], Any]
    _take: Callable[[AsyncSandbox], None]
    start: Callable[[], None]
    kill: Callable[..., bool]

    def snapshot(self, name: str | None = None) -> str:
        """Write the sandbox down as it stands, and return the snapshot's name; see `AsyncSandbox.snapshot`."""
        taken: str = self._call(self._inner.snapshot(name))
        return taken

    def create_snapshot(self, name: str | None = None, *, mode: str | None = None, **service: Any) -> SnapshotInfo:
        """Do as `snapshot`, by the name of hosted interpreters."""
        taken: SnapshotInfo = self._call(self._inner.create_snapshot(name, mode=mode))
        return taken

    def fork(self, count: int = 1, *, timeout: float | None = None, **service: Any) -> builtins.list[Self]:
        """Return `count` sandboxes that go on from where this one stands; see `AsyncSandbox.fork`."""
        made: list[AsyncSandbox] = self._call(self._inner.fork(count, timeout=timeout))
        return [self._of(one, started=True) for one in made]

    @classmethod
    def from_snapshot(cls, name: str, **keywords: Any) -> Self:
        """Return a sandbox that goes on from a snapshot; see `AsyncSandbox.from_snapshot`."""
        made = cls._of(AsyncSandbox.prepared(name, **keywords), started=False)
        try:
            made.start()
        except BaseException:
            made.kill()
            raise
        return made

    @staticmethod
    def snapshots(settings: Settings | None = None) -> builtins.list[Snapshot]:
        """Return this user's snapshots, the newest first."""
        return list(Store.of(settings or Opening.of(None, {}).settings).list())

    @staticmethod
    def delete_snapshot(snapshot_id: str, **service: Any) -> bool:
        """Remove a snapshot; return whether there was one."""
        return Store.of(Opening.of(None, {}).settings).delete(snapshot_id)

    @classmethod
    def _of(cls, inner: AsyncSandbox, *, started: bool) -> Self:
        made = cls.__new__(cls)
        made._take(inner)  # noqa: SLF001 (one of its own kind)
        if started:
            made.start()  # it is, and by this belongs to the thread of all blocking ones
        return made
