"""The dashboard that is shipped for Grafana, and which figures it asks for."""

from __future__ import annotations

import json
import re

from tests.support import ROOT


def figures(prefix: str) -> set[str]:
    """Return the names of the figures of one program in all queries, as a program's page declares them."""
    document = json.loads((ROOT / "system/grafana-dashboard.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in document["panels"] for target in panel["targets"]]
    found = {name for query in queries for name in re.findall(rf"\b{prefix}_[a-z_]+", query)}
    return {name.removesuffix("_bucket") for name in found}


def declared(page: str) -> set[str]:
    """Return the names of the figures that a page declares."""
    return set(re.findall(r"^# TYPE (\S+) ", page, re.MULTILINE))
