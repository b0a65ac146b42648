"""A sandbox whose pipe a caller has: its owner, and its end, which cannot be put off.

The caller's end is the sandbox's end, by its pipe and by its connection. A kernel that is restarted leaves both to the
next process, and the broker sees an owner all the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...core.errors import SandboxError
from ...core.model import SandboxSample
from ...core.tasks import Tasks
from .owner_states import OwnerEvent, OwnerState, following

if TYPE_CHECKING:
    from ...core.model import ExitReason, SandboxSpec
    from ...engines.base import Lendable


class PipeLease:
    """One sandbox, from the moment its pipe is given away."""

    def __init__(self, container: Lendable, spec: SandboxSpec, uid: int, pid: int, tasks: Tasks) -> None:
        self.container, self.spec, self.uid, self.pid = container, spec, uid, pid
        self.name = spec.session_id
        """By which its owner knows it."""
        self.since = time.monotonic()
        self.use = SandboxSample()
        """What it was last seen to use, as far as it is known."""
        self.reason: ExitReason | None = None
        self.verdict: ExitReason | None = None
        """Why the broker ends it, if that is not its owner's wish."""
        self.introduced: dict[str, Any] | None = None
        """What its kernel said of itself before it was claimed."""
        self._state = OwnerState.OWNED
        self._told: Callable[[ExitReason], None] | None = None
        self._tasks = tasks
        self._ending: asyncio.Task[None] | None = None

    @property
    def disk(self) -> int:
        """Bytes of the machine's disk that it has."""
        return self.spec.limits.scratch_size if self.spec.limits.scratch == "disk" else 0

    @property
    def state(self) -> str:
        return "running" if self.is_owned else "detached"

    @property
    def is_owned(self) -> bool:
        """Whether no other process may have its pipe."""
        return self._state is not OwnerState.KEPT

    @property
    def is_ending(self) -> bool:
        """Whether it has no next owner any more."""
        return self._state in {OwnerState.ENDING, OwnerState.ENDED}

    def watch(self, ended: Callable[[PipeLease], None]) -> None:
        """Call `ended` once it is gone, whatever ended it."""
        self._tasks.start(self._watch(ended), f"the end of {self.container.id}", failed=lambda _: ended(self))

    def belongs_to(self, told: Callable[[ExitReason], None], pid: int) -> None:
        """Have a connection for its owner, which is told of the end."""
        self._told, self.pid = told, pid
        if self.reason is not None:
            told(self.reason)

    def lost(self) -> None:
        """Note that its owner is gone without a word."""
        self.end()

    async def adopted(self, pid: int) -> None:
        """Note that another process of its owner's has it. Raises `EngineError` when it is gone."""
        await self.container.owned_by(pid or os.getpid())
        self._state, self.pid = following(self._state, OwnerEvent.CLAIM), pid

    def end(self) -> None:
        self._told = None
        self._end_alone()

    def finish(self, reason: ExitReason) -> None:
        """End it for a reason of the broker's, of which its owner is told."""
        self.verdict = self.verdict or reason
        self._end_alone()

    def _end_alone(self) -> None:
        self._state = following(self._state, OwnerEvent.END)
        self._tasks.start(self._killed(), f"killing {self.container.id}")

    async def _killed(self) -> None:
        with contextlib.suppress(SandboxError):  # an engine that has much to do takes longer, and its guard goes on
            await self.kill()

    async def kill(self) -> None:
        """Return when it is gone. Raises `EngineError` if that is not to be had; what outlives this process goes on."""
        if self._ending is None:
            self._ending = self._tasks.hold(self.container.kill(), f"kill {self.container.id}")
        await asyncio.shield(self._ending)

    async def _watch(self, ended: Callable[[PipeLease], None]) -> None:
        try:
            reason = await self.container.wait()
            self.reason = self.verdict or reason
            self._state = following(self._state, OwnerEvent.GONE)
            if self._told is not None:
                self._told(self.reason)
            with contextlib.suppress(SandboxError):
                await self.kill()  # what it leaves behind
        finally:
            self.over()
            ended(self)

    def over(self) -> None:
        """Let go of what is here, now that it is gone."""
