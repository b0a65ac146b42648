"""What an engine can do with a running sandbox, besides ending it: values, so that no caller has to try.

An engine, and each of its containers, has an attribute `abilities`; one without it has none.

Public: plugins may import it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..core.codes import EndCode
from ..core.errors import AbilityMissing
from ..core.model import SandboxSample, SandboxSpec, Settings
from .base import Lendable

if TYPE_CHECKING:
    from ..plugins.api import FileWatch


class Ability(StrEnum):
    """One of them."""

    PAUSE = "pause"
    """It is frozen, uses no processor, and goes on later."""
    SNAPSHOT = "snapshot"
    """It is written down as it stands, and others begin there."""
    FORK = "fork"
    """Copies of it go on beside it."""
    CHECKPOINT = "checkpoint"
    """Its variables are kept as they are, and it returns to them later."""


NONE: frozenset[Ability] = frozenset()
PAUSE: frozenset[Ability] = frozenset({Ability.PAUSE})

WHICH = {
    Ability.PAUSE: "Docker, bubblewrap with a cgroup of its own, and qemu can, also behind a broker",
    Ability.SNAPSHOT: "only qemu and wasm can",
    Ability.FORK: "only qemu and wasm can",
    Ability.CHECKPOINT: "only wasm can",
}
"""Which engines have each; said where one has not."""


def abilities_of(what: object) -> frozenset[Ability]:
    """Return the abilities of an engine, or of a container."""
    found: frozenset[Ability] = getattr(what, "abilities", NONE)
    return found


def demand(ability: Ability, *who: object) -> None:
    """Raise `AbilityMissing` unless each of an engine and its container has an ability."""
    if all(ability in abilities_of(one) for one in who):
        return
    for one in who:
        if code := getattr(one, "lacks", {}).get(ability):
            raise AbilityMissing(code, setting="engine")
    code = EndCode.ENGINE_CANNOT_PAUSE if ability is Ability.PAUSE else EndCode.ENGINE_CANNOT_SNAPSHOT
    raise AbilityMissing(code, f"{code.text}: {WHICH[ability]}", setting="engine")


@runtime_checkable
class Pausable(Protocol):
    """A container that can be paused."""

    paused: bool

    async def pause(self) -> None:
        """Freeze it, so that it uses no processor. Idempotent. Raises `EngineError`; it goes on then.

        What ends a container ends one that is paused, too.
        """

    async def resume(self) -> None:
        """Let it go on. Idempotent. Raises `EngineError`."""


@runtime_checkable
class Nested(Protocol):
    """The pipe of a further agent in a container that is attested already: its first word is awaited, and no report."""

    is_nested: bool


@runtime_checkable
class Sampled(Protocol):
    """A container whose processes the machine's kernel counts and shows."""

    async def sample(self) -> SandboxSample:
        """Return what the machine's kernel says of it now, whatever the sandbox says of itself. Bounded."""


@runtime_checkable
class Reaping(Protocol):
    """An engine that hears of the ends of sandboxes, also of those that are not this process's."""

    async def reap_on(self, told: Callable[[str], None]) -> None:
        """Remove sandboxes as they end, until cancelled; call `told` with the name of each. Raises `EngineError`."""


@runtime_checkable
class Watched(Protocol):
    """A container whose layers above folders are file systems of its own on this machine."""

    def watch_files(self) -> FileWatch | None:
        """Hear which files below them it opens, from now on; None as long as it is not known where they are.

        Raises `OSError` where this process may not.
        """


Ask = Callable[[str], Awaitable[tuple[dict[str, Any], bytes]]]
"""Asks an agent by the name of a command; returns what it says, which is not to be believed, and bytes."""


@runtime_checkable
class Savable(Protocol):
    """A container whose whole state can be written down."""

    async def save(self, fd: int, ask: Ask) -> dict[str, Any]:
        """Write the sandbox's state to `fd`, an empty regular file, open for writing at its beginning.

        Returns plain JSON, which `Restorer.restore` needs unchanged beside the file. The sandbox is paused meanwhile
        and after; `resume` lets it go on. Raises `EngineError`; what was written is then worth nothing.
        """

    async def resume(self) -> None:
        """Let it go on. Idempotent. Raises `EngineError`."""


@runtime_checkable
class Restful(Pausable, Protocol):
    """A container that can give its memory back while it is paused."""

    async def last(self, settings: Settings) -> bool:
        """Give its memory back once the pause has lasted for as long as `settings` say; return whether it did.

        `resume` goes on from there; until then it lists, and ends, as any other. A caller that gives up before leaves
        all as it was. Raises `SandboxError` and `OSError`; it keeps its memory then.
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
