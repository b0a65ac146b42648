"""Sandboxes that outlive their callers: who may have one, and for how long.

Another user's sandbox gets the same answer as a missing one.
"""

from __future__ import annotations

import asyncio
import contextlib
import pwd
from collections.abc import Callable, Mapping
from typing import Any

from ...core.codes import EndCode
from ...core.errors import EngineError, QuotaExceeded, SandboxError
from ...core.model import ExitReason
from .ceilings import Policy
from .client import packets
from .client.listener_trust import Peer
from .codes import BrokerCode
from .detached_sandbox import DetachedOptions, DetachedSandbox
from .lease import PipeLease

MAX_PASSING = 8
"""Owners, one after another, whose words a sandbox that does not listen has not taken yet."""

Answer = dict[str, Any]


MAX_KEPT = 512 << 20
"""Bytes of output of all sandboxes together; over it, output that nobody reads counts as dropped."""


class DetachedRegistry:
    def __init__(self, policy: Callable[[], Policy], lent: Mapping[str, PipeLease]) -> None:
        """`policy` returns what users may have now; `lent` are all sandboxes of the broker."""
        self._policy, self._lent = policy, lent
        self._names: set[tuple[int, str]] = set()

    @property
    def all(self) -> list[DetachedSandbox]:
        return [one for one in self._lent.values() if isinstance(one, DetachedSandbox)]

    @property
    def cost(self) -> int:
        """Bytes of output that are kept."""
        return sum(one.transcript.cost for one in self.all)

    def has_room(self, size: int) -> bool:
        """Return whether so many bytes of output more may be kept."""
        return self.cost + size <= MAX_KEPT

    def wish(self, said: object, whose: Peer) -> DetachedOptions | None:
        """Return what is asked for besides a sandbox, None for one that ends with its caller, and hold its name.

        Raises `QuotaExceeded` for what is over the user's ceiling, and `EngineError` for what is not proper.
        """
        if said is None:
            return None
        ceiling = self._policy().of(whose.uid)
        try:
            wish = _read(said, ceiling.lifetime, ceiling.by("lifetime"))
        except (LookupError, TypeError, ValueError) as error:
            raise EngineError(BrokerCode.BROKER_IMPROPER, f"no sandbox can be kept so: {error}"[:300]) from error
        mine = sum(uid == whose.uid for uid, _ in self._names)
        if mine >= ceiling.detached:
            raise QuotaExceeded(
                EndCode.QUOTA_EXCEEDED,
                limit=f"{ceiling.detached} detached sandboxes at once",
                value=f"{mine} are there",
                set_by=ceiling.by("detached"),
            )
        if wish.seconds > ceiling.lifetime:
            raise QuotaExceeded(
                BrokerCode.LIFETIME_TOO_LONG,
                limit=f"{ceiling.lifetime:g} s",
                value=f"{wish.seconds:g} s",
                setting="lifetime",
                set_by=ceiling.by("lifetime"),
            )
        if (whose.uid, wish.name) in self._names:
            raise EngineError(BrokerCode.BROKER_IMPROPER, "this user has a sandbox of that name")
        self._names.add((whose.uid, wish.name))
        return wish

    def allows(self, whose: Peer) -> str:
        """Return what a user may have, for people."""
        ceiling = self._policy().of(whose.uid)
        there = sum(uid == whose.uid for uid, _ in self._names)
        most = f"each for {ceiling.lifetime:g} s at most"
        return f"{there} of {ceiling.detached} sandboxes that outlive their caller, {most}"

    def forget(self, uid: int, wish: DetachedOptions | None) -> None:
        if wish is not None:
            self._names.discard((uid, wish.name))

    def of(self, whose: Peer) -> list[DetachedSandbox]:
        """Return those of a user, and of the users that the operator's file says it may take over from."""
        users = {whose.uid}
        for name in self._policy().of(whose.uid).takes:
            with contextlib.suppress(KeyError):
                users.add(pwd.getpwnam(name).pw_uid)
        own = [one for one in self.all if one.uid in users]
        return sorted(own, key=lambda one: one.uid != whose.uid)

    def named(self, said: Answer, whose: Peer) -> DetachedSandbox:
        """Return the sandbox of that name. Raises `EngineError` if it is missing, or another user's."""
        name = packets.text(said["name"], 200)
        for one in self.of(whose):
            if one.wish.name == name and not one.is_ending:
                return one
        raise EngineError(EndCode.DETACHED_NOT_THERE)

    def free(self, said: Answer, whose: Peer) -> DetachedSandbox:
        """Return the one of that name for a new owner. Raises `EngineError` while there is one, unless it is taken."""
        kept, take = self.named(said, whose), said["take"]
        if type(take) is not bool:
            raise ValueError("neither true nor false")
        if kept.spec.attached and kept.uid != whose.uid:
            # They were opened with the rights of the user who made it, and a volume is one user's.
            raise EngineError(BrokerCode.DETACHED_HAS_DATA)
        if kept.passing >= MAX_PASSING:
            raise QuotaExceeded(BrokerCode.BROKER_BUSY, limit=f"{MAX_PASSING} owners whose words wait for a sandbox")
        if kept.is_owned:
            if not take:
                raise EngineError(BrokerCode.DETACHED_OWNED)
            kept.taken()
        return kept

    async def close(self) -> None:
        sandboxes = self.all
        for sandbox in sandboxes:
            sandbox.finish(ExitReason(kind="broker_ended"))
        with contextlib.suppress(SandboxError):
            await asyncio.gather(*(sandbox.kill() for sandbox in sandboxes))


def _read(said: object, most: float, set_by: str) -> DetachedOptions:
    if not isinstance(said, Mapping) or said.keys() != {
        "name",
        "seconds",
        "metadata",
        "settings",
        "prepared",
    }:
        raise ValueError("other fields than those of a sandbox that is kept")
    name = packets.text(said["name"])
    if not packets.NAME.fullmatch(name):
        raise ValueError("that is no name")
    return DetachedOptions(
        name=name,
        seconds=packets.seconds(said["seconds"]),
        most_seconds=most,
        set_by=set_by,
        metadata=packets.metadata(said["metadata"]),
        settings=packets.text(said["settings"], packets.MAX_SETTINGS),
        prepared=packets.prepared(said["prepared"]),
    )
