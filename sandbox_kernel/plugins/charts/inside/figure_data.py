"""What a matplotlib figure shows, as data: a type of its own beside the picture, for callers of the SDK.

Runs in the kernel of a session that asked for it, from source that the host ships: standard library and IPython, and
matplotlib only when there is a figure. The host believes nothing of what it says.
"""

from __future__ import annotations

import datetime
import math
import re
import sys
from typing import Any

TYPE = "application/vnd.sandbox-kernel.chart+json"
MAX_VALUES = 30_000
"""Numbers and texts of one figure; the host takes some more."""
MAX_PARTS = 100
NEAR = 1e-9
_UNIT = re.compile(r"\s\(([^()]*)\)|\[([^\[\]]*)\]")


def install(shell: Any) -> None:
    """Have each figure that is shown bring its data along."""
    from IPython.core.formatters import BaseFormatter
    from traitlets import ObjectName, Unicode

    class ChartFormatter(BaseFormatter):  # type: ignore[misc, unused-ignore]
        format_type = Unicode(TYPE)
        print_method = ObjectName("_repr_sandbox_chart_")
        _return_type = dict

        def __call__(self, value: Any) -> Any:
            # Not by the table of types: matplotlib's own integration takes figures out of every formatter's.
            module = sys.modules.get("matplotlib.figure")
            return chart_of(value) if module is not None and isinstance(value, module.Figure) else None

    shell.display_formatter.formatters[TYPE] = ChartFormatter(parent=shell.display_formatter)


def install_here() -> None:
    """Do it in the kernel that this runs in."""
    from IPython import get_ipython

    install(get_ipython())


def chart_of(figure: Any) -> dict[str, Any] | None:
    """Return what a figure shows, None if that is nothing or cannot be read: the picture is there all the same."""
    try:
        axes = figure.get_axes()[:MAX_PARTS]
        if not any(one.has_data() or one.patches or one.artists for one in axes):
            return None
        share = MAX_VALUES // len(axes)
        charts = [_Axes(one, share).chart() for one in axes]
        if len(charts) == 1:
            return charts[0]
        whole = all(chart["complete"] for chart in charts)
        return {"type": "superchart", "title": _words(figure.get_suptitle()), "elements": charts, "complete": whole}
    except Exception:
        return None


class _Axes:
    """The axes of one chart."""

    def __init__(self, axes: Any, share: int) -> None:
        self._axes = axes
        self._share = share
        self._complete = True
        # Lines across the whole axes (axhline, grids) are no series: their places are not all of the data's. Nor are
        # those without points, which seaborn draws for a legend.
        lines = [line for line in axes.lines if line.get_transform() == axes.transData]
        self._lines = [line for line in lines if len(line.get_xdata())]

    def chart(self) -> dict[str, Any]:
        kind, elements = self._read()
        chart: dict[str, Any] = {"type": kind, "title": _words(self._axes.get_title())}
        if kind not in ("pie", "unknown"):
            chart.update(self._labels())
        if kind in ("line", "scatter"):
            for name in "xy":
                chart.update(self._ticks(name))
        chart["elements"] = elements
        chart["complete"] = self._complete
        return chart

    def _read(self) -> tuple[str, list[dict[str, Any]]]:
        from matplotlib.collections import LineCollection, PathCollection, PolyCollection
        from matplotlib.container import BarContainer
        from matplotlib.patches import Rectangle, Wedge

        axes = self._axes
        patches, collections = list(axes.patches), list(axes.collections)
        if axes.images or axes.tables or axes.artists:
            return "unknown", []
        if not collections and (boxes := self._boxes()):
            return "box_and_whisker", boxes
        straight = [_is_straight(line) for line in self._lines]
        # How sure a line is; what has straight ones, too, is a plot of violins.
        bands = all(isinstance(one, PolyCollection) for one in collections) and not any(straight)
        if self._lines and not patches and (bands or not collections):
            return "line", self._series((line.get_label(), line.get_xdata(), line.get_ydata()) for line in self._lines)
        if collections and not patches and not self._lines and all(isinstance(c, PathCollection) for c in collections):
            return "scatter", self._series((c.get_label(), *_columns(c.get_offsets())) for c in collections)
        if patches and not self._lines and not collections and all(isinstance(patch, Wedge) for patch in patches):
            wedges = [(str(w.get_label()), float(w.theta2 - w.theta1), float(w.r)) for w in patches[: self._share // 3]]
            return "pie", [{"label": a, "angle": float("%.7g" % abs(b)), "radius": c} for a, b, c in wedges]
        bars = [one for one in axes.containers if isinstance(one, BarContainer)]
        whiskers = all(isinstance(one, LineCollection) for one in collections)
        if bars and whiskers and all(straight) and all(isinstance(patch, Rectangle) for patch in patches):
            return "bar", self._bars(bars)
        return "unknown", []

    def _series(self, found: Any) -> list[dict[str, Any]]:
        series = [(str(label), list(x), list(y)) for label, x, y in found]
        room = max(1, self._share // 3 // max(1, len(series)))
        elements = []
        for number, (label, x, y) in enumerate(series[: self._share // 3]):
            step = -(-len(x) // room)
            self._complete = self._complete and step <= 1
            points = [[_place(a), _place(b)] for a, b in zip(x[:: max(1, step)], y[:: max(1, step)])]
            name = "Series %d" % number if label.startswith("_child") else label
            elements.append({"label": name, "points": points})
        return elements

    def _bars(self, containers: Any) -> list[dict[str, Any]]:
        lying = containers[0].orientation == "horizontal"
        self._swap = lying
        axis = self._axes.yaxis if lying else self._axes.xaxis
        label_of = _Labels(axis)
        elements = []
        for number, container in enumerate(containers):
            name = str(container.get_label())
            group = "Group %d" % number if name.startswith("_container") else name
            for bar in container:
                middle = bar.get_y() + bar.get_height() / 2 if lying else bar.get_x() + bar.get_width() / 2
                value = bar.get_width() if lying else bar.get_height()
                elements.append({"label": label_of(middle), "group": group, "value": _number(value)})
        room = self._share // 4
        self._complete = len(elements) <= room
        return elements[:room]

    _swap = False

    def _labels(self) -> dict[str, Any]:
        x, y = _words(self._axes.get_xlabel()), _words(self._axes.get_ylabel())
        if self._swap:
            x, y = y, x
        return {"x_label": x, "y_label": y, "x_unit": _unit(x), "y_unit": _unit(y)}

    def _ticks(self, name: str) -> dict[str, Any]:
        axis = getattr(self._axes, name + "axis")
        labels = [text.get_text() for text in axis.get_ticklabels()][:100]
        ticks = list(axis.get_ticklocs())[:100]
        converter = type(axis.get_converter() if hasattr(axis, "get_converter") else axis.converter).__module__
        scale = axis.get_scale()
        if converter == "matplotlib.dates":
            from matplotlib.dates import num2date

            return {
                name + "_scale": "datetime",
                name + "_ticks": [num2date(tick).isoformat() for tick in ticks],
                name + "_tick_labels": labels,
            }
        if converter == "matplotlib.category" or (scale == "linear" and _named(axis)):
            scale = "categorical"
        places = [_number(tick) for tick in ticks]
        return {name + "_scale": scale, name + "_ticks": places, name + "_tick_labels": labels}

    # --- boxes ---

    def _boxes(self) -> list[dict[str, Any]]:
        """Return the boxes of a box plot; empty if it is none."""
        from matplotlib.patches import PathPatch

        patches = self._axes.patches
        if not all(isinstance(patch, PathPatch) for patch in patches):
            return []
        outlines = [_columns(patch.get_path().vertices[:-1]) for patch in patches]
        lines = [_columns(one.get_xydata()) for one in self._lines]
        loose = [line for line, drawn in zip(lines, self._lines) if drawn.get_linestyle() == "None"]
        drawn = [line for line, kind in zip(lines, self._lines) if kind.get_linestyle() != "None"]
        closed = [(x, y) for x, y in drawn if len(x) in (5, 11) and (x[0], y[0]) == (x[-1], y[-1])]
        if not (outlines or closed):
            return []
        if not outlines and len(closed) + sum(len(x) == 2 for x, _ in drawn) != len(drawn):
            return []
        boxes = [(min(x), max(x), min(y), max(y)) for x, y in outlines or closed]
        pairs = [(x, y) for x, y in drawn if len(x) == 2]
        for self._swap in (False, True):
            if self._swap:
                boxes = [(c, d, a, b) for a, b, c, d in boxes]
                pairs, loose = [(y, x) for x, y in pairs], [(y, x) for x, y in loose]
            found = [_box(box, pairs, loose) for box in boxes]
            if all(found):
                label_of = _Labels(self._axes.yaxis if self._swap else self._axes.xaxis)
                room = self._share // 8
                self._complete = len(found) <= room
                for box, element in zip(boxes, found):
                    element["label"] = label_of((box[0] + box[1]) / 2)  # type: ignore[index]
                    outliers = element["outliers"]  # type: ignore[index]
                    self._complete = self._complete and len(outliers) <= room // len(found)
                    del outliers[room // len(found) :]
                return found[:room]  # type: ignore[return-value]
        return []


def _box(box: Any, pairs: Any, loose: Any) -> dict[str, Any] | None:
    """Return a standing box with its whiskers, which touch its edges from outside; None if there are none."""
    left, right, low, high = box
    middle = (left + right) / 2
    below = [min(y) for x, y in pairs if _near(x[0], middle) and _near(x[1], middle) and _near(max(y), low)]
    above = [max(y) for x, y in pairs if _near(x[0], middle) and _near(x[1], middle) and _near(min(y), high)]
    if not below or not above:
        return None
    across = [(max(x) - min(x), y[0]) for x, y in pairs if _near(y[0], y[1]) and low <= y[0] <= high]
    inside = [y for width, y in across if width == max(across)[0] and width <= right - left + NEAR]
    outside = [_number(b) for x, y in loose for a, b in zip(x, y) if _near(a, middle) and not low <= b <= high]
    return {
        "label": "",
        "min": _number(min(below)),
        "first_quartile": _number(low),
        "median": _number(inside[0]) if inside else None,
        "third_quartile": _number(high),
        "max": _number(max(above)),
        "outliers": outside,
    }


class _Labels:
    """What an axis says at a place: the label of a tick that was put there, else the number."""

    def __init__(self, axis: Any) -> None:
        converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
        named = type(converter).__module__ == "matplotlib.category" or _named(axis)
        ticks = list(axis.get_ticklocs()) if named else []
        self._ticks = [(float(t), text.get_text()) for t, text in zip(ticks, axis.get_ticklabels())]
        places = sorted(place for place, _ in self._ticks)
        self._reach = min([b - a for a, b in zip(places, places[1:])] or [1.0]) / 2

    def __call__(self, place: Any) -> str:
        near = min(self._ticks, key=lambda tick: abs(tick[0] - place), default=None)
        if near is not None and near[1] and abs(near[0] - place) <= self._reach + NEAR:
            return str(near[1])
        return "%g" % place


def _named(axis: Any) -> bool:
    """Return whether the ticks of an axis were given names."""
    from matplotlib.ticker import FixedFormatter

    return isinstance(axis.get_major_formatter(), FixedFormatter)


def _is_straight(line: Any) -> bool:
    """Return whether a line only stands or only lies: seaborn draws so how sure a bar is, with NaN where it is not."""
    x, y = line.get_xdata(), line.get_ydata()
    return len(x) == 2 and bool(x[0] == x[1] or y[0] == y[1])


def _columns(pairs: Any) -> tuple[list[Any], list[Any]]:
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _place(value: Any) -> Any:
    if isinstance(value, (str, datetime.date)):
        return value if isinstance(value, str) else value.isoformat()
    if type(value).__name__ == "datetime64":
        return str(value.astype("datetime64[s]"))
    return _number(value)


def _number(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= NEAR * max(1.0, abs(one), abs(other))


def _words(text: Any) -> str | None:
    return str(text) or None


def _unit(label: str | None) -> str | None:
    found = _UNIT.search(label or "")
    return (found.group(1) or found.group(2)) if found else None
