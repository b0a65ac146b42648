"""The pipe of one kernel in a shared sandbox: a `Container` that is none by itself."""

from __future__ import annotations

from ...core.model import ExitReason, SandboxSpec
from ...engines.base import Check, Handover
from ...engines.pipe import OverPipe, Pipe


class SharedContainer(OverPipe):
    """Made by `SharedEngine.start` and `SharedEngine.adopt` only."""

    is_nested = True

    def __init__(self, identity: str, pipe: Pipe, *, held: bool) -> None:
        self.id = identity
        self.image_id: str | None = None
        self.held = held
        self._pipe = pipe

    async def wait(self) -> ExitReason:
        await self._pipe.ended.wait()
        return ExitReason(kind="killed", detail="the shared sandbox has ended, or this kernel's part of it")

    async def kill(self) -> None:
        """Close the pipe: the owner of the sandbox ends this kernel's agent with all of its processes then."""
        self._pipe.close()

    def abandon(self) -> None:
        self._pipe.abandon()

    async def compare(self, report: object, spec: SandboxSpec) -> tuple[Check, ...]:
        raise NotImplementedError("the owner of the sandbox attests it")

    async def attest(self, report: object, spec: SandboxSpec) -> None:
        raise NotImplementedError("the owner of the sandbox attests it")

    def detach(self) -> Handover:
        fd, state = self._pipe.detach()
        return Handover(fd, {"id": self.id, "held": self.held, "pipe": state})
