"""Figures of a server for its operator, and of a tenant for itself, in Prometheus's text form: nothing of a cell."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterable

from ...core.prometheus_text import MetricsPage, Seconds

WIRES = ("jupyter", "librechat", "mcp", "open-terminal")
"""By the first part of a path; all other paths are E2B's."""


def wire_of(path: str) -> str:
    first = path.partition("/")[2].partition("/")[0]
    return first if first in WIRES else "e2b"


class TenantFigures:
    """What is counted of one tenant from the server's start on."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        """By wire."""
        self.refused: Counter[str] = Counter()
        """By code."""
        self.created = Seconds()


class Now:
    """What one tenant has now."""

    def __init__(self, name: str, figures: TenantFigures, states: Iterable[str], requests: int, longest: float) -> None:
        self.labels = {"tenant": name}
        self.figures = figures
        self.states = Counter({"running": 0, "paused": 0})
        self.states.update(states)
        self.requests = requests
        self.longest = longest


def page(tenants: list[Now], strangers: int | None) -> str:
    """Return the figures of some tenants; `strangers` are requests without a token of this server, for all tenants."""
    found = MetricsPage("sandbox_kernel_serve")
    states = (({**one.labels, "state": state}, count) for one in tenants for state, count in sorted(one.states.items()))
    found.add("sandboxes", "gauge", "Sandboxes by state.", states)
    found.add("requests", "gauge", "Requests and streams under way.", ((one.labels, one.requests) for one in tenants))
    text = "Longest turn of the event loop, in which nobody else was served."
    found.add("turn_longest_seconds", "gauge", text, ((one.labels, round(one.longest, 6)) for one in tenants))
    for name, text, label in (
        ("requests_total", "Requests, by wire.", "wire"),
        ("refusals_total", "Requests that were refused, by code.", "code"),
    ):
        rows = (
            ({**one.labels, label: value}, count)
            for one in tenants
            for value, count in sorted((one.figures.requests if label == "wire" else one.figures.refused).items())
        )
        found.add(name, "counter", text, rows)
    seconds = ((one.labels, one.figures.created) for one in tenants)
    found.add("create_seconds", "histogram", "From the request for a sandbox until it runs.", seconds)
    if strangers is not None:
        found.add("strangers_total", "counter", "Requests without a token of this server.", [({}, strangers)])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        found.add("resident_peak_bytes", "gauge", "Most memory that the server itself had.", [({}, peak)])
    return found.text()
