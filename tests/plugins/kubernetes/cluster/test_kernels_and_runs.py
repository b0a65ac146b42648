"""The ways in, as they are, with pods for sandboxes: a kernel of Jupyter's, a batch run, and MCP."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import start_new_kernel

from sandbox_kernel.plugins.kubernetes.pod import LABEL
from tests.plugins.kubernetes.engine import CPUS, kubectl
from tests.support import ROOT
from tests.support.engines import IMAGE

SETTINGS = (f"--image={IMAGE}", "--engine=kubernetes", f"--cpus={CPUS}", "--memory=512M")
WAIT = 120


def command(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "sandbox_kernel", *words]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, timeout=WAIT)


def test_a_kernel_of_jupyter_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    made = command("install", "--name", "pods", "--prefix", str(tmp_path), *SETTINGS)
    assert made.returncode == 0, made.stderr
    specs = KernelSpecManager(kernel_dirs=[str(tmp_path / "share" / "jupyter" / "kernels")])
    assert "pods" in specs.find_kernel_specs()
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    manager, client = start_new_kernel(startup_timeout=WAIT, kernel_name="pods")
    try:
        said: list[str] = []
        reply = client.execute_interactive(
            "import socket; print(socket.gethostname()); 6 * 7",
            timeout=WAIT,
            output_hook=lambda message: said.append(json.dumps(message["content"])),
        )
        assert reply["content"]["status"] == "ok"
        assert any('"42"' in one for one in said)
    finally:
        client.stop_channels()
        manager.shutdown_kernel()


def test_a_notebook_as_a_batch_run(tmp_path: Path) -> None:
    """The notebook of the README, which needs the image with data."""
    inputs = [f"--input={path}" for path in sorted((ROOT / "notebooks" / "data").iterdir())]
    words = ("run", str(ROOT / "notebooks" / "quickstart.ipynb"), "--output", str(tmp_path), *inputs, *SETTINGS)
    ran = command(*words, "--image=sandbox-kernel:data")
    assert ran.returncode == 0, ran.stderr
    cells = [
        cell for cell in nbformat.read(tmp_path / "quickstart.ipynb", as_version=4).cells if cell.cell_type == "code"
    ]
    assert len([cell for cell in cells if cell.execution_count]) == len(cells) > 0


def test_a_run_that_fails_says_so_and_leaves_no_pod(tmp_path: Path) -> None:
    notebook = tmp_path / "one.ipynb"
    cell = nbformat.v4.new_code_cell("import socket; print(socket.gethostname())\n1 / 0")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), notebook)
    line = [sys.executable, "-m", "sandbox_kernel", "run", str(notebook), "--output", str(tmp_path / "out"), *SETTINGS]
    with subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as ran:
        ran.communicate(timeout=WAIT)
    assert ran.returncode == 1
    assert "ZeroDivisionError" in (tmp_path / "out" / "one.ipynb").read_text()
    path = f'--output=jsonpath={{range .items[*]}}{{.metadata.labels.{LABEL}/owner}} {{.status.phase}}{{"\\n"}}{{end}}'
    rows = [row.split() for row in kubectl("--namespace=sandboxes", "get", "pods", path).splitlines()]
    assert [phase for owner, phase in rows if owner.startswith(f"{ran.pid}-") and phase == "Running"] == []
