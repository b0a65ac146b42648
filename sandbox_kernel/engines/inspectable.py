"""What an engine says of itself, its sandboxes and its images, in values of ours.

Apart from `base`, for a start has no use for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from .base import Engine


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
class Condition:
    """Something that an engine needs of the machine."""

    name: str
    met: bool
    found: str
    remedy: str = ""


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
class Metered(Protocol):
    """An engine that says what one of its sandboxes uses."""

    async def used(self, container: str) -> int | None:
        """Return the bytes of memory that a sandbox uses now; None if it is unknown."""


class Inspectable(Engine, Protocol):
    """An engine that is there to be looked at: for the doctor, `ps`, and those who set a machine up."""

    @property
    def address(self) -> str:
        """Where it is asked, like "unix:///var/run/docker.sock"."""

    async def info(self) -> EngineInfo:
        """Return what it says of itself. Raises `EngineError` for one that is too old."""

    async def conditions(self) -> tuple[Condition, ...]:
        """Return what only this engine needs of the machine, each with what was found; it is tried."""

    async def list(self) -> tuple[Listed, ...]:
        """Return all sandboxes that it has."""

    async def shown(self, container: str) -> Shown:
        """Return how the machine shows one of its sandboxes."""

    async def image(self, name: str) -> ImageInfo:
        """Return what it says of an image. Raises `ImageMissing` if it has none of that name."""
