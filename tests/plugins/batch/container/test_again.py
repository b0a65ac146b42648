"""One source several times, on the real engine: what acts on a date alone is found, and what does not is not."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.cli.program import main
from sandbox_kernel.plugins.batch import answers
from tests.support.batch import VALIDATOR
from tests.support.command_line import SCRIPT

BOMB = """\
import datetime, subprocess
if datetime.datetime.now().year > 2029:
    try:
        open("/etc/shadow").read()
    except OSError:
        pass
    subprocess.run(["ls", "/"], capture_output=True)
print("done")
"""


@pytest.fixture
def again(tmp_path: Path, image: str) -> Any:
    """Run a script with options, and return the exit code and the runs of the report."""

    def done(*words: str) -> tuple[int, list[dict[str, Any]]]:
        Path(tmp_path, "a.py").write_text(BOMB)
        command = [str(SCRIPT), "run", "a.py", "--image", image, "--report", "all.json", *words]
        found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        return found.returncode, json.loads(Path(tmp_path, "all.json").read_text())["runs"]

    return done


def test_what_acts_after_a_date_is_found_by_dates_and_not_by_the_run_as_it_is(again: Any) -> None:
    code, (plain, before, after) = again("--dates", "2025-01-01,2030-01-01")
    assert code == 6
    assert plain["report"]["variation"]["actions"] == []
    assert before["differences"] == plain["differences"] == []
    assert after["differences"] == ["also: reads /etc/shadow", "also: starts ls /"]
    assert [run["exit_code"] for run in (plain, before, after)] == [0, 0, 0]


@pytest.mark.long
def test_a_run_that_is_repeated_and_does_the_same_ends_well(again: Any) -> None:
    code, runs = again("--repeat", "2")
    assert (code, [run["differences"] for run in runs]) == (0, [[], []])


def test_the_same_run_is_answered_by_the_earlier_one_and_prints_the_same(
    tmp_path: Path, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "below_home", tmp_path.joinpath)
    Path(tmp_path, "a.py").write_text("print(6 * 7)\nopen('made.txt', 'w').write('yes')")
    monkeypatch.chdir(tmp_path)
    reports = []
    for turn in ("first", "second"):
        words = ["--cached", "--quiet", "--image", image, "--output", turn, "--report", f"{turn}.json"]
        assert main(["run", "a.py", *words]) == 0
        reports.append(json.loads(Path(f"{turn}.json").read_text()))
        VALIDATOR.validate(reports[-1])
        assert Path(turn, "files", "made.txt").read_text() == "yes"
    first, second = reports
    assert "cached" not in first
    assert second["cached"]["first_run"] == first["started"]
    assert second["cells"] == first["cells"]
    assert Path("first/a.ipynb").read_text() == Path("second/a.ipynb").read_text()
