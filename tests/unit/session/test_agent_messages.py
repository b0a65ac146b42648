"""What an agent says that was tried, as a cell in its place may say it: the proper rows are taken, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox_kernel.core.events import ABSENT
from sandbox_kernel.session.agent_messages import MAX_PROCESSES, MAX_TRIED, MAX_TRIES, SECRETS, calls_of, watches


def lines(*rows: Any) -> list[dict[str, Any]]:
    return [one.line() for one in calls_of({"op": "calls", "rows": list(rows)})]


def test_proper_rows_are_events() -> None:
    rows = [["mount", "sh", "", 3, 7], ["connect", "nc", "10.0.0.1:22", 1, 8], ["secret", "python3", "1", 2, 9]]
    assert lines(*rows, ["connect", "x", "[2001:db8::1]:80", 1, 1]) == [
        {"call": "mount", "program": "sh", "thread": 7, "count": 3},
        {"call": "connect", "target": "10.0.0.1:22", "program": "nc", "thread": 8, "count": 1},
        {"call": "secret", "target": SECRETS[1], "program": "python3", "thread": 9, "count": 2},
        {"call": "connect", "target": "[2001:db8::1]:80", "program": "x", "thread": 1, "count": 1},
    ]


@pytest.mark.parametrize("name", ["", "?", "a b", "\x1b[2J", "x" * 41, "\u0661", "../x", "git\n"])
def test_a_program_has_the_name_of_one_or_none(name: str) -> None:
    rows = [["program", "python3", each, 1, 9] for each in ("git", "python3.13", name)]
    assert [one.target for one in calls_of({"rows": rows})] == ["git", "python3.13", "?"]


@pytest.mark.parametrize(
    "row",
    [
        None,
        "mount",
        [],
        ["mount"],
        ["mount", "sh", "", 1, 1, 1],
        ["getpid", "sh", "", 1, 1],
        ["\x1b[2J", "sh", "", 1, 1],
        [["mount"], "sh", "", 1, 1],
        [True, "sh", "", 1, 1],
        ["secret", "sh", "", 1, 1],
        ["secret", "sh", "-1", 1, 1],
        ["secret", "sh", str(len(SECRETS)), 1, 1],
        ["secret", "sh", "\u0661", 1, 1],
        ["secret", "sh", 1, 1, 1],
    ],
)
def test_what_is_no_row_is_left_out(row: Any) -> None:
    assert lines(row, ["mount", "sh", "", 1, 1]) == [{"call": "mount", "program": "sh", "thread": 1, "count": 1}]


@pytest.mark.parametrize("rows", [None, "mount", {"a": 1}, 7, []])
def test_what_is_no_list_says_nothing(rows: Any) -> None:
    assert list(calls_of({"op": "calls", "rows": rows})) == []


def test_texts_and_numbers_are_bounded_and_safe_to_print() -> None:
    [one] = calls_of({"rows": [["connect", "\x1b]0;owned\x07" * 99, "evil.test\n:22", 1 << 80, -5]]})
    assert one.target == "?"
    assert one.program.isprintable()
    assert len(one.program) <= 64
    assert (one.count, one.thread) == (MAX_TRIES, 0)
    [one] = calls_of({"rows": [["mount", 7, 7, True, MAX_PROCESSES + 1]]})
    assert (one.program, one.target, one.count, one.thread) == ("", ABSENT, MAX_TRIES, 0)
    assert len(lines(*[["mount", "", "", 1, 1]] * 1000)) == MAX_TRIED


@pytest.mark.parametrize("report", [None, [], {}, {"own_filters": 1}, {"own_filters": {"watching": 1}}])
def test_who_does_not_say_that_it_watches_does_not(report: Any) -> None:
    assert not watches(report)


def test_who_says_so_watches() -> None:
    assert watches({"own_filters": {"watching": True}})
