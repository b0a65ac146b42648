"""Run suites of others on a stock kernel, on this one by its provisioner, and on this one by its command.

`python -m tests.suites [NAME ...]`. Sources come from the package index, and stay in `.cache/suites/`. What fails with
this kernel, and not with the stock one, must be in `BY_DESIGN`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tests.support import ROOT

CACHE = ROOT / ".cache/suites"
SUITE_SECONDS, TEST_SECONDS = 3600, 120
WAYS = ("stock", "provisioner", "argv")
"""ipykernel; this kernel, named `python3`, by its provisioner; the same by the command of its kernelspec alone."""


class Suite(NamedTuple):
    version: str
    extra: str
    needs: tuple[str, ...]
    """What its tests import besides."""
    tests: tuple[str, ...]
    """Arguments of pytest, in the folder of its sources."""


NEEDS = ("ipykernel", "pytest", "pytest-timeout")
NEEDS_OF_PAPERMILL = ("moto<5.2", "ipywidgets", "ipython<10", "pytest-mock", "pytest-env", *NEEDS)
SUITES = {
    "jupyter_kernel_test": Suite("0.7.0", "", NEEDS, ("test_ipykernel.py",)),
    "nbclient": Suite("0.11.0", "[test]", NEEDS, ("tests", "-o", "asyncio_default_fixture_loop_scope=function")),
    "papermill": Suite("2.7.0", "[all]", NEEDS_OF_PAPERMILL, ("papermill/tests",)),
    "jupyter_server": Suite("2.21.1", "[test]", NEEDS, ("tests",)),
}
BY_DESIGN = {
    r"\[Inline Image|_parallel_notebooks|TestCWD": "reads files or variables of the host",
    r"\[Skip Exceptions with Cell Tags": "names its cells by a variable of the host",
    r"\[SVG": "an SVG reaches a front end as an image",
    r"startup_error|create_bad|cull_dead": "the provisioner does not start the command that cannot start",
    r"auto_skips_keys_for_non_curve_kernel": "with the provisioner, every kernel can encrypt",
    r"sessions\.test_api::test_restart_kernel": "the suite calls it flaky where a restart changes ports",
}
"""Why tests fail with this kernel, by what is in their names."""


def prepared(name: str, suite: Suite) -> tuple[Path, Path]:
    """Return the folder of a suite's sources and its Python. Raises `CalledProcessError`, after pip has said why."""
    folder = CACHE / f"{name}-{suite.version}"
    python = folder / "venv/bin/python"
    if not (folder / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        source = ["--no-deps", "--no-binary", name, "--dest", str(folder), f"{name}=={suite.version}"]
        subprocess.run([*pip, "download", *source], check=True)
        [archive] = folder.glob("*.tar.gz")
        with tarfile.open(archive) as sources:
            sources.extractall(folder, filter="data")
        own = [f"{archive}{suite.extra}", "--editable", str(ROOT), *suite.needs]
        subprocess.run([*pip, "install", *own], check=True)
        (folder / "installed").touch()
    return folder / f"{name}-{suite.version}", python


def outcomes(sources: Path, python: Path, suite: Suite, way: str) -> tuple[set[str], int]:
    """Return the tests that failed, and how many there were."""
    with tempfile.TemporaryDirectory() as scratch:
        variables = os.environ | {"PATH": f"{python.parent}:{os.environ['PATH']}"}
        if way != "stock":
            install = ["install", "--prefix", scratch, "--name", "python3"]
            subprocess.run([python.with_name("sandbox-kernel"), *install], check=True, capture_output=True)
            variables["JUPYTER_PATH"] = f"{scratch}/share/jupyter"
        if way == "provisioner":
            variables["JUPYTER_DEFAULT_PROVISIONER_NAME"] = "sandbox-kernel"
        report = Path(scratch, "report.xml")
        command = ["timeout", str(SUITE_SECONDS), str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-c", "pyproject.toml", f"--timeout={TEST_SECONDS}", f"--junit-xml={report}", *suite.tests]
        with (sources.parent / f"{way}.log").open("wb") as log:
            done = subprocess.run(command, cwd=sources, env=variables, check=False, stdout=log, stderr=log)
        if done.returncode not in {0, 1}:
            raise SystemExit(f"the tests in {sources} did not end; {log.name} has the reason")
        cases = list(ElementTree.parse(report).iter("testcase"))  # noqa: S314 (pytest wrote it)
    failed = [case for case in cases if any(case.find(end) is not None for end in ("failure", "error"))]
    return {f"{case.get('classname')}::{case.get('name')}" for case in failed}, len(cases)


def run(name: str) -> bool:
    """Return whether all that a suite loses with this kernel is explained."""
    sources, python = prepared(name, SUITES[name])
    stock, explained = set[str](), True
    for way in WAYS:
        began = time.monotonic()
        failed, count = outcomes(sources, python, SUITES[name], way)
        stock = failed if way == "stock" else stock
        print(f"--- {name}, {way}: {len(failed)} of {count} failed, {time.monotonic() - began:.0f} s", flush=True)
        for test in sorted(failed - stock):
            reason = next((reason for pattern, reason in BY_DESIGN.items() if re.search(pattern, test)), None)
            explained &= reason is not None
            print(f"    {test}: {reason or 'not explained; see the log beside its sources'}", flush=True)
    return explained


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suites", allow_abbrev=False)
    parser.add_argument("names", nargs="*", choices=[*SUITES, []], metavar="NAME")
    return 1 if [name for name in parser.parse_args().names or SUITES if not run(name)] else 0


if __name__ == "__main__":
    sys.exit(main())
