"""What the tests' own second attempt begins with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
from pathlib import Path
from tests.support.turns import Turns, TurnsPlugin
def pytest_configure(config):
    if {fresh}:
        config.pluginmanager.register(TurnsPlugin(Turns(Path(__file__).parent), 1))
"""

TESTS = """
import unittest
import pytest

tried, class_tried = [], []

@pytest.fixture(scope="module")
def of_the_module():
    found = ["new"]
    yield found
    assert found == ["new"], "it was spoiled, which the first attempt says already"

@pytest.mark.flaky(reruns=1)
def test_spoils_what_is_shared(of_the_module):
    if of_the_module == ["new"] and not tried:
        tried.append(1)
        of_the_module.append("spoiled")
    assert of_the_module == ["new"]

@pytest.mark.flaky(reruns=1)
class TestOfUnittest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.found = ["new"]

    def test_spoils_its_class(self):
        if not class_tried:
            class_tried.append(1)
            self.found.append("spoiled")
        self.assertEqual(self.found, ["new"])
"""


HANGS = """
import time
import pytest

@pytest.mark.flaky(reruns=1)
@pytest.mark.timeout(0.5)
def test_hangs():
    time.sleep(20)
"""


def tried(folder: Path, *, fresh: bool, tests: str = TESTS) -> str:
    (folder / "conftest.py").write_text(CONFTEST.format(fresh=fresh))
    (folder / "test_it.py").write_text(tests)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "pytest_rerunfailures",
        "-p",
        "pytest_timeout",
        "--rootdir",
        str(folder),
        str(folder),
    ]
    ran = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        env={"PATH": "", "PYTHONPATH": ".", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ran.stdout


@pytest.mark.slow
def test_a_second_attempt_has_what_is_shared_anew(tmp_path: Path) -> None:
    said = tried(tmp_path, fresh=True)
    assert "2 passed, 2 rerun" in said, said


@pytest.mark.slow
def test_control_without_it_the_second_attempt_finds_what_the_first_has_spoiled(tmp_path: Path) -> None:
    said = tried(tmp_path, fresh=False)
    assert "2 failed, 1 error, 2 rerun" in said, said


@pytest.mark.slow
def test_each_attempt_has_a_clock(tmp_path: Path) -> None:
    said = tried(tmp_path, fresh=True, tests=HANGS)
    assert "1 failed, 1 rerun" in said, said
    assert "Timeout (>0.5s)" in said, said


@pytest.mark.slow
def test_control_without_it_the_second_attempt_has_none(tmp_path: Path) -> None:
    said = tried(tmp_path, fresh=False, tests=HANGS.replace("20", "2"))
    assert "1 passed, 1 rerun" in said, said
