"""`python -m benchmarks --engines`: what each wall costs, side by side in one run, beside a stock ipykernel.

The contestants are the engines and runtimes that answer here. One that does not is named with its reason. Bubblewrap is
limited by a cgroup where this user may have one, as root may. Machines of QEMU's are emulated, so they have a table of
their own, with less to compute.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from jupyter_client.kernelspec import KernelSpecManager

from .kernels import STOCK, TWIN, BenchmarkError, Kernel, write_sandbox, write_stock
from .measures import checked, memory, restart, start, start_at_once, trivial
from .memory import session_processes, shims

RUNC, GVISOR, BUBBLEWRAP = "docker, runc", "docker, gVisor", "bubblewrap"
QEMU, COLD = "qemu", "qemu from nothing"
WALLS: Mapping[str, tuple[str, ...]] = {
    RUNC: ("--engine", "docker"),
    GVISOR: ("--engine", "docker", "--runtime", "runsc"),
    BUBBLEWRAP: ("--engine", "bubblewrap", "--limits", "best-effort"),
}
"""Each wall, and the settings that choose it."""
EMULATED: Mapping[str, tuple[str, ...]] = {
    QEMU: ("--engine", "qemu"),
    COLD: ("--engine", "qemu", "--network", "example.org"),  # no state is taken of one that has a way out
}
TAKING = "sandbox_kernel.plugins.qemu"
"""The process that takes a state of a machine, for which the first start is to wait."""
TAKING_SECONDS = 400.0

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
    """How often live kernels are started again."""


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


PRODUCT = "import numpy\nmatrix = numpy.random.default_rng(1).random((600, 600))\nmatrix @ matrix\n"
COSTS_EMULATED = (
    Cost("start to first result, s", 6, 2, fresh=start),
    Cost("start without 0.2 s, s", 6, 2, fresh=start_at_once),
    Cost("restart to first result, s", 2, 1, live=restart),
    Cost("cell 1 + 1, ms", 6, 2, against=TWIN, live=trivial),
    Cost("loop in Python, s", 2, 1, live=seconds_of(LOOP)),
    Cost("a product of matrices, s", 2, 1, live=seconds_of(PRODUCT)),
    Cost("20 programs, s", 2, 1, live=seconds_of(PROGRAMS)),
    Cost("1,000 files, s", 2, 1, live=seconds_of(FILES)),
    Cost("idle session, MB", 2, 1, live=memory),
)


def answering(
    folder: Path, specs: KernelSpecManager, settings: Sequence[str], walls: Mapping[str, tuple[str, ...]] = WALLS
) -> list[str]:
    """Return the walls that have a sandbox here; of each other one its reason is printed."""
    found = []
    for name, chosen in walls.items():
        try:
            write_sandbox(folder, name, [*chosen, *settings])
            kernel = Kernel(name, specs)
            try:
                print(f"{name}: Python {kernel.evaluate(PYTHON)}")
            finally:
                kernel.stop()
        except BenchmarkError as error:
            print(f"{name}: not measured: {error}")
            continue
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


def compare(settings: Sequence[str], beside: Mapping[str, tuple[str, ...]], *, quick: bool = False) -> int:
    """Print the table for the walls that answer here, and those `beside` them; `settings` go to each.

    Return 1 if something had no figure.
    """
    failed = 0
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        folder = Path(name)
        print(f"{platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
        specs = write_stock(folder)
        walls = answering(folder, specs, settings, {**WALLS, **beside})
        names = [STOCK, TWIN, *walls]
        print("\n" + " ".join([f"{'measure':<28}", *(f"{name:<18}" for name in names)]), flush=True)
        failed |= table(COSTS, names, specs, quick=quick)
        print()
        for wall in walls:
            longest = max(until_gone(Kernel(wall, specs)) for _ in range(1 if quick else 5))
            print(f"kill -9 of the owner, {wall}: nothing left after {longest:.2f} s", flush=True)
        failed |= compare_emulated(folder, specs, settings, quick=quick)
    return failed


def table(costs: Sequence[Cost], names: Sequence[str], specs: KernelSpecManager, *, quick: bool) -> int:
    """Print a row for each cost. Return 1 if something had no figure."""
    failed = 0
    for cost in costs:
        try:
            samples = take(cost, names, specs, cost.quick if quick else cost.repetitions)
        except BenchmarkError as error:
            print(f"{cost.title:<28} FAILED: {error}", flush=True)
            failed = 1
            continue
        medians = {name: statistics.median(values) for name, values in samples.items()}
        cells = [f"{value:.3g} ({value / medians[cost.against]:.2f}x)" for value in medians.values()]
        print(" ".join([f"{cost.title:<28}", *(f"{cell:<18}" for cell in cells)]).rstrip(), flush=True)
    return failed


def compare_emulated(folder: Path, specs: KernelSpecManager, settings: Sequence[str], *, quick: bool) -> int:
    """Print the same for machines, where they are set up; a line says with what they run. Return as `compare` does."""
    print()
    first, *others = EMULATED.items()
    if not answering(folder, specs, settings, dict([first])):
        return 0
    program = shutil.which("qemu-system-x86_64") or ""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    print(f"{QEMU}: by {said.partition(chr(10))[0]}, emulating: KVM is not used")
    until_taken()
    for name, chosen in others:
        write_sandbox(folder, name, [*chosen, *settings])
    names = [STOCK, TWIN, QEMU]
    print("\n" + " ".join([f"{'measure':<28}", *(f"{name:<18}" for name in names)]), flush=True)
    failed = table(COSTS_EMULATED, names, specs, quick=quick)
    cold = Cost("start from nothing, s", 2, 1, fresh=start)
    failed |= table([cold], [STOCK, COLD], specs, quick=quick)
    longest = max(until_gone(Kernel(QEMU, specs)) for _ in range(1 if quick else 5))
    print(f"\nkill -9 of the owner, {QEMU}: nothing left after {longest:.2f} s", flush=True)
    return failed


def until_taken() -> None:
    """Return when nobody takes a state any more: machines start from nothing until then, and share the processors."""
    until = time.monotonic() + TAKING_SECONDS
    time.sleep(1.0)  # its process is on its way
    while time.monotonic() < until and any(
        TAKING in (process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])
    ):
        time.sleep(0.5)
