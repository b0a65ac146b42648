"""The part of sessions of docs/write-a-plugin.md: built, installed, found by its entry point, named by a setting."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.packages import install_package, python

PAGE = (ROOT / "docs" / "write-a-plugin.md").read_text(encoding="utf-8")
PACKAGE = dict(re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))["pyproject.toml"]
[RATION] = re.findall(r"In `ration\.py`:\n\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FAILS = RATION.replace("def review(self, request, reads):", "def review(self, request, reads):\n        1 / 0").replace(
    '"ration"', '"fails"'
)
"""The same with a guard that raises."""
LOST = FAILS.replace("def review(self, request, reads):\n        1 / 0", "def hear(self, event):\n        1 / 0")
LOST = LOST.replace('"fails"', '"lost"')
"""The same that guards nothing, and whose listener raises."""
RUN = """
import json, sys
from sandbox_kernel import Sandbox, SandboxError
try:
    with Sandbox(image=sys.argv[1], audit=sys.argv[2], plugins=sys.argv[3]) as sandbox:
        for number in range(4):
            done = sandbox.run_code(f"open('ran', 'a').write('x'); print({number})")
            print(json.dumps([done.logs.stdout, done.logs.stderr, done.error and [done.error.name, done.error.code]]))
except SandboxError as error:
    print(json.dumps([type(error).__name__, error.code.code, error.setting]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an installation of a package with all three."""
    names = {"ration": RATION, "fails": FAILS, "lost": LOST}
    points = "\n".join(f'{name} = "{name}:PLUGIN"' for name in names)
    described = PACKAGE.replace('stopwatch = "stopwatch:PLUGIN"', points)
    described = described.replace('["stopwatch.py"]', json.dumps([f"{name}.py" for name in names]))
    files = {f"{name}.py": text for name, text in names.items()}
    return install_package(tmp_path_factory, {"pyproject.toml": described, **files})


def run(installed: Path, image: str, audit: Path, plugin: str) -> list[list[object]]:
    done = python(installed, "-c", RUN, image, str(audit), plugin)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def events(audit: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in audit.read_text().splitlines()]


def test_the_example_is_short() -> None:
    assert len([line for line in RATION.splitlines() if line.strip()]) <= 30


def test_it_warns_counts_and_refuses(installed: Path, image: str, tmp_path: Path) -> None:
    first, second, third, fourth = run(installed, image, tmp_path / "audit", "ration")
    assert first == [["0\n"], [], None]
    assert second == [["1\n"], [], None]
    assert third == [["2\n"], ["[sandbox_kernel] 1 cells are left\n"], None]
    assert fourth[0] == []
    assert fourth[2] == ["CellError", "ration-used"]
    assert [line["left"] for line in events(tmp_path / "audit") if "ration" in str(line["event"])] == [2, 1, 0]


def test_a_guard_that_raises_lets_no_cell_through(installed: Path, image: str, tmp_path: Path) -> None:
    for stdout, _, error in run(installed, image, tmp_path / "audit", "fails"):
        assert stdout == []
        assert error == ["SandboxError", "platform-failed"]


def test_a_listener_that_raises_is_nobody_else_s(installed: Path, image: str, tmp_path: Path) -> None:
    assert [stdout for stdout, *_ in run(installed, image, tmp_path / "audit", "lost")] == [
        ["0\n"], ["1\n"], ["2\n"], ["3\n"],
    ]  # fmt: skip


def test_a_plugin_that_is_not_installed_starts_no_session(installed: Path, image: str, tmp_path: Path) -> None:
    """The control, too: without the package, its name is an error, and no cell runs."""
    assert run(installed / "elsewhere", image, tmp_path / "audit", "ration") == [
        ["ConfigurationError", "plugin-missing", "plugins"]
    ]
    assert run(installed, image, tmp_path / "audit", "rations") == [["ConfigurationError", "plugin-missing", "plugins"]]
