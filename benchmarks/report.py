"""`python -m benchmarks --report PATH`: the page of figures, docs/figures.md, from `figures.json`.

`figures.json` has the last figures of every benchmark. A run with `--report` puts its own into it, with the day.
The tables of other commands are changed by hand. A test compares the page with the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .measures import MEASURES, Measure

FIGURES = Path(__file__).parent / "figures.json"

HEAD = """\
# Figures

What a sandbox costs: the last run of each benchmark, with its command and its day. All ran on two processors. Values
are medians, and numbers in brackets are ratios to the first column of the same run: compare within a table, and not
between tables. `python -m benchmarks --report docs/figures.md` writes this page ([how it
measures](../benchmarks/README.md)).
"""


def updated(figures: dict[str, Any], results: Iterable[Mapping[str, Any]], day: str) -> dict[str, Any]:
    """Return the figures with the results of a run of `python -m benchmarks` that ended on `day` (YYYY-MM-DD)."""
    measured = {
        one["name"]: {
            "other": _rounded(one["medians"][one["against"]]),
            "sandbox": _rounded([*one["medians"].values()][-1]),
            "ratio": round(one["ratio"], 2),
        }
        for one in results
        if one["ratio"] is not None
    }
    return figures | {"day": day, "measured": figures["measured"] | measured} if measured else figures


def write(path: Path, results: Iterable[Mapping[str, Any]], day: str) -> None:
    """Put the results of a run into `figures.json`, and write the page."""
    figures = updated(read(), results, day)
    FIGURES.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    path.write_text(page(figures), encoding="utf-8")


def read() -> dict[str, Any]:
    """Return the last figures."""
    figures: dict[str, Any] = json.loads(FIGURES.read_text(encoding="utf-8"))
    return figures


def page(figures: Mapping[str, Any]) -> str:
    """Return docs/figures.md."""
    kernel = {
        "title": "A kernel beside a stock ipykernel, cold",
        "command": "python -m benchmarks",
        "day": figures["day"],
        "columns": ["", "Beside", "Its median", "Sandbox", "Ratio", "Bar"],
        "rows": [_row(item, figures["measured"][item.name]) for item in MEASURES if item.name in figures["measured"]],
        "note": "A bar is what a figure should meet: [why some do not](../benchmarks/README.md).",
    }
    return "\n".join(line for table in (kernel, *figures["tables"]) for line in _lines(table)).join((HEAD, "\n"))


def _row(item: Measure, measured: Mapping[str, float]) -> list[str]:
    beside = item.bar.against if item.bar else item.contestants[0]
    values = [f"{measured[name]:.3g} {item.unit}" for name in ("other", "sandbox")]
    return [item.what, beside, *values, f"{measured['ratio']:.2f}", str(item.bar or "")]


def _lines(table: Mapping[str, Any]) -> Iterator[str]:
    source = f"`{table['command']}`, {table['day']}" if table["command"] else table["day"]
    yield from ("", f"## {table['title']}", "", f"{source}.", "")
    yield "| " + " | ".join(table["columns"]) + " |"
    yield "|---" * len(table["columns"]) + "|"
    yield from ("| " + " | ".join(row) + " |" for row in table["rows"])
    yield from ("", table["note"]) if table["note"] else ()


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
