"""`pause` and `resume`: a sandbox that stands still and goes on, for its caller; and when one may be used at all."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from ..core.codes import EndCode, UsageCode
from ..core.errors import ConfigurationError, SandboxClosed, SandboxPaused
from ..engines.abilities import Ability, abilities_of
from .installing import Installs


class Pauses(Installs):
    """The part of a sandbox that stands still."""

    _loop: asyncio.AbstractEventLoop | None
    _closing: asyncio.Task[None] | None
    _pid: int

    @property
    def abilities(self) -> frozenset[Ability]:
        """Which of `pause`, `snapshot` and `fork` its engine has; the others raise `AbilityMissing` at once."""
        return abilities_of(self._session.engine)

    @property
    def is_paused(self) -> bool:
        """Whether it stands still."""
        return self._session.is_paused

    async def pause(
        self, keep_memory: bool | None = None, *, mode: str | None = None, strict: bool = False, **service: Any
    ) -> bool:
        """Let the sandbox stand still with all that runs in it, so that it uses no processor; return whether it ran.

        A cell that runs is frozen with its clock, and goes on with `resume`; the code sees that the time of day has
        moved on. Until then every other call raises `SandboxPaused`. The end of a sandbox is not put off: its lifetime
        counts on, `kill` ends it, and it ends as unused after `idle_timeout` (seconds), counted from the pause.
        All that it has in memory is kept: there, or with the engine qemu after `pause_memory` (seconds) in a file that
        is gone with this process. `strict` has no effect: what does not answer is frozen, too.

        Raises `ConfigurationError` for another `mode` than "full", `AbilityMissing` on an engine that cannot do it,
        `SandboxPaused` while a cell is being ended or a kernel started, `EngineError` if it does not come about, and
        `SandboxDied` if the sandbox is gone.
        """
        self._check(paused=True)
        if keep_memory is False or mode not in {None, "full"}:
            why = "a paused sandbox keeps its memory; to keep files alone, download them"
            raise ConfigurationError(UsageCode.WRONG_ARGUMENT, why, setting="mode")
        self._session.standstill.demand(Ability.PAUSE)
        if self._session.is_paused:
            return False
        await self._ready(fresh=False)
        return await self._session.standstill.begin()

    async def resume(self, **service: Any) -> bool:
        """Let a paused sandbox go on where it was; return whether it stood still.

        Raises `SandboxDied` if it has ended meanwhile, and `EngineError` if it cannot go on: it is paused then.
        """
        self._check(paused=True)
        return await self._session.standstill.end()

    def _check(self, *, paused: bool = False) -> None:
        """Raise `SandboxClosed` unless this sandbox may be used here, and `SandboxPaused` unless now, or `paused`."""
        if self._pid != os.getpid():
            raise SandboxClosed(EndCode.SANDBOX_OF_ANOTHER_PROCESS)
        if self._loop is not None and self._loop.is_closed():
            raise SandboxClosed(EndCode.LOOP_CLOSED)
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise SandboxClosed(EndCode.SANDBOX_OF_ANOTHER_LOOP)
        if self._closing is not None or self._session.is_closed:
            raise SandboxClosed(EndCode.SANDBOX_KILLED)
        if self._session.is_paused and not paused:
            raise SandboxPaused(EndCode.SANDBOX_PAUSED)
