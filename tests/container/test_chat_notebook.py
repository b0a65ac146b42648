"""The chat notebook: the SDK in an ordinary kernel, a turn that fails and is repaired, a chart, and a file."""

from __future__ import annotations

import csv
import gzip
import shutil
import statistics
import sys
from collections import defaultdict
from pathlib import Path

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient
from nbformat import NotebookNode

from tests.support import ROOT

pytestmark = pytest.mark.long

NOTEBOOKS = ROOT / "notebooks"
NOTEBOOK = NOTEBOOKS / "chat_analysis.ipynb"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to run in: what the notebook makes is not left beside it."""
    path = tmp_path_factory.mktemp("chat")
    shutil.copytree(NOTEBOOKS / "data", path / "data")
    return path


@pytest.fixture(scope="module")
def executed(folder: Path) -> NotebookNode:
    """The notebook, run in the environment's own `python3` kernel."""
    notebook = nbformat.read(NOTEBOOK, 4)
    specs = KernelSpecManager(kernel_dirs=[str(Path(sys.prefix, "share/jupyter/kernels"))])
    client = NotebookClient(notebook, timeout=150, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.create_kernel_manager()
    assert client.km is not None
    client.km.kernel_spec_manager = specs
    client.execute()
    return notebook


def outputs(notebook: NotebookNode, cell: str) -> list[NotebookNode]:
    return list(next(one for one in notebook.cells if one.id == cell).outputs)


def printed(notebook: NotebookNode, cell: str) -> str:
    return "".join(one.text for one in outputs(notebook, cell) if one.output_type == "stream")


def test_every_cell_of_the_back_end_ran(executed: NotebookNode) -> None:
    assert not [one for cell in executed.cells for one in cell.get("outputs", ()) if one.output_type == "error"]
    assert printed(executed, "end") == "5 turns, of which 1 failed and was repaired\n"


def test_the_turns_stream_fail_recover_and_draw(executed: NotebookNode) -> None:
    said = printed(executed, "chat")
    with gzip.open(NOTEBOOKS / "data" / "flights.csv.gz", "rt", encoding="utf-8") as file:
        assert f"{sum(1 for _ in file) - 1:,} flights of 15 airlines" in said
    assert "KeyError: 'Column not found: delay' (shown to the model)" in said
    shown = [one.data for one in outputs(executed, "chat") if "data" in one]
    assert [("image/png" in data, "<table" in data.get("text/html", "")) for data in shown].count((True, False)) == 1
    assert sum("<table" in data.get("text/html", "") for data in shown) == 2
    spoken = [data["text/markdown"].splitlines()[0] for data in shown if "text/markdown" in data]
    assert len(spoken) == 6
    assert spoken.index("**Model:** There is no column of that name; the file calls it dep_delay.") == 3


def test_the_file_for_the_user_holds_what_the_csv_module_counts(executed: NotebookNode, folder: Path) -> None:
    delays = defaultdict(list)
    with gzip.open(NOTEBOOKS / "data" / "flights.csv.gz", "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["dep_delay"] != "NA":
                delays[row["carrier"]].append(float(row["dep_delay"]))
    with (NOTEBOOKS / "data" / "airlines.csv").open(encoding="utf-8", newline="") as file:
        names = {row["carrier"]: row["name"] for row in csv.DictReader(file)}
    with (folder / "chat_results" / "delays.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["airline"]: row for row in csv.DictReader(file)}
    expected = {names[carrier]: values for carrier, values in delays.items() if len(values) >= 100}
    assert set(rows) == set(expected)
    for name, values in expected.items():
        assert int(rows[name]["flights"]) == len(values)
        assert float(rows[name]["mean_delay"]) == pytest.approx(statistics.fmean(values), abs=0.006)
    worst = max(expected, key=lambda name: statistics.fmean(expected[name]))
    assert f"{worst} is latest" in printed(executed, "chat")


def test_hostile_turns_get_nothing(executed: NotebookNode) -> None:
    lines = printed(executed, "limits").splitlines()
    assert "URLError" in lines[1]
    assert lines[3] == r"    -> ('sandbox\n', '/tmp/home')"
    assert "CellTimeout" in lines[5]


def test_the_notebook_says_where_it_runs() -> None:
    assert "not in the sandbox" in nbformat.read(NOTEBOOK, 4).cells[0].source
