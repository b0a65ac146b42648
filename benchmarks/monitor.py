"""What the monitor costs: sandboxes with it and without it, in turn, in one run; and how soon an attack is an alert.

`python -m benchmarks.monitor [--rounds 100] [--sandboxes 3] [--image NAME] [--alerts]`. Times in milliseconds; a ratio
is that of the medians, with the monitor over without it. The bars are 1.02 for a cell, and 1.05 for a program.
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
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from sandbox_kernel import Sandbox
from tests.support.fronts import WRITE

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

FETCH = """
import urllib.request
for host in ({},):
    try: urllib.request.urlopen('http://' + host, timeout=10)
    except OSError: pass
"""
SCRIPTS = """
from IPython.display import display
for _ in range(20): display({'application/javascript': 'alert(1)'}, raw=True)
"""
FORGE = """
kernel = get_ipython().kernel
parent = {'header': {'msg_id': 'x', 'msg_type': 'execute_request'}}
for _ in range(20): kernel.session.send(kernel.iopub_socket, 'stream', {'name': 'stdout', 'text': 'x'}, parent=parent)
"""
ENCRYPT = """
import os
for number in range(3):
    data = open(f'table{number}.csv', 'rb').read()
    open(f'table{number}.csv.locked', 'wb').write(bytes(a ^ b for a, b in zip(data, os.urandom(len(data)))))
    os.unlink(f'table{number}.csv')
"""
BOMB = """
import os, time
for number in range(2000):
    try:
        if not os.fork():
            time.sleep(1)
            os._exit(0)
    except OSError:
        pass
"""
BUSY = "import time\nend = time.monotonic() + 20\nwhile time.monotonic() < end: pass"
STAYS = "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'while True: pass'])"


class Attack(NamedTuple):
    """What meets a rule: cells that are run one after another in a new sandbox."""

    code: str
    cell: str
    times: int = 1
    seconds: float | None = None
    """In place of the rule's own, which are too many to wait for."""
    timeout: float | None = None
    runtime: str | None = None
    cpus: float = 1


SCAN = """
import socket
for port in range(1, 31):
    socket.socket().connect_ex(('192.0.2.1', port))
"""

ATTACKS = (
    Attack("many-denials", FETCH.format("*(f'drop{number}.test' for number in range(10))")),
    Attack("metadata-sought", FETCH.format("'169.254.169.254'")),
    Attack("removed-outputs", SCRIPTS),
    Attack("forged-messages", FORGE),
    Attack("unfit-files", "for name in ('-rf', '-la', '-x', '-r', '-f'): open(name, 'w').close()"),
    Attack("wire-garbage", f"{WRITE}\nwrite(b'garbage' * 1000)", runtime="runsc"),
    Attack("processes-refused", BOMB),
    Attack("many-limits", "while True: pass", times=10, timeout=0.3),
    Attack("kernels-die-young", "import os; os._exit(1)", times=3),
    Attack("many-kernels", "import os; os._exit(1)", times=10),
    Attack("scrambled-inputs", ENCRYPT),
    Attack("busy-in-silence", BUSY, seconds=6, cpus=0.2),
    Attack("busy-without-cell", STAYS, cpus=0.2),
    Attack(
        "dropped-program", "import shutil, subprocess\nshutil.copy('/bin/sleep', 'm'); subprocess.run(['./m', '6'])"
    ),
    Attack("secret-sought", "import os; os.system('cat /etc/shadow')"),
    Attack("port-scan", SCAN),
    Attack("escape-tried", "import ctypes; ctypes.CDLL(None).unshare(0x10000000)"),
    Attack("not-watched", "1", runtime="runsc"),
)
LONGEST = 120.0


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


def alerts(image: str, only: Sequence[str] = ()) -> bool:
    """Print how soon after its first cell began each attack is a line of the audit; return whether all of them are."""
    all_heard = True
    for attack in ATTACKS:
        if only and attack.code not in only:
            continue
        level, seconds = alert(attack, image)
        all_heard = all_heard and seconds is not None
        said = "NOT NOTICED" if seconds is None else f"{level:6}{seconds:8.2f} s"
        why = [f"in {attack.times} cells"] if attack.times > 1 else []
        why += [f"with {attack.seconds:g} s as the time of the rule"] if attack.seconds else []
        why += [attack.runtime] if attack.runtime else []
        print(f"{attack.code:22}{said}  {', '.join(why)}".rstrip(), flush=True)
    return all_heard


def alert(attack: Attack, image: str) -> tuple[str, float | None]:
    """Return what came of an attack under the rules as they are shipped, and after how many seconds."""
    changed = {attack.code: {"seconds": attack.seconds}} if attack.seconds else {}
    with tempfile.TemporaryDirectory() as folder:
        audit, downloads = Path(folder, "audit.jsonl"), Path(folder, "downloads")
        downloads.mkdir()
        sandbox = Sandbox(
            image=image, memory="512M", cpus=attack.cpus, runtime=attack.runtime, network=["allowed.test"],
            audit=str(audit), downloads=str(downloads), monitor={"level": "kill", "rules": changed},
        )  # fmt: skip
        began = time.perf_counter()
        with sandbox:
            sandbox.run_code("1")
            for number in range(3):
                sandbox.files.write(f"table{number}.csv", b"region,product,units\n" * 500)
            began = time.perf_counter()
            for _ in range(attack.times):
                sandbox.run_code(attack.cell, timeout=attack.timeout)
            line = until(lambda: found(audit).get(attack.code), began)
            sandbox.kill()
        # By the line's own time: a cell may go on for longer.
        return ("", None) if line is None else (line["level"], since(line["time"], began))


def found(audit: Path) -> dict[str, Any]:
    """Return the first line of each rule that was met."""
    lines = [json.loads(line) for line in audit.read_text().splitlines()] if audit.exists() else []
    return {line["code"]: line for line in reversed(lines) if line["event"] == "monitor"}


def since(moment: str, began: float) -> float:
    """Return the seconds from a reading of the clock to a time of the audit, which has thousandths."""
    return (datetime.fromisoformat(moment).timestamp() - time.time()) + (time.perf_counter() - began)


def until(condition: Callable[[], Any], began: float) -> Any:
    while time.perf_counter() - began < LONGEST:
        if (line := condition()) is not None:
            return line
        time.sleep(0.05)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument(
        "--sandboxes", type=int, default=2, help="of each kind: a process is faster or slower by its luck"
    )
    parser.add_argument("--image", default="sandbox-kernel:data")
    parser.add_argument("--alerts", action="store_true", help="only how soon attacks are noticed")
    parser.add_argument("--only", action="append", default=[], metavar="CODE", help="one attack; may be repeated")
    arguments = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
    if arguments.alerts:
        return 0 if alerts(arguments.image, arguments.only) else 1
    kept = compare(arguments.rounds, arguments.sandboxes, arguments.image)
    starts(max(3, arguments.rounds // 10), arguments.image)
    print("from the beginning of the cell to the line of the audit:")
    return 0 if alerts(arguments.image) and kept else 1


if __name__ == "__main__":
    sys.exit(main())
