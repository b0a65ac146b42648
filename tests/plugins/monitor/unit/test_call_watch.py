"""The thread that answers for refused calls, with a real filter around a process made for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from sandbox_kernel.engines import seccomp_program, shipping
from sandbox_kernel.plugins.monitor.inside import call_watch

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine not in seccomp_program.ARCHITECTURES, reason="its calls are not known"
)
WATCHING = """
import ctypes, errno, json, os, socket, sys, time
from sandbox_kernel.container import syscall_filters
from sandbox_kernel.plugins.monitor.inside import call_watch
from sandbox_kernel.plugins.monitor.inside.call_watch import CallWatch
from sandbox_kernel.engines import shipping

class Agent:
    parked, said = False, []
    def event(self, op, **fields):
        self.said.append([op, fields["rows"]])

watch = CallWatch(shipping.watched_numbers())
before = syscall_filters.install(shipping.calls(watch=True), watch)
out = {"before": before}
libc = ctypes.CDLL(None, use_errno=True)
def tried(name, *arguments):
    return [getattr(libc, name)(*arguments), ctypes.get_errno()]
child = os.fork()
if not child:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    answers = {
        "mount": tried("mount", None, None, None, 0, None),
        "unshare": tried("unshare", 0x10000000),
        "ptrace": tried("ptrace", 16, os.getppid(), 0, 0),
        "listen": tried("syscall", {"x86_64": 317, "aarch64": 277}[os.uname().machine], 1, 8, 0),
        "times": [tried("mount", None, None, None, 0, None)[1] for _ in range(9)],
    }
    try:
        socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
    except OSError as error:
        answers["raw"] = error.errno
    for name in ("/var/run/docker.sock", "/mnt/data/own.sock"):
        try:
            socket.socket(socket.AF_UNIX).connect(name)
        except OSError:
            pass
    mark = {"x86_64": 212, "aarch64": 18}[os.uname().machine]
    for name in (b"git", b"\\x1b]0;\\xff"):
        libc.syscall(mark, call_watch.STARTED, name, len(name), 3)
    libc.syscall(mark, call_watch.STARTED, 1, 9, 7)
    client = socket.create_connection(("127.0.0.1", port))
    answers["connected"] = client.getpeername() == ("127.0.0.1", port)
    for place in (0, 1, 1 << 46):
        libc.connect(client.fileno(), ctypes.c_void_p(place), 16)
    print(json.dumps({"answers": answers, "port": port}), flush=True)
    os._exit(0)
os.waitpid(child, 0)
agent = Agent()
watch.report(agent, False)
watch.report(agent, False)
out["said"] = agent.said[:]
watch._note("mount", "python3", "", 7)
watch.report(agent, False)
out["held"] = len(agent.said)
for _ in range(200):
    watch._note("mount", "python3", "", 7)
    watch.report(agent, True)
out["ahead"] = len(agent.said) - out["held"]
out["threads"] = syscall_filters.threads() == before["threads"]
watch._rows.clear()
agent.said = []
watch._next = 0
for number in range(1000):
    watch._note("mount", "p%d" % number, "", 7)
for _ in range(20):
    watch._next = 0
    watch.report(agent, False)
out["many"] = [sum(row[3] for _, rows in agent.said for row in rows), max(len(rows) for _, rows in agent.said)]
asks = shipping.calls(watch=True)
other = CallWatch({}).listen(asks)  # there may be one listener
out["other"] = [len(other) == len(asks), other != asks, CallWatch({}).listen(other) == other]
print(json.dumps(out), flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", WATCHING], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    child, parent = map(json.loads, done.stdout.splitlines())
    if not parent["before"]["watching"]:
        pytest.skip("the system around these tests asks nobody")
    return {**child, **parent}


def test_each_is_refused_as_before_and_a_connection_is_made(said: dict[str, Any]) -> None:
    answers = said["answers"]
    assert [answers[name] for name in ("mount", "unshare", "ptrace", "listen")] == [[-1, 1]] * 4
    assert answers["times"] == [1] * 9
    assert answers["raw"] == 1
    assert answers["connected"]


def test_the_host_is_told_of_each_once_with_its_number(said: dict[str, Any]) -> None:
    [(op, rows)] = said["said"]
    assert op == "calls"
    found = {(call, target): times for call, _, target, times, _ in rows}
    assert found == {
        ("mount", ""): 10,
        ("unshare", ""): 1,
        ("ptrace", ""): 1,
        ("socket", ""): 1,
        ("secret", "0"): 1,
        ("program", "git"): 3,
        ("program", "?]0;?"): 3,
        ("program", "?"): 7,
        ("connect", f"127.0.0.1:{said['port']}"): 1,
        ("connect", "?"): 3,
    }
    assert all(program.startswith("python") for _, program, _, _, _ in rows)


def test_what_is_told_has_a_pause_but_for_some_times_at_the_ends_of_cells(said: dict[str, Any]) -> None:
    assert said["held"] == 1
    assert call_watch.AHEAD / call_watch.PAUSE - 2 <= said["ahead"] < 100


def test_its_own_threads_are_those_that_the_filter_protects(said: dict[str, Any]) -> None:
    assert said["threads"]
    assert said["before"]["taken"] == 2


def test_more_than_there_is_room_for_is_counted_together(said: dict[str, Any]) -> None:
    assert said["many"] == [1000, call_watch.ROWS_AT_ONCE]


def test_where_nobody_may_listen_there_is_a_filter_that_asks_nobody(said: dict[str, Any]) -> None:
    """In the place of a question is its answer, so nothing is lost where the system asks nobody."""
    assert said["other"] == [True, True, True]
    asks = shipping.calls(watch=True)
    steps = [asks[at : at + 8] for at in range(0, len(asks), 8)]
    verdicts = {int.from_bytes(step[4:], sys.byteorder) for step in steps if step[0] == 0x06}
    assert {call_watch.ASKS, call_watch.ASKS | 1} <= verdicts
    assert {call_watch.plain(one) for one in verdicts} == {0x7FFF0000, 0x00050001, 0x00050016, 0x00050026, 0x80000000}
    assert call_watch.plain(call_watch.ASKS) == 0x7FFF0000
    assert call_watch.plain(call_watch.ASKS | 1) == 0x00050001
    assert "mount" in shipping.watched_numbers().values()
