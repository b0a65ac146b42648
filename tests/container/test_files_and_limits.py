"""The notebook about files and limits, run with the settings that it names: each limit strikes and says so."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess

import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from tests.support import ROOT
from tests.support.kernels import install

pytestmark = pytest.mark.long

NOTEBOOKS = ROOT / "notebooks"
NOTEBOOK = NOTEBOOKS / "files_and_limits.ipynb"


def settings_it_names() -> list[str]:
    """Return the settings of the command in its first cell, without the names under which it installs the kernel."""
    text = nbformat.read(NOTEBOOK, 4).cells[0].source
    words = shlex.split(re.search(r"sandbox-kernel install(?:.*\\\n)+.*", text)[0].replace("\\\n", ""))  # type: ignore[index]
    return words[words.index("--uploads") :]


@pytest.fixture(scope="module")
def executed(tmp_path_factory, image):
    """The notebook, run once beside its data; its folder is the second part."""
    folder = tmp_path_factory.mktemp("files-and-limits")
    shutil.copytree(NOTEBOOKS / "data", folder / "data")
    prepares = re.search(r"mkdir .*", nbformat.read(NOTEBOOK, 4).cells[0].source)[0]  # type: ignore[index]
    subprocess.run(prepares, shell=True, cwd=folder, check=True)  # noqa: S602 (the notebook's own words)
    specs = install(folder / "prefix", "--image", image, *settings_it_names(), name="sandbox-limits")
    manager = AsyncKernelManager(kernel_name="sandbox-limits", kernel_spec_manager=specs)
    notebook = nbformat.read(NOTEBOOK, 4)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, km=manager, timeout=120, resources=resources).execute(cleanup_kc=True)
    return notebook, folder


def shown(executed, *words):
    """Return what the cells that hold some words print and raise, as text."""
    (cell,) = (
        cell for cell in executed[0].cells if cell.cell_type == "code" and all(word in cell.source for word in words)
    )
    return "\n".join(
        output.text if output.output_type == "stream" else "\n".join(output.get("traceback", ()))
        for output in cell.outputs
    )


def test_the_files_of_the_data_folder_are_read_by_their_plain_names(executed):
    assert "/mnt/data ['README.md', 'airlines.csv', 'flights.csv.gz', 'weather.csv']" in shown(
        executed, "read_csv", "weather.csv"
    )


def test_a_file_that_a_cell_makes_comes_out_and_a_link_does_not(executed):
    results = executed[1] / "downloads"
    assert [path.name for path in results.iterdir()] == ["means.csv"]
    assert (results / "means.csv").read_text().startswith("origin,temp,wind_speed\nEWR,")
    assert "not copied to the downloads folder: shortcut.csv: it is a link" in shown(executed, "symlink_to")


def test_a_cell_without_end_is_stopped_and_its_variables_stay(executed):
    said = shown(executed, "rounds += 1")
    assert "CellTimeout\x1b[0m: the cell ran longer than its time limit and was stopped.\nLimit: 10 s." in said
    assert said.endswith("Kept: variables and files.\nSetting to change: cell_timeout.")
    assert "rounds is above zero: True" in shown(executed, "still here")


def test_too_much_memory_costs_the_variables_and_not_the_files(executed):
    said = shown(executed, "bytearray")
    assert "OutOfMemory\x1b[0m: the cell used more memory than the sandbox has.\nLimit: 512.0 MiB." in said
    assert said.endswith("Kept: files, but no variables.\nSetting to change: memory.")
    assert shown(executed, "globals()") == "False True\n"


def test_a_full_disk_and_a_missing_network_are_exceptions_with_an_explanation(executed):
    said = shown(executed, "TemporaryFile")
    assert "No space left on device" in said
    assert "a folder of the sandbox is full. Limits: 64.0 MiB in /mnt/data (scratch_size)" in said
    said = shown(executed, "https://")
    assert "Temporary failure in name resolution" in said
    assert "the sandbox has no network" in said


def test_only_the_cells_that_are_meant_to_fail_do(executed):
    cells = [cell for cell in executed[0].cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells)
    failed = [any(output.output_type == "error" for output in cell.outputs) for cell in cells]
    assert failed == ["raises-exception" in cell.metadata.get("tags", ()) for cell in cells]
    assert sum(failed) == 4
