"""What this plugin adds: a type of outputs."""

from __future__ import annotations

from typing import Any

from ..api import Plugin
from ..index import CHART


def chart(value: Any) -> dict[str, Any] | None:
    """Return a chart as it may pass."""
    from .chart_data import checked

    return checked(value)


PLUGIN = Plugin(name="charts", page="docs/sdk.md", outputs={CHART: chart})
