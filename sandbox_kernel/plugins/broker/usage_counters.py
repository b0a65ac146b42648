"""Who has how many sandboxes, and what was refused. Pure: the time is handed in."""

from __future__ import annotations

from collections import Counter, defaultdict, deque

from ...core.codes import EndCode
from ...core.errors import QuotaExceeded
from ...core.model import format_bytes
from .ceilings import Policy
from .codes import BrokerCode

HOUR = 3600.0
MAX_REMEMBERED = 100_000
"""Starts of one user within an hour, if its ceiling names no number."""


class UsageCounters:
    """Counts sandboxes by user, against the ceilings."""

    def __init__(self) -> None:
        self.running: Counter[int] = Counter()
        self.disks: Counter[int] = Counter()
        """Bytes of the machine's disk that sandboxes have."""
        self._starts: defaultdict[int, deque[float]] = defaultdict(lambda: deque(maxlen=MAX_REMEMBERED))

    @property
    def total(self) -> int:
        return self.running.total()

    def take(self, policy: Policy, uid: int, now: float, disk: int = 0) -> None:
        """Count one more for a user, with `disk` bytes of a disk. Raises `QuotaExceeded`, and then counts nothing."""
        ceiling = policy.of(uid)
        if ceiling.sessions is not None and self.running[uid] >= ceiling.sessions:
            raise QuotaExceeded(
                EndCode.QUOTA_EXCEEDED,
                limit=f"{ceiling.sessions} sandboxes at once",
                value=f"{self.running[uid]} are there",
                set_by=ceiling.by("sessions"),
            )
        if self.total >= policy.sessions:
            raise QuotaExceeded(
                BrokerCode.BROKER_BUSY,
                limit=f"{policy.sessions} sandboxes at once, of all users",
                value=f"{self.total} are there",
                set_by=policy.source,
            )
        if disk and ceiling.scratch_total is not None and self.disks[uid] + disk > ceiling.scratch_total:
            raise QuotaExceeded(
                EndCode.QUOTA_EXCEEDED,
                "the disks of this user's sandboxes together would be larger than they may",
                limit=format_bytes(ceiling.scratch_total),
                value=f"{format_bytes(self.disks[uid])} are there, and {format_bytes(disk)} more",
                setting="scratch_size",
                set_by=ceiling.by("scratch_total"),
            )
        starts = self._starts[uid]
        while starts and now - starts[0] >= HOUR:
            starts.popleft()
        if ceiling.hourly is not None and len(starts) >= ceiling.hourly:
            raise QuotaExceeded(
                EndCode.QUOTA_EXCEEDED,
                "this user has started as many sandboxes within an hour as it may",
                limit=f"{ceiling.hourly} an hour",
                value=f"{len(starts)}, the next one in {HOUR - (now - starts[0]):.0f} s" if starts else "0",
                set_by=ceiling.by("hourly"),
            )
        starts.append(now)
        self.running[uid] += 1
        self.disks[uid] += disk

    def give_back(self, uid: int, disk: int = 0) -> None:
        """Count one less, as it was taken."""
        for counter, number in ((self.running, 1), (self.disks, disk)):
            counter[uid] -= number
            if counter[uid] <= 0:
                del counter[uid]
