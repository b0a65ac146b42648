"""The page for large data: its examples run, one after another, also on a folder that is larger than memory."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from benchmarks.data import generate
from sandbox_kernel.plugins.data import volumes
from sandbox_kernel.plugins.hints.codes import HintCode
from tests.support import ROOT
from tests.support.pages import snippets

PAGE = "docs/large-data.md"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a disk for scratch is root's to make")


def test_every_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples_run(snippets(PAGE)[0])


@pytest.mark.long
def test_every_example_runs_on_more_than_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a folder of the reader's, in place of the one that the page makes."""
    monkeypatch.chdir(tmp_path)
    Path("sales").mkdir()
    assert generate(Path("sales").resolve(), 3 * 10**9) >= 3 * 10**9
    first = snippets(PAGE)[0]
    begin = first.index("sandbox = Sandbox(datasets")
    assert 'scratch_size="1G"' in first
    given = 'memory="1536M", cell_timeout=600, scratch_size="4G"'
    examples_run(f"{HEAD}\n{first[begin:]}".replace('scratch_size="1G"', given))


HEAD = "from pathlib import Path\nfrom sandbox_kernel import Sandbox"


def examples_run(first: str) -> None:
    """Run the first example, and all others that are in the page behind it, and look at what their cells came to."""
    others = [one for one in snippets(PAGE)[1:] if "volumes" not in one]
    assert len(others) == 4
    names: dict[str, Any] = {}
    exec(first, names)  # noqa: S102 (our own page)
    made: list[Any] = []
    run_code = names["sandbox"].run_code
    names["sandbox"].run_code = lambda code: made.append(run_code(code))
    for snippet in others:
        exec(snippet, names)  # noqa: S102 (as above)
    assert [one.error for one in made] == [None] * 5
    assert all("region" in str(one.text) for one in (made[0], made[1], made[4]))


def test_the_example_with_a_volume_runs_and_leaves_none(tmp_path: Path) -> None:
    """The lines of the page in their order, by their own programs, for an account that has nothing yet."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    begin = text.index("    sandbox-kernel volumes create")
    lines = text[begin : text.index("- **Modes.**", begin)]
    names = {name: f"{name}-of-{os.getpid()}" for name in ("models", "copy")}  # the folder is this user's own
    for name, other in names.items():
        lines = re.sub(rf"(?<![./]){name}(?=[ \"/])|(?<=volumes/){name}", other, lines)
    before, python, after = re.split(r"```(?:python)?\n", lines)
    code = f"{shlex.quote(sys.executable)} -c {shlex.quote(python)}"
    script = "\n".join(("set -e", dedent(before), code, dedent(after)))
    path = f"{Path(sys.prefix, 'bin')}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert names["models"] in done.stdout
    assert not {volume.name for volume in volumes.of_user().list()} & set(names.values())


@pytest.mark.parametrize("code", [HintCode.STORAGE_FULL, HintCode.MEMORY_SHORT], ids=str)
def test_what_is_too_small_names_the_page(code: HintCode) -> None:
    assert PAGE in code.text
