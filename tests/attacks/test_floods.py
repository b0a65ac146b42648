"""Too much output of every shape: the cell ends by its name, the host stays small, the next cell works.

With FULL_FLOODS=1 in the environment, as much as the limits of a default session let through, and a display of 2 GB;
that needs 12 GB of memory and two minutes.
"""

from __future__ import annotations

import inspect
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.kernels import ENGINE, Kernel, eventually, replied

Start = Callable[..., Kernel]

FULL = os.environ.get("FULL_FLOODS") == "1"

MESSAGES = "2000" if ENGINE == "qemu" else "20000"
"""As many as come in seconds: an emulated machine makes a hundred displays in one."""
GROWTH = 200 << 20
"""Bytes that a flood may cost the kernel process at its highest."""


def status(pid: int, field: str) -> int:
    """Return a size of a process in bytes: VmRSS, or VmHWM, its highest so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field + ":"))


@pytest.mark.parametrize(
    "code",
    ["while True: print('x' * 10**6)", "for n in range(10**6): display(n)"],
    ids=["large prints", "small displays"],
)
def test_a_flood_ends_and_costs_bounded_memory(start_kernel: Start, code: str) -> None:
    kernel = start_kernel() if FULL else start_kernel("--output-messages", MESSAGES)
    before = status(kernel.pid, "VmRSS")
    result = kernel.run(code, timeout=150)
    assert result.ename == "OutputLimit"
    assert "Setting to change" in result.reply["evalue"]
    assert status(kernel.pid, "VmHWM") - before < GROWTH
    assert kernel.run("1 + 1").value == "2"


def test_a_single_display_over_the_limit_never_reaches_the_host(start_kernel: Start) -> None:
    """The kernel itself needs a display several times over: as a text, as JSON, and on its way."""
    memory, size = ("12G", 2_000_000_000) if FULL else ("3G", 400_000_000)
    kernel = start_kernel("--memory", memory)
    before = status(kernel.pid, "VmRSS")
    result = kernel.run(f"display({{'text/plain': 'x' * {size}}}, raw=True)", timeout=150)
    assert result.ename == "OutputLimit"
    assert "message_limit" in result.reply["evalue"]
    assert status(kernel.pid, "VmHWM") - before < GROWTH
    assert kernel.run("1 + 1").value == "2"


def test_memory_of_a_large_display_is_given_back_on_both_sides(start_kernel: Start) -> None:
    kernel = start_kernel()

    def agent() -> int:
        """The resident bytes of the sandbox's first process; asking is a cell, and not quite nothing."""
        return int(kernel.run("print(open('/proc/1/statm').read().split()[1])").text()) * resource.getpagesize()

    inside = agent()  # what a first cell needs is loaded now
    before = status(kernel.pid, "VmRSS")
    for _ in range(3):
        assert kernel.run("display({'text/plain': 'x' * 40_000_000}, raw=True)").reply["status"] == "ok"
    assert status(kernel.pid, "VmHWM") - before > 80_000_000
    eventually(lambda: status(kernel.pid, "VmRSS") - before < 20_000_000, 10, "the kernel process is small again")
    eventually(lambda: agent() - inside < 10_000_000, 10, "the agent is small again")


def test_memory_is_given_back_while_the_cell_goes_on(start_kernel: Start) -> None:
    """Large messages without a pause of a second do not have the kernel process hold on to what was larger still."""
    kernel = start_kernel()
    before = status(kernel.pid, "VmRSS")
    code = """
        import time
        for size in (40_000_000, 45_000_000):
            display({'text/plain': 'x' * size}, raw=True)
        while True:
            display({'text/plain': 'x' * 1_200_000}, raw=True)
            time.sleep(0.4)
    """
    message, begin = kernel.start(inspect.cleandoc(code))
    eventually(lambda: status(kernel.pid, "VmHWM") - before > 80_000_000, 10, "the large displays have come")
    eventually(lambda: status(kernel.pid, "VmRSS") - before < 30_000_000, 10, "the kernel process is small again")
    assert not replied(kernel.client, message, 0.1), "the cell is over"
    kernel.manager.interrupt_kernel()
    assert kernel.collect(message, begin).ename == "KeyboardInterrupt"
