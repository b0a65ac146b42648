"""Figures that cells draw, as data for callers of the SDK."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sandbox_kernel import (
    BarChart,
    BoxAndWhiskerChart,
    LineChart,
    PieChart,
    Sandbox,
    ScatterChart,
    SuperChart,
)


@pytest.fixture(scope="module")
def sandbox(image: str) -> Iterator[Sandbox]:
    with Sandbox(image=image, memory="1G", cell_timeout=60) as one:
        yield one


def drawn(sandbox: Sandbox, code: str) -> Any:
    execution = sandbox.run_code(f"import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\n{code}\nplt.show()")
    assert execution.error is None, execution.error.traceback
    (result,) = execution.results
    assert {"png", "chart"} <= set(result.formats())
    return result.chart


def test_lines(sandbox: Sandbox) -> None:
    code = "ax.plot([1, 2, float('nan')], [1, 4, 9], label='a'); ax.axhline(2)\n"
    chart = drawn(sandbox, code + "ax.set(title='T', xlabel='Time (s)', ylabel='Force [N]', yscale='log')")
    assert isinstance(chart, LineChart)
    assert (chart.title, chart.x_label, chart.x_unit, chart.y_unit) == ("T", "Time (s)", "s", "N")
    assert (chart.x_scale, chart.y_scale, chart.complete) == ("linear", "log", True)
    assert [(line.label, line.points) for line in chart.elements] == [("a", [(1.0, 1.0), (2.0, 4.0), (None, 9.0)])]
    assert all(isinstance(tick, float) for tick in chart.x_ticks)
    assert len(chart.x_tick_labels) == len(chart.x_ticks)


def test_times_and_categories(sandbox: Sandbox) -> None:
    days = "import datetime; days = [datetime.date(2024, 1, day) for day in (1, 2)]\n"
    chart = drawn(sandbox, days + "ax.plot(days, ['a', 'b'])")
    assert (chart.x_scale, chart.y_scale) == ("datetime", "categorical")
    assert chart.elements[0].points == [("2024-01-01", "a"), ("2024-01-02", "b")]
    assert chart.x_ticks[0].startswith("20")


def test_bars(sandbox: Sandbox) -> None:
    chart = drawn(sandbox, "ax.bar(['a', 'b'], [1, 2], label='first'); ax.set(xlabel='x', ylabel='y')")
    assert isinstance(chart, BarChart)
    assert [(bar.label, bar.group, bar.value) for bar in chart.elements] == [("a", "first", 1.0), ("b", "first", 2.0)]
    lying = drawn(sandbox, "ax.barh(['a', 'b'], [1, 2]); ax.set(xlabel='value', ylabel='name')")
    assert [(bar.label, bar.value) for bar in lying.elements] == [("a", 1.0), ("b", 2.0)]
    assert (lying.x_label, lying.y_label) == ("name", "value")


def test_points_wedges_and_boxes(sandbox: Sandbox) -> None:
    points = drawn(sandbox, "ax.scatter([1, 2], [3, 4], label='a')")
    assert isinstance(points, ScatterChart)
    assert points.elements[0].points == [(1.0, 3.0), (2.0, 4.0)]
    wedges = drawn(sandbox, "ax.pie([90, 10], labels=['a', 'b'])")
    assert isinstance(wedges, PieChart)
    assert [(wedge.label, wedge.angle, wedge.radius) for wedge in wedges.elements] == [("a", 324, 1), ("b", 36, 1)]
    for how in ("", ", patch_artist=True", ", orientation='horizontal'"):
        boxes = drawn(sandbox, f"ax.boxplot([[1, 2, 3, 4, 5], [1, 2, 3, 4, 50]], tick_labels=['a', 'b']{how})")
        assert isinstance(boxes, BoxAndWhiskerChart)
        box = boxes.elements[1]
        assert (box.label, box.min, box.first_quartile, box.median, box.third_quartile) == ("b", 1, 2, 3, 4)
        assert (box.max, box.outliers) == (4, [50])


def test_figures_of_several_and_of_other_kinds(sandbox: Sandbox) -> None:
    code = "plt.close(fig); fig, two = plt.subplots(1, 2); fig.suptitle('S'); two[0].plot([1, 2]); two[1].bar([1], [2])"
    chart = drawn(sandbox, code)
    assert isinstance(chart, SuperChart)
    assert (chart.type, chart.title) == ("superchart", "S")
    assert [type(part) for part in chart.elements] == [LineChart, BarChart]
    other = drawn(sandbox, "ax.imshow([[1, 2]]); ax.set_title('I')")
    assert (other.type, other.title, other.elements) == ("unknown", "I", [])
    large = drawn(sandbox, "ax.plot(range(100_000))")
    assert not large.complete
    assert 1000 < len(large.elements[0].points) <= 10_000


def test_a_kernel_that_is_new_brings_charts_too(sandbox: Sandbox) -> None:
    sandbox.restart()
    assert isinstance(drawn(sandbox, "ax.plot([1, 2])"), LineChart)
