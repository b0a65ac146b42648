"""The engine of a kernel whose settings cannot work: it starts nothing, and so every cell is told why."""

from __future__ import annotations

import os
from typing import Any

from ..core.errors import SandboxError
from ..core.model import SandboxSpec
from .base import Container


class Refusal:
    """An `Engine` without containers."""

    def __init__(self, reason: SandboxError) -> None:
        self.reason = reason

    async def start(self, spec: SandboxSpec) -> Container:
        """Raise the reason."""
        raise self.reason.with_traceback(None)  # or it would grow with every cell

    async def adopt(self, fd: int, state: dict[str, Any]) -> Container:
        """Let a container that was parked end, and raise the reason."""
        os.close(fd)
        raise self.reason.with_traceback(None)

    async def pass_on(self, state: dict[str, Any], owner_pid: int) -> None:
        """Do nothing: there is no container to pass on."""

    async def reap(self) -> int:
        """Remove nothing: no engine is known."""
        return 0
