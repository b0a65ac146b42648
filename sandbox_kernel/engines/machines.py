"""What those have that can let a sandbox stand still, write it down, and begin from what was written.

Beside `base`, for most engines have none of it; which have what is told by `abilities`. Imports the seam.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from ..core.model import MIB, SandboxSample, SandboxSpec
from .base import Lendable


def state_bytes(memory_bytes: int) -> int:
    """Return what the state of a machine may come to, whose sandbox may use so much memory.

    It has all of the machine's memory, its kernel's and how that counts its pages included, and a little beside each.
    """
    return memory_bytes + memory_bytes // 48 + 192 * MIB


@runtime_checkable
class Pausable(Protocol):
    """A container that can stand still."""

    paused: bool

    async def pause(self) -> None:
        """Let it stand still, so that it uses no processor. Idempotent. Raises `EngineError`; it goes on then.

        What ends a container ends one that is paused, too.
        """

    async def resume(self) -> None:
        """Let it go on. Idempotent. Raises `EngineError`."""


@runtime_checkable
class Sampled(Protocol):
    """A container whose processes the machine's kernel counts and shows."""

    async def sample(self) -> SandboxSample:
        """Return what the machine's kernel says of it now, whatever the sandbox says of itself. Bounded."""


@runtime_checkable
class Savable(Pausable, Protocol):
    """A container whose whole state can be written down."""

    async def save(self, fd: int) -> dict[str, Any]:
        """Write the machine's state to `fd`, an empty regular file, open for writing at its beginning.

        Returns plain JSON, which `Restorer.restore` needs unchanged beside the file. The machine stands still meanwhile
        and after; `resume` lets it go on. Raises `EngineError`; what was written is then worth nothing.
        """


@runtime_checkable
class Restful(Pausable, Protocol):
    """A container that can give its memory back while it stands still."""

    async def rest(self, fd: int) -> None:
        """Write what is paused to `fd`, an empty regular file, open for reading and writing, and give its memory back.

        `resume` goes on from there; until then it lists, and ends, as any other. `fd` may be closed. A caller that
        gives up within the writing leaves all as it was. Raises `EngineError`; it keeps its memory then.
        """


@runtime_checkable
class Preparing(Protocol):
    """An engine whose sandboxes start sooner when something was made for them before."""

    async def prepare(self, spec: SandboxSpec) -> bool:
        """Make it for sandboxes of a spec, unless it is there; return whether it was made. Raises `EngineError`."""


@runtime_checkable
class Restorer(Protocol):
    """An engine that can begin from such a file."""

    async def restore(self, spec: SandboxSpec, fd: int, facts: Mapping[str, Any]) -> Lendable:
        """Start a private copy of what lies in `fd`, a regular file open for reading at its beginning.

        `spec` has a session and a user of its own, and all else as what was saved; `facts` are what `save` returned.
        Raises `EngineError` if they do not fit this machine.
        """
