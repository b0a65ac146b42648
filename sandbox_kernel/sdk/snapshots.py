"""What a plugin is asked that writes sandboxes down as they stand, and lets others go on from there.

Public: plugins may import it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, cast

from ..core.codes import EndCode
from ..core.errors import AbilityMissing, FileNotThere, FileRefused, wrong_argument
from ..core.events import CheckpointUsed
from ..core.model import Settings
from ..engines.abilities import Ability
from ..plugins import index
from ..plugins.api import NotStill, Origin, SandboxHandle
from .instance import Instance
from .values import Snapshot

MAX_FORKS = 20
"""At a time."""


class Startable(Protocol):
    """A sandbox that did not start yet."""

    async def start(self) -> None: ...

    async def kill(self) -> bool: ...


S = TypeVar("S", bound=Startable)


class Snapshots(Protocol):
    """What the plugin does (`Plugin.snapshots`)."""

    async def take(self, sandbox: SandboxHandle, name: str | None) -> str:
        """See `AsyncSandbox.snapshot`."""

    async def fork(self, sandbox: SandboxHandle, count: int, make: Callable[[Origin], S]) -> list[S]:
        """Return `count` sandboxes that have started, which `make` makes from where they go on."""

    def restored(
        self, name: str, keywords: Mapping[str, Any], settings: Settings, given: Mapping[str, object]
    ) -> tuple[Origin, Settings]:
        """Return where a sandbox goes on from that is made from a snapshot, and its settings.

        Reads all of the snapshot, which may take seconds. Raises as `AsyncSandbox.from_snapshot`.

        Args:
            name: The snapshot's.
            keywords: What the caller gave; what is the snapshot's own is refused.
            settings: Those that come of it.
            given: What the caller gives to plugins.
        """

    def stored(self, settings: Settings) -> tuple[Snapshot, ...]:
        """Return this user's snapshots, the newest first."""

    def delete(self, name: str, settings: Settings) -> bool:
        """Remove a snapshot; return whether there was one."""


def provider() -> Snapshots:
    """Return what the plugin does. Raises `ConfigurationError` if it is not here."""
    made = index.plugin(index.SNAPSHOTS).snapshots
    assert made is not None  # noqa: S101 (for the reader of types)
    return cast("Snapshots", made())


def of(sandbox: Instance, ability: Ability) -> Snapshots:
    """Return the same for a sandbox whose engine has to have an ability. Raises as `AsyncSandbox.snapshot`."""
    sandbox.check()
    sandbox.session.pauses.demand(ability)
    return provider()


async def of_checkpoint(sandbox: Instance, op: str, name: str | None) -> str:
    """Have a checkpoint taken, or returned to; return its name. Raises as `AsyncSandbox.restore`."""
    sandbox.check()
    sandbox.session.pauses.demand(Ability.CHECKPOINT)
    await sandbox.ready(fresh=False)
    try:
        said = await sandbox.session.pauses.ask_at_rest(op, name=name)
    except NotStill as error:
        raise FileRefused(EndCode.CHECKPOINT_BUSY, value=str(error)) from None
    if said.get("ok") is True:
        sandbox.session.emit(CheckpointUsed(op=op, checkpoint=str(said.get("name"))))
        return str(said.get("name"))
    why = said.get("error")
    if why == "none":
        raise AbilityMissing(EndCode.ENGINE_CANNOT_SNAPSHOT, setting="engine")
    if why == "missing":
        raise FileNotThere(EndCode.CHECKPOINT_MISSING, value=name)
    raise FileRefused(EndCode.CHECKPOINT_NAME_UNFIT if why == "name" else EndCode.CHECKPOINT_BUSY, value=name)


def forking(sandbox: Instance, count: int) -> Snapshots:
    """Return the same for so many copies of a sandbox. Raises as `AsyncSandbox.fork`."""
    if type(count) is not int or not 1 <= count <= MAX_FORKS:
        why = f"count must be a whole number from 1 to {MAX_FORKS}, not {count!r}"
        raise wrong_argument("count", why)
    return of(sandbox, Ability.FORK)
