"""Judges of the operator's are asked before a cell runs, bounded, and believed for points alone."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import cli
from sandbox_kernel.config.sources import resolve
from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import CallCancelled, ConfigurationError
from sandbox_kernel.core.screen_findings import Screened
from sandbox_kernel.plugins.screen import judges as judges_module
from sandbox_kernel.plugins.screen.judges import MAX_CODE, Judges
from sandbox_kernel.plugins.screen.screen import CellScreen
from sandbox_kernel.plugins.screen.settings import ScreenSettings
from tests.plugins.screen.unit.test_request_guard import GRAVE, SLIGHT, Front
from tests.support.patience import until

JUDGE = """
import os, sys, time
print("what a judge prints is no answer")
def judge(code, findings):
    if "hang" in code:
        time.sleep(600)
    if "raise" in code:
        raise ValueError(code)
    if "exit" in code:
        os._exit(3)
    if "where" in code:
        return 0, repr([os.getcwd(), sorted(os.environ), sys.path[0], sys.stdin.fileno()])
    if "odd" in code:
        return {"odd1": 101, "odd2": -1, "odd3": float("nan")}[code], ""
    if "bad" in code:
        return 70, "it is \\x1b[31mbad\\u202e\\n" + "x" * 1000
    return len(findings), f"{os.getpid()}"
"""


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[str]:
    file = tmp_path / "own.py"
    file.write_text(JUDGE)
    name = f"{file}:judge"
    yield name
    judges_module.function_judge(name).end()


def program(tmp_path: Path, body: str) -> str:
    file = tmp_path / "scanner"
    file.write_text(f"#!{sys.executable}\nimport json, sys, time\n{body}\n")
    file.chmod(0o700)
    return str(file)


def ask(code: str, found: Screened | None = None, **settings: Any) -> dict[str, Any]:
    [opinion] = Judges(ScreenSettings(**settings)).opinions(code, found or Screened())
    return opinion.to_json() | {"weight": opinion.weight}


async def settled(front: Front) -> None:
    await until(lambda: front.sent or not front.requests.machine.queue.in_flight)


def test_a_function_answers_in_a_process_that_stays(judge: str) -> None:
    found = CellScreen().look(GRAVE)
    first, second = (ask(code, found, screen_judges=(judge,)) for code in ("a", "b"))
    assert (first["judge"], first["score"]) == (judge, len(found.findings))
    assert int(first["says"]) == int(second["says"]) != os.getpid()


def test_a_judge_sees_neither_the_folder_nor_the_variables_of_this_process(
    judge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN_SECRET", "x")
    said = ask("where", screen_judges=(judge,))["says"]
    assert said.startswith("['/', [")
    assert "OWN_SECRET" not in said


def test_the_words_of_a_judge_are_one_short_printable_line(judge: str) -> None:
    said = ask("bad", screen_judges=(judge,))
    assert said["score"] == 70
    assert said["says"].isprintable()
    assert len(said["says"]) == judges_module.MAX_REASON


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise", "it failed: ValueError('raise')"),
        ("exit", "its process has ended"),
        ("hang", "it took longer than 0.3 s"),
        ("odd1", "its score is 101.0, and no number from 0 to 100"),
        ("odd2", "its score is -1.0, and no number from 0 to 100"),
        ("odd3", "its score is nan, and no number from 0 to 100"),
        ("#" * (MAX_CODE + 1), f"the cell has more than {MAX_CODE} characters"),
    ],
)
def test_a_judge_that_fails_counts_for_what_the_setting_says_and_is_asked_again(
    judge: str, code: str, why: str
) -> None:
    of: dict[str, Any] = {"screen_judges": (judge,), "screen_judge_seconds": 0.3 if code == "hang" else 30.0}
    said = ask(code, **of)
    assert (said["failed"], said["weight"]) == (why, 100)
    assert ask(code, **of, screen_judge_fails="warn")["weight"] == 20
    assert ask("fine", screen_judges=(judge,))["score"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ("q = json.load(sys.stdin); print(json.dumps({'score': q['score'], 'reason': q['code'][-1]}))", (100, ")")),
        ("print('{\"score\": 12.6}')  # without having read what it is asked", (13, "")),
        ("print('no JSON')", "it answered b'no JSON\\n', which is no object of JSON with a score"),
        ("print('[' * 50000)", "which is no object of JSON with a score"),
        ("print('{\"score\": true}')", "its score is True, and no number from 0 to 100"),
        ("print('{\"score\": 1}'); sys.exit(3)", "it ended with 3"),
        ("print('x' * 100_000); time.sleep(600)", "its answer has more than 65536 bytes"),
        ("time.sleep(600)", "it took longer than 1 s"),
        ("sys.stdout.close(); import os; os.close(1); time.sleep(600)", "it did not end in time"),
    ],
)
def test_a_program_gets_json_and_its_answer_is_bounded(tmp_path: Path, body: str, answer: object) -> None:
    seconds = 1.0 if "sleep" in body else 30.0
    begun = time.monotonic()
    command = (program(tmp_path, body),)
    said = ask(GRAVE, CellScreen().look(GRAVE), screen_command=command, screen_judge_seconds=seconds)
    assert time.monotonic() - begun < 60
    if isinstance(answer, str):
        assert answer in said["failed"]
    else:
        assert (said["score"], said["says"]) == answer


def test_what_was_said_of_the_same_cell_is_not_asked_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = (program(tmp_path, f"open({str(log)!r}, 'a').write('x'); print('{{\"score\": 1}}')"),)
    judges = Judges(ScreenSettings(screen_command=command, screen_judge_seconds=30.0))
    for code in ("a", "b", "a", "a"):
        assert [one.weight for one in judges.opinions(code, Screened())] == [1]
    assert log.read_text() == "xx"


async def test_a_judge_alone_blocks_a_cell_and_the_record_has_its_words(judge: str) -> None:
    front = Front(screen="block", screen_judges=(judge,))
    front.ask("execute_request", code="bad")
    assert (front.sent, front.said("error")) == ([], [])  # it is being asked, and nothing waits for that but the cell
    await settled(front)
    [error] = front.said("error")
    assert error["ename"] == "ScreenBlocked"
    assert "gives it 70 points, and says: 'it is [31mbad x" in "\n".join(error["traceback"])
    [line] = front.screened
    assert (line["score"], line["judges"][0]["score"], line["judges"][0]["judge"]) == (70, 70, judge)


@pytest.mark.parametrize(("fails", "sent"), [("block", 0), ("warn", 1)])
async def test_a_judge_that_fails_blocks_unless_the_setting_says_otherwise(judge: str, fails: str, sent: int) -> None:
    front = Front(screen="block", screen_judges=(judge,), screen_judge_fails=fails)
    front.ask("execute_request", code="raise")
    await settled(front)
    assert len(front.sent) == sent
    assert [one["code"] for one in front.screened[0]["findings"]] == ["judge-failed"]


async def test_a_harmless_cell_runs_and_its_opinion_is_in_the_record(judge: str) -> None:
    front = Front(screen="block", screen_judges=(judge,))
    front.ask("execute_request", code=SLIGHT)
    await settled(front)
    assert len(front.sent) == 1
    [line] = front.screened
    assert (line["score"], line["judges"][0]["score"]) == (20, 1)


async def test_no_judge_is_asked_about_what_the_rules_block(judge: str) -> None:
    front = Front(screen="block", screen_judges=(judge,))
    front.run(GRAVE)
    assert "judges" not in front.screened[0]


async def test_a_cell_that_was_withdrawn_meanwhile_is_not_sent(judge: str) -> None:
    front = Front(screen="block", screen_judges=(judge,))
    front.ask("execute_request", code="x = 1")
    front.requests.withdraw(front.requests.queue.in_flight[0], CallCancelled(EndCode.CALL_CANCELLED))
    front.ask("execute_request", code="y = 2")
    await settled(front)
    assert [json.loads(text)["code"] for text in front.sent] == ["y = 2"]


async def test_a_defect_of_asking_lets_nothing_through(judge: str, monkeypatch: pytest.MonkeyPatch) -> None:
    front = Front(screen="block", screen_judges=(judge,))
    monkeypatch.setattr(Judges, "opinions", lambda *_: 1 / 0)
    front.ask("execute_request", code="x = 1")
    await settled(front)
    assert (front.sent, front.said("error")[0]["ename"]) == ([], "SandboxError")


async def test_a_person_is_asked_with_what_a_judge_says(judge: str) -> None:
    front = Front(screen="ask", screen_judges=(judge,))
    front.ask("execute_request", code="bad", allow_stdin=True)
    await until(lambda: front.said("input_request"))
    assert "gives it 70 points" in front.said("input_request")[0]["prompt"]
    front.answer(front.word)
    assert len(front.sent) == 1
    assert (front.screened[0]["answer"], front.screened[0]["judges"][0]["score"]) == ("yes", 70)


def test_the_score_is_the_higher_of_the_rules_and_the_judges(judge: str) -> None:
    screen = CellScreen()
    found = screen.look(SLIGHT)
    both = screen.with_opinions("bad", found, Judges(ScreenSettings(screen_judges=(judge,))).opinions("bad", found))
    assert (found.score, both.score) == (20, 70)
    allowed = "bad  # sandbox: allow second-opinion -- known"
    opinions = Judges(ScreenSettings(screen_judges=(judge,))).opinions(allowed, found)
    assert screen.with_opinions(allowed, found, opinions).score == 20


@pytest.mark.parametrize("wrong", ["os.path:join:x", "../own.py:judge", "judge", "a-b:c", "/own.py"])
def test_a_judge_that_is_no_function_by_its_form_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigurationError):
        resolve({"screen": "warn", "screen_judges": wrong})


def test_judges_that_nobody_would_ask_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="screen_judges is set, and the screen is off"):
        resolve({"screen_judges": "os.path:join"})
    assert resolve({"screen": "warn", "screen_judges": "os.path:join"}).of(ScreenSettings).screen_judges


@pytest.mark.parametrize("name", ["own.missing:judge", "os.path:missing"])
def test_a_function_that_cannot_be_loaded_is_a_judge_that_fails(name: str) -> None:
    assert "it cannot be loaded" in ask("x", screen_judges=(name,))["failed"]


def test_files_are_judged_by_the_command_too(judge: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cells.py"
    file.write_text("x = 1\n")
    words = ["screen", "--format", "sarif", "--screen-judges", judge, str(file)]
    assert cli.main(words) == 0
    file.write_text("# %%\nx = 1\n# %%\nbad = 1\n")
    capsys.readouterr()
    assert cli.main(words) == 1
    [result] = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    assert (result["ruleId"], result["level"], result["properties"]["weight"]) == ("second-opinion", "error", 70)
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 3
