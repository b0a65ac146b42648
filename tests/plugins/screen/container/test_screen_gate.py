"""The gate for pull requests and the hook for pre-commit, on a real repository, called as code hosts and git do."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.support import ROOT
from tests.support.batch import VALIDATOR, write
from tests.support.command_line import SCRIPT

SARIF = ROOT / "tests" / "plugins" / "screen" / "corpora" / "sarif-2.1.0-rtm.5.json"
OLD, HONEST, SLIGHT, ATTACK = "old.ipynb", "analysis/honest work.ipynb", "slight.ipynb", "analysis/attack.ipynb"
ENVIRONMENT = {**os.environ, "PATH": f"{SCRIPT.parent}{os.pathsep}{os.environ['PATH']}"}
COUNTED = {SLIGHT: "file-read-system", ATTACK: "file-delete-system"}


class Repository:
    """One with a branch that changes three notebooks."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "analysis").mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        write(place, "import os", "os.system('rm -rf /etc/nothing')", name=OLD)
        for name in (HONEST, SLIGHT, ATTACK):
            write(place, "x = 1", name=name)
        self.base = self.commit("base")
        self.git("checkout", "--quiet", "-b", "change")
        write(place, "import statistics", "print(statistics.mean([1, 2, 3]))", name=HONEST)
        write(place, "import os\nprint(os.path.exists('/etc/passwd'))", name=SLIGHT)
        write(place, "from os import system as say", "x = 1\nsay('rm -rf /etc/nothing')", name=ATTACK)
        self.commit("change")

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.test", "-c", "commit.gpgsign=false"]
        return self.run("git", *identity, *arguments).stdout.strip()

    def commit(self, message: str) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", f"--message={message}")
        return self.git("rev-parse", "HEAD")

    def run(self, *words: str, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
        environment = ENVIRONMENT | more
        done = subprocess.run(
            words, cwd=self.place, env=environment, capture_output=True, text=True, check=False, timeout=150
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def changed(self) -> list[str]:
        return self.git("diff", "--name-only", f"{self.base}...HEAD").splitlines()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("repository"))


def found(document: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return file, code and level of each result, of SARIF that its schema accepts."""
    schema = json.loads(SARIF.read_text(encoding="utf-8"))
    jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker()).validate(document)
    return [
        (one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], one["ruleId"], one["level"])
        for one in document["runs"][0]["results"]
    ]


@pytest.mark.long
def test_the_gate_as_it_stands_keeps_what_was_found_in_each_changed_notebook(repository: Repository) -> None:
    """Its own words. The screen warns there and blocks nothing: what a notebook does in the sandbox decides."""
    workflow = yaml.safe_load((ROOT / "docs" / "examples" / "pull-request-gate.yml").read_text(encoding="utf-8"))
    [script] = [
        step["run"] for step in workflow["jobs"]["notebooks"]["steps"] if step.get("name") == "Run the notebooks"
    ]
    assert "sandbox-kernel screen" in script
    done = repository.run("bash", "-e", "-c", script, BASE=repository.base)
    # In the order of git: capitals, then folders as they are spelt.
    names = [ATTACK, HONEST, SLIGHT]
    said = rf"{re.escape(ATTACK)}:\d+: cell 2, file-delete-system \(80\)"
    assert re.search(said, done.stdout), "the log says what was found"
    assert [line for line in done.stdout.splitlines() if line.startswith("results/")] == [
        f"results/{number}.json: {shlex.quote(name) if ' ' not in name else name.replace(' ', chr(92) + ' ')}: passed"
        for number, name in enumerate(names, 1)
    ]
    results = repository.place / "results"
    attack, honest, slight = (found(json.loads((results / f"{number}.sarif").read_text())) for number in (1, 2, 3))
    assert ("analysis/attack.ipynb", "file-delete-system", "error") in attack
    assert honest == []
    assert slight == [("slight.ipynb", "file-read-system", "warning")]
    for number, code in ((1, "file-delete-system"), (2, None), (3, "file-read-system")):
        report = json.loads((results / f"{number}.json").read_text())
        VALIDATOR.validate(report)
        codes = {one["code"] for cell in report["cells"] for one in cell.get("findings", ())}
        assert (code in codes) if code else not codes
    for path in [*results.rglob("*")][::-1]:
        path.rmdir() if path.is_dir() else path.unlink()
    results.rmdir()


@pytest.mark.parametrize(
    "words",
    [[], pytest.param(["--strict"], marks=pytest.mark.long), ["--screen-threshold", "100"]],
    ids=["usual", "strict", "100"],
)
def test_the_command_on_the_changed_files_fails_for_the_attack_and_says_where(
    repository: Repository, words: list[str]
) -> None:
    names = repository.changed()
    assert names == [ATTACK, HONEST, SLIGHT]
    done = repository.run("sandbox-kernel", "screen", *words, *names, code=1)
    lines = done.stdout.splitlines()
    assert any(line.startswith(f"{ATTACK}:") and "cell 2, file-delete-system (80)" in line for line in lines)
    assert any(line.startswith(f"{SLIGHT}:") and "cell 1, file-read-system (40)" in line for line in lines)
    assert not any(line.startswith((HONEST, OLD)) for line in lines)
    assert lines[-1].startswith("5 cells, 3 with findings, 1 at ")
    document = json.loads(repository.run("sandbox-kernel", "screen", "--format", "sarif", *names, code=1).stdout)
    assert {(file, rule) for file, rule, _ in found(document)} >= {(ATTACK, COUNTED[ATTACK]), (SLIGHT, COUNTED[SLIGHT])}
    rest = [HONEST, SLIGHT]
    repository.run("sandbox-kernel", "screen", *rest)
    repository.run("sandbox-kernel", "screen", "--strict", *rest, code=1)
    repository.run("sandbox-kernel", "screen", "--strict", HONEST)


def test_the_hook_is_what_pre_commit_would_run(repository: Repository) -> None:
    """It splits `entry` as a shell does, and adds `args` and then the changed files of the hook's types."""
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert {"id", "name", "entry", "language"} <= set(hook)
    assert (hook["language"], hook["types_or"]) == ("python", ["jupyter", "python"])
    entry = [*shlex.split(hook["entry"]), *hook.get("args", [])]
    done = repository.run(*entry, *repository.changed(), code=1)
    assert f"{ATTACK}:" in done.stdout
    assert repository.run(*entry, HONEST, SLIGHT).stdout.endswith("1 with findings, 0 at 60 points or more\n")
    repository.run(*entry, "--strict", SLIGHT, code=1)


def test_the_hook_of_git_stops_the_commit_of_an_attack_and_of_nothing_else(repository: Repository) -> None:
    """pre-commit's own shim is such a file: the commit of the attack fails, and those of the others do not."""
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    shim = repository.place / ".git" / "hooks" / "pre-commit"
    shim.write_text(
        "#!/bin/sh\ngit diff --cached --name-only -z --diff-filter=ACMR -- '*.ipynb' '*.py' | "
        f"xargs -0 -r {hook['entry']}\n"
    )
    shim.chmod(0o755)
    try:
        repository.git("checkout", "--quiet", "-b", "again", "main")
        for name, code in ((HONEST, 0), (SLIGHT, 0), (ATTACK, 1)):
            repository.git("checkout", "change", "--", name)
            words = ["-c", "user.name=x", "-c", "user.email=x@example.test", "-c", "commit.gpgsign=false"]
            done = repository.run("git", *words, "commit", f"--message={name}", code=code)
            assert ("file-delete-system" in done.stdout + done.stderr) is bool(code)
        assert repository.git("log", "--format=%s", "main..again").splitlines() == [SLIGHT, HONEST]
    finally:
        shim.unlink()
        repository.git("checkout", "--quiet", "--force", "change")
        repository.git("branch", "--quiet", "-D", "again")
