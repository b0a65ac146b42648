"""The engine seam: starting a container, a byte pipe into it, and whether it is what was asked for.

Callers of an engine know the types of this module and of `inspectable`, and no engine's documents.

There is no exec, no file method and no interrupt here: those are frames to the agent (wire.py).

Public: plugins may import it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ..core.model import ExitReason, SandboxSpec

NONE_ATTACHED: Mapping[str, tuple[int, int, int]] = {}


@dataclass(frozen=True, slots=True)
class AttestationCheck:
    """One line of the comparison of a container with its spec; `sandbox-kernel doctor` shows them all."""

    name: str
    expected: str
    found: str
    ok: bool
    excuse: str = ""
    """Why something else is accepted in place of what was asked for, if it is."""

    @property
    def sentence(self) -> str:
        return f"{self.name}: expected {self.expected}, found {self.found}"


class Inspection(NamedTuple):
    """What an engine says of a container, compared with the spec already; the sandbox gives the other report."""

    lines: tuple[AttestationCheck, ...]
    environment: frozenset[str]
    """The names of the variables that it says it has set."""
    mounts: frozenset[str] = frozenset()
    """Where this engine mounts something read-only that others do not."""
    engine: str = ""
    """Whose excuses hold (`select.excuses`), if those of no runtime do."""
    shared: bool = False
    """Whether the sandbox has inodes that others have, too: device nodes at least."""
    layers: frozenset[str] = frozenset()
    """Of `mounts`, those that must be a file system of the sandbox's own above what others have, too."""
    attached: Mapping[str, tuple[int, int, int]] = NONE_ATTACHED
    """For a folder of the host's by an exception: when it was last changed as it was opened, when that was, and its
    last change now, in nanoseconds. What the sandbox sees has the first of these times, or one from the second to the
    third: it tells one folder from another. For a disk, all three are the number of its file system."""


class Ahead(Protocol):
    """A container that an engine was asked for before there was an event loop."""

    @property
    def spec(self) -> SandboxSpec: ...

    @property
    def engine(self) -> str:
        """The address of the engine."""

    def give_up(self) -> None:
        """Have the container removed as soon as it is there."""


class Container(Protocol):
    """A running container. The caller is its only owner.

    The container ends when the connection behind `send` and `receive` goes, whatever happened to the owner.
    """

    id: str
    image_id: str | None
    """What the engine calls the image's content, once it was compared; None where there is no such thing."""
    introduced: Mapping[str, Any] | None
    """What its first kernel said of itself to who made it ahead; None where it is still to be asked."""
    held: bool
    """Whether the machine itself keeps all limits; else somebody looks at what is used, of one of them at least."""

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
        """Close this process's end of the connection, without a loop; the container ends if it is held nowhere else."""

    async def compare(self, report: object, spec: SandboxSpec) -> tuple[AttestationCheck, ...]:
        """Compare the container with `spec`: `report` is what it says of itself, and the engine is asked.

        Raises `EngineError` if the engine does not say anything.
        """

    async def attest(self, report: object, spec: SandboxSpec) -> None:
        """Raise `AttestationFailed`, with one sentence for each difference, unless all is as `spec` says."""

    def detach(self) -> Handover:
        """Give the pipe away, for a restart: after this the container belongs to the one that gets the `Handover`.

        Raises `EngineError` if no other process can have it; it is as it was, then.
        """


class Lendable(Container, Protocol):
    """A container whose owner can let another process have the pipe, and go on watching over it."""

    async def look(self, spec: SandboxSpec) -> Inspection:
        """Return what the engine says of it, compared with `spec`. Raises `EngineError` if it does not say anything."""

    def lend(self) -> Handover:
        """Give the pipe away and nothing else: `wait` and `kill` go on to work here. `state` has no secrets."""

    async def owned_by(self, pid: int) -> None:
        """Note for `Engine.reap` which process has the pipe. Raises `EngineError` when the container is gone."""


@dataclass(slots=True)
class Handover:
    """What a successor process needs to own a running container: an open file descriptor, and its name."""

    fd: int
    state: dict[str, Any]
    """Plain JSON: for `Engine.adopt`."""
    beside: dict[str, int] = field(default_factory=dict)
    """Further descriptors that the container ends with, by name; `Engine.adopt` finds their numbers in the state."""

    def close(self) -> None:
        """Close what is here of them all; they belong to a successor, or the container ends."""
        for fd in (self.fd, *self.beside.values()):
            os.close(fd)


class Engine(Protocol):
    """A container engine."""

    async def start(self, spec: SandboxSpec) -> Container:
        """Start a container for `spec`, and write its program to its stdin, before all else.

        Raises `EngineUnavailable`, `ImageMissing` or `EngineError`. One that ends before it has read its program is
        returned: its `wait` says why.
        """

    async def adopt(self, fd: int, state: dict[str, Any]) -> Container:
        """Take over a container that another process gave up with `Container.detach`."""

    async def reap(self) -> int:
        """Remove what a crash of a host process or of the engine left behind, found by label; return how many."""
