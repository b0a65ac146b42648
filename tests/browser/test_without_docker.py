"""JupyterLab as an ordinary user of a machine without Docker: the kernel's sandboxes are bubblewrap's."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from selenium.webdriver.common.by import By

from sandbox_kernel.plugins.bubblewrap.discovery import bubblewrap_program, reachable
from tests.browser.lab import NOTEBOOK, Lab, Somebody, eventually, install, running_lab
from tests.support import ROOT
from tests.support.kernels import arguments_of
from tests.support.roots import root_of_tests

USER = 64124
"""Of nobody: no group, no home, and nothing that would let it use Docker."""
PYTHON = next(
    (path for path in (sys.executable, f"/usr/bin/python3.{sys.version_info[1]}") if reachable(os.path.realpath(path))),
    "",
)
"""Of this version; the one of the tests may lie in root's home."""
KERNEL = "sandbox-bubblewrap"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a JupyterLab of somebody else's"),
    pytest.mark.skipif(bubblewrap_program() is None, reason="there is no bubblewrap"),
    pytest.mark.skipif(not (reachable(PYTHON) and reachable(str(ROOT))), reason="no other user can start this version"),
]


@pytest.fixture
def lab() -> Iterator[Lab]:
    with tempfile.TemporaryDirectory(prefix="lab-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        python = environment(folder / "python")
        settings = ("--engine", "bubblewrap", "--limits", "best-effort")
        install(folder / "prefix", KERNEL, root_of_tests(), *settings, python=python)
        with running_lab(folder, folder / "prefix", somebody=Somebody(USER, python)) as running:
            yield running


def environment(folder: Path) -> str:
    """Make an environment that has the packages of the tests' own, and return its Python."""
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    lines = (str(ROOT), *(f"import site; site.addsitedir({place!r})" for place in sys.path if "site-packages" in place))
    (packages / "tests.pth").write_text("\n".join(lines))
    return str(folder / "bin" / "python")


def inside() -> list[psutil.Process]:
    """Return the user's IPython kernels: a sandbox that went on over a restart is beneath the server no more."""
    words = "--HistoryManager.hist_file=:memory:"
    return [one for one in psutil.process_iter() if words in arguments_of(one) and user_of(one) == USER]


def user_of(process: psutil.Process) -> int | None:
    with contextlib.suppress(psutil.Error):
        return int(process.uids().real)
    return None


@pytest.mark.long
def test_a_notebook_works_and_its_kernel_restarts_and_ends(lab: Lab) -> None:
    look = "import os, time\nprint(os.listdir('/home'), os.path.exists('/var/run/docker.sock'), time.time_ns())"
    lab.open(KERNEL, "kept = 6 * 7\nkept", look)
    lab.run_all()
    assert lab.text(0) == ["42"]
    seen = lab.text(1)
    assert seen[0].startswith("['user'] False "), seen
    (before,) = inside()
    assert psutil.Process(lab.pid).uids().real == before.uids().real == USER  # no right of anybody's is used

    lab.js("window.jupyterapp.commands.execute('notebook:restart-run-all')")
    accept = ".jp-Dialog button.jp-mod-accept"
    eventually(lambda: lab.browser.find_elements(By.CSS_SELECTOR, accept), "the question whether to restart")

    def replaced() -> bool:
        lab.js(f"document.querySelector('{accept}')?.click()")  # a click on a dialog that is just opening is lost
        return not before.is_running() and len(inside()) == 1

    eventually(replaced, "another kernel in the place of the first")
    status = f"return {NOTEBOOK}.sessionContext.session?.kernel?.status"

    def ran_again() -> bool:
        return lab.text(1) not in ([], seen) and lab.text(0) == ["42"] and lab.js(status) == "idle"

    eventually(ran_again, "both cells have run again")

    lab.js("window.jupyterapp.commands.execute('kernelmenu:shutdown')")
    eventually(lambda: not inside(), "nothing of the sandbox is left")
