"""The demo: a real notebook on real data, run in the sandbox, and its figures computed again without pandas."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import statistics
import sys
from collections import defaultdict
from types import ModuleType

import nbformat
import PIL.Image
import pytest

from tests.support import ROOT

NOTEBOOKS = ROOT / "notebooks"
SEASONS = {"2": "February", "7": "July"}


def load_demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("quickstart_demo", NOTEBOOKS / "demo.py")
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules[spec.name] = module  # type: ignore[union-attr]  # dataclasses look their module up
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


demo = load_demo()


@pytest.fixture(scope="module")
def said():
    return []


@pytest.fixture(scope="module")
def result(tmp_path_factory, said):
    """The demo, run once on the real kernel, into a folder of its own."""
    return demo.run(tmp_path_factory.mktemp("demo"), say=said.append)


@pytest.fixture(scope="module")
def flights():
    with gzip.open(NOTEBOOKS / "data" / "flights.csv.gz", "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def weather():
    """One word for each airport and hour, by the notebook's rules."""
    with (NOTEBOOKS / "data" / "weather.csv").open(encoding="utf-8", newline="") as file:
        return {(row["origin"], row["time_hour"]): kind_of(row) for row in csv.DictReader(file)}


def kind_of(row):
    temp, wind, rain, view = (row[name] for name in ("temp", "wind_speed", "precip", "visib"))
    if "NA" in (temp, wind, rain, view) or float(wind) > 157:
        return "no report"
    if float(rain) > 0:
        return "snow or ice" if float(temp) <= 34 else "rain"
    if float(view) < 3:
        return "fog"
    return "windy" if float(wind) >= 20 else "calm and dry"


def table(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def produced(result, name):
    return next(path for path in result.files if path.name == name)


def test_every_cell_ran_in_order_and_without_an_error(result):
    cells = [cell for cell in nbformat.read(result.notebook, 4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [out for cell in cells for out in cell.outputs if out.output_type == "error"]
    assert result.html.stat().st_size > 100_000


def test_a_line_is_shown_for_each_cell_as_it_ends(result, said):
    count = sum(cell.cell_type == "code" for cell in nbformat.read(result.notebook, 4).cells)
    steps = ["start", *(f"[{number}/{count}]" for number in range(1, count + 1))]
    assert [line.split()[0] for line in said[1:]] == steps


def test_tables_and_plots_are_in_the_executed_notebook(result):
    outputs = [out for cell in nbformat.read(result.notebook, 4).cells for out in cell.get("outputs", ())]
    shown = [out.data for out in outputs if "data" in out]
    assert sum("<table" in data.get("text/html", "") for data in shown) >= 4
    assert sum("image/png" in data for data in shown) == 2


def test_the_weather_table_holds_what_the_csv_module_counts(result, flights, weather):
    groups = defaultdict(list)
    for row in flights:
        groups[SEASONS[row["month"]], weather.get((row["origin"], row["time_hour"]), "no report")].append(row)
    rows = table(produced(result, "weather_summary.csv"))
    assert {(row["season"], row["weather"]) for row in rows} == set(groups)
    for row in rows:
        group = groups[row["season"], row["weather"]]
        delays = [float(flight["dep_delay"]) for flight in group if flight["dep_delay"] != "NA"]
        late = sum(delay > 15 for delay in delays)
        cancelled = len(group) - len(delays)
        assert int(row["flights"]) == len(group)
        assert float(row["cancelled"]) == pytest.approx(cancelled / len(group), abs=1e-4)
        assert float(row["late_if_departed"]) == pytest.approx(late / len(delays), abs=1e-4)
        assert float(row["mean_delay"]) == pytest.approx(statistics.fmean(delays), abs=1e-4)
        assert float(row["disrupted"]) == pytest.approx((late + cancelled) / len(group), abs=1e-4)


def test_the_added_share_is_the_slope_within_airport_and_hour(result, flights, weather):
    """July has rain, fog and wind: least squares of three unknowns, solved here by hand."""
    kinds = ("windy", "fog", "rain")
    cells = defaultdict(list)
    for row in flights:
        kind = weather.get((row["origin"], row["time_hour"]), "no report")
        if row["month"] == "7" and kind != "no report":
            disrupted = row["dep_delay"] == "NA" or float(row["dep_delay"]) > 15
            cells[row["origin"], row["hour"]].append([*(float(kind == name) for name in kinds), float(disrupted)])
    products = [[0.0] * 4 for _ in range(4)]
    for members in cells.values():
        means = [statistics.fmean(column) for column in zip(*members, strict=True)]
        for member in members:
            centred = [value - mean for value, mean in zip(member, means, strict=True)]
            for i, left in enumerate(centred):
                for j, right in enumerate(centred):
                    products[i][j] += left * right
    expected = dict(zip(kinds, solve([row[:] for row in products[:3]]), strict=True))
    rows = {row["weather"]: row for row in table(produced(result, "weather_summary.csv")) if row["season"] == "July"}
    for kind in kinds:
        assert float(rows[kind]["added_per_100_estimate"]) == pytest.approx(100 * expected[kind], abs=1e-3)
        low, high = float(rows[kind]["added_per_100_low"]), float(rows[kind]["added_per_100_high"])
        assert low < float(rows[kind]["added_per_100_estimate"]) < high


def solve(system):
    """Gauss-Jordan on three rows of three coefficients and a right side."""
    for i, pivot in enumerate(system):
        system[i] = [value / pivot[i] for value in pivot]
        for j, row in enumerate(system):
            if j != i:
                system[j] = [value - row[i] * unit for value, unit in zip(row, system[i], strict=True)]
    return [row[-1] for row in system]


def test_the_carrier_table_holds_what_the_csv_module_counts(result, flights):
    won_back = defaultdict(list)
    for row in flights:
        if "NA" not in (row["dep_delay"], row["arr_delay"]) and float(row["dep_delay"]) > 15:
            won_back[row["carrier"]].append(float(row["dep_delay"]) - float(row["arr_delay"]))
    rows = table(produced(result, "carrier_summary.csv"))
    assert len(rows) >= 8
    for row in rows:
        assert int(row["late_departures"]) == len(won_back[row["carrier"]])
        assert float(row["won_back"]) == pytest.approx(statistics.fmean(won_back[row["carrier"]]), abs=1e-4)


def test_the_findings_tell_the_figures_of_the_data(result, flights):
    delays = [float(row["dep_delay"]) for row in flights if row["dep_delay"] != "NA"]
    cancelled, late = 1 - len(delays) / len(flights), sum(delay > 15 for delay in delays) / len(delays)
    assert result.findings[0] == (
        f"{len(flights):,} flights: {cancelled:.1%} cancelled, {late:.1%} of the others left more than 15 minutes late "
        f"(mean delay {statistics.fmean(delays):.1f} minutes)."
    )
    assert 3 <= len(result.findings) <= 5


def test_the_figure_is_a_whole_png(result):
    data = produced(result, "delays.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert data.endswith(b"IEND\xaeB\x60\x82")
    assert int.from_bytes(data[16:20]) == 1440


def test_no_text_of_the_figure_is_cut_at_its_edge(result):
    with PIL.Image.open(produced(result, "delays.png")) as picture:
        grey, (width, height) = picture.convert("L"), picture.size
    for edge in ((0, 0, 1, height), (width - 1, 0, width, height), (0, 0, width, 1), (0, height - 1, width, height)):
        assert grey.crop(edge).getextrema() == (255, 255)


def test_nothing_but_the_produced_files_comes_out(result):
    assert {path.name for path in result.files[0].parent.iterdir()} == set(demo.PRODUCED)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("raise ValueError('no such airport')", "ValueError: no such airport"),
        ("print('a finding, but no file')", "did not leave weather_summary.csv"),
    ],
)
def test_a_failed_cell_or_a_missing_file_is_a_failed_demo(tmp_path, monkeypatch, capsys, source, complaint):
    cell = nbformat.v4.new_code_cell(source, metadata={"tags": ["findings"]})
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "broken.ipynb")
    monkeypatch.setattr(demo, "NOTEBOOK", tmp_path / "broken.ipynb")
    monkeypatch.setattr(demo, "FILES_SECONDS", 0.1)
    assert demo.main(["--output", str(tmp_path / "output"), "--kernel", "python3"]) == 1
    assert complaint in capsys.readouterr().err
