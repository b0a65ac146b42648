"""`python -m benchmarks.wasm`: the engine wasm beside Docker's and a stock ipykernel, in one run of some minutes.

`--stock PYTHON` runs the stock kernel, and has pandas. With `--sessions 1000` it measures instead what many sessions of
one program take: memory by proportional set size, and how long each is made. It stops before the machine has less than
6 GiB left.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
from jupyter_client.kernelspec import KernelSpecManager

from sandbox_kernel import AsyncSandbox
from sandbox_kernel.plugins.wasm.engine import sessions
from sandbox_kernel.plugins.wasm.image import MEMORY, MODULE, find

from .engines import LOOP, MATRIX, Cost, answering, seconds_of, table
from .kernels import STOCK, TWIN, BenchmarkError, Kernel, write_stock
from .measures import checked, interrupt, memory, restart, start, trivial
from .memory import proportional

WASM, DOCKER = "wasm", "docker, runc"
WALLS = {WASM: ("--engine", "wasm"), DOCKER: ("--engine", "docker")}
FRAME = "import pandas, matplotlib.pyplot\npandas.DataFrame({'a': [1, 2]}).describe()\n"
GROUPBY = (
    "import numpy, pandas\n"
    "if 'frame' not in globals():\n"
    "    draw = numpy.random.default_rng(1)\n"
    "    frame = pandas.DataFrame({'key': draw.integers(0, 1000, 10**6), 'value': draw.random(10**6)})\n"
    "frame.groupby('key').value.mean()\n"
)
LEAST_LEFT = 6 << 30
"""Bytes of the machine's memory."""


def first(code: str) -> Any:
    """Return a measure of a start to the end of such a cell, in seconds."""

    def measured(name: str, specs: KernelSpecManager) -> float:
        begin = time.perf_counter()
        kernel = Kernel(name, specs)
        try:
            checked(kernel.run(code), status="ok")
            return time.perf_counter() - begin
        finally:
            kernel.stop()

    return measured


def forgotten(name: str, specs: KernelSpecManager) -> float:
    """Start with the image of the engine wasm out of the page cache; for the others a start as any."""
    folder = find("sandbox-kernel:data").folder
    for file in (MODULE, MEMORY):
        descriptor = os.open(f"{folder}/{file}", os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    return start(name, specs)


COSTS = (
    Cost("start, image not cached, s", 3, 1, fresh=forgotten),
    Cost("start to first result, s", 6, 2, fresh=start),
    Cost("start to first table, s", 4, 1, fresh=first(FRAME)),
    Cost("restart to first result, s", 3, 1, live=restart),
    Cost("cell 1 + 1, ms", 6, 2, against=TWIN, live=trivial),
    Cost("interrupt of a loop, s", 4, 2, live=interrupt),
    Cost("groupby of 1e6 rows, s", 5, 2, live=seconds_of(GROUPBY)),
    Cost("product of matrices, s", 4, 1, live=seconds_of(MATRIX)),
    Cost("loop in Python, s", 4, 1, live=seconds_of(LOOP)),
    Cost("idle session, MB", 3, 1, live=memory),
)


async def further(engine: str, count: int) -> list[float]:
    """Return the seconds of each `Sandbox()` to its first result, in a program that has others, but for the first."""
    open_now: list[AsyncSandbox] = []
    taken = []
    try:
        for _ in range(count + 1):
            begin = time.perf_counter()
            open_now.append(await AsyncSandbox.create(engine=engine))
            if (await open_now[-1].run_code("1 + 1")).text != "2":
                raise BenchmarkError(f"{engine}: a wrong answer")
            taken.append(time.perf_counter() - begin)
    finally:
        await asyncio.gather(*(one.kill() for one in open_now))
    return taken[1:]


async def many(count: int) -> int:
    """Make sessions one after the other, and ask each; print what they take."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    open_now: list[AsyncSandbox] = []
    taken: list[float] = []
    before, own = psutil.virtual_memory().available, {pid for pid, *_ in sessions()}
    try:
        while len(open_now) < count:
            if psutil.virtual_memory().available < LEAST_LEFT:
                print(f"stopped at {len(open_now)}: the machine has less than {LEAST_LEFT >> 30} GiB left")
                break
            begin = time.perf_counter()
            open_now.append(await AsyncSandbox.create(engine="wasm", idle_timeout=3600))
            taken.append(time.perf_counter() - begin)
            if len(open_now) in {1, 10, 100, 250, 500, 750} or len(open_now) == count:
                await shown(open_now, taken, before, own)
        answers = await asyncio.gather(*(one.run_code("1 + 1") for one in open_now))
        right = sum(one.text == "2" for one in answers)
        print(f"{right} of {len(open_now)} answer", flush=True)
        await shown(open_now, taken, before, own)
    finally:
        begin = time.perf_counter()
        await asyncio.gather(*(one.kill() for one in open_now), return_exceptions=True)
        print(f"ended in {time.perf_counter() - begin:.1f} s")
    return 0 if right == count else 1


async def shown(open_now: list[AsyncSandbox], taken: list[float], before: int, own: set[int]) -> None:
    processes = [psutil.Process(pid) for pid, *_ in sessions() if pid not in own]
    total = await asyncio.to_thread(lambda: sum(map(proportional, processes)))
    last = sorted(taken[-100:])
    middle, late = 1000 * last[len(last) // 2], 1000 * last[int(len(last) * 0.95)]
    left = psutil.virtual_memory().available
    print(
        f"{len(open_now)} sessions: {total / len(processes) / 1e6:.1f} MB of PSS each, {total / 1e9:.2f} GB; "
        f"the machine has {(before - left) / 1e9:.2f} GB less; "
        f"create p50 {middle:.0f} ms, p95 {late:.0f} ms (of the last 100)",
        flush=True,
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wasm", description=__doc__, allow_abbrev=False)
    parser.add_argument("--stock", metavar="PYTHON", default=sys.executable, help="runs the stock kernel; with pandas")
    parser.add_argument("--sessions", type=int, help="how many sessions at once, in place of the table")
    parser.add_argument("--quick", action="store_true", help="few repetitions: a look, not a figure to quote")
    options = parser.parse_args(arguments)
    print(f"{platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    if options.sessions:
        return asyncio.run(many(options.sessions))
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        folder = Path(name)
        specs = write_stock(folder, options.stock)
        names = [STOCK, TWIN, *answering(folder, specs, [], WALLS)]
        print("\n" + " ".join([f"{'measure':<28}", *(f"{name:<18}" for name in names)]), flush=True)
        failed = table(COSTS, names, specs, quick=options.quick)
    for engine in ("wasm", "docker"):
        found = asyncio.run(further(engine, 3 if options.quick else 15))
        print(f"Sandbox() to first result, a further one, {engine}: {1000 * statistics.median(found):.0f} ms")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
