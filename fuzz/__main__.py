"""`python -m fuzz`: runs the fuzzers, one process each, and says how far they came and what they found."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .targets import FOUND, NAMES, found, load, ready

ROOT = Path(__file__).resolve().parent.parent
RSS_LIMIT_MB = 512
"""A fuzzer that holds more is a finding. A Python with everything that is fuzzed holds about 100 MB."""
HANGS_SECONDS = 120
"""One input that takes longer by the clock is a finding: it hangs. How long one may work is said in `engine`."""
ENDED_BY_TIME = 600
"""Seconds by which a process may be late before it is ended."""

HEADER = f"{'target':<10} {'inputs':>10} {'inputs/s':>9} {'slowest':>8} {'peak memory':>12} {'corpus':>7}  findings"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one fuzzer did."""

    target: str
    inputs: int
    per_second: int
    slowest_seconds: int
    peak_mb: int
    corpus: int
    findings: tuple[Path, ...]
    failure: str
    """The end of what it said, if it did not end well."""

    def line(self) -> str:
        found = ", ".join(map(str, self.findings)) or ("FAILED" if self.failure else "none")
        return (
            f"{self.target:<10} {self.inputs:>10,} {self.per_second:>9,} {self.slowest_seconds:>6} s "
            f"{self.peak_mb:>9} MB {self.corpus:>7}  {found}"
        )


def write_seeds(name: str, folder: Path) -> Path:
    """Write all seeds of a target and the inputs that were found before, as the corpus to begin with."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(load(name).seeds()):
        (folder / f"seed-{number:04}").write_bytes(seed)
    for path in found(name):
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def fuzz(name: str, *, runs: int, seconds: int, seed: int, corpus: Path, artifacts: Path) -> Outcome:
    """Run one fuzzer to its end; what it learns is kept in `corpus`.

    With a `seed` other than 0 and an empty `corpus`, two runs of the same code try the same inputs.
    """
    artifacts.mkdir(parents=True, exist_ok=True)
    corpus.mkdir(parents=True, exist_ok=True)
    # In memory where that is possible; what a fuzzer makes is removed here, since libFuzzer ends without a farewell.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory) as folder:
        seeds = write_seeds(name, Path(folder) / "seeds")
        command = [
            sys.executable, "-m", "fuzz.engine", name, str(corpus), str(seeds),
            f"-max_len={NAMES[name]}", f"-timeout={HANGS_SECONDS}", f"-rss_limit_mb={RSS_LIMIT_MB}",
            f"-runs={runs}", f"-max_total_time={seconds}", f"-seed={seed}", f"-artifact_prefix={artifacts}/",
            "-len_control=0", "-print_final_stats=1", "-verbosity=1", "-detect_leaks=0",
        ]  # fmt: skip
        limit = seconds + ENDED_BY_TIME if seconds else None
        before = set(artifacts.iterdir())
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env={**os.environ, "TMPDIR": folder, **({"PYTHONHASHSEED": "0"} if seed else {})},
                capture_output=True,
                text=True,
                errors="replace",
                timeout=limit,
                check=False,
            )
            said, code = done.stdout + done.stderr, done.returncode
        except subprocess.TimeoutExpired as late:
            ended = f"ended after {limit} s"
            said, code = "\n".join([*(text(part) for part in (late.stdout, late.stderr)), ended]), 1
    stats = {key: int(value) for key, value in re.findall(r"stat::(\w+):\s+(\d+)", said)}
    return Outcome(
        target=name,
        inputs=stats.get("number_of_executed_units", 0),
        per_second=stats.get("average_exec_per_sec", 0),
        slowest_seconds=stats.get("slowest_unit_time_sec", 0),
        peak_mb=stats.get("peak_rss_mb", 0),
        corpus=sum(1 for _ in corpus.iterdir()),
        findings=tuple(sorted(set(artifacts.iterdir()) - before)),
        failure="" if code == 0 and stats else excerpt(said),
    )


def text(said: bytes | str | None) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said or ""


def excerpt(said: str) -> str:
    """Return what a person wants to know of a failed run: the exception, or else the last lines."""
    raised = re.search(r"=== Uncaught Python exception: ===\n(.*?)\n(?:INFO|==|\Z)", said, re.DOTALL)
    return raised[1].strip()[-3000:] if raised else said[-2000:]


def run(names: Sequence[str], jobs: int, kept: Path, **options: int) -> Iterator[Outcome]:
    """Run several fuzzers, `jobs` at a time; yield what became of each, in the order of the names."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(
            lambda name: fuzz(
                name,
                runs=options["runs"],
                seconds=options["seconds"],
                seed=options["seed"],
                corpus=kept / "corpus" / name,
                artifacts=kept / "found" / name,
            ),
            names,
        )


def replay(name: str, path: Path) -> None:
    """Run one input with a traceback for what it shows."""
    with ready(name) as target:
        target.run(path.read_bytes())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fuzz",
        allow_abbrev=False,
        description=__doc__,
        epilog=f"What found something belongs into {FOUND.relative_to(ROOT)}/TARGET, under a name that says what.",
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(NAMES)}; all of them without one")
    parser.add_argument("--runs", type=int, default=1_000_000, help="inputs for each target (%(default)s)")
    parser.add_argument("--seconds", type=int, default=0, help="end each target after so long, however far it came")
    parser.add_argument("--seed", type=int, default=0, help="of the random choices; another one each time without it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="fuzzers at a time (%(default)s)")
    parser.add_argument(
        "--keep",
        type=Path,
        default=ROOT / ".cache" / "fuzz",
        metavar="FOLDER",
        help="where inputs that were worth something and findings are kept (%(default)s)",
    )
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run this input alone on the one target named")
    options = parser.parse_args(arguments)
    if unknown := set(options.targets) - set(NAMES):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    if options.replay:
        if len(options.targets) != 1:
            parser.error("--replay needs one target")
        replay(options.targets[0], options.replay)
        return 0
    print(HEADER, flush=True)
    failed = False
    names = options.targets or list(NAMES)
    for outcome in run(
        names, options.jobs, options.keep.resolve(), runs=options.runs, seconds=options.seconds, seed=options.seed
    ):
        print(outcome.line(), flush=True)
        failed = failed or bool(outcome.failure or outcome.findings)
        if outcome.failure:
            print(outcome.failure, flush=True)
        for path in outcome.findings:  # whoever has only these words can run the input again
            print(f"{path.name}: {path.read_bytes()!r}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
