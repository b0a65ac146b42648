"""The fuzzers: every seed and everything that was ever found passes, a short run of each finds nothing, and could.

`make fuzz` runs them for as long as it takes to try a million inputs each.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fuzz import targets
from fuzz.trees import Reader, encode
from tests.support import ROOT

SECONDS = 5
"""A short run; `make fuzz` is the long one."""

BREAKS: dict[str, tuple[str, str, Any]] = {
    "wire": ("wire", "KINDS", range(256)),
    "messages": ("protocol", "_check_type", lambda channel, kind: None),
    "session": ("traffic", "parent_of", lambda entry: {"msg_id": "forged"}),
    "terminal": ("policy.terminal", "is_plain", lambda text: True),
    "markup": ("policy.css", "allowed", lambda name, value: True),
    "outputs": ("policy.mime", "_is_image", lambda name, value: True),
    "names": ("names", "_UNREADABLE", ()),
    "files": ("transfer", "printable", lambda text, limit=0: text),
}
"""For each target, a rule of the product that is taken away: its seeds alone must show that."""


@pytest.mark.parametrize("name", targets.NAMES)
def test_every_seed_passes(name: str) -> None:
    with targets.ready(name) as target:
        for seed in target.seeds():
            target.run(seed)
        target.run(b"")


@pytest.mark.parametrize("path", [path for name in targets.NAMES for path in targets.found(name)], ids=lambda p: p.name)
def test_what_was_found_once_passes(path: Path) -> None:
    with targets.ready(path.parent.name) as target:
        target.run(path.read_bytes())


@pytest.mark.parametrize("name", targets.NAMES)
def test_control_the_seeds_show_a_rule_that_is_missing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, attribute, replacement = BREAKS[name]
    monkeypatch.setattr(importlib.import_module(f"sandbox_kernel.{module}"), attribute, replacement)
    with targets.ready(name) as target:
        assert any(shows(target, seed) for seed in target.seeds())


def shows(target: targets.Target, seed: bytes) -> bool:
    try:
        target.run(seed)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("name", targets.NAMES)
def test_a_short_run_finds_nothing(name: str, tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris has no wheel for this Python")
    command = [sys.executable, "-m", "fuzz", name, "--seconds", str(SECONDS), "--jobs", "1", "--keep", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    row = re.search(rf"^{name} +([\d,]+) .* none$", done.stdout, re.MULTILINE)
    assert row is not None, done.stdout
    assert int(row[1].replace(",", "")) > 50


@pytest.mark.parametrize(
    "tree",
    [None, True, 0, -64, 191, 192, 1 << 40, 0.5, "", "text/html", "é", [], {}, [[1, [2]], {"data": {"x": [None]}}]],
    ids=str,
)
def test_a_tree_is_read_as_it_was_written(tree: Any) -> None:
    assert Reader(encode(tree)).tree() == tree
