"""The fuzzers: every seed and everything that was ever found passes, a short run of each finds nothing, and could.

`make fuzz` runs them for as long as it takes to try a million inputs each.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fuzz import targets
from fuzz.trees import Reader, encode
from tests.support import ROOT

BEYOND_THE_SEEDS = 1_000
"""Inputs of a short run; `make fuzz` is the long one."""
SEED = "20"
"""The same inputs each time: what is found here is found on every machine, and again. `make fuzz` tries others."""

BREAKS: dict[str, tuple[str, str, Any]] = {
    "wire": ("container.wire", "KINDS", range(256)),
    "messages": ("policy.protocol", "_check_type", lambda channel, kind: None),
    "session": ("session.requests.machine", "parent_of", lambda request: {"msg_id": "forged"}),
    "streams": ("container.flow", "cost", lambda data: 0),
    "terminal": ("policy.terminal", "is_plain", lambda text: True),
    "markup": ("policy.css", "allowed", lambda name, value, *, in_sheet=False: True),
    "outputs": ("policy.raster", "pixels", lambda text, kind=None: 1),
    "names": ("files.file_rules", "_UNREADABLE", ()),
    "secrets": ("plugins.network.secret_finder", "READINGS", ()),
    "files": ("files.folder_sync", "printable", lambda text, limit=0: text),
    "network": ("plugins.network.policy.hosts", "_plain", lambda text, raw: (text, None)),
    "requests": ("plugins.network.request_head", "_check_bytes", lambda raw: None),
    "packages": ("plugins.packages.installation", "_wrong", lambda entry, seen: None),
    "guest": ("container.wire", "CHANNELS", {str(kind): kind for kind in range(256)}),
    "tools": ("plugins.tools.tool_calls", "_checked", lambda tool, arguments: arguments),
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


@pytest.fixture
def forgetting() -> Iterator[None]:
    """Have nothing remembered that was found out while a rule was missing."""
    yield
    for module in [one for name, one in sys.modules.items() if name.startswith("sandbox_kernel.")]:
        for thing in vars(module).values():
            if callable(forget := getattr(thing, "cache_clear", None)):
                forget()


@pytest.mark.usefixtures("forgetting")
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


@pytest.mark.long
@pytest.mark.timeout(900)  # on a busy machine the start alone may take a minute
@pytest.mark.parametrize("name", targets.NAMES)
def test_a_short_run_finds_nothing(name: str, tmp_path: Path) -> None:
    """The run ends by itself, after so many inputs."""
    said, code = short_run(name, tmp_path)
    assert code == 0, said
    row = re.search(rf"^{name} +([\d,]+) .* none$", said, re.MULTILINE)
    assert row is not None, said
    with targets.ready(name) as target:
        assert int(row[1].replace(",", "")) >= len(set(target.seeds())), said


def short_run(name: str, kept: Path, **environment: str) -> tuple[str, int]:
    """Return what a run of one fuzzer says, and the code that it ends with.

    The command is a process: a fuzzer that the tests start by themselves would have their memory for its highest.
    """
    pytest.importorskip("atheris", reason="atheris has no wheel for this Python")
    runs = sum(1 for _ in targets.load(name).seeds()) + len(targets.found(name)) + BEYOND_THE_SEEDS
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", name, "--runs", str(runs), "--seed", SEED, "--jobs", "1", "--keep", str(kept)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr, done.returncode


@pytest.mark.timeout(900)
def test_a_finding_is_in_the_words_of_a_run(tmp_path: Path) -> None:
    """The reason, and the input itself: its file may be gone with the folder."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sandbox_kernel.policy.terminal as terminal\nterminal.is_plain = lambda text: True\n"
    )
    paths = os.pathsep.join([str(tmp_path), *sys.path[1:]])
    said, code = short_run("terminal", tmp_path / "kept", PYTHONPATH=paths)
    assert code == 1
    assert "Unsafe: " in said
    found = re.search(r"^(crash-\w+): (b['\"].*)$", said, re.MULTILINE)
    assert found is not None, said
    with targets.ready("terminal") as target:
        target.run(ast.literal_eval(found[2]))  # the rule is there, in this process


def test_an_input_that_works_too_long_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = pytest.importorskip("fuzz.engine", reason="atheris has no wheel for this Python")
    engine.timed(lambda data: None)(b"")
    monkeypatch.setattr(engine, "INPUT_SECONDS", 0.0)
    with pytest.raises(AssertionError, match="of the processor"):
        engine.timed(lambda data: None)(b"")


@pytest.mark.parametrize(
    "tree",
    [None, True, 0, -64, 191, 192, 1 << 40, 0.5, "", "text/html", "é", [], {}, [[1, [2]], {"data": {"x": [None]}}]],
    ids=str,
)
def test_a_tree_is_read_as_it_was_written(tree: Any) -> None:
    assert Reader(encode(tree)).tree() == tree
