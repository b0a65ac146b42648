"""Whatever a kernel sends, the process on the host stays within three times the largest message, at every moment.

`python -m benchmarks.floods` measures the same with the limits of a default session, and longer.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.floods import RAW, SHAPES
from sandbox_kernel import AsyncSandbox
from sandbox_kernel.core import json_memory
from sandbox_kernel.core.model import Message
from sandbox_kernel.policy.output_policy import OutputPolicy
from sandbox_kernel.policy.verdict import Verdict
from tests.attacks.test_floods import status
from tests.support.cases import some
from tests.support.kernels import Kernel, eventually

Start = Callable[..., Kernel]
MIB = 1 << 20
LIMIT = 24 * MIB
BESIDE = LIMIT
"""Bytes beside them: a message that a client has yet to read, while the next one is looked at."""


@pytest.fixture(scope="module")
def flooded(launch_kernel: Callable[..., Kernel]) -> Iterator[Kernel]:
    kernel = launch_kernel("--message-limit", "24M", "--output-limit", "48M")
    assert kernel.run(RAW).reply["status"] == "ok"
    kernel.run("display({'text/html': '<b>1</b><script>1</script>', 'text/latex': '$x$'}, raw=True)")
    kernel.run(f"send('text', {LIMIT - 1 * MIB})")  # what a first large message costs once is there
    yield kernel
    kernel.close()


def loaded(kernel: Kernel) -> None:
    """Have what sends in the kernel: one whose floods no cell answers for has been replaced, or is just being so."""
    eventually(lambda: kernel.run(RAW).reply["status"] == "ok", 20, "a kernel runs what sends")


@pytest.mark.parametrize("shape", some(SHAPES, of=3))
def test_a_message_of_any_shape_costs_three_times_the_limit_at_most(flooded: Kernel, shape: str) -> None:
    loaded(flooded)
    process = Path(f"/proc/{flooded.pid}")
    eventually(lambda: status(flooded.pid, "VmRSS") < 120 * MIB, 20, "memory of the shape before is given back")
    before = status(flooded.pid, "VmRSS")
    (process / "clear_refs").write_text("5")  # the highest so far is the present again
    for _ in range(2):
        loaded(flooded)
        result = flooded.run(f"send({shape!r}, {LIMIT - 1 * MIB})")
        assert result.ename in ("", "OutputLimit"), result
    eventually(lambda: flooded.run("1 + 1").value == "2", 20, "it goes on, if with a new kernel")
    assert status(flooded.pid, "VmHWM") - before < 3 * LIMIT + BESIDE


@pytest.mark.parametrize(
    ("step", "little"), [(json_memory.STRINGS, True), (json_memory.PIECE, False)], ids=["", "control"]
)
def test_weighing_a_message_of_many_strings_takes_little_itself(
    monkeypatch: pytest.MonkeyPatch, step: int, little: bool
) -> None:
    monkeypatch.setattr(json_memory, "STRINGS", step)
    data = b"[" + b'"ab",' * (3 * MIB // 2 // 5) + b'""]'
    tracemalloc.start()
    try:
        assert json_memory.heavy(data, 1 << 40) is None
        assert (tracemalloc.get_traced_memory()[1] < 2 * MIB) == little
    finally:
        tracemalloc.stop()


def test_what_is_not_parsed_has_its_reason_at_the_cell(flooded: Kernel) -> None:
    loaded(flooded)
    result = flooded.run(f"send('display of empty objects', {LIMIT - 1 * MIB})")
    assert result.ename == "OutputLimit"
    assert "too many values" in result.reply["evalue"]
    assert "message_limit" in result.reply["evalue"]
    assert "variables and files" in result.reply["evalue"]


def test_ten_cells_with_such_replies_leave_nothing(flooded: Kernel) -> None:
    loaded(flooded)
    before = status(flooded.pid, "VmRSS")
    for _ in range(10):
        flooded.run(f"send('reply with an unknown key', {LIMIT // 4})")
    eventually(lambda: status(flooded.pid, "VmRSS") - before < 20 * MIB, 20, "nothing of the replies is kept")


async def test_a_request_does_not_wait_for_the_filter_of_a_large_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """The filter goes on here only once the loop has served something else; on the loop itself it never would."""
    apply, entered, served, waited = OutputPolicy.apply, threading.Event(), threading.Event(), []

    def slow(policy: OutputPolicy, message: Message, *more: Any) -> Verdict:
        if message.type == "display_data":
            entered.set()
            waited.append(served.wait(20))
        return apply(policy, message, *more)

    async with AsyncSandbox() as sandbox:
        monkeypatch.setattr(OutputPolicy, "apply", slow)
        cell = asyncio.create_task(sandbox.run_code("display({'text/plain': '\\x1b[1mx' * 500_000}, raw=True)"))
        await asyncio.to_thread(entered.wait, 30)
        await sandbox.interrupt()
        served.set()
        await cell
    assert waited == [True]


# --- the audit, and the host's own question to a kernel ---

STORM = """
for number in range(1500):
    display({'text/html': f'<script>{number}</script>' * 3, f'application/x-{number}': 1, f'x/y-{number}': 2}, raw=True)
"""


def test_a_storm_of_refusals_is_a_small_audit_that_counts_them(start_kernel: Start, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    kernel = start_kernel("--audit", str(path), "--outputs", "strict")
    assert kernel.run(STORM).reply["status"] == "ok"
    eventually(lambda: '"event":"cell"' in path.read_text().replace(" ", ""), 20, "the line of the cell is written")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert sum(row["event"] == "policy" for row in rows) <= 200
    (left_out,) = [row for row in rows if row["event"] == "left_out"]
    assert left_out["lines"]["policy"] > 2000
    assert rows[-1]["event"] == "cell"
    assert rows[-1]["codes"], "what was refused stands in the line of the cell too"
    assert rows[-1]["cpu_seconds"] > 0
    assert rows[-1]["memory_peak_bytes"] > 1 << 20


@pytest.mark.parametrize(
    "parent",
    ["'sandbox-kernel-probe'", "kernel.get_parent('control')['header']['msg_id']"],
    ids=["a constant", "the question's own"],
)
def test_nobody_speaks_in_the_name_of_the_hosts_own_question(start_kernel: Start, parent: str, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    kernel = start_kernel("--output-messages", "300", "--audit", str(path))
    result = kernel.run(
        "import time\nkernel = get_ipython().kernel\nstream = {'name': 'stdout', 'text': 'x' * 10000}\n"
        f"parent = {{'header': {{'msg_id': {parent}, 'msg_type': 'kernel_info_request'}}}}\n"
        "for number in range(1000):\n"
        "    kernel.session.send(kernel.iopub_socket, 'stream', stream, parent=parent)\n"
        "time.sleep(20)"
    )
    assert result.ename == "OutputLimit", "what it sent was charged"
    assert any(row["event"] == "dropped" for row in map(json.loads, path.read_text().splitlines()))
    assert kernel.run("1 + 1").value == "2"


def test_a_breakpoint_that_is_forged_stops_no_clock_for_ever(start_kernel: Start) -> None:
    """The front end debugs, so the word is plausible; the cell says it, and nobody ever goes on."""
    kernel = start_kernel("--cell-timeout", "2", "--idle-timeout", "4")
    message = kernel.client.session.msg("debug_request", {"type": "request", "seq": 1, "command": "attach"})
    kernel.client.control_channel.send(message)
    kernel.client.get_control_msg(timeout=30)
    begin = time.monotonic()
    result: Any = kernel.run(
        "kernel = get_ipython().kernel\n"
        "kernel.session.send(kernel.iopub_socket, 'debug_event', {'event': 'stopped', 'body': {}},\n"
        "                    parent=kernel.get_parent())\n"
        "while True: pass"
    )
    assert result.ename == "CellTimeout"
    assert "idle_timeout" in result.reply["evalue"] or "cell_timeout" in result.reply["evalue"]
    assert time.monotonic() - begin < 40
