"""Several notebooks in one command: each in a run and a sandbox of its own, some at once, with one line for each.

A run is a process of this very command with one source. So whatever becomes of one of them, the others go on, and each
ends as it would alone. Starts processes; imports no notebook library.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...config.sources import SETTINGS
from ...core.codes import UsageCode
from ...core.errors import ConfigurationError
from ...core.remedies import for_stderr
from ...files.file_rules import printable
from ...files.host_paths import usable
from .exit_codes import CODES, WEIGHT, Kind
from .output_stream import OutputStream
from .run_report import OutputFile, moment, now

MAX_SOURCES = 10_000
MAX_JOBS = 64
JOBS = min(4, os.cpu_count() or 1)
"""How many run at once unless somebody says another number. Each may use as much memory as its settings say."""
MAX_DIFFERENCES = 20
"""How many of one run are said; its report has all."""
MAX_SAID = 64 << 10
"""Bytes of what one run says that are kept; it says its reason last."""
READER_SECONDS = 10.0
KINDS: dict[int, Kind] = {code: kind for kind, code in CODES.items()}


@dataclass(frozen=True, slots=True)
class Job:
    """One of them."""

    source: str
    output: Path
    variation: str | None = None
    """Under which circumstances, where runs of one source are compared."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How it went."""

    job: Job
    code: int
    seconds: float
    reason: str
    report: Any


def is_many(sources: Sequence[str]) -> bool:
    """Return whether more is asked for than one notebook or script."""
    return len(sources) != 1 or Path(sources[0]).is_dir()


def run(options: argparse.Namespace) -> int:
    """Run all of them, say how each ended, and return the exit code that counts most."""
    if options.receipt is not None:
        raise ConfigurationError(UsageCode.NOT_TOGETHER, "a receipt is of one run", setting="--receipt")
    try:
        at_once = JOBS if options.jobs is None else int(options.jobs)
    except ValueError:
        at_once = 0
    if not 1 <= at_once <= MAX_JOBS:
        raise ConfigurationError(
            UsageCode.WRONG_ARGUMENT, f"--jobs is a number from 1 to {MAX_JOBS}", value=options.jobs, setting="--jobs"
        )
    return run_all(found(options.source, options.output), options, at_once)


def run_all(jobs: list[Job], options: argparse.Namespace, at_once: int, *, until: float | None = None) -> int:
    """Run jobs; return the exit code.

    Those with a variation are compared with the first of them. With `until`, by the monotonic clock, one runs after
    another, and none is begun then.
    """
    report = OutputFile(Path(options.report), setting="--report") if options.report else None
    for place in {job.output.parent for job in jobs}:  # one that cannot be made is known before anything runs
        with usable(UsageCode.PLACE_UNFIT, f"{place} cannot be made", setting="--output"):
            place.mkdir(parents=True, exist_ok=True)
    terminal, started, began = OutputStream(sys.stderr), now(), time.monotonic()
    all_runs = _Runs(jobs, at_once, terminal, options, until)
    runs = asyncio.run(all_runs.all())
    ended = [one for one in runs if one is not None]
    kinds = Counter(_kind(one.code) for one in ended)
    otherwise = all_runs.compared(ended)
    if any(otherwise):
        kinds["behaves otherwise"] = sum(map(bool, otherwise))
    kind: Kind = "stopped" if all_runs.stopped else min(kinds, key=WEIGHT.index)
    codes = [one.code for one in ended if _kind(one.code) == kind]
    code = 128 + all_runs.stopped if all_runs.stopped else max(codes, default=CODES.get(kind, 0))
    if report is not None:
        rows = [
            {"source": job.source, "output": str(job.output.absolute()), **_about(one)}
            for job, one in zip(jobs, runs, strict=False)
        ]
        for row, job, lines in zip(rows, jobs, otherwise, strict=False):
            row |= {"as": job.variation, "differences": lines}
        whole = {
            "schema": "sandbox-kernel/runs",
            "version": 1,
            "started": moment(started),
            "ended": moment(now()),
            "exit": {"code": code, "kind": kind},
            "runs": rows,
        }
        report.write(json.dumps(whole, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
    counts = ", ".join(f"{kinds[each]} {each}" for each in reversed(WEIGHT) if kinds[each])
    left = f", {len(runs) - len(ended)} not run" if len(ended) < len(runs) else ""
    if not options.quiet or code:
        text = f"{len(runs)} runs: {counts}{left}, in {time.monotonic() - began:.1f} s"
        terminal.say(f"{text}\nexit code {code}\n" if code else f"{text}\n")
    terminal.finish(READER_SECONDS)
    return code


def _kind(code: int) -> Kind:
    return KINDS.get(code, "stopped" if code > 128 else "platform failed")


def _about(ended: Ended | None) -> dict[str, Any]:
    if ended is None:
        return {"exit_code": None, "seconds": None, "report": None}
    return {"exit_code": ended.code, "seconds": round(ended.seconds, 3), "report": ended.report}


def found(sources: Sequence[str], output: str | None) -> list[Job]:
    """Return what is to be run, in order: files as they are given, and the notebooks of folders, hidden ones aside.

    Raises `ConfigurationError`.
    """
    jobs: dict[Path, Job] = {}
    for source in sources:
        if source == "-":
            raise ConfigurationError(UsageCode.NOT_TOGETHER, "stdin is one source, and has none beside it", value="-")
        path = Path(source)
        if path.is_dir():
            base = Path(output or f"{path.resolve().name}-output")
            more = [(str(one), base / one.relative_to(path).with_suffix("")) for one in _notebooks(path, base)]
            if not more:
                raise ConfigurationError(UsageCode.NOT_A_NOTEBOOK, f"there is no notebook in {source}", value=source)
        else:
            more = [(source, Path(output) / path.stem if output else Path(f"{path.stem}-output"))]
        for name, place in more:
            if (other := jobs.get(place.absolute())) is not None:
                why = f"{other.source} and {name} would have the same output folder, {place}"
                raise ConfigurationError(UsageCode.NOT_TOGETHER, why, setting="--output")
            jobs[place.absolute()] = Job(name, place)
        if len(jobs) > MAX_SOURCES:
            raise ConfigurationError(UsageCode.WRONG_ARGUMENT, f"one command runs {MAX_SOURCES:,} notebooks at most")
    return list(jobs.values())


def _notebooks(folder: Path, output: Path) -> Iterator[Path]:
    """Yield the notebooks in a folder and below it. What an earlier run has made there is none of them."""
    for place, folders, files in os.walk(folder):
        inner = Path(place)
        folders[:] = sorted(
            one for one in folders if not one.startswith(".") and (inner / one).absolute() != output.absolute()
        )
        yield from (inner / one for one in sorted(files) if one.endswith(".ipynb") and not one.startswith("."))


def settings_given(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that the command line names."""
    given = {name: getattr(options, f"setting_{name}") for name in SETTINGS}
    return {**options.values, **{name: value for name, value in given.items() if value is not None}}


def words(options: argparse.Namespace) -> list[str]:
    """Return the options of one run among all."""
    said = [f"--fail-on-policy={options.fail_on_policy}"]
    said += [f"--{name}={value}" for name in ("install", "input") for value in getattr(options, name)]
    for name in ("timeout", "total_timeout"):
        if (value := getattr(options, name)) is not None:
            said.append(f"--{name.replace('_', '-')}={value}")
    if options.cached is not None:
        said.append("--cached" if options.cached == "steady" else "--cached-always")
    if options.allow_errors:
        said.append("--allow-errors")
    for name in ("parameters", "parameters_raw"):
        for pair in getattr(options, name):
            said += [f"--{name}", *pair]
    said += [f"--{name}={value}" for name in ("parameters_file", "parameters_yaml") for value in getattr(options, name)]
    for name, value in settings_given(options).items():
        said += [f"{SETTINGS[name].flag}={one}" for one in (value if isinstance(value, list) else [value])]
    return said


class _Runs:
    """All of them."""

    def __init__(
        self,
        jobs: list[Job],
        at_once: int,
        terminal: OutputStream,
        options: argparse.Namespace,
        until: float | None,
    ) -> None:
        self._until, self._compares = until, jobs[0].variation is not None
        self._jobs, self._words, self._terminal = jobs, words(options), terminal
        self._quiet, self._reports = options.quiet, options.report is not None or self._compares
        self._free = asyncio.Semaphore(at_once)
        self._running: set[asyncio.subprocess.Process] = set()
        self.stopped: int | None = None
        """The first signal that came."""
        self._count = 0

    async def all(self) -> list[Ended | None]:
        """Run them; None for one that was not begun before a signal came."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop, number)
        if not self._quiet and self._until is None:
            self._terminal.say(f"{len(self._jobs)} runs\n")
        with tempfile.TemporaryDirectory(prefix="sandbox-kernel-runs-") as folder:
            reports = (Path(folder, f"{number}.json") for number in range(len(self._jobs)))
            if self._until is None:
                return await asyncio.gather(*map(self._one, self._jobs, reports))
            runs: list[Ended | None] = []
            for job, report in zip(self._jobs, reports, strict=False):
                if runs and (self.stopped or time.monotonic() >= self._until):
                    break
                runs.append(await self._one(job, report))
            return runs

    def compared(self, ended: list[Ended]) -> list[list[str]]:
        """Return, and say, in what each run differs from the first one; empty where runs are not compared."""
        if not self._compares:
            return []
        from .variations import differences

        found = [differences(ended[0].report, one.report) for one in ended]
        for one, lines in zip(ended, found, strict=True):
            if lines:
                shown = [
                    *lines[:MAX_DIFFERENCES],
                    *([f"and {more} more"] if (more := len(lines[MAX_DIFFERENCES:])) else []),
                ]
                head = f"{one.job.variation} ({one.job.output.name}) does otherwise:"
                self._terminal.say("\n      ".join([head, *(printable(line, 400) for line in shown)]) + "\n")
        return found

    def _stop(self, number: int) -> None:
        """Pass a signal on: the first ends each run in order, the second at once. No other is begun."""
        self.stopped = self.stopped or number
        for process in self._running:
            if process.returncode is None:
                process.send_signal(number)

    async def _one(self, job: Job, report: Path) -> Ended | None:
        async with self._free:
            if self.stopped:
                return None
            began = time.monotonic()
            places = [f"--output={job.output}", "--quiet", *([f"--report={report}"] if self._reports else [])]
            places += [] if job.variation is None else [f"--as={job.variation}"]
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-m", "sandbox_kernel", "run", *places, *self._words, "--", job.source),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,  # of a script; its notebook has it
                stderr=asyncio.subprocess.PIPE,
                process_group=0,  # a terminal's Ctrl-C comes once, by this process
            )
            self._running.add(process)
            try:
                if self.stopped:
                    process.send_signal(self.stopped)
                said = await _end_of(process)
                code = await process.wait()
            finally:
                self._running.discard(process)
                if process.returncode is None:
                    process.terminate()
            ended = Ended(job, code if code >= 0 else 128 - code, time.monotonic() - began, said, _read(report))
            self._say(ended)
            return ended

    def _say(self, ended: Ended) -> None:
        self._count += 1
        if self._quiet and not ended.code:
            return
        total, kind = len(self._jobs), "ok" if not ended.code else _kind(ended.code)
        count = f"{self._count:{len(str(total))}}/{total}" if self._until is None else f"{self._count}"
        place = f"[{count}] {ended.seconds:7.1f} s  {kind:15}"
        name = printable(ended.job.source) if ended.job.variation is None else ended.job.variation
        lines = [f"{place}  {name}"]
        if ended.code:
            lines += for_stderr(ended.reason, 100).split("\n")
        self._terminal.say("\n      ".join(lines) + "\n")


def _read(report: Path) -> Any:
    return json.loads(report.read_bytes()) if report.exists() else None


async def _end_of(process: asyncio.subprocess.Process) -> str:
    """Return the last of what a run says, which is why it failed; all else is read and forgotten."""
    assert process.stderr is not None  # noqa: S101 (for the type)
    kept = b""
    while piece := await process.stderr.read(MAX_SAID):
        kept = (kept + piece)[-MAX_SAID:]
    lines = kept.decode(errors="replace").splitlines()
    whole = " ".join(line.strip() for line in lines if not line.startswith("exit code "))
    return printable(whole.rpartition("sandbox-kernel: ")[2], 1000)
