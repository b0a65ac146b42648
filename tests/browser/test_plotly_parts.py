"""Each type of plotly's traces is drawn by the parts of its library that a figure of that type brings, and no more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome

from sandbox_kernel import Sandbox
from tests.browser.lab import chromium, eventually
from tests.browser.test_packed_browser import inside, page

PLACES = json.loads((Path(__file__).parents[2] / "images" / "plotly.json").read_text())
PARTS = ["core", *PLACES["needs"]]
TYPES = {name: part for name, (_, part) in PLACES["types"].items() if name != "calendars"}

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
    } catch (error) { drawn[data[0].type] = String(error) }
    Plotly.purge(div); div.remove();
  }
  done = 1;
})()"""
WHICH = """
import json, sandbox_plots
def which(figure):
    scripts = sandbox_plots._plotly_parts(figure)
    return [name for name in PARTS if sandbox_plots._packed(f"plotly-{name}.js") in scripts]
print(json.dumps([which(figure) for figure in FIGURES]))"""


@pytest.fixture(scope="module")
def sandbox(image: str) -> Iterator[Sandbox]:
    with Sandbox(image=image) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


def scripts(sandbox: Sandbox, names: list[str]) -> list[str]:
    run = sandbox.run_code(
        "import sandbox_plots, pathlib\n"
        "parts = [sandbox_plots._NO_OUTLINES]\n"
        f"parts += [sandbox_plots._packed(f'plotly-{{n}}.js') for n in {names!r}]\n"
        "pathlib.Path('all').write_text(';'.join(parts))"
    )
    assert run.error is None, run.error
    return [sandbox.files.read("all")]


def figure(name: str) -> list[dict[str, Any]]:
    trace = {"type": name, **DATA.get(name, {"x": N, "y": N})}
    return [trace, CARPET] if name in ("scattercarpet", "contourcarpet") else [trace]


def with_needs(part: str) -> list[str]:
    return [name for name in PARTS if name in ("core", part, *PLACES["needs"].get(part, ()))]


def drawn(browser: Chrome, sandbox: Sandbox, parts: list[str], names: list[str]) -> dict[str, Any]:
    code = "".join(f"<script>{one}</script>" for one in scripts(sandbox, parts))
    draw = DRAW.replace("FIGURES", json.dumps([figure(name) for name in names]))
    with page(f"<!DOCTYPE html><meta charset=utf-8><body>{code}<script>{draw}</script>") as port:
        browser.get(f"http://127.0.0.1:{port}/")
        eventually(lambda: browser.execute_script("return window.done") == 1, f"{parts} drew", seconds=60)
        found: dict[str, Any] = browser.execute_script("return window.drawn")
        return found


@pytest.mark.parametrize("part", PARTS)
def test_a_part_draws_its_types(browser: Chrome, sandbox: Sandbox, part: str) -> None:
    names = [name for name, of in TYPES.items() if of == part] + (["scatter"] if part == "core" else [])
    assert names
    found = drawn(browser, sandbox, with_needs(part), names)
    assert {name: name in found[name] for name in names} == dict.fromkeys(names, True), found


def test_control_a_type_is_not_drawn_without_its_part(browser: Chrome, sandbox: Sandbox) -> None:
    names = [name for name, part in TYPES.items() if part != "core"]
    found = drawn(browser, sandbox, ["core"], names)
    assert [name for name in names if name in found[name]] == []


def test_a_figure_brings_the_parts_that_its_traces_frames_and_buttons_name(sandbox: Sandbox) -> None:
    cases: list[tuple[dict[str, Any], list[str]]] = [
        *(({"data": [{"type": name}]}, with_needs(part)) for name, part in TYPES.items()),
        ({"data": [{"x": N}]}, ["core"]),
        ({"data": [{"type": "pie"}, {"type": "surface"}, {"type": "table"}]}, ["core", "other", "gl3d"]),
        ({"data": [{}], "frames": [{"data": [{"type": "choropleth"}]}]}, ["core", "geo"]),
        ({"data": [{}], "layout": {"updatemenus": [{"buttons": [{"args": ["type", "surface"]}]}]}}, ["core", "gl3d"]),
        ({"data": [{}], "layout": {"template": {"data": {"surface": [{"type": "surface"}]}}}}, ["core"]),
        ({"data": [{"xcalendar": "nepali"}]}, ["core", "other"]),
    ]
    code = WHICH.replace("PARTS", repr(PARTS)).replace("FIGURES", repr([case for case, _ in cases]))
    run = sandbox.run_code(code)
    assert run.error is None, run.error
    assert json.loads("".join(run.logs.stdout)) == [wanted for _, wanted in cases]


def test_the_first_figure_of_a_notebook_is_at_most_half_a_megabyte(sandbox: Sandbox) -> None:
    show = "import plotly.express as px\npx.scatter(x=[1, 2, 3], y=[3, 1, 2], title='plotly').show()"
    run = sandbox.run_code(show)
    assert run.error is None, run.error
    (shown,) = [result.html for result in run.results if result.html]
    assert 300_000 < len(json.dumps(shown)) < 1 << 19


MAPS = """
import plotly.express as px
areas = AREAS
px.choropleth(locations=["FRA"], color=[1]).show()
px.choropleth(geojson=areas, locations=["a"], color=[1]).update_geos(visible=False).show()"""


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
