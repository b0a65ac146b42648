"""The pipe of one kernel in a shared sandbox: a `Container` that is none by itself."""

from __future__ import annotations

import asyncio

from ...core.model import ExitReason, SandboxSpec
from ...engines.base import AttestationCheck, Handover
from ...engines.pipe import OverPipe, Pipe
from .meeting_point import MeetingPoint, tried


class SharedContainer(OverPipe):
    """Made by `SharedEngine.start` and `SharedEngine.adopt` only."""

    is_nested = True

    def __init__(self, identity: str, pipe: Pipe, point: MeetingPoint, *, held: bool) -> None:
        self.id = identity
        self.image_id: str | None = None
        self.held = held
        self._pipe = pipe
        self._point = point

    async def wait(self) -> ExitReason:
        """Return why it ended: with the shared sandbox, or alone, if the owner of that still listens."""
        await self._pipe.ended.wait()
        if (sock := await asyncio.to_thread(tried, self._point)) is None:
            return ExitReason(kind="killed", detail="the shared sandbox has ended")
        sock.close()
        return ExitReason(kind="nested_ended")

    async def kill(self) -> None:
        """Close the pipe: the owner of the sandbox ends this kernel's agent with all of its processes then."""
        self._pipe.close()

    def abandon(self) -> None:
        self._pipe.abandon()

    async def compare(self, report: object, spec: SandboxSpec) -> tuple[AttestationCheck, ...]:
        raise NotImplementedError("the owner of the sandbox attests it")

    async def attest(self, report: object, spec: SandboxSpec) -> None:
        raise NotImplementedError("the owner of the sandbox attests it")

    def detach(self) -> Handover:
        fd, state = self._pipe.detach()
        return Handover(fd, {"id": self.id, "held": self.held, "pipe": state})
