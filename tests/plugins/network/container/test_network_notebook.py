"""The notebook about one API shows what its text says: three libraries read it, and three hosts say why they do not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.support import ROOT

pytestmark = pytest.mark.long


@pytest.mark.timeout(300)
def test_the_notebook_reads_one_api_and_three_hosts_are_denied(tmp_path: Path, image: str) -> None:
    command: list[str | Path] = [
        sys.executable,
        ROOT / "notebooks" / "network_demo.py",
        "--output",
        tmp_path / "out",
        "--image",
        image,
    ]
    done = subprocess.run(command, check=False, timeout=240, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    notebook = nbformat.read(tmp_path / "out" / "one_api.ipynb", as_version=4)
    said = [
        "".join(one.get("text", "") or one.get("data", {}).get("text/plain", "") for one in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    assert "(3, {'name': 'Aldwick'" in said[2]
    assert "Brackwater" in said[3]
    assert "north    19.5" in said[4]
    denied = [line for line in said[5].splitlines() if line.startswith("403 ")]
    assert [line.split()[1] for line in denied] == ["host-not-allowed:", "metadata-service:", "port-not-allowed:"]
    assert said[5].count("[sandbox_kernel] NetworkDenied: ") == 3
    assert "403 Not allowed: example.org is no allowed host" in said[6]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert {row["code"]: row["count"] for row in report["network"]["refused"]} == {
        "host-not-allowed": 2,
        "metadata-service": 1,
        "port-not-allowed": 1,
    }
