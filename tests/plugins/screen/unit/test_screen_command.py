"""`sandbox-kernel screen`: what it prints for people, for programs and for code hosts, and its exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import cli
from tests.support import ROOT

GRAVE = "import os\nos.system('rm -rf /')\n"
SLIGHT = "import os\nos.remove(name)\n"


def notebook(*cells: str | list[str]) -> str:
    code: list[dict[str, Any]] = [
        {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": source}
        for source in cells
    ]
    text = {"cell_type": "markdown", "metadata": {}, "source": ["os.system('rm -rf /')"]}
    return json.dumps({"cells": [text, *code], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    named = {
        "fine.py": "x = 1\n",
        "slight.py": SLIGHT,
        "grave.py": "\n\n" + GRAVE,
        "cells.py": f"a = 1\n# %% one\nb = 2\n# %% two\n{GRAVE}",
        "run.sh": "echo x\ncurl https://a.example.test | sh\n",
        "book.ipynb": notebook("x = 1", ["from os import system as go\n", "y = 1"], 'go("rm -rf /")\nz = "é"'),
    }
    for name, text in named.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return {name: str(tmp_path / name) for name in named}


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = cli.main(["screen", *words])
    return code, capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "code"), [("fine.py", 0), ("slight.py", 0), ("grave.py", 1), ("book.ipynb", 1), ("run.sh", 1)]
)
def test_the_exit_code_says_whether_the_threshold_is_reached(
    files: dict[str, str], capsys: pytest.CaptureFixture[str], name: str, code: int
) -> None:
    assert run(capsys, files[name])[0] == code


@pytest.mark.parametrize(("name", "compiles"), [("fine.py", False), ("run.sh", True)])
def test_only_patterns_that_the_code_needs_are_compiled(files: dict[str, str], name: str, *, compiles: bool) -> None:
    """They are most of what a short check costs. The control is a script, which needs them."""
    program = (
        "import re, sys; from sandbox_kernel import cli; from sandbox_kernel.plugins.screen import command\n"
        "compiled = []; compile = re.compile\n"
        "re.compile = lambda *given: (compiled.append(given), compile(*given))[1]\n"
        f"cli.main(['screen', {files[name]!r}])\n"
        "print(len(compiled), 'sandbox_kernel.policy.safe_text' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    count, prints = done.stderr.split()
    assert (int(count) > 200, prints) == (compiles, str(compiles))


def test_the_threshold_and_strictness_are_options(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--strict", files["slight.py"])[0] == 1
    assert run(capsys, "--strict", files["fine.py"])[0] == 0
    assert run(capsys, "--screen-threshold", "20", files["slight.py"])[0] == 1


def test_a_file_that_cannot_be_read_is_a_wrong_argument(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "no.ipynb").write_text("{")
    assert run(capsys, str(tmp_path / "none.py"))[0] == 2
    assert run(capsys, str(tmp_path / "no.ipynb"))[0] == 2


def test_what_cannot_be_read_hides_nothing_of_the_other_files(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a shell writes `folder/*` where a folder lies beside files, or a file that is no notebook."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "no.ipynb").write_text("{")
    folder, broken = str(tmp_path / "sub"), str(tmp_path / "no.ipynb")
    for names, code in (
        ([folder, files["fine.py"]], 0),
        ([folder, files["grave.py"]], 1),
        ([broken, files["grave.py"]], 2),
        ([files["grave.py"], broken], 2),
        ([folder, folder], 2),
    ):
        assert cli.main(["screen", *names]) == code
        said = capsys.readouterr()
        assert ("file-delete-system" in said.out) == (files["grave.py"] in names)
        assert ("is a folder" in said.err, "no.ipynb" in said.err) == (folder in names, broken in names)
    assert cli.main(["screen", "--format", "json", broken, files["grave.py"]]) == 2
    assert [one["file"] for one in json.loads(capsys.readouterr().out)["files"]] == [files["grave.py"]]


def test_people_read_the_file_s_line_the_code_and_what_to_do(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    _, said = run(capsys, files["grave.py"])
    assert re.search(
        r"grave\.py:4: file-delete-system \(80\): it deletes, .* \(rm -rf /\)\n    Read and write below", said
    )
    assert said.endswith("1 cell, 1 with findings, 1 at 60 points or more\n")
    _, said = run(capsys, files["cells.py"])
    assert re.search(r"cells\.py:6: cell 2, file-delete-system", said)


def test_a_notebook_is_read_as_a_whole_and_its_lines_are_those_of_the_file(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A name of one cell means the same in the next, and text that is no code is not read."""
    _, said = run(capsys, "--format", "json", files["book.ipynb"])
    [file] = json.loads(said)["files"]
    assert (file["blocked"], [cell["cell"] for cell in file["cells"]]) == (True, [2, 3])
    lines = Path(files["book.ipynb"]).read_text(encoding="utf-8").split("\n")
    [grave] = [one for one in file["cells"][1]["findings"] if one["code"] == "file-delete-system"]
    assert 'go(\\"rm -rf /\\")' in lines[grave["file_line"] - 1]


def test_sarif_has_each_finding_with_its_rule_its_place_and_a_lasting_mark(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    _, said = run(capsys, "--format", "sarif", files["book.ipynb"], files["run.sh"])
    document = json.loads(said)
    assert document["version"] == "2.1.0"
    [one] = document["runs"]
    rules: list[dict[str, Any]] = one["tool"]["driver"]["rules"]
    for result in one["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        place = result["locations"][0]["physicalLocation"]
        assert place["region"]["startLine"] >= 1
        assert place["artifactLocation"]["uri"].endswith((".ipynb", ".sh"))
    marks = [result["partialFingerprints"]["sandboxKernelScreen/v1"] for result in one["results"]]
    assert len(set(marks)) == len(marks)
    assert all(0 < float(rule["properties"]["security-severity"]) <= 10 for rule in rules)
    assert run(capsys, "--format", "sarif", files["book.ipynb"], files["run.sh"])[1] == said


def test_what_a_comment_allows_is_suppressed_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "allowed.py"
    file.write_text("# sandbox: allow file-delete — its own file\n" + SLIGHT)
    code, said = run(capsys, "--strict", "--format", "sarif", str(file))
    assert code == 0
    [result] = json.loads(said)["runs"][0]["results"]
    assert result["suppressions"] == [{"kind": "inSource", "justification": "its own file"}]
    assert run(capsys, "--strict", "--screen-overrides", "forbid", str(file))[0] == 1


def test_rules_of_an_operator_are_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules, file = tmp_path / "rules.toml", tmp_path / "a.py"
    rules.write_text('[[rule]]\ncode = "own-x"\nreason = "it asks the ledger"\nnames = ["ledger.*"]\n')
    file.write_text("import ledger\nledger.pay()\n")
    code, said = run(capsys, "--screen-rules", str(rules), "--format", "sarif", str(file))
    assert (code, json.loads(said)["runs"][0]["tool"]["driver"]["rules"][0]["id"]) == (1, "own-x")


def test_what_stands_in_a_file_cannot_steer_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.py"
    file.write_text("import os\nos.system('rm -rf / \\x1b]0;taken\\x07')\n")
    assert "\x1b" not in run(capsys, str(file))[1]


def test_the_hook_of_pre_commit_runs_the_command() -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    assert re.search(r"^  entry: sandbox-kernel screen$", text, re.MULTILINE)
    assert re.search(r"^  types_or: \[jupyter, python\]$", text, re.MULTILINE)
