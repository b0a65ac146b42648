"""Voilà makes a page of the outputs of a notebook, with a server behind it that runs kernels: none acts there."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from selenium.webdriver import Chrome

from tests.browser.lab import WAIT, chromium, eventually
from tests.browser.test_page_messages import ANSWERS, GAUGE, PAST, SECONDS
from tests.support.chromium import Evil
from tests.support.policy.hostile import HTML

pytest.importorskip("voila", reason="pip install voila")

ALL = """from IPython.display import HTML, display
for source in {}: display(HTML(source))"""
LAST = "the last output"


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}voila/static/missing", timeout=5):  # noqa: S310
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


@contextmanager
def voila(folder: Path, kernels: Path, kernel: str, sources: list[str]) -> Iterator[Chrome]:
    """Show outputs of a kernel in a browser, and end both."""
    document = nbformat.v4.new_notebook()
    document.metadata["kernelspec"] = {"name": kernel, "display_name": kernel, "language": "python"}
    document.cells = [nbformat.v4.new_code_cell(ALL.format(sources)), nbformat.v4.new_code_cell(f"print({LAST!r})")]
    nbformat.write(document, folder / "notebook.ipynb")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "IPYTHON"))}
    names = {"HOME": "home", "JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "run"}
    given = {name: str(folder / value) for name, value in names.items()}
    with (folder / "voila.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "voila", "notebook.ipynb", "--no-browser", f"--port={port}"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env=kept | given | {"JUPYTER_PATH": str(kernels / "share/jupyter")},
            start_new_session=True,
        )
    try:
        eventually(lambda: answers(url) or process.poll() is not None, "Voilà runs")
        assert process.poll() is None, (folder / "voila.log").read_text()
        (folder / "browser").mkdir()
        with chromium(folder / "browser") as browser:
            browser.get(url)
            eventually(lambda: LAST in browser.page_source, "all outputs are there")
            yield browser
    finally:
        process.send_signal(signal.SIGTERM)  # it ends its kernels
        try:
            process.wait(WAIT)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)


def corpus(evil: Evil) -> list[str]:
    """Return the corpus. What would take the page away is left out."""
    at = f"http://evil.test:{evil.tcp}"
    return [one.replace("http://evil.test", at) for name, one in HTML.items() if "refresh" not in name]


@pytest.mark.long
def test_hostile_outputs_run_nothing_and_frames_do_not_keep_the_page(evil: Evil, tmp_path: Path, kernels: Path) -> None:
    with voila(tmp_path, kernels, "sandbox-python", [*corpus(evil), PAST]) as browser:
        browser.execute_script(GAUGE)
        eventually(lambda: browser.execute_script("return heard") > 0, "the attack of the frame begins")
        browser.execute_script("late = 0")
        end, worst = time.monotonic() + SECONDS, 0.0
        while (start := time.monotonic()) < end:
            worst = max(worst, browser.execute_script("return late") / 1000, time.monotonic() - start)
        assert worst < ANSWERS
        assert browser.execute_script("return window.pwned") is None
    assert evil.requests == []


@pytest.mark.long
def test_control_unfiltered_they_run_and_load(evil: Evil, tmp_path: Path, kernels: Path) -> None:
    with voila(tmp_path, kernels, "sandbox-trusted", corpus(evil)) as browser:
        eventually(lambda: browser.execute_script("return window.pwned") == 1, "a script runs")
        eventually(lambda: "leak" in evil.paths(), "something is loaded")
