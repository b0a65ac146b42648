"""Runs in the background: real processes that outlive the command, on no engine."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.cli.program import main
from sandbox_kernel.plugins.batch import background_command as background
from sandbox_kernel.plugins.batch.run_report import UNENDED
from tests.support.batch import NO_ENGINE
from tests.support.kernels import eventually
from tests.support.processes import python

HOLDS = (
    "import fcntl, sys, time; lock = open(sys.argv[1], 'wb'); fcntl.flock(lock, 2); print(flush=True); time.sleep(300)"
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the tests' own."""
    monkeypatch.setattr(background, "below_home", tmp_path.joinpath)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def run(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main(list(words))
        found = capsys.readouterr()
        return code, found.out + found.err

    return run


def ended(identity: str) -> dict[str, Any]:
    """Return what is known of a run once its process has ended."""
    (one,) = (one for one in background.everything() if one.id == identity)
    eventually(lambda: not one.is_alive, 60, "the run ends")
    return one.row()


def made(home: Path, **report: Any) -> background.Submitted:
    """Make the folder of a run whose process is gone."""
    folder = home / ".local/state/sandbox-kernel/runs/0123456789ab"
    folder.mkdir(parents=True)
    about = {"source": "a.py", "submitted": "2026-01-01T00:00:00Z", "output": "out", "pid": os.getpid()}
    (folder / "run.json").write_text(json.dumps(about))
    (folder / "lock").touch()
    if report:
        (folder / "report.json").write_text(json.dumps(report))
    return background.Submitted(folder.name, folder)


@pytest.mark.slow
def test_a_run_goes_on_by_itself_and_its_end_is_known(home: Path, said: Any) -> None:
    (home / "a.py").write_text("print(1)")
    code, out = said("submit", "a.py", "--engine", NO_ENGINE)
    assert code == 0
    row = ended(out.strip())
    assert (row["state"], row["exit"]["code"]) == ("done", 3)
    assert "platform failed" in row["said"]
    assert row["output"] == str(home / f"a-output-{out.strip()}")
    code, shown = said("result", out.strip())
    assert code == 3
    assert "platform failed" in shown
    folder = Path(row["report"]).parent
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def test_one_that_was_killed_has_died_and_one_that_ended_has_not(home: Path, said: Any) -> None:
    one = made(home, exit={"code": 3, "kind": "platform failed", "reason": UNENDED})
    assert one.row()["state"] == "died"
    assert said("result", one.id)[0] == 1
    (one.folder / "report.json").write_text(
        json.dumps({"exit": {"code": 0, "kind": "fine", "reason": "every cell ran"}})
    )
    assert one.row()["state"] == "done"
    assert said("result", one.id)[0] == 0


def test_one_that_left_nothing_has_died(home: Path) -> None:
    assert made(home).row()["state"] == "died"


def test_a_living_one_is_running_and_is_not_removed_and_can_be_stopped(home: Path, said: Any) -> None:
    one = made(home, exit={"code": 3, "kind": "platform failed", "reason": UNENDED})
    with python(HOLDS, one.folder / "lock") as (process, _):
        (one.folder / "run.json").write_text(json.dumps({"pid": process.pid}))
        assert one.row()["state"] == "running"
        assert said("result", one.id)[0] == background.STILL
        assert said("result", one.id, "--remove")[0] == 2
        assert said("result", one.id, "--stop")[0] == 0
        assert process.wait(30) == -signal.SIGINT or process.returncode == 1
    assert one.row()["state"] == "died"
    assert said("result", one.id, "--remove")[0] == 0
    assert not one.folder.exists()


def test_a_dead_ones_number_is_never_signalled(home: Path, said: Any) -> None:
    one = made(home)  # with the number of this very process, which holds no lock
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        assert said("result", one.id, "--stop")[0] == 0
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == []


def test_all_are_listed_and_there_are_not_too_many(home: Path, said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made(home)
    code, out = said("result", "--json")
    assert (code, [row["id"] for row in json.loads(out)]) == (0, ["0123456789ab"])
    (home / "a.py").write_text("print(1)")
    monkeypatch.setattr(background, "MAX_RUNS", 1)
    code, out = said("submit", "a.py")
    assert code == 2
    assert "too many runs" in out


@pytest.mark.parametrize(
    "words", [("-",), ("a.py", "b.py"), ("a.py", "--repeat", "2"), ("a.py", "--report", "r"), ("none.py",)]
)
def test_what_cannot_be_in_the_background_is_refused_at_once(words: tuple[str, ...], home: Path, said: Any) -> None:
    (home / "a.py").write_text("print(1)")
    assert said("submit", *words)[0] == 2
    assert background.everything() == []


def test_an_id_of_none_is_refused(said: Any) -> None:
    assert said("result", "../../etc")[0] == 2


def test_what_a_notebook_is_called_does_not_act_on_the_terminal(home: Path, said: Any) -> None:
    """A folder of the output is named after it, and a notebook from elsewhere may have any name."""
    one = made(home, exit={"kind": "fine", "code": 0, "reason": ""})
    name = "\x1b]0;title\x07\u202e\n0123456789ab  done"
    (one.folder / "run.json").write_text(json.dumps({"source": f"{name}.py", "submitted": "now", "output": name}))
    for words in (["result"], ["result", one.id]):
        code, shown = said(*words)
        assert code == 0
        assert all(line.isprintable() for line in shown.splitlines())
        assert sum(line.startswith(one.id) for line in shown.splitlines()) == 1
