"""Every page's Python as it is printed, in an empty folder, by a program that brings nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.pages import snippets

pytestmark = pytest.mark.long

NOT_PROGRAMS = {
    "docs/install.md": "lines of a config file",
    "docs/jupyterhub.md": "lines of a config file",
    "docs/jupyterlab.md": "lines of a config file",
    "docs/provisioner.md": "lines of a config file, and a kernelspec of the reader's",
    "docs/integrations.md": "each needs a framework and a language model; tests/plugins/frameworks runs them",
    "docs/jupyter-server.md": "needs the server that the page starts; tests/container/test_server_recipe.py runs it",
}
CONFIG = ("docs/secrets.md",)
"""Pages whose last example is lines of a config file."""
PAGES = sorted(
    name
    for name in (str(path.relative_to(ROOT)) for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
    if snippets(name) and name not in NOT_PROGRAMS
)
RUN = """
import ast, asyncio, inspect, sys
path, flags = sys.argv[1], ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if sys.argv[2:] else 0
work = eval(compile(open(path).read(), path, "exec", flags=flags), {"__name__": "__main__"})
if inspect.isawaitable(work):
    asyncio.run(work)
"""
AWAITS = "python -m asyncio"
"""What a page has to say where `await` stands outside of a function."""


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run_as_they_are_printed(page: str, tmp_path: Path) -> None:
    if page == "docs/large-data.md" and os.geteuid():
        pytest.skip("a disk for scratch is root's to make")
    examples = snippets(page)[: -1 if page in CONFIG else None]
    (tmp_path / "page.py").write_text("\n".join(examples), encoding="utf-8")
    takes_await = ["await"] if AWAITS in (ROOT / page).read_text(encoding="utf-8") else []
    names = {name: value for name, value in os.environ.items() if not name.startswith(("SANDBOX", "EXAMPLE"))}
    path = f"{Path(sys.prefix, 'bin')}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", RUN, "page.py", *takes_await],
        cwd=tmp_path, env=names | {"PATH": path}, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{page}: {done.stderr[-2000:]}"


def test_what_is_left_out_is_there_and_no_program() -> None:
    assert all(snippets(page) for page in (*NOT_PROGRAMS, *CONFIG))
    assert len(PAGES) >= 16
