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
measures](../benchmarks/README.md)). "Before" is the ratio of an earlier state, in turn with this one (`--before`).
"""


def updated(
    figures: dict[str, Any], results: Iterable[Mapping[str, Any]], day: str, run: str = "measured"
) -> dict[str, Any]:
    """Return the figures with the results of a run of `python -m benchmarks` that ended on `day` (YYYY-MM-DD).

    A `run` on busy processors is "busy".
    """
    measured = {
        one["name"]: {
            "other": _rounded(one["medians"][one["against"]]),
            "sandbox": _rounded([*one["medians"].values()][-1]),
            "ratio": round(one["ratio"], 2),
        }
        | ({"before": round(one["before"], 2)} if "before" in one else {})
        for one in results
        if one["ratio"] is not None
    }
    return figures | {f"{run} on": day, run: figures[run] | measured} if measured else figures


def write(path: Path, results: Iterable[Mapping[str, Any]], day: str, run: str = "measured") -> None:
    """Put the results of a run into `figures.json`, and write the page."""
    figures = updated(read(), results, day, run)
    FIGURES.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    path.write_text(page(figures), encoding="utf-8")


def read() -> dict[str, Any]:
    """Return the last figures."""
    figures: dict[str, Any] = json.loads(FIGURES.read_text(encoding="utf-8"))
    return figures


def page(figures: Mapping[str, Any]) -> str:
    """Return docs/figures.md."""
    quiet = _kernels("A kernel beside a stock ipykernel, cold", "python -m benchmarks", figures, "measured")
    busy = _kernels("The same on busy processors", "python -m benchmarks --busy", figures, "busy")
    quiet["note"] = "A bar is what a figure should meet: [why some do not](../benchmarks/README.md)."
    busy["note"] = "Each processor had a process of its own that did nothing else."
    tables = [table for table in (quiet, busy, *figures["tables"]) if table["rows"]]
    return "\n".join(line for table in tables for line in _lines(table)).join((HEAD, "\n"))


def _kernels(title: str, command: str, figures: Mapping[str, Any], run: str) -> dict[str, Any]:
    measured = figures[run]
    return {
        "title": title,
        "command": command,
        "day": figures[f"{run} on"],
        "columns": ["", "Beside", "Its median", "Sandbox", "Ratio", "Before", "Bar"],
        "rows": [_row(item, measured[item.name]) for item in MEASURES if item.name in measured],
    }


def _row(item: Measure, measured: Mapping[str, float]) -> list[str]:
    beside = item.bar.against if item.bar else item.contestants[0]
    values = [f"{measured[name]:.3g} {item.unit}" for name in ("other", "sandbox")]
    before = f"{measured['before']:.2f}" if "before" in measured else ""
    return [item.what, beside, *values, f"{measured['ratio']:.2f}", before, str(item.bar or "")]


def _lines(table: Mapping[str, Any]) -> Iterator[str]:
    source = f"`{table['command']}`, {table['day']}" if table["command"] else table["day"]
    yield from ("", f"## {table['title']}", "", f"{source}.", "")
    yield "| " + " | ".join(table["columns"]) + " |"
    yield "|---" * len(table["columns"]) + "|"
    yield from ("| " + " | ".join(row) + " |" for row in table["rows"])
    yield from ("", table["note"]) if table["note"] else ()


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
