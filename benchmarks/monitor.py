"""What the monitor costs: sandboxes with it and without it, in turn, in one run; and how soon an attack is an alert.

`python -m benchmarks.monitor [--rounds 100] [--sandboxes 3] [--image NAME]`. Times in milliseconds; a ratio is that of
the medians, with the monitor over without it. The bars are 1.02 for a cell and 1.05 for the start of a program.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sandbox_kernel import Sandbox

CODE = """
import os, socket, subprocess, time

def median(function, count):
    found = []
    for _ in range(count):
        began = time.perf_counter()
        function()
        found.append(time.perf_counter() - began)
    return 1000 * sorted(found)[count // 2]

listener = socket.create_server(("127.0.0.1", 0), backlog=512)

def connect():
    with socket.create_connection(listener.getsockname()):
        listener.accept()[0].close()
"""
MEASURES = {
    "a program by subprocess": "median(lambda: subprocess.run(['/bin/true']), 15)",
    "a program by posix_spawn": "median(lambda: os.waitpid(os.posix_spawn('/bin/true', ['/bin/true'], {}), 0), 15)",
    "a Python of its own": "median(lambda: subprocess.run(['python3', '-I', '-S', '-c', '']), 3)",
    "a connection": "median(connect, 50)",
    "work that starts nothing": "median(lambda: sum(range(100_000)), 9)",
}
PROCESSOR = {
    "processor, a cell": ("1 + 1", 20),
    "processor, a program": ("[os.waitpid(os.posix_spawn('/bin/true', ['/bin/true'], {}), 0) for _ in range(50)]", 50),
}
"""What a sandbox takes of the processor, agent and all, which other work of the machine disturbs less: code, count."""
BARS = {
    "a cell": 1.02,
    "processor, a cell": 1.02,
    "processor, a program": 1.05,
    "a program by subprocess": 1.05,
    "a program by posix_spawn": 1.05,
}
CELLS = 10
KINDS = ("without", "with", "without, again")
"""The last says how much of a difference is the machine's."""

ATTACKS = {
    "bait-opened": "open('/tmp/home/.aws/credentials').read()",
    "metadata-sought": (
        "import socket\nwith socket.socket() as s:\n    s.settimeout(1)\n"
        "    try: s.connect(('169.254.169.254', 80))\n    except OSError: pass"
    ),
    "dropped-program": "import shutil, subprocess\nshutil.copy('/bin/true', 'miner'); subprocess.run(['./miner'])",
    "many-programs": "import subprocess\nfor _ in range(1000): subprocess.run(['/bin/true'])",
    "kernels-die-young": "import os; os._exit(1)",
    "forged-messages": (
        "k = get_ipython().kernel\nfor _ in range(20): k.session.send(k.iopub_socket, 'stream', "
        "{'name': 'stdout', 'text': 'x'}, parent={'header': {'msg_id': 'x', 'msg_type': 'execute_request'}})"
    ),
}


def settings(kind: str, image: str) -> Sandbox:
    return Sandbox(image=image, memory="512M", cpus=1, monitor="alert" if kind == "with" else "off")


def sample(sandbox: Sandbox, measure: str) -> float:
    """Return one figure in milliseconds."""
    if measure == "a cell":
        found = []
        for _ in range(CELLS):
            began = time.perf_counter()
            sandbox.run_code("1 + 1")
            found.append(1000 * (time.perf_counter() - began))
        return statistics.median(found)
    if measure in PROCESSOR:
        code, count = PROCESSOR[measure]
        before = sandbox.usage().cpu_seconds or 0.0
        for _ in range(count if code == "1 + 1" else 1):
            sandbox.run_code(code)
        return 1000 * ((sandbox.usage().cpu_seconds or 0.0) - before) / count
    execution = sandbox.run_code(MEASURES[measure])
    return float(str(execution.text))


def compare(rounds: int, count: int, image: str) -> bool:
    """Print a line a measure; return whether all bars are kept."""
    sandboxes = [(kind, settings(kind, image)) for _ in range(count) for kind in KINDS]
    kept = True
    try:
        for _, sandbox in sandboxes:
            assert sandbox.run_code(CODE).error is None
        print(f"{'':26}{'without':>10}{'again':>10}{'with':>10}{'ratio':>8}{'noise':>8}   bar")
        for measure in ("a cell", *MEASURES, *PROCESSOR):
            taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
            for _ in range(rounds):
                random.shuffle(sandboxes)
                for kind, sandbox in sandboxes:
                    taken[kind].append(sample(sandbox, measure))
            without, watched, again = (statistics.median(taken[kind]) for kind in KINDS)
            ratio, bar = watched / statistics.median(taken[KINDS[0]] + taken[KINDS[2]]), BARS.get(measure)
            kept = kept and (bar is None or ratio <= bar)
            said = "" if bar is None else f"{bar:.2f} {'ok' if ratio <= bar else 'over'}"
            print(f"{measure:26}{without:10.3f}{again:10.3f}{watched:10.3f}{ratio:8.3f}{again / without:8.3f}   {said}")
    finally:
        for _, sandbox in sandboxes:
            sandbox.kill()
    return kept


def starts(rounds: int, image: str) -> None:
    """Print what a start takes until its first cell has ended."""
    taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(rounds):
        for kind in KINDS if number % 2 else reversed(KINDS):
            began = time.perf_counter()
            with settings(kind, image) as sandbox:
                sandbox.run_code("1")
                taken[kind].append(1000 * (time.perf_counter() - began))
    without, watched, again = (statistics.median(taken[kind]) for kind in KINDS)
    print(f"{'a start':26}{without:10.0f}{again:10.0f}{watched:10.0f}{watched / without:8.3f}{again / without:8.3f}")


def alerts(image: str) -> None:
    """Print how soon after its cell began each attack is a line of the audit."""
    for code, attack in ATTACKS.items():
        with tempfile.TemporaryDirectory() as folder:
            audit = Path(folder, "audit.jsonl")
            with Sandbox(image=image, memory="512M", monitor="alert", audit=str(audit)) as sandbox:
                sandbox.run_code("1")
                began = time.perf_counter()
                for _ in range(3 if code == "kernels-die-young" else 1):
                    sandbox.run_code(attack)
                seconds = until(lambda audit=audit, code=code: code in found(audit), began)  # type: ignore[misc]
        print(f"{code:26}{'not within 10 s' if seconds is None else f'{seconds:10.2f} s'}")


def found(audit: Path) -> set[str]:
    lines = (json.loads(line) for line in audit.read_text().splitlines())
    return {line["code"] for line in lines if line["event"] == "monitor"}


def until(condition: Callable[[], bool], began: float) -> float | None:
    while time.perf_counter() - began < 10:
        if condition():
            return time.perf_counter() - began
        time.sleep(0.01)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument(
        "--sandboxes", type=int, default=2, help="of each kind: a process is faster or slower by its luck"
    )
    parser.add_argument("--image", default="sandbox-kernel:data")
    arguments = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
    kept = compare(arguments.rounds, arguments.sandboxes, arguments.image)
    starts(max(3, arguments.rounds // 10), arguments.image)
    print("from the beginning of the cell to the line of the audit:")
    alerts(arguments.image)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
