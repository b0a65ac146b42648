"""What an engine reports of itself, its sandboxes and its images, in values that all engines share.

Apart from `base`, for a start has no use for it.

Public: plugins may import it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from ..core.codes import EndCode
from ..core.errors import EngineError, EngineUnavailable
from ..core.model import SandboxSample
from .base import Engine
from .owner_process import account_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A sandbox that an engine has, of any owner: a line of `sandbox-kernel ps`."""

    session: str
    container: str
    owner_pid: int | None
    owner_alive: bool | None
    """None if its owner is a process of another machine."""
    state: str
    age_seconds: int
    image: str
    memory_bytes: int
    version: str
    """Of this package, when it was started."""
    user: str = ""
    """Whose it is, if the engine knows that of itself: a service does, which has sandboxes of several."""
    reaches_hosts: bool | None = None
    """Whether its cells have a way to hosts; None if the engine does not know."""

    @property
    def network(self) -> str:
        """The same, for people."""
        return {True: "some hosts", False: "none", None: "?"}[self.reaches_hosts]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What an engine says of itself and its machine; what it does not say is empty."""

    version: str
    api_version: str
    architecture: str
    """As `uname -m` says it: x86_64, aarch64."""
    runtimes: frozenset[str]
    default_runtime: str
    seccomp: bool
    """Whether it can filter system calls."""
    limited: frozenset[str]
    """Which of "memory", "swap", "cpus" and "pids" it can limit."""
    cgroup_version: str
    memory_bytes: int
    """Of its machine."""
    folder: str
    """Where it keeps its images and containers."""
    users: str = ""
    """Why the user ids of its sandboxes are not the machine's: "rootless" or the like; empty if they are."""
    product: str = ""
    """Its name, where it speaks Docker's language and is another: "Podman"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInfo:
    """An image that an engine has."""

    size_bytes: int
    made: str
    """The day, as in 2026-01-31."""
    contents: str | None
    """The digest of all that went into it; None for an image of somebody else's."""
    variables: tuple[tuple[str, str], ...] = ()
    """The environment that it brings."""
    identity: str = ""
    """What the engine has under the name at this moment; another one after a build."""


@dataclass(frozen=True, slots=True)
class MachineCondition:
    """Something that an engine needs of the machine."""

    name: str
    met: bool
    found: str
    remedy: str = ""


def require_met(conditions: Iterable[MachineCondition]) -> None:
    """Raise `EngineUnavailable` for the first thing that is lacking, but for limits: a setting accepts that."""
    for one in conditions:
        if not one.met and one.name != "cgroup":
            words = f"no sandbox can start here: {one.name} {one.found.rstrip('.')}. To mend it: {one.remedy}"
            raise EngineUnavailable(EndCode.ENGINE_NOT_SET_UP, words, setting="engine")


@dataclass(frozen=True, slots=True)
class Shown:
    """How this machine shows a sandbox, besides the control groups that are called after it."""

    inside: frozenset[int] = frozenset()
    """Its processes, where no control group has them."""
    own: frozenset[int] = frozenset()
    """Processes of the engine's in its control groups, in which nothing of the sandbox runs."""
    mounts: frozenset[str] = frozenset()
    """Where it has something read-only that another engine's sandboxes have no mount for."""
    one_user: bool = False
    """Whether all sandboxes are of the user that starts them, who could give them no other."""
    held: bool = True
    """Whether control groups of its own hold it; without, `limits = best-effort` has accepted that."""
    around_bytes: int = 0
    """Memory that its control group allows besides its limit and, for a machine's kernel, a sixty-fourth of that."""
    is_machine: bool = False
    """Whether it has a kernel of its own, and no process of it is one of this machine's."""


@runtime_checkable
class MeteredEngine(Protocol):
    """An engine that says what one of its sandboxes uses."""

    async def used(self, container: str) -> SandboxSample:
        """Return what a sandbox uses, and nothing of its processes; what is unknown is None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdUser:
    """One of the users of a service that makes sandboxes for several. Counts are from the service's start on."""

    name: str
    sandboxes: int
    memory_promised: int
    """Bytes: the limits of its sandboxes together."""
    memory_used: int
    """Bytes, as far as they are known."""
    cpu_seconds: float
    """Of its sandboxes, as far as they are known, those that have ended too."""
    started: int
    refused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdInfo:
    """What such a service has."""

    ready: int
    """Sandboxes that wait for whoever comes."""
    size: int
    """As many as should."""
    most: int
    """Sandboxes that there may be, of all users."""
    users: tuple[CrowdUser, ...]


@runtime_checkable
class Crowded(Protocol):
    """An engine that is such a service."""

    async def crowd(self) -> CrowdInfo:
        """Return what the service has. Raises `EngineError`."""


class Inspectable(Engine, Protocol):
    """An engine that is there to be looked at: for the doctor, `ps`, and those who set a machine up."""

    @property
    def address(self) -> str:
        """Where it is asked, like "unix:///var/run/docker.sock"."""

    async def info(self) -> EngineInfo:
        """Return what it says of itself. Raises `EngineError` for one that is too old."""

    async def conditions(self) -> tuple[MachineCondition, ...]:
        """Return what only this engine needs of the machine, each with what was found; it is tried."""

    async def list(self) -> tuple[Listed, ...]:
        """Return all sandboxes that it has."""

    async def shown(self, container: str) -> Shown:
        """Return how the machine shows one of its sandboxes."""

    async def image(self, name: str) -> ImageInfo:
        """Return what it says of an image. Raises `ImageMissing` if it has none of that name."""


SECONDS_FOR_USE = 0.5
MAX_ASKED = 200
"""Sandboxes of a list whose use is asked for, one after another."""


async def use_of(engine: Inspectable, containers: Sequence[str]) -> list[SandboxSample]:
    """Return what sandboxes use; nothing is known of one that ends meanwhile, or whose engine does not say it."""

    async def one(container: str) -> SandboxSample:
        try:
            async with asyncio.timeout(SECONDS_FOR_USE):
                return await engine.used(container) if isinstance(engine, MeteredEngine) else SandboxSample()
        except (EngineError, TimeoutError):
            return SandboxSample()

    asked = [await one(container) for container in containers[:MAX_ASKED]]
    return asked + [SandboxSample()] * len(containers[MAX_ASKED:])


def user_of(row: Listed) -> str:
    """Return whose a sandbox is: as its engine says, or the account of its owner's process; empty if unknown."""
    if row.user or row.owner_pid is None or not row.owner_alive:
        return row.user
    try:
        return account_name(Path("/proc", str(row.owner_pid)).stat().st_uid)
    except OSError:
        return ""
