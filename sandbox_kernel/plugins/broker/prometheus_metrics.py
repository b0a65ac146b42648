"""Figures of a broker for its operator, in Prometheus's text form: counts, by user where it is said, and no cell's."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...core.prometheus_text import MetricsPage, Seconds
from ...engines.inspectable import CrowdUser

MAX_USERS = 1000
"""Users who are counted one by one; who comes later is counted with `OTHERS`."""
OTHERS = "other users"
"""No account has a blank in its name."""


class Gauges(NamedTuple):
    """What a broker has now. Sizes in bytes."""

    states: Mapping[str, int]
    """Sandboxes by state."""
    connections: int
    memory_promised: int
    kept: int
    pool_made: int
    pool_lost: int


class BrokerFigures:
    """What is counted from the broker's start on."""

    def __init__(self) -> None:
        self._refused: Counter[str] = Counter()
        self.of_users: dict[int | str, Counter[str]] = {}
        """What was counted of each: `started`, `refused` and `cpu_seconds`."""
        self._ended: Counter[str] = Counter()
        self._claims = {kind: Seconds() for kind in ("warm", "cold")}

    def refused(self, code: str, user: int | None = None) -> None:
        """Note a refusal; without `user` it was nobody known."""
        self._refused[code] += 1
        if user is not None:
            self.counted(user, "refused")

    def counted(self, user: int, what: str, number: float = 1) -> None:
        key = user if user in self.of_users or len(self.of_users) < MAX_USERS else OTHERS
        self.of_users.setdefault(key, Counter())[what] += number  # type: ignore[assignment] # seconds are counted, too

    def ended(self, kind: str) -> None:
        self._ended[kind] += 1

    def claimed(self, *, warm: bool, seconds: float) -> None:
        self._claims["warm" if warm else "cold"].add(seconds)

    def page(self, now: Gauges, users: Sequence[CrowdUser] = ()) -> str:
        """Return all figures as Prometheus reads them."""
        page = MetricsPage("sandbox_kernel_broker")
        states = (({"state": state}, count) for state, count in now.states.items())
        page.add("sandboxes", "gauge", "Sandboxes by state.", states)
        claims = (({"kind": kind}, seconds) for kind, seconds in self._claims.items())
        page.add("claim_seconds", "histogram", "From a request to its pipe.", claims)
        refused = (({"code": code}, count) for code, count in sorted(self._refused.items()))
        page.add("refusals_total", "counter", "Requests that were refused, by code.", refused)
        ended = (({"reason": reason}, count) for reason, count in sorted(self._ended.items()))
        page.add("ends_total", "counter", "Sandboxes that ended, by reason.", ended)
        for name, kind, text, value in (
            ("connections", "gauge", "Connections of callers.", now.connections),
            ("memory_promised_bytes", "gauge", "Memory limits of all running sandboxes together.", now.memory_promised),
            ("resident_peak_bytes", "gauge", "Most memory that the broker itself had.", _peak()),
            ("kept_bytes", "gauge", "Output of cells that is kept for the next owner.", now.kept),
            ("pool_made_total", "counter", "Sandboxes that were made ahead.", now.pool_made),
            ("pool_lost_total", "counter", "Sandboxes made ahead that nobody got.", now.pool_lost),
        ):
            page.add(name, kind, text, [({}, value)])
        for name, kind, text, field in _OF_USERS:
            page.add(name, kind, text, [({"user": one.name}, getattr(one, field)) for one in users])
        return page.text()


_OF_USERS = (
    ("user_sandboxes", "gauge", "Sandboxes of a user.", "sandboxes"),
    ("user_memory_promised_bytes", "gauge", "Memory limits of a user's sandboxes together.", "memory_promised"),
    ("user_memory_used_bytes", "gauge", "Memory that a user's sandboxes use.", "memory_used"),
    ("user_cpu_seconds_total", "counter", "Processor time of a user's sandboxes, as it was last seen.", "cpu_seconds"),
    ("user_started_total", "counter", "Sandboxes that a user got.", "started"),
    ("user_refusals_total", "counter", "Requests of a user that were refused.", "refused"),
)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
