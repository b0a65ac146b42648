"""What an agent says is taken as values of bounded size, and a request about it is answered whatever it says."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import orjson
import pytest

from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.session.agent_messages import Death, Oversized, SandboxUsage, figures_of, usage_of
from tests.support.kernels import Kernel

NONSENSE = [
    *(-1e300, 1e300, -1, 1 << 70, -(1 << 70), True, False, None, "1", "", [], [1], {}, {"a": 1}, 0.5),
    *(math.nan, math.inf, -math.inf, "9" * 100_000),
]


@pytest.mark.parametrize("value", NONSENSE, ids=lambda value: repr(value)[:20])
def test_each_number_has_its_range_and_its_type(value: Any) -> None:
    """Everything in them can be said in JSON again, in few bytes."""
    usage = usage_of(dict.fromkeys(("memory_used", "cpu_seconds", "pids_used", "scratch_used"), value))
    assert {usage.memory_bytes, usage.processes, usage.scratch_bytes} == {None}
    assert usage.cpu_seconds == (0.5 if value == 0.5 else None)
    assert figures_of({"cpu_seconds": value, "memory_peak": value}, 1 << 30)[1] is None
    death = Death.of(dict.fromkeys(("code", "signal", "ooms", "tail"), value))
    assert (death.code, death.signal, death.ooms) == (None, None, 0)
    assert len(death.tail) <= 8192
    assert Oversized.of({"bytes": value, "parent": value}) is None
    for each in (usage, death):
        assert len(orjson.dumps(each)) < 10_000


def test_what_an_honest_agent_says_is_kept() -> None:
    said = {"memory_used": 1 << 20, "cpu_seconds": 1.5, "pids_used": 7, "scratch_used": 0, "more": 1}
    assert usage_of(said) == SandboxUsage(memory_bytes=1 << 20, cpu_seconds=1.5, processes=7, scratch_bytes=0)
    assert figures_of({"cpu_seconds": 2, "memory_peak": 5}, 1 << 20) == (2.0, 5)
    assert Death.of({"code": None, "signal": 9, "ooms": 1, "tail": "so"}) == Death(None, 9, 1, "so")
    assert Oversized.of({"bytes": 5, "parent": "{}"}) == Oversized(5, "{}")


BECOME = """
import json, os, struct, threading, time
pipe = os.open("/proc/1/fd/1", os.O_WRONLY)
def answer(number):
    body = dict(op="reply", id=number, ok=True, memory_used=-1e300, cpu_seconds=1e300, pids_used=-1)
    body = struct.pack("!BHI", 5, 1, len(text := json.dumps(body).encode())) + text
    os.write(pipe, struct.pack("!I", len(body)) + body)
def answers():
    while True:
        for number in range(1, 40):
            answer(number)
        time.sleep(0.02)
threading.Thread(target=answers, daemon=True).start()
print("became")
"""


@pytest.mark.skipif(
    "runsc" not in asyncio.run(DockerEngine().info()).runtimes, reason="the engine has no runtime 'runsc'"
)
def test_a_cell_that_speaks_as_the_agent_leaves_no_request_without_an_answer(start_kernel: Any) -> None:
    """On gVisor a cell can open the agent's pipe, and answer what the host asks before the agent does."""
    kernel: Kernel = start_kernel("--runtime", "runsc")
    assert kernel.run(BECOME).text() == "became\n"
    client, forged = kernel.client, 0
    for _ in range(5):
        message = client.session.msg("usage_request", {})
        client.control_channel.send(message)
        reply = client.get_control_msg(timeout=30)
        assert reply["parent_header"]["msg_id"] == message["header"]["msg_id"]
        assert reply["content"]["status"] == "ok"
        assert 0 <= reply["content"].get("kernel_memory", 0) <= 1 << 40
        assert 0 <= reply["content"].get("kernel_cpu", 0) <= 1e6
        forged += "kernel_memory" not in reply["content"]
    assert forged, "the cell was never faster than its agent"
