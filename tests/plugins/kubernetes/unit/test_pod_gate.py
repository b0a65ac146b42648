"""The first program of a pod, as a real process: what it takes, what it becomes, and when it ends instead."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from sandbox_kernel.core.model import Limits
from sandbox_kernel.plugins.kubernetes import pod_gate
from tests.plugins.kubernetes.unit.pods import SPEC

SHOWS = """
import json, os, resource, signal, sys
limits = {name: resource.getrlimit(getattr(resource, "RLIMIT_" + name)) for name in sys.argv[1:]}
print(json.dumps([dict(os.environ), limits, signal.alarm(0), os.getpid(), sys.stdin.read()]))
"""
LIMITS = ("NOFILE", "CORE", "MSGQUEUE", "SIGPENDING", "MEMLOCK")
WAIT_SECONDS = "60"


@pytest.fixture
def gate() -> Iterator[subprocess.Popen[bytes]]:
    with started(WAIT_SECONDS) as process:
        yield process
        process.kill()


def started(seconds: str) -> subprocess.Popen[bytes]:
    command = ["setpriv", "--no-new-privs", sys.executable, "-I", "-S", "-c", pod_gate.SOURCE, seconds]
    kept = {"PATH": "/usr/bin", "KUBERNETES_SERVICE_HOST": "192.0.2.1", "KUBERNETES_PORT": "tcp://192.0.2.1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=kept)


def told(*words: str, **fields: Any) -> bytes:
    return pod_gate.told(replace(SPEC, command=(sys.executable, "-I", "-c", *words), **fields))


def test_it_becomes_its_program_with_these_limits_and_no_other_variable(gate: subprocess.Popen[bytes]) -> None:
    """The process stays the same one, and what follows in the pipe is the program's."""
    limits = Limits(open_files=99)
    sent = told(SHOWS, *LIMITS, limits=limits, environment={"TZ": "UTC", "TOKEN": 'it\'s "quoted" \u2026\n'})
    output, errors = gate.communicate(sent + b"and the rest", timeout=60)
    assert errors == b""
    environment, found, alarm, pid, rest = json.loads(output)
    assert environment.pop("LC_CTYPE", "C.UTF-8") == "C.UTF-8"  # Python's own
    assert environment == {
        "TZ": "UTC",
        "TOKEN": 'it\'s "quoted" \u2026\n',
        "PATH": "/usr/bin",
        "KUBERNETES_SERVICE_HOST": "192.0.2.1",
    }
    assert found["NOFILE"] == [99, 99]
    assert found["CORE"] == found["MSGQUEUE"] == [0, 0]
    assert found["SIGPENDING"][1] <= 256
    assert found["MEMLOCK"][1] <= 65536
    assert (alarm, pid, rest) == (0, gate.pid, "and the rest")


def test_control_without_the_gate_the_limits_are_this_process_s_own() -> None:
    command = [sys.executable, "-I", "-c", SHOWS, *LIMITS]
    found = json.loads(subprocess.run(command, capture_output=True, input=b"", check=True).stdout)[1]
    assert found["NOFILE"] != [99, 99]


def test_a_limit_that_is_lower_already_stays(gate: subprocess.Popen[bytes]) -> None:
    """Nothing could raise it; a sandbox with less than it asked for differs in the attestation."""
    whole = told(SHOWS, *LIMITS, limits=Limits(open_files=1 << 62))
    output, _ = gate.communicate(whole, timeout=60)
    assert json.loads(output)[1]["NOFILE"][1] < 1 << 62


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 200])
def test_an_owner_that_goes_away_before_all_is_said_ends_it_without_a_word(
    gate: subprocess.Popen[bytes], length: int
) -> None:
    output, errors = gate.communicate(told(SHOWS)[:length], timeout=60)
    assert (gate.returncode, output, errors) == (0, b"", b"")


def test_a_length_that_is_too_long_is_waited_for_and_nothing_runs(gate: subprocess.Popen[bytes]) -> None:
    body = told(SHOWS)[8:]
    output, errors = gate.communicate(b"%08x" % (len(body) + 1) + body, timeout=60)
    assert (gate.returncode, output, errors) == (0, b"", b"")


@pytest.mark.parametrize("sent", [b"xxxxxxxx", b"00000003{}", b"00000002[]", b"00000000", b"0000000f{'command': []}"])
def test_what_is_not_its_form_ends_it_and_nothing_runs(gate: subprocess.Popen[bytes], sent: bytes) -> None:
    output, errors = gate.communicate(sent, timeout=60)
    assert output == b""
    assert gate.returncode == (0 if sent == b"00000003{}" else 1)  # the first waits for its third byte
    assert (b"Error" in errors) == (gate.returncode == 1)


def test_a_program_that_is_not_there_is_said_in_one_line(gate: subprocess.Popen[bytes]) -> None:
    output, errors = gate.communicate(pod_gate.told(replace(SPEC, command=("/no/such/program",))), timeout=60)
    assert (gate.returncode, output) == (pod_gate.NOT_THERE, b"")
    assert errors == b"/no/such/program: No such file or directory\n"


@pytest.mark.slow
def test_a_pod_that_nobody_attaches_to_ends_by_itself() -> None:
    with started("1") as gate:
        assert gate.wait(timeout=60) == 128 + signal.SIGALRM  # by itself: a process 1 does not end by the signal


@pytest.mark.slow
def test_the_alarm_covers_an_owner_that_stops_in_the_middle() -> None:
    with started("1") as gate:
        assert gate.stdin is not None
        gate.stdin.write(told(SHOWS)[:20])
        gate.stdin.flush()
        assert gate.wait(timeout=60) == 128 + signal.SIGALRM  # by itself: a process 1 does not end by the signal


FAMILIES = """
import errno, socket
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_STREAM | socket.SOCK_CLOEXEC):
        try:
            socket.socket(family, kind).close()
            print(family.name, "opens")
        except OSError as error:
            print(family.name, errno.errorcode[error.errno])
"""


def families(output: bytes) -> set[str]:
    return set(output.decode().splitlines())


def test_no_socket_of_ipv6_is_opened_behind_it(gate: subprocess.Popen[bytes]) -> None:
    output, errors = gate.communicate(told(FAMILIES), timeout=60)
    assert errors == b""
    assert families(output) == {"AF_INET opens", "AF_INET6 EAFNOSUPPORT", "AF_UNIX opens"}


def test_control_without_it_ipv6_is_not_closed() -> None:
    found = subprocess.run([sys.executable, "-I", "-c", FAMILIES], capture_output=True, check=True).stdout
    assert "AF_INET6 EAFNOSUPPORT" not in families(found)
