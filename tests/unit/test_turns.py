"""The turns of workers: one that is alone is alone, nobody waits for ever, and what one has worked out all know."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.kernels import eventually
from tests.support.turns import Turns, TurnsPlugin, once

SECONDS = 20


def waiting(turns: Turns, *, alone: bool) -> tuple[threading.Thread, threading.Event]:
    """Let another worker take its turn; the event says when it is in."""
    inside = threading.Event()

    def take() -> None:
        turns.take(alone=alone)
        inside.set()

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    return thread, inside


def test_two_that_share_do_not_wait(tmp_path: Path) -> None:
    first, second = Turns(tmp_path), Turns(tmp_path)
    first.take(alone=False)
    second.take(alone=False)
    first.give_back()
    second.give_back()


@pytest.mark.parametrize(("first_alone", "second_alone"), [(True, False), (False, True), (True, True)])
def test_nobody_runs_beside_one_that_is_alone(tmp_path: Path, first_alone: bool, second_alone: bool) -> None:
    first, second = Turns(tmp_path), Turns(tmp_path)
    first.take(alone=first_alone)
    thread, inside = waiting(second, alone=second_alone)
    assert not inside.wait(0.2)
    first.give_back()
    thread.join(SECONDS)
    assert inside.is_set()
    second.give_back()


def test_one_that_waits_to_be_alone_is_not_overtaken(tmp_path: Path) -> None:
    first, second, third = (Turns(tmp_path) for _ in range(3))
    first.take(alone=False)
    thread, inside = waiting(second, alone=True)
    eventually(lambda: _is_held(tmp_path / "door"), SECONDS, "it stands at the door")
    late, late_inside = waiting(third, alone=False)
    assert not late_inside.wait(0.2), "the later one would share with the first, and stays outside"
    first.give_back()
    thread.join(SECONDS)
    assert inside.is_set()
    second.give_back()
    late.join(SECONDS)
    assert late_inside.is_set()
    third.give_back()


@pytest.mark.parametrize(("outcome", "alone"), [("rerun", True), ("failed", False), ("passed", False)])
def test_what_is_tried_again_has_the_machine_for_itself(tmp_path: Path, outcome: str, alone: bool) -> None:
    plugin, other = TurnsPlugin(Turns(tmp_path), 2), Turns(tmp_path)
    plugin.turns.take(alone=False)
    plugin.pytest_runtest_logreport(SimpleNamespace(outcome=outcome))  # type: ignore[arg-type]
    thread, inside = waiting(other, alone=False)
    assert inside.wait(0.2 if alone else SECONDS) is not alone
    plugin.turns.give_back()
    thread.join(SECONDS)
    other.give_back()


def _is_held(path: Path) -> bool:
    """Return whether somebody holds a lock."""
    fields = [line.split() for line in Path("/proc/locks").read_text(encoding="utf-8").splitlines()]
    return path.exists() and any(row[1] == "FLOCK" and row[5].endswith(f":{path.stat().st_ino}") for row in fields)


def test_what_one_has_worked_out_the_others_read(tmp_path: Path) -> None:
    assert once(tmp_path / "it.json", lambda: {"a": [1]}) == {"a": [1]}
    assert once(tmp_path / "it.json", lambda: {"b": [2]}) == {"a": [1]}
    assert once(None, lambda: {"b": [2]}) == {"b": [2]}
