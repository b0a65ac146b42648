"""Many sandboxes at once in one process: the load script, small; `python -m benchmarks.many` is the large one."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.long


def run(*arguments: str, module: str = "benchmarks.many") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)


def test_eight_sandboxes_at_once_make_no_error_and_leave_nothing(image: str) -> None:
    done = run("--sandboxes", "8", "--cells", "6", "--image", image)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "running when all had started: 8" in done.stdout
    assert "errors: 0; left behind: nothing" in done.stdout
    counts = dict(re.findall(r"^(create|run_code|file write|file read|kill) +(\d+) ", done.stdout, re.MULTILINE))
    assert counts == {"create": "8", "run_code": "48", "file write": "8", "file read": "8", "kill": "8"}


def test_what_goes_wrong_and_what_is_left_is_seen(image: str) -> None:
    """The control: a wrong answer is an error, and a sandbox that is kept open is seen in every way."""
    code = f"""
import asyncio
from benchmarks import many
async def main():
    load = many.Load(1, 2, 1024, dict(image={image!r}, memory="256M"))
    before = many.held()
    kept = await many.AsyncSandbox.create(**load.settings)
    try:
        await load._each("use", [lambda: load._cell(kept, "1", "2")])
        print(load.errors[0])
        print(await many.leftovers(before))
    finally:
        await kept.kill()
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=170, check=True
    )
    error, left = done.stdout.splitlines()
    assert "gave Execution(text=" in error
    assert re.fullmatch(r"\['1 containers', 'sockets: .*', '[1-9]\d* tasks'\]", left)


def test_a_run_that_cannot_start_fails() -> None:
    done = run("--sandboxes", "1", "--image", "sandbox-kernel-missing:none")
    assert done.returncode == 1
    assert "error: none can start: ImageMissing" in done.stdout


def test_the_end_of_a_process_is_timed(image: str) -> None:
    done = run("--sandboxes", "2", "--repetitions", "1", "--image", image, module="benchmarks.crash")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^(sandboxes in a cell|empty containers) +([\d.]+) +\S+ +([\d.]+) ", done.stdout, re.MULTILINE)
    assert [name for name, _, _ in rows] == ["sandboxes in a cell", "empty containers"]
    assert all(0 < float(processes) <= float(containers) < 60 for _, processes, containers in rows[:1])
