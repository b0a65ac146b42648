"""What is tried in a real sandbox is seen as the page says, and can end it; honest work is left alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.plugins.verify.attack_program import table
from tests.attacks.escape.what_is_seen import tried, watched
from tests.support.kernels import eventually

pytestmark = pytest.mark.timeout(120)

RULES = {"secret": "secret-sought", "connect": "a connection", "call": "escape-tried"}
HONEST = """
import asyncio, os, socket, subprocess, sys, tempfile, threading
import matplotlib, numpy
assert subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True).stdout == b"1\\n"
server = socket.create_server(("127.0.0.1", 0))
for _ in range(50):
    socket.create_connection(server.getsockname()).close()
os.listdir("/etc"), open("/etc/passwd").read(), open("/proc/self/status").read(), os.listdir(os.path.expanduser("~"))
with tempfile.TemporaryFile() as file:
    file.write(b"x")
threading.Thread(target=print).start()
os.mkfifo(tempfile.mktemp())
os.setuid(os.getuid())
"""

ATTACKS = {
    "escape-tried": "import ctypes; ctypes.CDLL(None).unshare(0x10000000)",
    "secret-sought": "import os; os.system('cat /etc/shadow')",
    "port-scan": "import socket\nfor port in range(99): socket.socket().connect_ex(('192.0.2.1', port + 1))",
}


def rows() -> dict[str, list[str]]:
    """Return the attacks of the page, by what they are seen as."""
    page = (Path(__file__).parents[4] / "docs/monitor.md").read_text(encoding="utf-8")
    body = page[page.index("| Seen as |") :].partition("\n\n")[0]
    lines = [line.strip("| ").split(" | ") for line in body.splitlines()[2:]]
    return {name.strip("`").partition(",")[0]: re.findall(r"`(\w+)`", attacks) for name, attacks in lines}


def test_the_page_has_each_attack_of_the_suite_once() -> None:
    found = [name for attacks in rows().values() for name in attacks]
    assert sorted(found) == sorted(table())
    assert set(rows()) == {*RULES.values(), "unseen"}


def test_each_engine_of_the_page_has_all_attacks_counted_and_runc_as_they_are_listed() -> None:
    page = (Path(__file__).parents[4] / "docs/monitor.md").read_text(encoding="utf-8")
    body = page[page.index("| Engine | `escape-tried` |") :].partition("\n\n")[0]
    [head, _, *lines] = [line.strip("| ").split(" | ") for line in body.splitlines()]
    counts = {engine: [int(count) for count in more] for engine, *more in lines}
    assert len(counts) == 3
    assert all(sum(each) == len(table()) for each in counts.values())
    assert counts["Docker with runc"] == [len(rows()[kind.strip("`")]) for kind in head[1:]]


SOME = ("mount_of_a_file_system", "ptrace_of_the_agent", "child_in_a_new_user_namespace", "device_node_for_a_disk")
OTHERS = ("environment_of_the_agent", "tcp_to_the_network", "typing_into_a_terminal", "highest_priority")
LIMITS = ("file_descriptors_of_the_host", "memory_beyond_the_limit", "files_in_tmp_beyond_its_size")
"""What attacks need to be told: without it they end before they try anything, and are unseen for that reason."""


def test_attacks_are_seen_as_the_page_says(image: str) -> None:
    """The control is in the table: what is unseen there is unseen here."""
    said = {name: kind for kind, names in rows().items() for name in names}
    given: dict[str, Any] = {"seconds": 20, "session": "x", "secret": "x", "marker": "x"}
    with watched(image=image, memory="512M") as (sandbox, trace):
        for name in (*SOME, *OTHERS, *LIMITS):
            end, calls = tried(sandbox, trace, name, given)
            assert end in table()[name].refused, (name, end)
            found = {call for call, _ in calls}
            kinds = {RULES.get(call, RULES["call"]) for call in found} or {"unseen"}
            assert said[name] in kinds, (name, found)
        assert b"password hashes" not in trace.read_bytes()
        sandbox.run_code("import os; os.system('cat /etc/shadow')", context=sandbox.create_context())
        eventually(lambda: b"password hashes" in trace.read_bytes(), 20, "what a further kernel looks for is seen")
        assert b'"?"' not in trace.read_bytes(), "the agent of a further kernel connects to it, and is no cell"


def test_it_ends_the_kernel_where_that_is_set_and_honest_work_is_left_alone(image: str, tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    rules = {code: {"level": "kill"} for code in ("secret-sought", "port-scan", "escape-tried")}

    def met() -> set[str]:
        lines = [json.loads(line) for line in audit.read_text().splitlines()]
        return {line["code"] for line in lines if line["event"] == "monitor"}

    with Sandbox(image=image, monitor={"level": "kill", "rules": rules}, audit=str(audit)) as sandbox:
        honest = sandbox.run_code(HONEST)
        assert honest.error is None
        assert honest.behaviour.is_safe
        assert not met()
        for code, attack in ATTACKS.items():
            blocked = sandbox.run_code(f"{attack}\nwhile True: pass").error
            assert blocked is not None
            assert blocked.name == "BehaviourBlocked"
            assert code in met()
            again = sandbox.run_code(f"{attack}\nwhile True: pass").error
            assert again is not None
            assert again.name == "BehaviourBlocked", "a rule that was met a moment ago is no way through"
        assert sandbox.run_code(HONEST).error is None, "what the cells before it tried is not this one's"


def test_each_cell_has_what_it_tried_in_its_report_and_an_alert_comes_once(image: str, tmp_path: Path) -> None:
    alerts = tmp_path / "alerts"
    say = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))"
    command = [sys.executable, "-c", say, str(alerts)]
    with Sandbox(image=image, monitor="alert", monitor_command=command) as sandbox:
        for _ in range(2):
            for code, attack in ATTACKS.items():
                found = sandbox.run_code(attack).behaviour
                assert [(row.code, row.kind) for row in found.rows if row.score] == [(code, "rule")]
                assert found.risk_score == 80
                assert not found.is_safe
            honest = sandbox.run_code(HONEST).behaviour
            assert [(row.code, row.count, row.score) for row in honest.rows] == [("program-started", 1, 0)]
            assert honest.reasons[0].startswith("A program was started: python")
    assert sorted(json.loads(line)["code"] for line in alerts.read_text().splitlines()) == sorted(ATTACKS)


def test_a_machine_where_no_sandbox_starts_is_said_to_be_one_and_the_attacks_end() -> None:
    """It went on for ever, and said nothing."""
    words = [sys.executable, "-m", "tests.attacks.escape.what_is_seen", "engine=bubblewrap", "image=/nowhere/at/all"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.count("a sandbox did not start") == 3
    assert not done.stdout
