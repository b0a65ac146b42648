"""How `make test-modern` judges what comes back, and the bounds that it makes longer; no machine is started."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Self, cast

import pytest

from tests.modern import __main__ as modern
from tests.modern import disk
from tests.modern.machine import Done, MachineLost, as_user
from tests.modern.outcomes import Kept, Outcome, read, table, until_then
from tests.modern.slow import BOUNDS, SLOWNESS
from tests.modern.steps import STEPS, Step
from tests.support import ROOT

STEP = Step("one", ("tests/x.py",), skips=("no runtime 'runsc'",))


def results(*cases: str) -> bytes:
    return f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>".encode()


def case(name: str, inside: str = "") -> str:
    return f'<testcase classname="tests.x" name="{name}">{inside}</testcase>'


PASSED = case("a")
SKIPPED = case("b", '<skipped type="pytest.skip" message="the engine has no runtime \'runsc\'"/>')


@pytest.mark.parametrize(
    ("code", "xml", "wrong"),
    [
        pytest.param(0, results(PASSED, SKIPPED), "", id="well"),
        pytest.param(0, results(PASSED, case("c", '<skipped message="no Docker"/>')), "was skipped", id="strange_skip"),
        pytest.param(1, results(PASSED, case("c", '<failure message="assert 0"/>')), "assert 0", id="failure"),
        pytest.param(1, results(PASSED, case("c", '<error message="at setup"/>')), "at setup", id="error"),
        pytest.param(0, results(SKIPPED), "no test has passed", id="nothing_but_skips"),
        pytest.param(2, results(PASSED), "exit code 2", id="exit_code"),
        pytest.param(4, b"", "no results", id="no_results"),
    ],
)
def test_a_step_is_well_if_all_of_it_is(code: int | None, xml: bytes, wrong: str) -> None:
    outcome = read(STEP, Done(code, ("said",), 1.0), xml)
    assert bool(outcome.wrong) == bool(wrong)
    assert wrong in " ".join(outcome.wrong)


def test_what_a_test_says_of_an_engine_comes_into_the_table() -> None:
    said = '<properties><property name="row" value="Podman: refused"/></properties>'
    outcome = read(STEP, Done(0, (), 1.0), results(case("a", said)))
    assert "Podman: refused" in table([STEP], {STEP.name: outcome})


ONE_BY_ONE = """
tests/container/x.py::test_a[one two] PASSED [  3%]
tests/container/x.py::test_b SKIPPED (no 'runsc') [  6%]
tests/container/x.py::test_c FAILED [  9%]
tests/container/x.py::test_d"""
BY_WORKERS = """
tests/container/x.py::test_a[one two]
tests/container/x.py::test_d
[gw0] [  3%] PASSED tests/container/x.py::test_a[one two]
tests/container/x.py::test_b
[gw0] [  6%] SKIPPED tests/container/x.py::test_b
tests/container/x.py::test_c
[gw0] [  9%] FAILED tests/container/x.py::test_c"""


@pytest.mark.parametrize("said", [ONE_BY_ONE, BY_WORKERS])
def test_a_step_that_was_ended_keeps_what_it_had(said: str) -> None:
    outcome = until_then(said.splitlines(), "interrupted")
    assert (outcome.passed, outcome.skipped) == (1, 1)
    assert outcome.wrong == (
        "interrupted",
        "tests/container/x.py::test_c: FAILED",
        "tests/container/x.py::test_d was under way",
    )


def test_outcomes_are_kept_for_the_same_checkout_only(tmp_path: Path) -> None:
    outcome = Outcome(3, 1, ("x was wrong",), ("y",), 1.5)
    Kept(tmp_path / "results.json", "one").put(STEP, outcome)
    assert Kept(tmp_path / "results.json", "one").outcomes == {STEP.name: outcome}
    assert Kept(tmp_path / "results.json", "two").outcomes == {}
    (tmp_path / "results.json").write_text("[]")
    assert Kept(tmp_path / "results.json", "one").outcomes == {}


class Running:
    """Says in place of a machine how it was lost."""

    def __init__(self, error: BaseException) -> None:
        self.error, self.lost = error, 0

    def machine(self) -> object:
        raise self.error

    def give_up(self) -> None:
        self.lost += 1


@pytest.mark.parametrize("error", [MachineLost("it says nothing"), KeyboardInterrupt()])
def test_a_step_whose_machine_is_lost_has_its_row_and_the_next_one_another_machine(
    tmp_path: Path, error: BaseException
) -> None:
    kept, running = Kept(tmp_path / "results.json", "one"), Running(error)
    with contextlib.ExitStack() as until:
        if isinstance(error, KeyboardInterrupt):
            until.enter_context(pytest.raises(KeyboardInterrupt))
        modern.tried(cast(modern.Running, running), STEP, tmp_path / "1.log", kept.put)
    assert kept.outcomes[STEP.name].wrong == (str(error) or "interrupted",)
    assert running.lost == 1
    other = replace(STEP, name="another")
    shown = table([STEP, other], kept.outcomes).splitlines()
    assert shown[1].split()[:2] == ["FAILED", "one"]
    assert [line for line in shown if line.startswith("not run another")]


class Scripted:
    """Stands for a machine: what is to come of each step, in turn; each start is counted."""

    starts = 0
    comes: ClassVar[list[bytes | type[BaseException]]] = []
    up_seconds = 1.0

    def __init__(self, *given: object) -> None:
        self.results = b""

    def __enter__(self) -> Self:
        Scripted.starts += 1
        return self

    def __exit__(self, *how: object) -> None:
        pass

    def processor_seconds(self) -> float:
        return 0.0

    def run(self, *command: str, seconds: float, heard: Callable[[str], None] = print) -> Done:
        if "pytest" in command:
            come = self.comes.pop(0)
            if not isinstance(come, bytes):
                heard("tests/x.py::test_a PASSED [ 50%]")
                raise come
            self.results = come
        return Done(0, ("Linux 6.1",), 1.0)

    def read(self, path: str) -> bytes:
        return self.results


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    for name, value in (("install_needed", lambda: None), ("Machine", Scripted), ("checkout", lambda made: "same")):
        monkeypatch.setattr(modern, name, value)
    monkeypatch.setattr(modern, "STEPS", tuple(Step(name, ("tests/x.py",)) for name in ("one", "two", "three")))
    monkeypatch.setattr(disk, "make", lambda say: None)
    monkeypatch.setattr(disk, "project", lambda path: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(signal, "signal", lambda number, what: None)

    def run(*comes: bytes | type[BaseException]) -> int:
        Scripted.starts, Scripted.comes = 0, list(comes)
        return modern.main(["--output", str(tmp_path)])

    return run


def rows(said: str) -> list[list[str]]:
    return [line.split()[:4] for line in said.splitlines() if line.startswith(("ok ", "FAILED ", "not run "))]


def test_a_lost_machine_costs_one_step_and_the_next_run_tries_that_one_only(
    scripted: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert scripted(results(PASSED), MachineLost, results(PASSED, PASSED)) == 1
    assert Scripted.starts == 2
    shown = [["ok", "one", "root", "1"], ["FAILED", "two", "root", "1"], ["ok", "three", "root", "2"]]
    assert rows(capsys.readouterr().out) == shown
    assert scripted(results(PASSED)) == 0
    assert rows(capsys.readouterr().out)[1] == ["ok", "two", "root", "1"]


def test_a_run_that_is_interrupted_ends_with_its_table(
    scripted: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert scripted(results(PASSED), KeyboardInterrupt) == 1
    shown = [["ok", "one", "root", "1"], ["FAILED", "two", "root", "1"], ["not", "run", "three", "root"]]
    assert rows(capsys.readouterr().out) == shown


def test_the_bounds_that_are_made_longer_are_there() -> None:
    for module, names in BOUNDS.items():
        there = vars(importlib.import_module(f"sandbox_kernel.{module}"))
        assert set(names) <= set(there), module


def test_bounds_are_longer_in_every_python_of_the_machine() -> None:
    look = "from sandbox_kernel.engines.docker import container as c; print(c.KILL_SECONDS)"
    said = [
        float(subprocess.run([sys.executable, "-c", before + look], cwd=ROOT, check=True, capture_output=True).stdout)
        for before in ("", "import tests.modern.slow as slow; ")
    ]
    assert said[1] == 12 * said[0]


def test_the_bounds_of_the_machine_are_set_in_one_line_of_a_file() -> None:
    lines = (ROOT / "tests/modern/slow.py").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("SLOWNESS = ")] == [f"SLOWNESS = {SLOWNESS}"]
    assert any("s/^SLOWNESS = .*/SLOWNESS = {slowness}/" in line for line in modern.READY)


def test_steps_name_tests_that_are_there() -> None:
    assert all((ROOT / path).exists() for step in STEPS for path in step.tests)
    assert len({step.name for step in STEPS}) == len(STEPS)


def test_a_user_s_command_runs_in_a_session_and_only_where_asked_in_a_cgroup_of_theirs() -> None:
    assert as_user("root", ["true"], A="1") == ["env", "A=1", "true"]
    assert "--uid=person" in as_user("person", ["true"])
    assert "--property=Delegate=yes" not in as_user("person", ["true"])
    assert "--property=Delegate=yes" in as_user("person", ["true"], delegated=True)
