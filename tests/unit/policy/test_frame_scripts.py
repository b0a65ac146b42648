"""The scripts of frames are files that their readers and a type checker understand, and go out without comments."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from sandbox_kernel.core.package_files import brought
from sandbox_kernel.policy import frame
from sandbox_kernel.policy.frame_libraries import SIGNS
from tests.support import ROOT

TSC = ROOT / "labextension/node_modules/.bin/tsc"
FOLDER = Path(frame.__file__).parent
SENT = {"guard.js": frame._GUARD, "outer.js": frame._WATCH, "runner.js": frame._RUNNER}


@pytest.mark.skipif(not TSC.exists(), reason="needs `make labextension`, which installs TypeScript")
def test_their_types_are_checked() -> None:
    command: list[str | Path] = [TSC, "--project", "tsconfig.frames.json"]
    done = subprocess.run(command, check=False, cwd=TSC.parents[2], capture_output=True, text=True)
    assert done.stdout + done.stderr == ""


@pytest.mark.parametrize("name", SENT)
def test_all_code_of_a_file_goes_out_and_no_comment(name: str) -> None:
    """A comment stands on lines of its own, or is a type. What begins a line of code is no comment's sign."""
    source, sent = (FOLDER / name).read_text(), SENT[name]
    assert not re.search(r"/\*|\*/|^\s*//|</|<!--|\n\n", sent, re.MULTILINE)
    rows = [row.strip() for row in source.splitlines()]
    code = [row for row in rows if row and not re.match(r"//|/\*\*|\*(?: |/|$)", row)]
    assert all(re.sub(r"/\*\*.*?\*/", "", row).strip() in sent.splitlines() for row in code)
    assert len(sent) < 8_000, "each frame has it"


def test_the_scripts_of_frames_and_figures_read_the_signs_that_the_host_writes() -> None:
    assert f"const SIGNS = '{SIGNS}';" in frame._RUNNER
    assert f"const SIGNS = '{SIGNS}';" in (brought("images") / "unpack.js").read_text()


def test_the_page_on_outputs_names_what_does_nothing_and_what_waits_in_a_frame() -> None:
    guard, shown = (FOLDER / "guard.js").read_text(), (ROOT / "docs/outputs.md").read_text()
    calls = re.findall(r"^ {2}(?:silence|guard)\((.*?)\);$", guard, re.DOTALL | re.MULTILINE)
    names = {name for call in calls for text in re.findall(r"['`]([^'`]*)['`]", call) for name in text.split()}
    assert {"execCommand", "requestFullscreen", "scrollIntoView"} <= names
    of_selection = {"addRange", "collapse", "extend", "modify", "selectAllChildren", "setBaseAndExtent", "setPosition"}
    of_selection |= {"click", "dispatchEvent", "constructor"}
    assert {name for name in names - of_selection if not re.search(rf"[`.]{name}`", shown)} == set()
