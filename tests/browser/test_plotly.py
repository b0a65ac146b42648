"""plotly's figures: each type of trace is drawn by the library that comes along, and many figures fit into a cell."""

from __future__ import annotations

import json
from typing import Any

import pytest
from selenium.webdriver import Chrome

from sandbox_kernel import Sandbox
from tests.browser.lab import eventually
from tests.browser.test_packed_browser import inside
from tests.support.chromium import page

N = [1, 2, 3]
CUBE = {"x": [0, 0, 0, 0, 1, 1, 1, 1], "y": [0, 0, 1, 1] * 2, "z": [0, 1] * 4}
TREE = {"labels": ["a", "b"], "parents": ["", "a"], "values": [2, 1]}
TABLE = {"dimensions": [{"values": N, "label": "a"}, {"values": N, "label": "b"}]}
PLACE = {"lat": N, "lon": N}
CARPET = {"type": "carpet", "a": [4, 4, 4, 5, 5, 5], "b": [1, 2, 3, 1, 2, 3], "y": [2, 3, 4, 3, 4, 5], "carpet": "c"}
AREA = {"type": "Polygon", "coordinates": [[[0, 0], [0, 9], [9, 9], [9, 0], [0, 0]]]}
AREAS = {"type": "FeatureCollection", "features": [{"type": "Feature", "id": "a", "geometry": AREA}]}
POLAR = {"r": N, "theta": N}
DATA: dict[str, dict[str, Any]] = {
    **{key: {"labels": ["a", "b"], "values": [1, 2]} for key in ("pie", "funnelarea")},
    **dict.fromkeys(("sunburst", "treemap", "icicle"), TREE),
    **dict.fromkeys(("splom", "parcoords", "parcats"), TABLE),
    **dict.fromkeys(("scattergeo", "scattermap", "densitymap"), PLACE),
    **dict.fromkeys(("scatterpolar", "barpolar", "scatterpolargl"), POLAR),
    **{key: {"z": [N, [2, 3, 1], [3, 1, 2]]} for key in ("heatmap", "contour", "surface")},
    **{key: {"x": N, "open": N, "high": [4, 5, 6], "low": [0, 1, 2], "close": N} for key in ("candlestick", "ohlc")},
    **{key: dict.fromkeys("xyzuvw", N) for key in ("cone", "streamtube")},
    **{key: {**CUBE, "value": list(range(8)), "isomin": 2, "isomax": 6} for key in ("isosurface", "volume")},
    **{key: {"x": [0, 1, 0, 1], "y": [0, 0, 1, 1], "z": [0, 1, 2, 0]} for key in ("scatter3d", "mesh3d")},
    "sankey": {"node": {"label": ["a", "b"]}, "link": {"source": [0], "target": [1], "value": [1]}},
    "image": {"z": [[[1, 2, 3], [4, 5, 6]]]},
    "table": {"header": {"values": ["a"]}, "cells": {"values": [[1]]}},
    "indicator": {"mode": "number", "value": 3},
    "scattersmith": {"real": N, "imag": N},
    "scatterternary": {"a": N, "b": N, "c": N},
    **{key: {"locations": ["a"], "z": [1], "geojson": AREAS} for key in ("choropleth", "choroplethmap")},
    "quiver": {"x": N, "y": N, "u": N, "v": N},
    "carpet": CARPET,
    "scattercarpet": {"a": [4, 5], "b": [1, 2], "carpet": "c"},
    "contourcarpet": {"a": [4, 4, 5, 5], "b": [1, 2, 1, 2], "z": N, "carpet": "c"},
}
DRAW = """
window.drawn = {}; window.done = 0;
(async () => {
  for (const data of FIGURES) {
    const div = document.body.appendChild(document.createElement('div'));
    try {
      await Plotly.newPlot(div, data, {map: {style: 'white-bg'}, geo: {visible: false}});
      drawn[data[0].type] = div._fullLayout._modules.map(one => one.name);
    } catch (error) { drawn[data[0].type] = [String(error)] }
    Plotly.purge(div); div.remove();
  }
  done = 1;
})()"""
EMPTY = """
import json, pathlib, plotly.graph_objects as go, plotly.io
shown = plotly.io.renderers["sandbox"].to_mimebundle({"data": [], "layout": {"geo": {"visible": False}}})
pathlib.Path("empty").write_text(shown["text/html"])
print(json.dumps(sorted(go.Figure()._data_validator.class_strs_map)))"""


def figure(name: str) -> list[dict[str, Any]]:
    trace = {"type": name, **DATA.get(name, {"x": N, "y": N})}
    return [trace, CARPET] if name in ("scattercarpet", "contourcarpet") else [trace]


@pytest.mark.long
def test_each_type_of_trace_is_drawn_and_control_none_that_there_is_not(browser: Chrome, sandbox: Sandbox) -> None:
    run = sandbox.run_code(EMPTY)
    assert run.error is None, run.error
    types = json.loads("".join(run.logs.stdout))
    assert {"scatter", *DATA} <= set(types)
    draw = DRAW.replace("FIGURES", json.dumps([figure(name) for name in (*types, "unknown")]))
    draw = f'<script type="text/later">{draw}</script>'
    with page(f"<!DOCTYPE html><meta charset=utf-8><body>{sandbox.files.read('empty')}{draw}") as port:
        browser.get(f"http://127.0.0.1:{port}/")
        eventually(lambda: browser.execute_script("return window.done") == 1, "all are drawn", seconds=120)
        drawn: dict[str, Any] = browser.execute_script("return window.drawn")
    assert [name for name in (*types, "unknown") if name not in drawn[name]] == ["unknown"], drawn


@pytest.mark.long
def test_many_figures_of_a_cell_are_shown_and_the_first_of_a_notebook_is_two_megabytes_at_most(
    sandbox: Sandbox,
) -> None:
    run = sandbox.run_code(
        "import plotly.express as px\nfor n in range(60): px.scatter(x=[1, 2, 3], y=[n, 1, 2], title='plotly').show()"
    )
    assert run.error is None, run.error
    shown = [result.html for result in run.results if result.html]
    assert len(shown) == 60
    assert 1_000_000 < len(json.dumps(shown[0])) < 2_000_000


MAPS = """
import plotly.express as px
areas = AREAS
px.choropleth(locations=["FRA"], color=[1]).show()
px.choropleth(geojson=areas, locations=["a"], color=[1]).update_geos(visible=False).show()"""


@pytest.mark.long
def test_a_map_whose_outlines_would_come_from_a_network_says_so_and_one_with_its_own_is_drawn(
    browser: Chrome, sandbox: Sandbox
) -> None:
    run = sandbox.run_code(MAPS.replace("AREAS", repr(AREAS)))
    assert run.error is None, run.error
    shown = [result.html for result in run.results if result.html]
    with page(f"<!DOCTYPE html>{''.join(shown)}") as port:
        browser.get(f"http://127.0.0.1:{port}/")
        eventually(lambda: "update_geos(visible=False)" in inside(browser, 0), "what to do")
        assert inside(browser, 0).count("[plotly]") == 1
        areas = "return document.querySelectorAll('.choroplethlayer path').length"
        eventually(lambda: inside(browser, 1, areas) == "1", "the area")
        assert "[plotly]" not in inside(browser, 1)


WIDGET = """
import plotly.graph_objects as go
go.FigureWidget([go.Bar(y=[1, 2, 3])])"""


def test_a_figure_widget_is_drawn_as_a_figure_and_says_that_it_stays_so(browser: Chrome, sandbox: Sandbox) -> None:
    run = sandbox.run_code(WIDGET)
    assert run.error is None, run.error
    (shown,) = [result.html for result in run.results if result.html]
    with page(f"<!DOCTYPE html>{shown}") as port:
        browser.get(f"http://127.0.0.1:{port}/")
        bars = "return document.querySelectorAll('.barlayer .point').length"
        eventually(lambda: inside(browser, 0, bars) == "3", "the bars")
        assert "Later changes need another display" in inside(browser, 0)


TRUSTED = """
import plotly.express as px
from bokeh.io import output_notebook
from bokeh.plotting import figure, show
output_notebook()
for _ in range(2):
    px.scatter(x=[1, 2, 3], y=[3, 1, 2]).show()
plot = figure(width=400, height=300)
plot.line([1, 2, 3], [3, 1, 2])
show(plot)"""
SHOW = """
for (const html of arguments) {  // as JupyterLab shows what it trusts
  const div = document.body.appendChild(document.createElement('div'));
  div.innerHTML = html;
  for (const script of [...div.querySelectorAll('script')]) {
    const copy = document.createElement('script');
    for (const {name, value} of script.attributes) copy.setAttribute(name, value);
    copy.textContent = script.textContent;
    script.replaceWith(copy);
  }
}"""


def test_figures_are_drawn_without_frames_where_outputs_are_trusted(browser: Chrome, image: str) -> None:
    with Sandbox(image=image, outputs="trusted") as sandbox:
        run = sandbox.run_code(TRUSTED)
    assert run.error is None, run.error
    shown = [result.html for result in run.results if result.html]
    assert len(shown) == 3
    assert not any("<iframe" in one for one in shown)
    points = "return document.querySelectorAll('.scatterlayer .point').length"
    with page("<!DOCTYPE html><meta charset=utf-8><body>") as port:
        browser.get(f"http://127.0.0.1:{port}/")
        browser.execute_script(SHOW, *shown)
        eventually(lambda: browser.execute_script(points) == 6, "both figures of plotly")
        eventually(
            lambda: browser.execute_script("return window.Bokeh?.documents?.[0]?.is_idle"), "the figure of bokeh"
        )
