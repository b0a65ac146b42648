"""The steps of action.yml, executed on a repository made for it: which commits count, and what is found in them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import ROOT

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
GRAVE = "import os\nos.system('rm -rf /')\n"
CLAUDE = "change\n\nCo-Authored-By: Claude <noreply@anthropic.com>"


class Repository:
    """A checkout with a base, to which commits are added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "-q", "-b", "main")
        self.base = self.commit("base", {"old.py": GRAVE})

    def git(self, *words: str, **more: str) -> str:
        env = os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null"} | more
        done = subprocess.run(["git", *words], cwd=self.folder, env=env, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, message: str, files: dict[str, str], author: str = "Ann <ann@example.org>") -> str:
        for name, text in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)
        name, _, mail = author.partition(" <")
        who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in
               (("NAME", name), ("EMAIL", mail.rstrip(">")))}  # fmt: skip
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message, **who)
        return self.git("rev-parse", "HEAD")

    def check(self, **inputs: str) -> tuple[int, str, dict[str, Any]]:
        """Execute the step `check` as a runner does; return its exit code, the comment, and the SARIF."""
        [step] = [step for step in ACTION["runs"]["steps"] if step.get("id") == "check"]
        given = {name: str(row["default"]) for name, row in ACTION["inputs"].items()}
        given |= {"base": self.base, "run": "none"} | inputs
        env = {name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: given[found[1]], value)
               for name, value in step["env"].items()}  # fmt: skip
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env |= {"PATH": path, "HOME": str(self.folder), "GITHUB_ACTION_PATH": str(ROOT)}
        done = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=self.folder, env=env, check=False)
        results = self.folder / given["results"]
        sarif = results / "screen.sarif"
        comment = (results / "comment.md").read_text() if (results / "comment.md").exists() else ""
        return done.returncode, comment, json.loads(sarif.read_text()) if sarif.exists() else {}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("message", "author"),
    [
        (CLAUDE, "Ann <ann@example.org>"),
        ("change\n\nCo-authored-by: Copilot <copilot@users.noreply.github.com>", "Ann <ann@example.org>"),
        ("change\n\nGenerated-By: a model", "Ann <ann@example.org>"),
        ("change\n\nGenerated with [Claude Code](https://claude.com)\n\nmore text", "Ann <ann@example.org>"),
        ("change", "Cursor Agent <cursoragent@cursor.com>"),
    ],
)
def test_what_a_model_has_signed_is_screened_and_fails(repository: Repository, message: str, author: str) -> None:
    repository.commit(message, {"new.py": GRAVE}, author)
    code, comment, sarif = repository.check()
    assert code == 1
    assert "1 commits of models, 1 files of theirs" in comment
    assert "| `new.py` | 100 | file-delete, " in comment
    places = {one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in sarif["runs"][0]["results"]}
    assert places == {"new.py"}


def test_control_what_people_have_written_is_left_alone(repository: Repository) -> None:
    repository.commit("talk of claude in the subject\n\nand in a sentence about copilot", {"new.py": GRAVE})
    code, comment, sarif = repository.check()
    assert (code, sarif) == (0, {})
    assert comment.startswith("0 commits of models")


@pytest.mark.slow
def test_whose_commits_count_can_be_said(repository: Repository) -> None:
    repository.commit("change", {"new.py": GRAVE})
    assert repository.check(models="ann@example")[0] == 1
    assert repository.check(models="ann@example", threshold="101")[0] == 0


@pytest.mark.slow
def test_harmless_code_of_a_model_passes(repository: Repository) -> None:
    repository.commit(CLAUDE, {"new.py": "x = 1\n", "gone.py": GRAVE, "notes.md": GRAVE})
    (repository.folder / "gone.py").unlink()
    repository.commit("gone", {})
    code, comment, _ = repository.check()
    assert (code, "| `new.py` | 0 |  |  |" in comment, "gone" in comment) == (0, True, False)


@pytest.mark.slow
def test_comments_of_the_model_allow_nothing(repository: Repository) -> None:
    allowed = GRAVE.replace("\n", "  # sandbox: allow process-shell, file-delete-system, file-delete-many -- fine\n")
    repository.commit(CLAUDE, {"new.py": allowed})
    assert repository.check()[0] == 1


@pytest.mark.slow
def test_names_of_files_are_no_commands_and_no_markup(repository: Repository) -> None:
    names = ["--help.py", "$(touch owned).py", "a b;touch owned.py", "[x](http://a.example.test) @ann\n|.py", "-.ipynb"]
    repository.commit(CLAUDE, dict.fromkeys(names[:4], GRAVE) | {names[4]: "no notebook"})
    (repository.folder / "link.py").symlink_to("/etc/passwd")
    code, comment, _ = repository.check()
    assert code == 1
    assert not (repository.folder / "owned").exists()
    assert "[x]" not in comment
    assert "@ann" not in comment
    assert comment.count("\n| `") == len(names)
    assert "| 100 | it could not be read |" in comment


def test_a_base_that_is_no_commit_is_refused(repository: Repository) -> None:
    assert repository.check(base="--output=x")[0] == 1
    assert repository.check(base="")[0] == 1


def test_no_text_of_a_change_is_part_of_a_line_that_a_shell_reads() -> None:
    workflows = [yaml.safe_load((ROOT / "docs/examples" / name).read_text()) for name in
                 ("model-code.yml", "model-code-comment.yml")]  # fmt: skip
    steps = [step for flow in workflows for job in flow["jobs"].values() for step in job["steps"]]
    lines = [step["run"] for step in (*steps, *ACTION["runs"]["steps"]) if "run" in step]
    assert len(lines) == 3
    assert not any("${{" in line for line in lines)
    first, second = workflows
    assert first["permissions"] == {"contents": "read"}
    assert "actions/checkout" not in json.dumps(second["jobs"])
