"""What a broker is for its connections: what they may ask of it, and nothing of how it listens."""

from __future__ import annotations

from typing import Any, Protocol

from ...core.tasks import Tasks
from ...engines.inspectable import Inspectable
from .ceilings import Policy
from .client.listener_trust import Peer
from .detached_registry import DetachedRegistry
from .lease import Lease
from .pool import Pool
from .prometheus import Figures
from .usage_counters import UsageCounters

Made = tuple[Lease, dict[str, Any], int, bool]
"""A sandbox, what its caller needs to know of the pipe, the pipe, and whether it was ready."""


class Service(Protocol):
    """A broker. Methods raise `SandboxError`."""

    engine: Inspectable
    policy: Policy
    pool: Pool
    tally: UsageCounters
    keeping: DetachedRegistry
    figures: Figures
    lent: dict[str, Lease]
    tasks: Tasks

    async def make(self, said: dict[str, Any], whose: Peer) -> Made:
        """Return a sandbox for a caller."""

    async def rename(self, lent: Lease, pid: int) -> None:
        """Note whose a sandbox is from now on."""

    def adrift(self, ticket: object, whose: Peer) -> Lease:
        """Return the sandbox that somebody left for the process with this ticket."""

    def with_ticket(self, ticket: object, whose: Peer) -> Lease:
        """Return the sandbox of this user that has the ticket."""

    async def reap(self) -> int:
        """Remove what lost owners left; return how many."""

    def has_left(self, connection: object) -> None:
        """Note that a connection is closed."""
