"""Figures of a broker for its operator, in Prometheus's text form: counts, no name of a user, nothing of a cell."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from ...core.prometheus_text import Page, Seconds


class Gauges(NamedTuple):
    """What a broker has now. Sizes in bytes."""

    states: Mapping[str, int]
    """Sandboxes by state."""
    connections: int
    memory_promised: int
    kept: int
    pool_made: int
    pool_lost: int


class Figures:
    """What is counted from the broker's start on."""

    def __init__(self) -> None:
        self._refused: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()
        self._claims = {kind: Seconds() for kind in ("warm", "cold")}

    def refused(self, code: str) -> None:
        self._refused[code] += 1

    def ended(self, kind: str) -> None:
        self._ended[kind] += 1

    def claimed(self, *, warm: bool, seconds: float) -> None:
        self._claims["warm" if warm else "cold"].add(seconds)

    def page(self, now: Gauges) -> str:
        """Return all figures as Prometheus reads them."""
        page = Page("sandbox_kernel_broker")
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
        return page.text()


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
