"""The report of behaviour: what counts, how grave it is, and one form of it everywhere."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest

from sandbox_kernel.core.behaviour import Behaviour, BehaviourRow, Observation, Observations, observed
from sandbox_kernel.core.codes import Code, EndCode, FileCode, MessageCode, OutputCode
from sandbox_kernel.core.errors import CellTimeout, SandboxError, ScreenBlocked
from sandbox_kernel.core.events import (
    CallTried,
    FileNotTransferred,
    MessageDropped,
    OutputRemoved,
    SandboxAttested,
    SessionEvent,
)
from sandbox_kernel.core.screen_findings import Finding, Place
from sandbox_kernel.sdk.execution import Execution
from tests.support import ROOT
from tests.support.events import an

PAGE = (ROOT / "docs/behaviour.md").read_text(encoding="utf-8")
[SHOWN] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
VALIDATOR = jsonschema.Draft202012Validator(json.loads(SHOWN))


def _finding(code: str, weight: int, **more: Any) -> Finding:
    return Finding(code, "process", weight, 2, "it does something", "Do not.", **more)


def _seen(*events: SessionEvent) -> Observations:
    seen = Observations()
    for event in events:
        found = observed(event)
        assert found is not None
        seen.add(found)
    return seen


def _rows(
    seen: Observations, findings: list[Finding], verdict: SandboxError | None, cell: int | None
) -> tuple[BehaviourRow, ...]:
    seen.end(findings, verdict, cell)
    return Behaviour(rows=seen.rows()).of_cell(cell).rows


FORGED = an(MessageDropped, code=MessageCode.SECOND_REPLY, reason="a second reply", type="execute_reply")
SCRIPT = an(OutputRemoved, code=OutputCode.JAVASCRIPT, reason="removed a script", type="display_data")


def test_nothing_is_safe_and_has_the_form_of_all() -> None:
    behaviour = Behaviour()
    assert (behaviour.risk_score, behaviour.is_safe, behaviour.reasons) == (0, True, [])
    VALIDATOR.validate(behaviour.to_json())


def test_the_score_is_the_highest_and_no_sum() -> None:
    small = [_finding(f"own-{number}", 20) for number in range(20)]
    rows = _rows(Observations(), small, None, 1)
    assert (Behaviour(rows=rows).risk_score, len(rows)) == (20, 20)
    grave = Behaviour(rows=_rows(_seen(FORGED, SCRIPT), [*small, _finding("own-x", 40)], None, 1))
    assert (grave.risk_score, grave.is_safe) == (80, False)
    assert [row.score for row in grave.rows[:3]] == [80, 60, 40]
    VALIDATOR.validate(json.loads(json.dumps(grave.to_json())))


def test_each_row_has_code_severity_count_first_cell_and_a_sentence() -> None:
    rows = _rows(
        _seen(FORGED, SCRIPT, FORGED, FORGED), [_finding("own-x", 60, places=(Place(2, 1, 2, 5),) * 3)], None, 7
    )
    assert [row.to_json() for row in rows] == [
        {
            "kind": "message",
            "code": "second-reply",
            "severity": "violation",
            "count": 3,
            "first_cell": 7,
            "score": 80,
            "reason": "Dropped: a second reply.",
        },
        {
            "kind": "finding",
            "code": "own-x",
            "severity": "violation",
            "count": 3,
            "first_cell": 7,
            "score": 60,
            "reason": "Line 2: own-x: it does something.",
        },
        {
            "kind": "output",
            "code": "javascript",
            "severity": "violation",
            "count": 1,
            "first_cell": 7,
            "score": 60,
            "reason": "Removed a script.",
        },
    ]


def test_what_honest_code_does_is_a_row_without_points() -> None:
    programs = [an(CallTried, call="program", target=name, count=count) for name, count in (("git", 2), ("ls", 1))]
    behaviour = Behaviour(rows=_rows(_seen(*programs), [], None, 3))
    assert (behaviour.risk_score, behaviour.is_safe) == (0, True)
    [row] = behaviour.rows
    assert (row.kind, row.code, row.count, row.score) == ("program", "program-started", 3, 0)
    assert row.reason == "A program was started: git."
    assert observed(an(CallTried, call="mount", count=1)) is None, "that is a rule's to say"
    VALIDATOR.validate(behaviour.to_json())


ENDS = {
    "a limit": (CellTimeout(EndCode.CELL_TIMEOUT), "limit", 40, True),
    "a block": (ScreenBlocked(["line 1: x"], score=100, threshold=60), "end", 80, False),
    "an interrupt": (SandboxError(EndCode.CELL_INTERRUPTED), "end", 10, True),
}


@pytest.mark.parametrize(("error", "kind", "score", "safe"), ENDS.values(), ids=ENDS)
def test_how_the_host_ended_a_cell_is_a_row(error: SandboxError, kind: str, score: int, safe: bool) -> None:
    behaviour = Behaviour(rows=_rows(Observations(), [], error, None))
    [row] = behaviour.rows
    assert (row.kind, row.code, row.score, behaviour.is_safe) == (kind, error.code.code, score, safe)


def test_what_a_comment_allows_does_not_count() -> None:
    assert _rows(Observations(), [_finding("own-x", 80, allowed="a drill")], None, 1) == ()


@pytest.mark.parametrize(
    "event",
    [
        an(MessageDropped, code=MessageCode.STATUS_OUT_OF_TURN),
        an(SandboxAttested),
        an(FileNotTransferred, code=FileCode.TOO_LARGE, op="write"),
    ],
)
def test_what_each_kernel_does_is_no_behaviour(event: SessionEvent) -> None:
    assert observed(event) is None


def test_names_of_the_sandbox_are_short_and_printable() -> None:
    found = observed(SCRIPT.having(reason="x\x1b[2J\u202e" * 1000))
    assert found is not None
    assert found.reason.isprintable()
    assert len(BehaviourRow.of(found).reason) < 2000


def test_a_run_joins_its_cells_by_code_with_the_first_cell() -> None:
    cells = [
        Behaviour(rows=_rows(_seen(SCRIPT), [], None, 1), seconds=1.0, cpu_seconds=0.5, memory_peak_bytes=10).of_cell(
            2
        ),
        Behaviour(rows=_rows(_seen(FORGED, SCRIPT), [], None, 2), seconds=2.0, cpu_seconds=0.25).of_cell(5),
    ]
    beside = [BehaviourRow.of(Observation("limit", FileCode.TOO_LARGE, "file", "too large", "file"), 4)]
    run = Behaviour.joined(cells, beside, threshold=90, seconds=9.0)
    assert [(row.code, row.count, row.first_cell) for row in run.rows] == [
        ("second-reply", 1, 5),
        ("javascript", 2, 2),
        ("too-large", 4, None),
    ]
    assert (run.risk_score, run.is_safe, run.threshold) == (80, True, 90)
    assert run.to_json()["resources"] == {"seconds": 9.0, "cpu_seconds": 0.75, "memory_peak_bytes": 10}
    VALIDATOR.validate(run.to_json())


def test_how_many_rows_a_cell_has_is_bounded_by_the_codes() -> None:
    seen = _seen(*(FORGED.having(reason=f"forged {number}") for number in range(1000)))
    [row] = seen.rows()
    assert (row.count, row.reason) == (1000, "Dropped: forged 0.")


def test_all_severities_have_points() -> None:
    for code in (EndCode.CELL_TIMEOUT, EndCode.PLATFORM_FAILED, MessageCode.SECOND_REPLY, OutputCode.TYPE_NOT_SHOWN):
        assert isinstance(code, Code)
        assert 0 < BehaviourRow.of(Observation(code.severity, code, "x", "x", "end")).score <= 100


def test_an_execution_has_it_as_plain_data() -> None:
    execution = Execution(behaviour=Behaviour(rows=_rows(_seen(FORGED), [], None, 3)))
    for given in (execution.to_dict()["behaviour"], json.loads(execution.to_json())["behaviour"]):
        VALIDATOR.validate(json.loads(json.dumps(given)))
        assert given["risk_score"] == 80
