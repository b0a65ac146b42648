"""What the monitor notices of real attacks in real sandboxes, what comes of it, and that honest work is left alone."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.honest import run
from sandbox_kernel import Sandbox
from sandbox_kernel.plugins.monitor.codes import MonitorCode
from tests.support.fronts import WRITE
from tests.support.honest import TABLES, cells
from tests.support.kernels import eventually

pytestmark = pytest.mark.timeout(300)

APPEND = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))"
"""The operator's command of these tests."""
QUICK: dict[MonitorCode, dict[str, object]] = {
    MonitorCode.MANY_DENIALS: {"count": 3, "seconds": 3},
    MonitorCode.METADATA_SOUGHT: {"seconds": 0.5},
    MonitorCode.REMOVED_OUTPUTS: {"count": 5, "seconds": 5},
    MonitorCode.FORGED_MESSAGES: {"count": 5, "seconds": 5},
    MonitorCode.UNFIT_FILES: {"count": 3},
    MonitorCode.PROCESSES_REFUSED: {"seconds": 3},
    MonitorCode.MANY_LIMITS: {"count": 2, "seconds": 10},
    MonitorCode.KERNELS_DIE_YOUNG: {"count": 2, "seconds": 8},
    MonitorCode.MANY_KERNELS: {"count": 2, "seconds": 8},
    MonitorCode.BUSY_IN_SILENCE: {"seconds": 1.5, "count": 5},
    MonitorCode.BUSY_WITHOUT_CELL: {"seconds": 1.5, "count": 5},
    MonitorCode.SCRAMBLED_INPUTS: {"count": 3},
}
"""The rules, with less of everything, so that an attack takes a moment, also where it gets little of the processor.

`test_behaviour_rules.py` counts them out.
"""


class Watched(NamedTuple):
    sandbox: Sandbox
    audit: Path
    alerts: Path

    def findings(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.audit.read_text().splitlines()]
        return [line for line in lines if line["event"] == "monitor" and "quiet" not in line]

    def sent(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.alerts.read_text().splitlines()] if self.alerts.exists() else []


def watched(folder: Path, monitor: str | Mapping[str, object], **settings: Any) -> Watched:
    audit, alerts, downloads = folder / "audit.jsonl", folder / "alerts.jsonl", folder / "downloads"
    downloads.mkdir()
    sandbox = Sandbox(
        monitor=monitor,
        monitor_command=[sys.executable, "-c", APPEND, str(alerts)],
        audit=str(audit),
        downloads=str(downloads),
        network=["allowed.test"],
        cpus=1,
        memory="512M",
        **settings,
    )
    return Watched(sandbox, audit, alerts)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, image: str) -> Iterator[Watched]:
    """A sandbox under the quick rules, each of which is an alert."""
    rules = {code.code: {"level": "alert", **changes} for code, changes in QUICK.items()}
    monitor = {"level": "alert", "rules": rules}
    # So few processes that a bomb is refused some soon, however slow the machine is.
    found = watched(tmp_path_factory.mktemp("watched"), monitor, image=image, pids=100)
    with found.sandbox:
        yield found


FETCH = """
import urllib.request, urllib.error
def fetch(address):
    try:
        urllib.request.urlopen(address, timeout=10).read()
    except OSError as error:
        pass
"""
FORGE = """
kernel = get_ipython().kernel
parent = {"header": {"msg_id": "of another", "msg_type": "execute_request", "session": "x"}}
for _ in range(5):
    kernel.session.send(kernel.iopub_socket, "stream", {"name": "stdout", "text": "x"}, parent=parent)
"""
ENCRYPT = """
import os
for number in range(3):
    name = f"table{number}.csv"
    data = open(name, "rb").read()
    key = os.urandom(len(data))
    open(name if number else name + ".locked", "wb").write(bytes(a ^ b for a, b in zip(data, key)))
    number or os.unlink(name)
"""
BOMB = """
import os, signal
children, refused = [], 0
while refused < 200:
    try:
        pid = os.fork()
    except OSError:
        refused += 1
        continue
    if not pid:
        signal.pause()
        os._exit(0)
    children.append(pid)
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"""
"""It starts no program, so the host's kernel alone knows of it."""
ATTACKS: dict[tuple[MonitorCode, ...], tuple[str, ...]] = {
    (MonitorCode.MANY_DENIALS,): (FETCH + "for number in range(3): fetch(f'http://drop{number}.test/')",),
    (MonitorCode.METADATA_SOUGHT,): (FETCH + "fetch('http://169.254.169.254/latest/meta-data/iam/')",),
    (MonitorCode.REMOVED_OUTPUTS,): (
        "from IPython.display import display\n"
        "for _ in range(5): display({'application/javascript': 'alert(1)'}, raw=True)",
    ),
    (MonitorCode.FORGED_MESSAGES,): (FORGE,),
    (MonitorCode.UNFIT_FILES,): ("for name in ('-rf', '-la', '-x'): open(name, 'w').close()",),
    (MonitorCode.KERNELS_DIE_YOUNG, MonitorCode.MANY_KERNELS): ("import os; os._exit(1)",) * 2,
    (MonitorCode.PROCESSES_REFUSED,): (BOMB,),
    (MonitorCode.MANY_LIMITS,): ("while True: pass",) * 2,
    (MonitorCode.BUSY_IN_SILENCE,): ("import time\nend = time.monotonic() + 4\nwhile time.monotonic() < end: pass",),
    (MonitorCode.BUSY_WITHOUT_CELL,): (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'while True: pass'])",
    ),
    (MonitorCode.SCRAMBLED_INPUTS,): (ENCRYPT,),
}  # fmt: skip
BOUND, AT_ONCE = 60.0, 5.0
"""Seconds in which a rule is to be met, with its quiet time after another test met it; and those of one attempt."""


@pytest.mark.parametrize(
    "attack",
    [pytest.param(one, marks=pytest.mark.long if len(one) > 1 else ()) for one in ATTACKS],
    ids=lambda attack: "+".join(code.code for code in attack),
)
def test_an_attack_is_noticed_and_said_to_the_audit_and_to_the_operator(
    one: Watched, attack: tuple[MonitorCode, ...]
) -> None:
    one.sandbox.restart()  # what an attack left behind is busy no more
    for number in range(3):
        one.sandbox.files.write(f"table{number}.csv", b"region,product,units\n" * 500)
    before, sent = len(one.findings()), len(one.sent())
    wanted = {code.code for code in attack}

    def codes() -> set[str]:
        return {line["code"] for line in one.findings()[before:]}

    def noticed() -> bool:
        for cell in ATTACKS[attack]:
            one.sandbox.run_code(cell, timeout=0.3 if MonitorCode.MANY_LIMITS in attack else None)
        with contextlib.suppress(AssertionError):  # the rule is quiet: once more
            eventually(lambda: wanted <= codes(), AT_ONCE, "it is in the audit")
        return wanted <= codes()

    eventually(noticed, BOUND, "it is in the audit")
    eventually(lambda: wanted <= {alert["code"] for alert in one.sent()[sent:]}, 10, "the operator has it")
    for code in attack:
        (line, *_) = [line for line in one.findings()[before:] if line["code"] == code.code]
        assert line["level"] == "alert"
        assert code.text in line["reason"]


def test_a_person_is_told_in_the_cell_that_does_it_or_in_the_next(one: Watched) -> None:
    one.sandbox.restart()
    attack = ATTACKS[MonitorCode.METADATA_SOUGHT,][0]
    eventually(lambda: told(one, attack), 10, "the rule was quiet for its seconds, and is met again")


def told(one: Watched, attack: str) -> bool:
    said = "".join(one.sandbox.run_code(attack).logs.stderr) + "".join(one.sandbox.run_code("1").logs.stderr)
    return f"[sandbox_kernel] alert: {MonitorCode.METADATA_SOUGHT.text}" in said


def test_an_end_is_behaviour_blocked_and_leaves_files_and_no_process(tmp_path: Path, image: str) -> None:
    rules = {"many-denials": {"level": "kill", "count": 1, "seconds": 0.1}}
    found = watched(tmp_path, {"level": "kill", "rules": rules}, image=image)
    attack = FETCH + "fetch('http://drop.test/')\nimport time\nwhile True:\n    try: time.sleep(1)\n    except: pass"
    stays = "import subprocess\nleft = subprocess.Popen(['sleep', '1000'], start_new_session=True)"
    with found.sandbox as sandbox:
        sandbox.run_code("open('kept.txt', 'w').write('x'); value = 1")
        sandbox.run_code(stays)
        error = sandbox.run_code(attack).error
        assert error is not None
        assert (error.name, error.code, error.kept) == ("BehaviourBlocked", "many-denials", "files")
        assert error.fault == "policy"
        after = sandbox.run_code(
            "import os\nprint(open('kept.txt').read(), 'value' in dir(), [pid for pid in os.listdir('/proc') "
            "if pid.isdigit() and open(f'/proc/{pid}/cmdline', 'rb').read().startswith(b'sleep')])"
        )
        assert "".join(after.logs.stdout) == "x False []\n"
    eventually(found.sent, 10, "the operator has it")
    assert found.sent()[0]["level"] == "kill"


def test_garbage_on_the_wire_is_noticed(tmp_path: Path, image: str) -> None:
    """On gVisor a cell can open the agent's pipe, and needs no weakened agent for it."""
    found = watched(tmp_path, "alert", image=image, runtime="runsc")
    with found.sandbox as sandbox:
        assert sandbox.run_code("1 + 1").text == "2"
        assert [line["code"] for line in found.findings() if line["code"] != "not-watched"] == []
        error = sandbox.run_code(f"{WRITE}\nwrite(b'garbage' * 1000)").error
        assert error is not None
        assert error.name == "SandboxDied"
        assert [line["code"] for line in found.findings() if line["code"] != "not-watched"] == ["wire-garbage"]


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.long)])
def test_honest_work_is_no_alert(tmp_path: Path, image: str, count: int) -> None:
    """The control: cells of forty kinds, without a rest, under the rules as they are shipped.

    `python -m benchmarks.honest` goes on with them for an hour, and runs the demo notebooks as well.
    """
    found = watched(tmp_path, "kill", image=image)
    with found.sandbox as sandbox:
        for name, data in TABLES.items():
            sandbox.files.write(name, data)
        work = list(islice(cells(), count))
        for cell in work:
            run(sandbox, cell)
    assert (len(work), len({cell.kind for cell in work})) == (count, 40)
    assert found.findings() == []
    assert found.sent() == []
