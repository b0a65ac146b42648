"""Figures of a broker for its operator, in Prometheus's text form: counts, no name of a user, nothing of a cell."""

from __future__ import annotations

import resource
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds, upper ends of the histogram's parts."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


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
        self._claims = {kind: [0] * (len(BOUNDS) + 1) for kind in ("warm", "cold")}
        self._seconds = dict.fromkeys(self._claims, 0.0)

    def refused(self, code: str) -> None:
        self._refused[code] += 1

    def ended(self, kind: str) -> None:
        self._ended[kind] += 1

    def claimed(self, *, warm: bool, seconds: float) -> None:
        kind = "warm" if warm else "cold"
        self._claims[kind][bisect_left(BOUNDS, seconds)] += 1
        self._seconds[kind] += seconds

    def page(self, now: Gauges) -> str:
        """Return all figures as Prometheus reads them."""
        lines = [*_head("sandboxes", "gauge", "Sandboxes by state.")]
        lines += [f'sandbox_kernel_broker_sandboxes{{state="{state}"}} {count}' for state, count in now.states.items()]
        lines += _head("claim_seconds", "histogram", "From a request to its pipe.")
        for kind, counts in self._claims.items():
            total = 0
            for bound, count in zip((*map(str, BOUNDS), "+Inf"), counts, strict=True):
                total += count
                lines.append(f'sandbox_kernel_broker_claim_seconds_bucket{{kind="{kind}",le="{bound}"}} {total}')
            lines.append(f'sandbox_kernel_broker_claim_seconds_sum{{kind="{kind}"}} {self._seconds[kind]:.6f}')
            lines.append(f'sandbox_kernel_broker_claim_seconds_count{{kind="{kind}"}} {total}')
        lines += _head("refusals_total", "counter", "Requests that were refused, by code.")
        lines += [_labelled("refusals_total", "code", *row) for row in sorted(self._refused.items())]
        lines += _head("ends_total", "counter", "Sandboxes that ended, by reason.")
        lines += [_labelled("ends_total", "reason", *row) for row in sorted(self._ended.items())]
        single = (
            ("connections", "gauge", "Connections of callers.", now.connections),
            ("memory_promised_bytes", "gauge", "Memory limits of all running sandboxes together.", now.memory_promised),
            ("resident_peak_bytes", "gauge", "Most memory that the broker itself had.", _peak()),
            ("kept_bytes", "gauge", "Output of cells that is kept for the next owner.", now.kept),
            ("pool_made_total", "counter", "Sandboxes that were made ahead.", now.pool_made),
            ("pool_lost_total", "counter", "Sandboxes made ahead that nobody got.", now.pool_lost),
        )
        for name, kind, text, value in single:
            lines += [*_head(name, kind, text), f"sandbox_kernel_broker_{name} {value}"]
        return "\n".join(lines) + "\n"


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP sandbox_kernel_broker_{name} {text}", f"# TYPE sandbox_kernel_broker_{name} {kind}"]


def _labelled(name: str, label: str, value: str, count: int) -> str:
    return f'sandbox_kernel_broker_{name}{{{label}="{value}"}} {count}'
