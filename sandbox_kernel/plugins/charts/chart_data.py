"""What a figure shows, as data: one JSON type of our own, written by code in the sandbox and rebuilt here.

Each value is taken out by its name and held against its kind; what is not named does not pass. Bounded before it is
looked at, so that it costs no more than a table of the same size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...policy import terminal
from ...policy.allowance import ExcessError, of_chart

MAX_TEXT = 1_000
"""Characters of one text; the rest is left out."""
MAX_PARTS = 100
"""Charts in one figure."""

TYPES = frozenset(("line", "scatter", "bar", "pie", "box_and_whisker", "unknown"))
SCALES = frozenset((
    "linear", "datetime", "categorical", "log", "symlog", "logit", "function", "functionlog", "asinh", "unknown",
))  # fmt: skip


class NotAChartError(Exception):
    """It is not what our code in the sandbox would have written."""


def checked(value: Any) -> dict[str, Any] | None:
    """Return a chart with the fields that a chart may have; None for any other value. Equal charts stay equal.

    {"type", "title", "elements", "complete"}; with axes also labels, units, scales, ticks and their labels. The
    elements of a "superchart" are charts, those of the others what their kind has: points, bars, wedges, boxes.
    """
    try:
        return _figure(value, _Values())
    except (NotAChartError, ExcessError):
        return None


class _Values:
    """Takes values out of JSON, and counts them."""

    def __init__(self) -> None:
        self._left = of_chart()

    def text(self, value: Any) -> str:
        self._left.charge(1)
        if not isinstance(value, str):
            raise NotAChartError
        return terminal.clean(value[:MAX_TEXT])

    def words(self, value: Any) -> str | None:
        return None if value is None else self.text(value)

    def number(self, value: Any) -> float | None:
        """A number, or None where there is none: JSON has no NaN."""
        self._left.charge(1)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1.7e308:
            raise NotAChartError
        if not math.isfinite(number := float(value)):
            raise NotAChartError
        return number

    def place(self, value: Any) -> str | float | None:
        """A place on an axis: a number, or the text of a category or a time."""
        return self.text(value) if isinstance(value, str) else self.number(value)

    def each(self, value: Any, take: Callable[[Any], Any]) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            raise NotAChartError
        self._left.charge(len(value))
        return [take(item) for item in value]

    def pair(self, value: Any) -> list[Any]:
        if not isinstance(value, (list, tuple)) or len(value) != 2:
            raise NotAChartError
        return [self.place(value[0]), self.place(value[1])]


def _figure(value: Any, values: _Values) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise NotAChartError
    if value.get("type") != "superchart":
        return _chart(value, values)
    parts = value.get("elements")
    if not isinstance(parts, (list, tuple)) or len(parts) > MAX_PARTS:
        raise NotAChartError
    return {
        "type": "superchart",
        "title": values.words(value.get("title")),
        "elements": [_chart(part, values) for part in parts],
        "complete": value.get("complete") is True,
    }


def _chart(value: Any, values: _Values) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise NotAChartError
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in TYPES:
        raise NotAChartError
    chart: dict[str, Any] = {"type": kind, "title": values.words(value.get("title"))}
    if kind not in {"pie", "unknown"}:
        chart |= {name: values.words(value.get(name)) for name in ("x_label", "y_label", "x_unit", "y_unit")}
    if kind in {"line", "scatter"}:
        for axis in "xy":
            scale = value.get(f"{axis}_scale")
            chart[f"{axis}_scale"] = scale if isinstance(scale, str) and scale in SCALES else "unknown"
            chart[f"{axis}_ticks"] = values.each(value.get(f"{axis}_ticks"), values.place)
            chart[f"{axis}_tick_labels"] = values.each(value.get(f"{axis}_tick_labels"), values.text)
    element = _ELEMENTS.get(kind)
    chart["elements"] = [] if element is None else values.each(value.get("elements"), lambda one: element(one, values))
    chart["complete"] = value.get("complete") is True
    return chart


def _named(*names: str) -> Callable[[Any, _Values], dict[str, Any]]:
    """Return what takes an element: a label, a group if there is one, and these numbers."""

    def take(value: Any, values: _Values) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise NotAChartError
        element: dict[str, Any] = {"label": values.text(value.get("label"))}
        for name in names:
            match name:
                case "group":
                    element[name] = values.text(value.get(name))
                case "points":
                    element[name] = values.each(value.get(name), values.pair)
                case "outliers":
                    element[name] = values.each(value.get(name), values.number)
                case _:
                    element[name] = values.number(value.get(name))
        return element

    return take


_ELEMENTS = {
    "line": _named("points"),
    "scatter": _named("points"),
    "bar": _named("group", "value"),
    "pie": _named("angle", "radius"),
    "box_and_whisker": _named("min", "first_quartile", "median", "third_quartile", "max", "outliers"),
}
