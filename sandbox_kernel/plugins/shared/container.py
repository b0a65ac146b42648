"""One kernel in a shared sandbox, at both ends of its pipe: a `Container` that is none by itself."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

from ...core.errors import SandboxError
from ...core.model import ExitReason, SandboxSpec
from ...core.tasks import Tasks
from ...engines.base import AttestationCheck, Handover
from ...engines.pipe import Pipe
from ..api import AgentPipe
from ..broker.client import packets
from ..broker.client.container import BrokerContainer


class SharedContainer(BrokerContainer):
    """A kernel's own end."""

    is_nested = True

    def claim(self) -> None:
        """Do nothing: the owner of the sandbox attests it."""

    async def compare(self, report: object, spec: SandboxSpec) -> tuple[AttestationCheck, ...]:
        raise NotImplementedError("the owner of the sandbox attests it")


class JoinedKernel:
    """The owner's end: moves bytes between the agent of a kernel and the pipe that is lent, and reads none of them."""

    image_id: str | None = None

    def __init__(self, agent: AgentPipe, used: Callable[[], None]) -> None:
        """`used` is called when something goes in."""
        self.id, self.held = agent.id, agent.held
        self._agent = agent
        self._used = used
        self._tasks = Tasks()
        self._ending: asyncio.Task[None] | None = None

    def lend(self) -> Handover:
        """Give the kernel's end away."""
        ours, theirs = socket.socketpair()
        self._tasks.start(self._move(Pipe(ours)), "the pipe of a kernel")
        return Handover(theirs.detach(), {"pipe": packets.PLAIN})

    async def owned_by(self, pid: int) -> None:
        """Do nothing: the sandbox belongs to this process in any case."""

    async def look(self, spec: SandboxSpec) -> Any:
        raise NotImplementedError("this process attests the sandbox")

    async def wait(self) -> ExitReason:
        return await self._agent.wait()

    async def kill(self) -> None:
        """End the kernel with all of its processes. Raises `SandboxError`."""
        if self._ending is None:
            self._ending = self._tasks.hold(self._agent.kill(), "the end of a kernel")
        await asyncio.shield(self._ending)

    async def _move(self, pipe: Pipe) -> None:
        async def inward() -> None:
            while data := await pipe.receive():
                self._used()
                await self._agent.send(data)

        async def outward() -> None:
            while data := await self._agent.receive():
                await pipe.send(data)

        moving = {self._tasks.hold(one, "bytes of a kernel") for one in (inward(), outward())}
        try:
            await asyncio.wait(moving, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in moving:
                task.cancel()
            await asyncio.gather(*moving, return_exceptions=True)
            pipe.close()
            with contextlib.suppress(SandboxError):
                await self.kill()
