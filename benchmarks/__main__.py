"""`python -m benchmarks`: the sandbox beside a stock ipykernel, in one run, sample by sample in turn."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager

from . import engines, report
from .kernels import SANDBOX, STOCK, BenchmarkError, Kernel, write_kernelspecs
from .measures import MEASURES, Measure

PYTHON = "__import__('platform').python_version()"
IPYKERNEL = "__import__('ipykernel').__version__"

Samples = dict[str, list[float]]


def measure(item: Measure, specs: KernelSpecManager, repetitions: int) -> Samples:
    """Take the samples in turn, ABBA ABBA, so that a slow minute of the machine meets all contestants alike."""
    samples: Samples = {name: [] for name in item.contestants}
    for _ in range(item.generations):
        _generation(item, specs, repetitions, samples)
    return samples


def _generation(item: Measure, specs: KernelSpecManager, repetitions: int, samples: Samples) -> None:
    with contextlib.ExitStack() as stack:
        kernels = {}
        for name in item.contestants:
            if item.live:
                kernels[name] = Kernel(name, specs)
                stack.callback(kernels[name].stop)
        for turn in range(-1, repetitions):  # the first turn warms caches up and is dropped
            for name in item.contestants if turn % 2 else reversed(item.contestants):
                value = item.live(kernels[name]) if item.live else item.fresh(name, specs)  # type: ignore[misc]
                if turn >= 0:
                    samples[name].append(value)


def judge(item: Measure, samples: Samples) -> dict[str, Any]:
    """Sum the samples up: medians, the subject against the others, and whether the bar is met."""
    medians = {name: statistics.median(values) for name, values in samples.items()}
    baseline, subject = item.contestants[0], item.contestants[-1]
    against = item.bar.against if item.bar else baseline
    result: dict[str, Any] = {
        "name": item.name,
        "what": item.what,
        "unit": item.unit,
        "samples": samples,
        "medians": medians,
        "against": against,
        "ratio": medians[subject] / medians[against] if subject != against else None,
        "difference": medians[subject] - medians[against] if subject != against else None,
    }
    if item.bar:
        met = item.bar.met(medians[subject], medians[against])
        result |= {"bar": str(item.bar), "verdict": "ok" if met else "over"}
    return result


HEADER = (
    f"{'measure':<32} {'against':<11} {'its median [range]':<24} {'sandbox':<24} {'compared':<9} {'bar':<8} verdict"
)


def lines(result: dict[str, Any]) -> Iterator[str]:
    """Yield a line of the table for each contestant that the sandbox is compared with."""
    *others, subject = result["samples"]
    for other in others or [""]:
        barred = "bar" in result and other == result["against"]
        ratio = result["medians"][subject] / result["medians"][other] if other else None
        compared = "" if ratio is None else f"{ratio:.3g}x"
        if barred and result["bar"].startswith("≤ +"):
            compared = f"{result['difference']:+.2f} {result['unit']}"
        cells = [
            f"{result['what'] + ', ' + result['unit']:<32}",
            f"{other:<11}",
            f"{spread(result['samples'][other]) if other else '':<24}",
            f"{spread(result['samples'][subject]):<24}",
            f"{compared:<9}",
            f"{result['bar']:<8} {result['verdict']}" if barred else "",
        ]
        yield " ".join(cells).rstrip()


def spread(values: Sequence[float]) -> str:
    """Return the median with the lowest and the highest sample."""
    middle, low, high = (
        f"{value:.3g}" if value < 100 else f"{value:.0f}"
        for value in (statistics.median(values), min(values), max(values))
    )
    return f"{middle} [{low} - {high}]"


def versions(specs: KernelSpecManager) -> dict[str, str]:
    """Return what runs behind each name: the interpreter and the ipykernel of its cells."""
    found = {}
    for name in (STOCK, SANDBOX):
        kernel = Kernel(name, specs)
        try:
            found[name] = f"Python {kernel.evaluate(PYTHON)}, ipykernel {kernel.evaluate(IPYKERNEL)}"
        finally:
            kernel.stop()
    return found


def parsed(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """Return our own options, and the settings of the sandbox among the arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        allow_abbrev=False,
        description=__doc__,
        epilog="Other options are settings of the sandbox, such as --image NAME or --runtime runsc.",
    )
    parser.add_argument("--quick", action="store_true", help="few repetitions: a look, not a figure to quote")
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        choices=[item.name for item in MEASURES],
        help="one measure (repeatable): %(choices)s",
    )
    parser.add_argument("--engines", action="store_true", help="compare the engines and runtimes with each other")
    parser.add_argument(
        "--beside",
        action="append",
        default=[],
        metavar="NAME=SETTINGS",
        help="one more engine of that comparison, such as 'docker 29=--engine unix:///tmp/29.sock' (repeatable)",
    )
    parser.add_argument("--report", type=Path, metavar="PATH", help="put the figures into the page, docs/figures.md")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="run an earlier state's benchmarks in turn")
    parser.add_argument("--busy", action="store_true", help="keep all processors busy meanwhile")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there too")
    return parser.parse_known_args(arguments)


@contextlib.contextmanager
def busy(wanted: bool) -> Iterator[None]:
    """Keep each processor busy with a process that does nothing else."""
    count = (os.cpu_count() or 1) if wanted else 0
    working = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for each in working:
            each.kill()
            each.wait()


def ratio_before(checkout: Path, item: Measure, options: argparse.Namespace, settings: list[str]) -> float | None:
    """Return what an earlier state's own benchmark gives, beside the same stock kernel; None if it cannot."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        quick = ["--quick"] if options.quick else []
        command = [checkout / ".venv/bin/python", "-m", "benchmarks", "--only", item.name, "--json", file.name]
        subprocess.run([*command, *quick, *settings], cwd=checkout, check=False, capture_output=True)
        text = Path(file.name).read_text(encoding="utf-8")
    results = json.loads(text)["results"] if text else []
    return results[0]["ratio"] if results else None


def main(arguments: Sequence[str] | None = None) -> int:
    options, settings = parsed(arguments)
    if options.engines:
        beside = {name: tuple(shlex.split(words)) for name, _, words in (one.partition("=") for one in options.beside)}
        return engines.compare(settings, beside, quick=options.quick)
    chosen = [item for item in MEASURES if not options.only or item.name in options.only]

    results, failed = [], []
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder, busy(options.busy):
        specs = write_kernelspecs(Path(folder), settings)
        behind = versions(specs)
        machine = f"{platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}"
        print(machine, *(f"{name}: {text}" for name, text in behind.items()), sep="\n")
        print(f"\n{HEADER}", flush=True)
        for item in chosen:
            try:
                result = judge(item, measure(item, specs, item.quick if options.quick else item.repetitions))
            except BenchmarkError as error:
                failed.append(item.name)
                print(f"{item.what + ', ' + item.unit:<32} FAILED: {error}", flush=True)
                continue
            results.append(result)
            print(*lines(result), *([f"  {item.counted}"] if item.counted else []), sep="\n", flush=True)
            if options.before and (earlier := ratio_before(options.before, item, options, settings)) is not None:
                result["before"] = earlier
                print(f"  before: {earlier:.3g}x", flush=True)
    if options.json:
        run = {"machine": machine, "versions": behind, "quick": options.quick, "results": results, "failed": failed}
        options.json.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
    if options.report:
        name = "busy" if options.busy else "measured"
        report.write(options.report, [] if options.quick else results, time.strftime("%Y-%m-%d"), name)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
