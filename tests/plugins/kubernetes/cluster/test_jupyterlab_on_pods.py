"""JupyterLab in a real browser, with pods for sandboxes."""

from __future__ import annotations

from pathlib import Path

from tests.browser.lab import eventually, install_all, running_lab
from tests.plugins.kubernetes.engine import CPUS
from tests.support.engines import IMAGE

CELLS = (
    "import socket; print(socket.gethostname())",
    "from IPython.display import HTML; HTML('<b>bold</b><script>document.title = \"cracked\"</script>')",
    "1 / 0",
)


def test_a_notebook_runs_in_a_pod(tmp_path: Path) -> None:
    """What comes back is shown, filtered as ever, and an error is an error."""
    for name in ("kernels", "lab"):
        (tmp_path / name).mkdir()
    settings = ("--engine=kubernetes", f"--cpus={CPUS}", "--memory=512M")
    kernels = install_all(tmp_path / "kernels", IMAGE, {"pods": settings})
    with running_lab(tmp_path / "lab", kernels) as lab:
        lab.open("pods", *CELLS)
        lab.run_all()
        eventually(lambda: "ZeroDivisionError" in "".join(lab.text(2)), "the last cell has its error", 120)
        assert "sandbox" in "".join(lab.text(0))
        assert lab.text(1), "the markup has an output"
        assert "cracked" not in lab.js("return document.title")
