"""What an engine can do with a sandbox that runs, besides to end it: values, so that nobody has to try.

An engine, and each of its containers, has an attribute `abilities`; one without it has none. Imports core.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol, runtime_checkable

from ..core.codes import EndCode
from ..core.errors import AbilityMissing


class Ability(StrEnum):
    """One of them."""

    PAUSE = "pause"
    """It stands still, uses no processor, and goes on later."""
    SNAPSHOT = "snapshot"
    """It is written down as it stands, and others begin there."""
    FORK = "fork"
    """Copies of it go on beside it."""


NONE: frozenset[Ability] = frozenset()
PAUSE: frozenset[Ability] = frozenset({Ability.PAUSE})

WHICH = {
    Ability.PAUSE: "Docker, bubblewrap with a cgroup of its own, and qemu can, also behind a broker",
    Ability.SNAPSHOT: "only qemu can",
    Ability.FORK: "only qemu can",
}
"""Which engines have each; said where one has not."""


@runtime_checkable
class Able(Protocol):
    """An engine that has some (of an engine: at best), or a container (of a container: this one)."""

    abilities: frozenset[Ability]


def abilities_of(what: object) -> frozenset[Ability]:
    """Return the abilities of an engine, or of a container."""
    return what.abilities if isinstance(what, Able) else NONE


def demand(ability: Ability, *who: object) -> None:
    """Raise `AbilityMissing` unless each of an engine and its container has an ability."""
    if all(ability in abilities_of(one) for one in who):
        return
    for one in who:
        if code := getattr(one, "lacks", {}).get(ability):
            raise AbilityMissing(code, setting="engine")
    code = EndCode.ENGINE_CANNOT_PAUSE if ability is Ability.PAUSE else EndCode.ENGINE_CANNOT_SNAPSHOT
    raise AbilityMissing(code, f"{code.text}: {WHICH[ability]}", setting="engine")
