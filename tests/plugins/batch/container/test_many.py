"""Several notebooks in one command: a line for each, one exit code, one report, and a sandbox of its own for each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.support.batch import SECONDS, VALIDATOR, write
from tests.support.command_line import SCRIPT


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [str(SCRIPT), "run", *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, cwd=folder, check=False,
    )  # fmt: skip
    assert done.stdout == ""
    return done.returncode, done.stderr


def outcomes(report: dict[str, Any]) -> list[tuple[str, int | None]]:
    return [(one["source"], one["exit_code"]) for one in report["runs"]]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Four notebooks in a folder that has more, and none of it is to be run."""
    folder = tmp_path / "work"
    for place in ("a", "b c", ".hidden", "a/.ipynb_checkpoints"):
        (folder / place).mkdir(parents=True)
    write(folder / "a", "x = 6\nprint(x * 7)", name="fine.ipynb")
    write(folder / "b c", "raise ValueError('no such thing')", name="bad ü.ipynb")
    write(folder, "while True: pass", name="slow.ipynb")
    write(folder, "print('x' in globals())", name="-last.ipynb")
    for place in (".hidden/no.ipynb", "a/.ipynb_checkpoints/fine-checkpoint.ipynb", ".no.ipynb", "no.txt"):
        (folder / place).write_text("this is no notebook")
    return folder


def test_a_folder_has_a_line_for_each_and_the_exit_code_that_counts_most(work: Path, tmp_path: Path) -> None:
    code, said = run(tmp_path, "work", "--timeout", "3", "--report", "all.json", "--jobs", "2", "-p", "name", "a b")
    assert code == 4, said
    lines = said.splitlines()
    for name, kind in (
        ("work/a/fine.ipynb", "ok"), ("work/b c/bad ü.ipynb", "code failed"), ("work/slow.ipynb", "limit reached"),
        ("work/-last.ipynb", "ok"),
    ):  # fmt: skip
        assert [line for line in lines if line.endswith(f"  {name}") and kind in line], said
    assert "ValueError: no such thing" in said
    assert "4 runs: 2 fine, 1 code failed, 1 limit reached, in " in said
    assert lines[-1] == "exit code 4"
    report = json.loads((tmp_path / "all.json").read_text())
    assert outcomes(report) == [
        ("work/-last.ipynb", 0), ("work/slow.ipynb", 4), ("work/a/fine.ipynb", 0), ("work/b c/bad ü.ipynb", 1),
    ]  # fmt: skip
    assert report["exit"] == {"code": 4, "kind": "limit reached"}
    for one in report["runs"]:
        VALIDATOR.validate(one["report"])
        assert one["report"]["source"]["parameters"] == {"name": "a b"}
    last = nbformat.read(tmp_path / "work-output" / "-last" / "-last.ipynb", as_version=4)
    assert last.cells[-1].outputs[0].text == "False\n", "none sees another's variables"
    write(work / "a", "1 + 1", name="second.ipynb")
    again, _ = run(tmp_path, "work/a", "--output", "work/a/made", "--quiet")
    code, said = run(tmp_path, "work/a", "--output", "work/a/made")
    assert (again, code) == (0, 0)
    assert "2 runs: " in said, "what an earlier run has made is not run"


def test_several_files_are_run_and_what_cannot_be_is_said_at_once(work: Path, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text("print('said')\nopen('made', 'w').close()")
    code, said = run(tmp_path, "job.py", "work/a/fine.ipynb", "--output", "out")
    assert code == 0, said
    assert (tmp_path / "out/job/files/made").exists()
    assert (tmp_path / "out/fine/fine.ipynb").exists()
    (tmp_path / "empty").mkdir()
    for arguments, words in (
        (("job.py", "work/../job.py"), "would have the same output folder"),
        (("job.py", "-"), "stdin is one source"),
        (("empty",), "there is no notebook in empty"),
        (("work", "--output", "job.py/out"), "cannot be made"),
        (("work", "--jobs", "0"), "--jobs is a number from 1 to 64"),
        (("work", "--receipt", "x"), "a receipt is of one run"),
    ):
        code, said = run(tmp_path, *arguments)
        assert (code, words in " ".join(said.split())) == (2, True), said


def test_ctrl_c_ends_all_of_them_in_order_and_begins_none(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path, "print('begun', flush=True)\nimport time; time.sleep(60)", name=f"{number}.ipynb")
    write(tmp_path, "print(1)", name="0first.ipynb")
    names = [f"{name}.ipynb" for name in ("0first", 0, 1, 2)]
    with subprocess.Popen(
        [str(SCRIPT), "run", *names, "--jobs", "2", "--report", "all.json"],
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=tmp_path, start_new_session=True,
    ) as started:  # fmt: skip
        assert started.stderr is not None
        assert any("0first.ipynb" in line for line in started.stderr)
        os.killpg(started.pid, signal.SIGINT)
        said = started.stderr.read()
        assert started.wait(SECONDS) == 130, said
    report = json.loads((tmp_path / "all.json").read_text())
    codes = dict(outcomes(report))
    assert codes["0first.ipynb"] == 0
    assert codes["2.ipynb"] is None or codes["2.ipynb"] == 130
    assert "130" in {str(code) for code in codes.values()}
    assert report["exit"] == {"code": 130, "kind": "stopped"}
