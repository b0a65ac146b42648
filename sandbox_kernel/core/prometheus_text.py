"""Figures in Prometheus's text form, for pages that an operator's Prometheus reads.

The form is the one of https://prometheus.io/docs/instrumenting/exposition_formats/, version 0.0.4.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds, upper ends of a histogram's parts."""

Labels = Mapping[str, str]


class Seconds:
    """How long something took, counted by parts."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._sum = 0.0

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self._counts)

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self._sum += seconds

    def rows(self, name: str, labels: Labels) -> Iterable[str]:
        """Yield its lines, under the whole name of the figure."""
        total = 0
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self._counts, strict=True):
            total += count
            yield f"{name}_bucket{_labels({**labels, 'le': bound})} {total}"
        yield f"{name}_sum{_labels(labels)} {self._sum:.6f}"
        yield f"{name}_count{_labels(labels)} {total}"


class MetricsPage:
    """All figures of one program, whose names begin alike."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._lines: list[str] = []

    def add(self, name: str, kind: str, text: str, rows: Iterable[tuple[Labels, float | Seconds]]) -> None:
        """Add a figure: a `gauge`, a `counter`, or a `histogram` of `Seconds`."""
        whole = f"{self._prefix}_{name}"
        self._lines += [f"# HELP {whole} {text}", f"# TYPE {whole} {kind}"]
        for labels, value in rows:
            if isinstance(value, Seconds):
                self._lines += value.rows(whole, labels)
            else:
                self._lines.append(f"{whole}{_labels(labels)} {value}")

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def _labels(labels: Labels) -> str:
    pairs = ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if labels else ""
