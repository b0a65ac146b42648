"""How `make test-modern` judges what comes back, and the bounds that it makes longer; no machine is started."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from tests.modern.__main__ import read
from tests.modern.machine import Done, as_user
from tests.modern.slow import BOUNDS
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
        pytest.param(None, results(PASSED), "not done within", id="late"),
    ],
)
def test_a_step_is_well_if_all_of_it_is(code: int | None, xml: bytes, wrong: str) -> None:
    outcome = read(STEP, Done(code, ("said",), 1.0), xml)
    assert bool(outcome.wrong) == bool(wrong)
    assert wrong in " ".join(outcome.wrong)


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


def test_steps_name_tests_that_are_there() -> None:
    assert all((ROOT / path).exists() for step in STEPS for path in step.tests)
    assert len({step.name for step in STEPS}) == len(STEPS)


def test_a_user_s_command_runs_in_a_session_and_only_where_asked_in_a_cgroup_of_theirs() -> None:
    assert as_user("root", ["true"], A="1") == ["env", "A=1", "true"]
    assert "--uid=person" in as_user("person", ["true"])
    assert "--property=Delegate=yes" not in as_user("person", ["true"])
    assert "--property=Delegate=yes" in as_user("person", ["true"], delegated=True)
