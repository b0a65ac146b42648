"""`python -m benchmarks --engines`: what each wall costs, side by side in one run, beside a stock ipykernel.

The contestants are the engines and runtimes that answer here. One that does not is named with its reason. Bubblewrap is
limited by a cgroup where this user may have one, as root may.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from jupyter_client.kernelspec import KernelSpecManager

from .kernels import STOCK, TWIN, BenchmarkError, Kernel, write_sandbox, write_stock
from .measures import checked, memory, restart, start, trivial
from .memory import session_processes, shims

RUNC, GVISOR, BUBBLEWRAP = "docker, runc", "docker, gVisor", "bubblewrap"
WALLS: Mapping[str, tuple[str, ...]] = {
    RUNC: ("--engine", "docker"),
    GVISOR: ("--engine", "docker", "--runtime", "runsc"),
    BUBBLEWRAP: ("--engine", "bubblewrap", "--limits", "best-effort"),
}
"""Each wall, and the settings that choose it."""

LOOP = "total = 0\nfor number in range(3_000_000):\n    total += number * number\n"
MATRIX = "import numpy\nmatrix = numpy.random.default_rng(1).random((600, 600))\nfor _ in range(12): matrix @ matrix\n"
PROGRAMS = "import subprocess\nfor _ in range(20): subprocess.run(['true'], check=True)\n"
FILES = (
    "import os, pathlib, tempfile\nwith tempfile.TemporaryDirectory() as folder:\n"
    "    for number in range(1000): pathlib.Path(folder, str(number)).write_text('x')\n"
    "    len(os.listdir(folder))\n"
)
"""What a cell does with a processor, with a library that computes, with other programs, and with files."""


@dataclass(frozen=True, slots=True)
class Cost:
    """A column of the table: seconds, milliseconds or megabytes of one contestant."""

    title: str
    repetitions: int
    quick: int
    against: str = STOCK
    live: Callable[[Kernel], float] | None = None
    fresh: Callable[[str, KernelSpecManager], float] | None = None
    generations: int = 1
    """How often live kernels are started anew."""


def seconds_of(code: str) -> Callable[[Kernel], float]:
    """Return a measure of one cell, in seconds. Its first run, which imports modules, is the turn that is dropped."""

    def measured(kernel: Kernel) -> float:
        return checked(kernel.run(code), status="ok").seconds

    return measured


COSTS = (
    Cost("start to first result, s", 8, 2, fresh=start),
    Cost("restart to first result, s", 4, 1, live=restart),
    Cost("cell 1 + 1, ms", 8, 2, against=TWIN, live=trivial, generations=3),
    Cost("loop in Python, s", 6, 2, live=seconds_of(LOOP)),
    Cost("product of matrices, s", 6, 2, live=seconds_of(MATRIX)),
    Cost("20 programs, s", 6, 2, live=seconds_of(PROGRAMS)),
    Cost("1,000 files, s", 6, 2, live=seconds_of(FILES)),
    Cost("idle session, MB", 3, 1, live=memory),
)


def answering(folder: Path, specs: KernelSpecManager, settings: Sequence[str]) -> list[str]:
    """Return the walls that have a sandbox here; of each other one its reason is printed."""
    found = []
    for name, chosen in WALLS.items():
        try:
            write_sandbox(folder, name, [*chosen, *settings])
            kernel = Kernel(name, specs)
        except BenchmarkError as error:
            print(f"{name}: not measured: {error}")
            continue
        try:
            print(f"{name}: Python {kernel.evaluate(PYTHON)}")
        finally:
            kernel.stop()
        found.append(name)
    return found


PYTHON = "__import__('platform').python_version()"
GONE_SECONDS = 30.0


def take(cost: Cost, names: Sequence[str], specs: KernelSpecManager, repetitions: int) -> dict[str, list[float]]:
    """Take samples in turn, forwards and backwards, so that a slow minute of the machine meets all alike."""
    samples: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(cost.generations):
        with contextlib.ExitStack() as stack:
            kernels = {}
            if cost.live:
                for name in names:
                    kernels[name] = Kernel(name, specs)
                    stack.callback(kernels[name].stop)
            for turn in range(-1, repetitions):  # the first turn warms caches up and is dropped
                for name in names if turn % 2 else reversed(names):
                    value = cost.live(kernels[name]) if cost.live else cost.fresh(name, specs)  # type: ignore[misc]
                    if turn >= 0:
                        samples[name].append(value)
    return samples


def until_gone(kernel: Kernel) -> float:
    """Kill a kernel's process by SIGKILL; return the seconds until no process of its session is left."""
    try:
        checked(kernel.run("1 + 1"), status="ok")
        left = session_processes(kernel) - shims(kernel)  # the engine ends its own when it comes to it
        begin = time.perf_counter()
        kernel.manager.signal_kernel(signal.SIGKILL)
        while left := {process for process in left if alive(process)}:
            if time.perf_counter() - begin > GONE_SECONDS:
                raise BenchmarkError(f"{kernel.name}: {len(left)} processes are left after {GONE_SECONDS:g} s")
            time.sleep(0.005)
        return time.perf_counter() - begin
    finally:
        kernel.stop()


def alive(process: psutil.Process) -> bool:
    """Whether a process is there and is no zombie, which only waits for its parent to look."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def compare(settings: Sequence[str], *, quick: bool = False) -> int:
    """Print the table for the walls that answer here; `settings` go to each. Return 1 if something had no figure."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        folder = Path(name)
        print(f"{platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
        specs = write_stock(folder)
        walls = answering(folder, specs, settings)
        names = [STOCK, TWIN, *walls]
        print("\n" + " ".join([f"{'measure':<28}", *(f"{name:<18}" for name in names)]), flush=True)
        for cost in COSTS:
            try:
                samples = take(cost, names, specs, cost.quick if quick else cost.repetitions)
            except BenchmarkError as error:
                print(f"{cost.title:<28} FAILED: {error}", flush=True)
                failed = 1
                continue
            medians = {name: statistics.median(values) for name, values in samples.items()}
            cells = [f"{value:.3g} ({value / medians[cost.against]:.2f}x)" for value in medians.values()]
            print(" ".join([f"{cost.title:<28}", *(f"{cell:<18}" for cell in cells)]).rstrip(), flush=True)
        print()
        for wall in walls:
            longest = max(until_gone(Kernel(wall, specs)) for _ in range(1 if quick else 5))
            print(f"kill -9 of the owner, {wall}: nothing left after {longest:.2f} s", flush=True)
    return failed
