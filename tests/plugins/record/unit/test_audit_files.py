"""The folder that a notebook comes in is hostile: an audit there is a file of its own, and no script."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sandbox_kernel.config import sources as config
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.plugins.record.audit import Audit
from sandbox_kernel.plugins.record.settings import RecordSettings

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("planted", ["link", "hard link", "link above", "other content", "fifo", "device"])
def test_an_audit_is_a_file_of_its_own(repo: Path, planted: str) -> None:
    mine, name = repo.parent / "mine" / "key", "audit.jsonl"
    match planted:
        case "link":
            Path(name).symlink_to(mine)
        case "hard link":
            os.link(mine, name)
        case "link above":
            Path("logs").symlink_to("../mine")
            name = "logs/audit.jsonl"
        case "other content":
            Path(name).write_text("alias ls=true\n")
        case "fifo":
            os.mkfifo(name)
        case "device":
            name = "/dev/null"
    with pytest.raises(ConfigurationError, match="audit is not a file in a folder that exists"):
        config.from_keywords(audit=name)
    reports: list[str] = []
    audit = Audit(name, session="s", report=reports.append)
    audit("cell")
    audit.close()
    assert len(reports) == 1
    assert (mine.read_text(), os.listdir(mine.parent)) == ("secret", ["key"])  # noqa: PTH208
    assert planted != "other content" or Path(name).read_text() == "alias ls=true\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of another user's")
def test_a_file_of_another_user_is_no_audit(repo: Path) -> None:
    Path("audit.jsonl").touch()
    os.chown("audit.jsonl", 12345, 12345)
    with pytest.raises(ConfigurationError, match="another user"):
        config.from_keywords(audit="audit.jsonl")


def test_control_a_new_audit_and_an_old_one_are_appended_to(repo: Path) -> None:
    for _ in range(2):
        path = config.from_keywords(audit="audit.jsonl").of(RecordSettings).audit
        audit = Audit(path, session="s")
        audit("cell")
        audit.close()
    assert path == str(repo / "audit.jsonl")
    assert Path("audit.jsonl").read_text().count('"event":"cell"') == 2
    assert Path("audit.jsonl").stat().st_mode & 0o777 == 0o600


SHELL = [
    "$(touch pwned)",
    "`touch pwned`",
    '";touch pwned;"',
    "\\$(touch pwned)",
    "'\ntouch pwned\n'",
    '\\"$(touch pwned)',
]


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_an_audit_that_is_read_as_a_script_runs_nothing(repo: Path, shell: str) -> None:
    """A message's type made of shell text ran once its audit was read by a shell."""
    audit = Audit("audit.jsonl", session="s")
    for text in SHELL:
        audit("policy", type=text, reason=text, more={text: [text]})
    audit.close()
    subprocess.run([shell, "audit.jsonl"], cwd=repo, capture_output=True, timeout=60, check=False)
    assert not (repo / "pwned").exists()


def test_control_the_same_texts_as_plain_json_run(repo: Path) -> None:
    Path("audit.jsonl").write_text('{"time":"x","type":"$(touch pwned)"}\n')
    subprocess.run(["sh", "audit.jsonl"], cwd=repo, capture_output=True, timeout=60, check=False)
    assert (repo / "pwned").exists()


def test_an_audit_lies_in_a_folder_that_exists_and_that_cells_do_not_fill(tmp_path: Path) -> None:
    record = config.from_keywords(audit=str(tmp_path / "audit.jsonl")).of(RecordSettings)
    assert record.audit == str(tmp_path.resolve() / "audit.jsonl")
    with pytest.raises(ConfigurationError, match="audit lies in the downloads folder"):
        config.from_keywords(downloads=str(tmp_path), audit=str(tmp_path / "audit.jsonl"))
    with pytest.raises(ConfigurationError, match="not a file in a folder that exists"):
        config.from_keywords(audit=str(tmp_path / "missing" / "audit.jsonl"))
