"""Runs of one source that are compared: their circumstances, what is noted in them, and what differs."""

from __future__ import annotations

import calendar
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.cli.program import main
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.model import Limits, Settings
from sandbox_kernel.plugins.batch.variations import (
    ACROSS,
    MAX_ACTIONS,
    PLAIN,
    TOLD,
    Variation,
    actions,
    asked,
    differences,
)


def test_the_clock_of_a_date_shows_that_day_in_all_time_zones() -> None:
    then = time.time() + Variation.of("date=2030-01-01").shift
    assert then == pytest.approx(calendar.timegm((2030, 1, 1, 12, 0, 0)), abs=10)
    exact = time.time() + Variation.of("date=2030-01-01T07:30:00+01:00").shift
    assert exact == pytest.approx(calendar.timegm((2030, 1, 1, 6, 30, 0)), abs=10)


@pytest.mark.parametrize("word", ACROSS)
def test_each_circumstance_of_a_time_bomb_changes_something(word: str) -> None:
    assert Variation.of(word).applied(Settings()) != Settings()


def test_the_plain_run_has_nothing_of_its_own() -> None:
    assert Variation.of(PLAIN).applied(Settings()) == Settings()


@pytest.mark.parametrize(
    "word",
    [
        "",
        "date=",
        "date=2030",
        "date=1200-01-01",
        "date=2030-13-01",
        "zone=../etc",
        "locale=x;y",
        "flag=ld_x",
        "seed=-1",
        "seed=" + "9" * 5000,
    ],
)
def test_a_word_for_none_is_refused(word: str) -> None:
    with pytest.raises(ConfigurationError):
        Variation.of(word)


def test_of_cells_in_another_language_nothing_is_noted() -> None:
    with pytest.raises(ConfigurationError, match="Python alone"):
        Variation.of(PLAIN).applied(Settings(kernel="bash"))


def test_dates_are_compared_with_the_plain_run_and_a_time_bomb_with_all() -> None:
    assert asked(time_bomb=None, dates="2030-01-01, 2031-06-01") == [PLAIN, "date=2030-01-01", "date=2031-06-01"]
    assert asked(time_bomb="2030-01-01", dates=None) == [PLAIN, "date=2030-01-01", *ACROSS]
    with pytest.raises(ConfigurationError, match="too many"):
        asked(time_bomb=None, dates=",".join(f"2030-01-{day % 28 + 1:02}T{day % 24:02}:00" for day in range(100)))


def test_a_clock_that_did_not_follow_is_an_error() -> None:
    shifted = Variation.of("date=2030-01-01")
    shifted.check_clock(f"{time.time() + shifted.shift}\n")
    for said in (f"{time.time()}", "", "nan", "now"):
        with pytest.raises(ConfigurationError, match="libfaketime"):
            shifted.check_clock(said)


def noted(code: str, tmp_path: Path) -> list[str]:
    """Return what the witness notes of code, in a process of this machine's own."""
    source = "\n".join((Variation.of("seed=1").begin(), code, TOLD))
    done = subprocess.run(
        [sys.executable, "-I", "-c", source], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=True
    )
    first, *_, last = done.stdout.splitlines()
    Variation.of(PLAIN).check_clock(first)
    return actions(last, Limits())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("try: open('/etc/shadow')\nexcept OSError: pass", "reads /etc/shadow"),
        ("try: open('/nowhere/x', 'w')\nexcept OSError: pass", "writes /nowhere/x"),
        ("import subprocess; subprocess.run(['true', 'x'])", "starts true x"),
        ("import os; os.system('true y')", "starts true y"),
        ("import os\ntry: os.remove('/mnt/data/nothing')\nexcept OSError: pass", "removes /mnt/data/nothing"),
        ("import socket\ns = socket.socket(socket.AF_UNIX)\ntry: s.connect('/nowhere/s')\nexcept OSError: pass",
         "connects to /nowhere/s"),
    ],
)  # fmt: skip
def test_what_python_asks_the_system_for_is_noted(code: str, expected: str, tmp_path: Path) -> None:
    assert expected in noted(code, tmp_path)
    assert expected not in noted("x = 1", tmp_path)


def test_a_hostile_answer_is_bounded_and_read_as_text() -> None:
    assert [actions(said, Limits()) for said in ("no JSON", '{"a": 1}', "[" * 100_000)] == [[], [], []]
    found = actions(json.dumps(["a\x1b[2J" + "b" * 10_000, 7, None, *map(str, range(10_000))]), Limits())
    assert len(found) < MAX_ACTIONS
    assert "\x1b" not in found[0]
    assert len(found[0]) < 300


def report(**more: Any) -> dict[str, Any]:
    row = {"kind": "program", "code": "dropped-program", "score": 80, "reason": "A program."}
    return {
        "exit": {"kind": more.get("kind", "fine")},
        "cells": [{"number": 1, "status": more.get("status", "ok")}],
        "behaviour": {"rows": [row] if more.get("row") else []},
        "variation": {"as": "x", "actions": more.get("actions", [])},
    }


def test_the_same_behaviour_is_no_difference() -> None:
    one = report(row=True, actions=["starts ls"])
    assert differences(one, json.loads(json.dumps(one))) == []


def test_each_kind_of_difference_is_said() -> None:
    plain = report(actions=["reads /etc/hosts"])
    other = report(kind="code failed", status="failed", row=True, actions=["starts ls"])
    assert differences(plain, other) == [
        "it ends with: code failed (was: fine)",
        "cell 1: failed (was: ok)",
        "also: A program. (80 points)",
        "also: starts ls",
        "not: reads /etc/hosts",
    ]
    assert differences(other, plain)[2] == "not: A program. (80 points)"
    assert differences(plain, None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-", "--repeat", "2"), "from a file"),
        (("a.py", "b.py", "--repeat", "2"), "from a file"),
        (("a.py", "--repeat", "1"), "too small"),
        (("a.py", "--repeat", "2", "--for", "1m"), "so often or for so long"),
        (("a.py", "--for", "30d"), "not a time"),
        (("a.py", "--repeat", "2", "--receipt", "r"), "--receipt is of one run"),
        (("a.py", "--dates", "soon"), "YYYY-MM-DD"),
    ],
)
def test_what_does_not_go_together_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
