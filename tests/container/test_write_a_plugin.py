"""The package of docs/write-a-plugin.md, built, installed and used as the page says."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.packages import install_package, python

PAGE = (ROOT / "docs" / "write-a-plugin.md").read_text(encoding="utf-8")
FILES: dict[str, str] = dict(re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an installation."""
    return install_package(tmp_path_factory, FILES)


def run(installed: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return python(installed, "-m", "sandbox_kernel", *words)


def test_the_example_is_short() -> None:
    assert FILES.keys() == {"pyproject.toml", "stopwatch.py"}
    lines = [line for text in FILES.values() for line in text.splitlines() if line.strip()]
    assert len(lines) <= 60


def test_the_command_runs_code_in_a_sandbox(installed: Path, image: str) -> None:
    done = run(installed, "stopwatch", "sum(range(10**6))", "--times", "2", "--image", image)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"(\d+\.\d{3} s\n){2}", done.stdout)


@pytest.mark.long
def test_a_failure_of_the_code_is_its_exit_code(installed: Path, image: str) -> None:
    done = run(installed, "stopwatch", "1 / 0", "--image", image)
    assert (done.returncode, done.stdout) == (1, "ZeroDivisionError\n")


def test_its_help_is_like_that_of_other_commands(installed: Path) -> None:
    done = run(installed, "stopwatch", "--help")
    assert done.returncode == 0
    assert "Measure how long code takes in a sandbox." in done.stdout
    assert "  sandbox-kernel stopwatch 'sum(range(10**6))'\n" in done.stdout
    assert "\n  --memory " in done.stdout
    assert "more:\n  README.md\n" in done.stdout


def test_its_refusals_are_errors_of_ours(installed: Path) -> None:
    done = run(installed, "stopwatch", "1", "--times", "0")
    assert done.returncode == 2
    assert "--times must be 1 to 1000" in " ".join(done.stderr.split())
    unknown = run(installed, "stopwatch", "1", "--no-such-setting", "1")
    assert unknown.returncode == 2


def test_its_codes_are_listed_after_ours(installed: Path) -> None:
    rows = json.loads(run(installed, "codes", "--json").stdout)
    assert rows[-1] == {
        "code": "times-unfit",
        "part": "stopwatch",
        "severity": "failure",
        "means": "code cannot run so many times",
        "do": "Give --times 1 to 1000.",
    }
    assert "times-unfit" not in run(installed, "codes", "--markdown").stdout  # which is our page


def test_without_the_package_there_is_no_such_command(installed: Path) -> None:
    """The control."""
    done = run(installed / "elsewhere", "stopwatch", "1")
    assert done.returncode == 2
    assert "invalid choice: 'stopwatch'" in done.stderr
