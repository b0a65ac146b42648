"""The engine seam: starting a container, and a byte pipe into it. Imports model and errors only.

There is no exec, no file method and no interrupt here: those are frames to the agent (wire.py).
"""

from __future__ import annotations

from typing import Any, Protocol

from ..core.model import ExitReason, SandboxSpec


class Container(Protocol):
    """A running container, of which the caller is the only owner.

    The container ends when the connection behind `send` and `receive` goes, whatever happened to the owner.
    """

    id: str

    async def send(self, data: bytes) -> None:
        """Write to the container's stdin; waits while the pipe is full. Raises `EngineError` once the pipe is gone."""

    def offer(self, data: bytes) -> int:
        """Write what stdin takes at once and return how many bytes that was; 0 while a `send` is under way."""

    async def receive(self, minimum: int = 1) -> bytes:
        """Return the next bytes of the container's stdout, b"" at its end. Never raises for a lost connection.

        `minimum` says that this many are to come, so that they may be gathered; less of them may be returned.
        """

    async def wait(self) -> ExitReason:
        """Return why the container ended, once it has."""

    async def kill(self) -> None:
        """End and remove the container without asking it. Idempotent; returns when it is gone, or the engine is."""

    def abandon(self) -> None:
        """Close this process's end of the connection, without a loop; the container ends if nobody else holds it."""

    async def inspect(self) -> dict[str, Any]:
        """Return what the engine says of the container, in the form that the attestation compares with the spec."""

    def detach(self) -> Handover:
        """Give the pipe away, for a restart: after this the container belongs to whoever `Handover` is given to."""


class Handover(Protocol):
    """What a successor process needs to own a running container: an open file descriptor, and its name."""

    fd: int
    state: dict[str, Any]
    """Plain JSON: for `Engine.adopt`."""


class Engine(Protocol):
    """A container engine."""

    async def start(self, spec: SandboxSpec) -> Container:
        """Start a container for `spec`. Raises `EngineUnavailable`, `ImageMissing` or `EngineError`."""

    async def adopt(self, fd: int, state: dict[str, Any]) -> Container:
        """Take over a container that another process gave up with `Container.detach`."""

    async def pass_on(self, state: dict[str, Any], owner_pid: int) -> None:
        """Note for `reap` that a parked container now belongs to another process."""

    async def reap(self) -> int:
        """Remove what a crash of a host process or of the engine left behind, found by label; return how many."""
