"""What a figure shows, as values: a class for each kind of chart, by the names people know from hosted interpreters.

Made of the JSON that `chart_data` builds again, in whatever mode the outputs are.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from .chart_data import checked

Place = str | float | None
"""On an axis: a number, the text of a category or of a time (ISO 8601), None where the data had no number."""


class ChartType(enum.StrEnum):
    """What kind of chart it is."""

    LINE = "line"
    SCATTER = "scatter"
    BAR = "bar"
    PIE = "pie"
    BOX_AND_WHISKER = "box_and_whisker"
    SUPERCHART = "superchart"
    UNKNOWN = "unknown"


class ScaleType(enum.StrEnum):
    """How an axis is divided."""

    LINEAR = "linear"
    DATETIME = "datetime"
    CATEGORICAL = "categorical"
    LOG = "log"
    SYMLOG = "symlog"
    LOGIT = "logit"
    FUNCTION = "function"
    FUNCTIONLOG = "functionlog"
    ASINH = "asinh"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PointData:
    """A series: what its legend says, and its points."""

    label: str
    points: list[tuple[Place, Place]]


@dataclass(frozen=True, slots=True)
class BarData:
    """A bar: the label below it, the series that it is of, its length."""

    label: str
    group: str
    value: float | None


@dataclass(frozen=True, slots=True)
class PieData:
    """A wedge, in degrees."""

    label: str
    angle: float | None
    radius: float | None


@dataclass(frozen=True, slots=True)
class BoxAndWhiskerData:
    """A box: the ends of its whiskers, its edges, its median, and the points beyond the whiskers."""

    label: str
    min: float | None
    first_quartile: float | None
    median: float | None
    third_quartile: float | None
    max: float | None
    outliers: list[float | None]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart. One of no kind that has a class of its own is of this class: it has a title, and no elements."""

    type: ChartType
    title: str | None = None
    elements: list[Any] = field(default_factory=list)
    complete: bool = True
    """Whether it has every point; charts with more than some 10,000 have fewer here than in the picture."""

    @staticmethod
    def parse(value: object) -> Chart | None:
        """Return the chart that JSON describes, None if it describes none."""
        described = checked(value)
        return None if described is None else _chart(described)

    def to_dict(self) -> dict[str, Any]:
        """Return it as values of JSON."""
        elements = [one.to_dict() if isinstance(one, Chart) else _fields(one) for one in self.elements]
        return {**_fields(self), "type": self.type.value, "elements": elements}


@dataclass(frozen=True, kw_only=True)
class Chart2D(Chart):
    """A chart with two axes. A unit is what the label of an axis has in brackets."""

    x_label: str | None = None
    y_label: str | None = None
    x_unit: str | None = None
    y_unit: str | None = None


@dataclass(frozen=True, kw_only=True)
class PointChart(Chart2D):
    """A chart of points; `elements` are `PointData`."""

    x_scale: ScaleType = ScaleType.UNKNOWN
    x_ticks: list[Place] = field(default_factory=list)
    x_tick_labels: list[str] = field(default_factory=list)
    y_scale: ScaleType = ScaleType.UNKNOWN
    y_ticks: list[Place] = field(default_factory=list)
    y_tick_labels: list[str] = field(default_factory=list)


class LineChart(PointChart):
    """Lines."""


class ScatterChart(PointChart):
    """Points without lines."""


class BarChart(Chart2D):
    """Bars; `elements` are `BarData`. Where they lie, `x_label` is still that of their labels."""


class PieChart(Chart):
    """Wedges; `elements` are `PieData`."""


class BoxAndWhiskerChart(Chart2D):
    """Boxes; `elements` are `BoxAndWhiskerData`. Where they lie, `x_label` is still that of their labels."""


class SuperChart(Chart):
    """A figure with several charts, which are its `elements`."""


_CLASSES: dict[ChartType, tuple[type[Chart], type | None]] = {
    ChartType.LINE: (LineChart, PointData),
    ChartType.SCATTER: (ScatterChart, PointData),
    ChartType.BAR: (BarChart, BarData),
    ChartType.PIE: (PieChart, PieData),
    ChartType.BOX_AND_WHISKER: (BoxAndWhiskerChart, BoxAndWhiskerData),
    ChartType.SUPERCHART: (SuperChart, None),
    ChartType.UNKNOWN: (Chart, None),
}


def _chart(described: dict[str, Any]) -> Chart:
    kind = ChartType(described["type"])
    chart, element = _CLASSES[kind]
    fields: dict[str, Any] = {**described, "type": kind, "elements": []}
    for name in ("x_scale", "y_scale"):
        if name in fields:
            fields[name] = ScaleType(fields[name])
    if element is None:
        fields["elements"] = [_chart(part) for part in described["elements"]]
    else:
        for one in described["elements"]:
            points = {"points": [(x, y) for x, y in one["points"]]} if "points" in one else {}
            fields["elements"].append(element(**{**one, **points}))
    return chart(**fields)


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of a value with nothing copied that stands below them."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}
