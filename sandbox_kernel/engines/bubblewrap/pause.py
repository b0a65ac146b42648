"""A sandbox of bubblewrap's that stands still: by its cgroup, where it has one that can."""

from __future__ import annotations

from ..abilities import NONE, PAUSE, Ability
from ..freezer import Freezer
from .launch import Launched


class Standing:
    """The part of a container that is paused."""

    paused = False
    _launched: Launched
    _freezer: Freezer | None = None

    @property
    def abilities(self) -> frozenset[Ability]:
        return PAUSE if self._switch().there else NONE

    async def pause(self) -> None:
        await self._switch().freeze()
        self.paused = True

    async def resume(self) -> None:
        self._let_go_on()

    def _let_go_on(self) -> None:
        """Let its processes go on: a frozen one of version 1 could not even be killed."""
        if self._freezer is not None:
            self._freezer.thaw()
        self.paused = False

    def _switch(self) -> Freezer:
        if self._freezer is None:
            self._freezer = Freezer(self._launched.group)
        return self._freezer
