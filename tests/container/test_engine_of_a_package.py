"""The engine of docs/write-a-plugin.md, built, installed, found by its entry point and named by its name."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sandbox_kernel.plugins.bubblewrap.interface import bubblewrap_program
from tests.support import ROOT
from tests.support.packages import install_package, python
from tests.support.roots import root_of_tests

pytestmark = pytest.mark.skipif(bubblewrap_program() is None, reason="there is no bubblewrap")

PAGE = (ROOT / "docs" / "write-a-plugin.md").read_text(encoding="utf-8")
PACKAGE = dict(re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))["pyproject.toml"]
[SMALL] = re.findall(r"In `small\.py`:\n\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

CARELESS = SMALL.replace("small", "careless").replace(
    "return await super().start(spec)",
    "return await super().start(replace(spec, limits=replace(spec.limits, memory=2 * GIB)))",
)
"""The same that does not do as it is told: a sandbox may use more memory than was asked for."""
RUN = """
import json, sys
from sandbox_kernel import Sandbox, SandboxError
try:
    with Sandbox(engine=sys.argv[1], image=sys.argv[2], memory=sys.argv[3], limits="best-effort") as sandbox:
        print(json.dumps(["ran", sandbox.run_code("print(6 * 7)").logs.stdout]))
except SandboxError as error:
    print(json.dumps([type(error).__name__, error.code.code, str(error)]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an installation of a package with both."""
    described = PACKAGE.replace("stopwatch", "small").replace(
        'small = "small:PLUGIN"', 'small = "small:PLUGIN"\ncareless = "careless:PLUGIN"'
    )
    described = described.replace('["small.py"]', '["small.py", "careless.py"]')
    careless = f"from dataclasses import replace\n{CARELESS}"
    files = {"pyproject.toml": described, "small.py": SMALL, "careless.py": careless}
    return install_package(tmp_path_factory, files)


def run_code(installed: Path, engine: str, memory: str = "512M") -> list[str]:
    done = python(installed, "-c", RUN, engine, root_of_tests(), memory)
    assert done.returncode == 0, done.stderr
    said: list[str] = json.loads(done.stdout)
    return said


def test_the_example_is_short() -> None:
    assert len([line for line in SMALL.splitlines() if line.strip()]) <= 30


def test_it_starts_a_sandbox_that_runs_a_cell(installed: Path) -> None:
    assert run_code(installed, "small") == ["ran", ["42\n"]]


def test_what_it_refuses_is_the_error_of_the_sandbox(installed: Path) -> None:
    name, code, said = run_code(installed, "small", "2G")
    assert (name, code) == ("EngineError", "engine-failed")
    assert "it gives less memory" in said
    assert "1 GiB" in said


def test_a_sandbox_that_is_not_what_was_asked_for_is_refused(installed: Path) -> None:
    """No engine is believed: the sandbox says what it sees, and one difference is enough."""
    name, code, said = run_code(installed, "careless")
    assert (name, code) == ("AttestationFailed", "attestation-failed")
    assert "memory limit" in said


def test_a_name_of_no_engine_is_an_error_that_says_which_there_are(installed: Path) -> None:
    name, code, said = run_code(installed, "smal")
    assert (name, code) == ("ConfigurationError", "wrong-setting")
    assert "docker, bubblewrap, broker" in said


def test_without_the_package_there_is_no_such_engine(installed: Path) -> None:
    """The control."""
    assert run_code(installed / "elsewhere", "small")[:2] == ["ConfigurationError", "wrong-setting"]


def test_commands_take_it_by_its_name(installed: Path) -> None:
    listed = python(installed, "-m", "sandbox_kernel", "ps", "--engine", "small", "--json")
    assert (listed.returncode, listed.stderr) == (0, "")
    unknown = python(installed, "-m", "sandbox_kernel", "ps", "--engine", "smal")
    assert unknown.returncode == 2
    assert "there is no engine of this name" in " ".join(unknown.stderr.split())


def test_the_doctor_looks_at_it(installed: Path) -> None:
    words = ("doctor", "--engine", "small", "--image", root_of_tests(), "--limits", "best-effort", "--json")
    said = json.loads(python(installed, "-m", "sandbox_kernel", *words).stdout)
    rows = {row["name"]: row for row in said["checks"]}
    assert rows["engine"]["status"] == "ok"
    assert "at small" in rows["engine"]["found"]
    assert "environment" in rows
