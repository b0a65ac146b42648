"""What a figure shows, as data: an honest chart passes as it is, and of a hostile one nothing does."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest

from sandbox_kernel import Chart, LineChart, SuperChart
from sandbox_kernel.core.codes import OutputCode
from sandbox_kernel.core.model import Message
from sandbox_kernel.plugins.charts import chart_data
from sandbox_kernel.plugins.index import CHART
from sandbox_kernel.policy.allowance import of_chart
from sandbox_kernel.policy.output_policy import OutputPolicy
from sandbox_kernel.sdk.result import Result

LINE: dict[str, Any] = {
    "type": "line",
    "title": "A",
    "x_label": "Time (s)",
    "y_label": None,
    "x_unit": "s",
    "y_unit": None,
    "x_scale": "linear",
    "x_ticks": [0.0, 1.0],
    "x_tick_labels": ["0", "1"],
    "y_scale": "log",
    "y_ticks": [],
    "y_tick_labels": [],
    "elements": [{"label": "a", "points": [[0.0, "b"], [1.0, None]]}],
    "complete": True,
}
BAR = {
    "type": "bar",
    "title": None,
    **dict.fromkeys(("x_label", "y_label", "x_unit", "y_unit")),
    "elements": [{"label": "a", "group": "Group 0", "value": 3.0}],
    "complete": True,
}
PIE = {"type": "pie", "title": None, "elements": [{"label": "a", "angle": 360.0, "radius": 1.0}], "complete": True}
BOX = {
    **BAR,
    "type": "box_and_whisker",
    "elements": [
        {
            "label": "a",
            "min": 0.0,
            "first_quartile": 1.0,
            "median": 2.0,
            "third_quartile": 3.0,
            "max": 4.0,
            "outliers": [9.0],
        }
    ],
}
UNKNOWN: dict[str, Any] = {"type": "unknown", "title": "?", "elements": [], "complete": True}
FIGURE = {"type": "superchart", "title": None, "elements": [LINE, BAR, PIE, BOX, UNKNOWN], "complete": True}
HONEST = [LINE, BAR, PIE, BOX, UNKNOWN, FIGURE]


def shown(value: Any, mode: str = "safe") -> tuple[Message, list[OutputCode]]:
    policy = OutputPolicy(mode, 1 << 24)  # type: ignore[arg-type]
    content = {"data": {"text/plain": "<Figure>", CHART: value}, "metadata": {}}
    verdict = policy.apply(Message(channel="iopub", header={"msg_type": "display_data"}, content=content))
    assert verdict.message is not None
    return verdict.message, [note.code for note in verdict.notes]  # type: ignore[misc]


def changed(path: str, value: Any) -> dict[str, Any]:
    chart = copy.deepcopy(LINE)
    place: Any = chart
    *way, last = path.split(".")
    for name in way:
        place = place[int(name) if name.isdecimal() else name]
    place[int(last) if last.isdecimal() else last] = value
    return chart


@pytest.mark.parametrize("chart", HONEST, ids=lambda chart: chart["type"])
def test_an_honest_chart_passes_as_it_is(chart: dict[str, Any]) -> None:
    message, notes = shown(chart)
    assert message.content["data"][CHART] == chart
    assert not notes
    parsed = Chart.parse(chart)
    assert parsed is not None
    assert json.loads(json.dumps(parsed.to_dict())) == chart


@pytest.mark.parametrize(
    "chart",
    [
        None,
        [],
        "line",
        {},
        {"type": "line"},
        changed("type", "script"),
        changed("type", ["line"]),
        changed("title", {"a": 1}),
        changed("elements", {}),
        changed("elements", ["a"]),
        changed("elements.0.label", 7),
        changed("elements.0.points", "ab"),
        changed("elements.0.points.0", [1.0]),
        changed("elements.0.points.0", [1.0, 2.0, 3.0]),
        changed("elements.0.points.0", [1.0, {}]),
        changed("elements.0.points.0", [1.0, True]),
        changed("elements.0.points.0", [1.0, 10**400]),
        changed("elements.0.points.0", [1.0, float("inf")]),
        changed("x_ticks", [[0.0]]),
        changed("y_tick_labels", [None]),
        changed("elements.0.points", [[0.0, 0.0]] * (int(of_chart().elements) // 3 + 1)),
        {**FIGURE, "elements": [FIGURE]},
        {**FIGURE, "elements": [UNKNOWN] * (chart_data.MAX_PARTS + 1)},
        {**FIGURE, "elements": "charts"},
    ],
    ids=range(24),
)
def test_what_is_no_chart_does_not_pass(chart: Any) -> None:
    message, notes = shown(chart)
    assert CHART not in message.content["data"]
    assert notes == [OutputCode.CHART_IMPROPER]
    assert Chart.parse(chart) is None


def test_what_is_not_named_and_what_a_terminal_obeys_is_left_out() -> None:
    chart = {**changed("elements.0.label", "\x1b]52;c;aGk=\x07a"), "script": "<script>", "x_scale": "<b>"}
    message, _ = shown(chart)
    passed = message.content["data"][CHART]
    assert passed["elements"][0]["label"] == "a"
    assert passed["x_scale"] == "unknown"
    assert passed.keys() == LINE.keys()
    assert len(chart_data.checked(changed("title", "a" * 5000))["title"]) == chart_data.MAX_TEXT  # type: ignore[index]


def test_a_mode_that_passes_everything_gives_no_improper_chart_to_a_caller() -> None:
    hostile = changed("elements.0.points", {"__class__": "x"})
    message, _ = shown(hostile, "trusted")
    assert message.content["data"][CHART] == hostile  # as that mode says
    assert Result(message.content["data"]).chart is None


def test_charts_are_classes_and_points_are_pairs() -> None:
    chart = Result({CHART: FIGURE}).chart
    assert isinstance(chart, SuperChart)
    line = chart.elements[0]
    assert isinstance(line, LineChart)
    assert line.type == "line"
    assert line.elements[0].points == [(0.0, "b"), (1.0, None)]
    result = Result({CHART: LINE})
    assert result.formats() == ["chart"]
    assert result["chart"] == result.chart
    assert CHART not in result._repr_mimebundle_()[0]


def test_the_largest_chart_costs_little() -> None:
    chart = changed("elements.0.points", [[0.5, 0.25]] * (int(of_chart().elements) // 3 - 10))
    before = time.thread_time()
    assert chart_data.checked(chart) is not None
    assert time.thread_time() - before < 2.0
