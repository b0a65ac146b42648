"""What each piece of docs/practice.md costs: cells of sandboxes that differ in one setting, in turn, and commands.

`python -m benchmarks.practice [--rounds 300] [--image NAME]`. Two sandboxes have all of it off: how far those are apart
is what cannot be measured here. A command has its time, and its seconds of a processor, which other work of the machine
disturbs less.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sandbox_kernel import Sandbox

JUDGE = "def judge(code, findings):\n    return 0, 'fine'\n"
SCANNER = """#!/usr/bin/python3 -IS
import json, sys
json.load(sys.stdin)
print(json.dumps({"score": 0, "reason": "fine"}))
"""
CODE = 'import statistics\nvalues = [3, 5, 8, 13]\nprint("mean", statistics.mean(values))\n'
CALL = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls -l"}, "cwd": "/tmp"}
TIMES = 11
"""Of a command; the first is dropped."""


def kinds(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the settings of each sandbox."""
    judge, scanner = folder / "judge.py", folder / "scanner"
    judge.write_text(JUDGE, encoding="utf-8")
    scanner.write_text(SCANNER, encoding="utf-8")
    scanner.chmod(0o755)
    return {
        "off": {},
        "off, again": {},
        "screen = block": {"screen": "block"},
        "and a function as a judge": {"screen": "block", "screen_judges": [f"{judge}:judge"]},
        "and a program as a judge": {"screen": "block", "screen_command": [str(scanner)]},
        "monitor = kill": {"monitor": "kill"},
        "trace": {"trace": str(folder / "calls.jsonl")},
        "audit": {"audit": str(folder / "audit.jsonl"), "audit_key": str(folder / "audit.key")},
        "network": {"network": ["api.example.test"]},
    }


def cells(made: dict[str, Callable[[str], object]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each cell, all sandboxes in another order each time."""
    found: dict[str, list[float]] = {name: [] for name in made}
    for number in range(rounds + 2):
        for name in random.sample([*made], len(made)):
            began = time.perf_counter()
            made[name](f"x = {number}\nprint(x)")
            if number > 1:  # the first ones read rules, and start judges
                found[name].append(time.perf_counter() - began)
    return found


def command(words: Sequence[str], given: str) -> tuple[float, float]:
    """Return the median seconds of a command, by the clock and of a processor."""
    clock, processor = [], []
    for _ in range(TIMES):
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, input=given, capture_output=True, text=True, check=True)
        clock.append(time.perf_counter() - began)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(clock[1:]), statistics.median(processor[1:])


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.practice", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--image", default="sandbox-kernel:base")
    options = parser.parse_args(argv)
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "fine.py").write_text(CODE, encoding="utf-8")
        made = {
            kind: stack.enter_context(Sandbox(image=options.image, **given)).run_code
            for kind, given in kinds(folder).items()
        }
        found = cells(made, options.rounds)
        off = statistics.median(found["off"])
        for kind, seconds in found.items():
            median = statistics.median(seconds)
            print(f"{kind:<28} {1000 * median:6.1f} ms a cell  {1000 * (median - off):+6.1f} ms  {median / off:.2f}")
        program = shutil.which("sandbox-kernel", path=str(Path(sys.executable).parent)) or "sandbox-kernel"
        for words, given in (
            ((program, "screen", str(folder / "fine.py")), ""),
            ((program, "screen", "--hook"), json.dumps(CALL)),
        ):
            clock, processor = command(words, given)
            print(f"{words[1]} {Path(words[2]).name:<21} {1000 * clock:6.0f} ms, {1000 * processor:.0f} of a processor")
    print(f"load {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
