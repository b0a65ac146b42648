"""The engine wasm behind a notebook in JupyterLab: what a person takes back, and what the end of a cell does."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.lab import Lab, eventually, install_all, running_lab
from tests.plugins.wasm.container.test_checkpoints import IGNORES
from tests.plugins.wasm.container.test_engine import there

__all__ = ["there"]
KERNEL = "sandbox-wasm"
SETTINGS = ("--engine", "wasm", "--undo", "on", "--cell-timeout", "3", "--interrupt-grace", "1")
pytestmark = [
    pytest.mark.xdist_group("wasm"),
    pytest.mark.skipif(shutil.which("chromedriver") is None, reason="there is no Chromium"),
]


@pytest.fixture
def lab() -> Iterator[Lab]:
    with tempfile.TemporaryDirectory(prefix="lab-", ignore_cleanup_errors=True) as name:
        kernels = install_all(Path(name, "prefix"), "sandbox-kernel:data", {KERNEL: SETTINGS})
        with running_lab(Path(name), kernels) as running:
            yield running


@pytest.mark.long
def test_a_person_takes_a_cell_back_and_one_that_is_killed_is_taken_back(lab: Lab) -> None:
    lab.open(KERNEL, "value = 1", "value = 2", "%undo", "value", "runs = globals().get('runs', 0) + 1\nruns", IGNORES)
    lab.run_all()
    assert lab.text(3) == ["1"]
    assert lab.text(4) == ["1"]
    eventually(lambda: "CellTimeout" in str(lab.text(5)), "the cell was ended")
    assert "the variables as they were before the cell" in str(lab.text(5))
    lab.js("window.jupyterapp.commands.execute('notebook:run-all-cells')")
    eventually(lambda: lab.text(4) == ["2"], "that cell ran again, with the variable that was there")


@pytest.mark.long
def test_a_person_tries_a_cell_in_a_copy(lab: Lab) -> None:
    lab.open(KERNEL, "value = 1", "%%fork\nvalue = 2\nvalue", "value")
    lab.run_all()
    assert lab.text(1) == ["2"]
    assert lab.text(2) == ["1"]
