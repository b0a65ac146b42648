"""`sandbox-kernel run`: its options, its signals, and what it says at the end.

Imports what it needs when it runs: the help of the command line must not wait for a notebook library.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import platform
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from ... import __version__
from ...config.forms import seconds
from ...config.sources import SETTINGS, from_files_for_all, merged, resolve
from ...core.codes import UsageCode
from ...core.errors import ConfigurationError, SandboxError
from ...core.model import Settings, format_bytes
from ...core.remedies import for_stderr
from ...files.file_rules import FileLimits, printable
from ...files.folder_policy import why_not
from ...files.host_paths import fetch, open_folder, usable
from ...plugins import index
from ..api import Sign
from . import again, many
from .exit_codes import End, decide, of_error
from .output_stream import OutputStream
from .run_report import OutputFile, RunReport, now, write_report

if TYPE_CHECKING:
    from . import answers
    from .progress import RunProgress
    from .run import Run, RunPlan


class ReceiptFile:
    """Where the receipt of a run is written, and the key that signs it, once the settings have named one."""

    def __init__(self, file: OutputFile) -> None:
        self.file = file
        self._sign: Sign | None = None

    def sign_by(self, settings: Settings) -> None:
        """Take the key that the settings name. Raises `ConfigurationError` if it cannot sign here."""
        sign = index.signer("--receipt").sign
        assert sign is not None  # noqa: S101 (for the type: the index names none else)
        self._sign = sign(settings)

    def write(self, report: RunReport) -> bool:
        """Write the receipt; return whether there was anything to sign. Raises `SandboxError`."""
        if self._sign is None:  # nothing was run: the settings could not work
            return False
        self.file.write(self._sign(_subjects(report), _predicate(report)))
        return True


def _subjects(report: RunReport) -> list[tuple[str, str]]:
    """Return what the run has made, by its path in the output folder."""
    found = [(f"files/{row['path']}", row["sha256"]) for row in report.files]
    if report.notebook is not None and report.notebook_sha256 is not None:
        found.insert(0, (report.notebook.rpartition("/")[2], report.notebook_sha256))
    return found


def _predicate(report: RunReport) -> dict[str, Any]:
    """Return the statement of the run: its report without paths of this machine, and its sandbox's attestation."""
    said = report.to_json()
    for name in ("schema", "notebook", "output"):
        del said[name]
    said["source"] = {**said["source"], "name": str(said["source"].get("name")).rpartition("/")[2]}
    cells = [{name: value for name, value in cell.items() if name != "outputs"} for cell in said.pop("cells")]
    return {**said, "cells": cells, "attested": report.attested, "audit": report.audit}


READER_SECONDS = 10.0
"""How long the last words may wait for a reader that pauses."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `run`; the settings are options of their own here, because a file name stands beside them."""
    add = parser.add_argument
    what = "a notebook, a script (# %%%% begins a cell), or - for either from stdin; several, or a folder of notebooks"
    add("source", metavar="SOURCE", nargs="+", help=what)
    add("--jobs", metavar="N", help=f"of several sources, how many run at once (default here: {many.JOBS})")
    add(
        "--install",
        action="append",
        default=[],
        metavar="NAME",
        help="a package, or the path of a wheel; may be repeated",
    )
    add("--input", action="append", default=[], metavar="PATH", help="a file or folder for /mnt/data; may be repeated")
    where = "for the executed notebook; files that cells make go into files/ below it (default: NAME-output)"
    add("--output", metavar="FOLDER", help=where)
    add("--report", metavar="FILE", help="write a report as JSON")
    add("--receipt", metavar="FILE", help="write a receipt: the code and its results, signed with the key of the audit")
    add("--timeout", metavar="TIME", help="how long one cell may run; the same as --cell-timeout")
    add(
        "--total-timeout",
        metavar="TIME",
        help="how long the whole run may take, including the start (default: no limit)",
    )
    add("--allow-errors", action="store_true", help="continue after a cell that failed; the exit code is still 1")
    why = "which policy events give exit code 5: those that could have done harm (default), all, or none"
    add("--fail-on-policy", choices=("violation", "any", "never"), default="violation", help=why)
    asks: dict[str, Any] = {"dest": "cached", "action": "store_const"}
    add("--cached", const="steady", help="take the answer of an earlier run of the same, or keep this one's", **asks)
    add("--cached-always", const="always", help="the same for code that draws numbers or reads the clock", **asks)
    add("--repeat", metavar="N", help="run it so many times, and say what a later run did otherwise")
    add("--for", dest="during", metavar="TIME", help="run it again until the time is over, and say the same")
    add("--dates", metavar="DATES", help="run it, then again as if it were each of these days: 2030-01-01,2031-06-01")
    days = "the same, and in other time zones and locales, with the variables of CI and production, and a seed"
    add("--time-bomb", metavar="DATES", help=days)
    one_of = "run it as one of these: date=2030-01-01, zone=NAME, locale=NAME, flag=CI, seed=N, plain"
    add("--as", dest="variation", metavar="WORD", help=one_of)
    add("--quiet", "-q", action="store_true", help="print nothing but the reason of a failure")
    pair: dict[str, Any] = {"action": "append", "nargs": 2, "default": [], "metavar": ("NAME", "VALUE")}
    add("-p", "--parameters", help="a parameter, as in papermill; numbers, True, False and None are parsed", **pair)
    add("-r", "--parameters_raw", "--parameters-raw", help="a parameter that is always text", **pair)
    one: dict[str, Any] = {"action": "append", "default": []}
    add("-f", "--parameters_file", "--parameters-file", metavar="FILE", help="a YAML file of parameters", **one)
    add("-y", "--parameters_yaml", "--parameters-yaml", metavar="YAML", help="parameters as YAML", **one)
    for setting in SETTINGS.values():
        flags = (setting.flag, f"--{setting.name}")
        spellings = dict.fromkeys(word for flag in flags for word in (flag, flag[:2] + flag[2:].replace("-", "_")))
        action = "append" if setting.form.adds_up else "store"
        dest = f"setting_{setting.name}"
        add(*spellings, dest=dest, action=action, metavar=setting.form.metavar, help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Run a notebook or a script in a sandbox of its own.

    The executed notebook is always written. If the run fails or is stopped, it contains the cells that ran until then.
    Of several sources, or a folder, each has a sandbox of its own, and the exit code is the one that counts most.
    """
    if again.is_asked(options):
        return again.run(options)
    if many.is_many(options.source):
        return many.run(options)
    [options.source] = options.source
    path = OutputFile(Path(options.report), setting="--report") if options.report else None
    if path is not None:
        _spare(path.path, [options.source, *options.input], "report")
    options.receipt_file = None
    if options.receipt:
        options.receipt_file = ReceiptFile(OutputFile(Path(options.receipt), setting="--receipt"))
        others = [options.report] if options.report else []
        _spare(Path(options.receipt), [options.source, *options.input, *others], "receipt")
    report = _new_report(options)
    terminal = OutputStream(sys.stderr)
    stopper = Stopper(lambda end: _close(options, report, path, end, terminal))
    found: list[End] = []
    with signals(stopper):
        try:
            if path is not None:
                write_report(path, report)  # now, so that a wrong path is known before anything runs
            found = _run(options, report, stopper, terminal)
        except Stopped as stop:
            found = [End(kind="stopped", reason=f"stopped by {stop.signal.name}", signal=stop.signal)]
        except SandboxError as error:
            found = [of_error(error)]
        except ImportError as error:
            from .source_notebook import missing

            found = [of_error(missing("batch runs", error))]
        except Exception as defect:
            terminal.say(traceback.format_exc())
            found = [End(kind="platform failed", reason=f"a defect of sandbox_kernel: {defect!r}")]
        stopper.closing = True
        return _close(options, report, path, decide(found), terminal)


def _spare(path: Path, given: list[str], what: str) -> None:
    """Raise `ConfigurationError` if a report or a receipt would replace what the run is to read, or writes before."""
    for one in given:
        is_same = path.exists() and Path(one).exists() and path.samefile(one)
        if one != "-" and (is_same or path.resolve() == Path(one).resolve()):
            raise ConfigurationError(UsageCode.PLACE_UNFIT, f"the {what} would replace {one}", setting=f"--{what}")


def _close(
    options: argparse.Namespace, report: RunReport, path: OutputFile | None, end: End, terminal: OutputStream
) -> int:
    """Write the report, say how it ended, and return the exit code."""
    code = end.code
    report.ended, report.end = now(), end
    if path is not None:
        try:
            write_report(path, report)
        except SandboxError as error:
            terminal.say(f"sandbox-kernel: {_path(error)}\n")
            code = code or of_error(error).code
    receipt = options.receipt_file
    if receipt is not None:
        try:
            if receipt.write(report) and not options.quiet:
                terminal.say(f"receipt   {_path(receipt.file.path)}\n")
        except SandboxError as error:
            terminal.say(f"sandbox-kernel: {_path(error)}\n")
            code = code or of_error(error).code
    if not options.quiet:
        _say_where(report, path, terminal)
    if end.code:
        where = f" in cell {end.cell}" if end.cell is not None else ""
        reason = printable(end.reason, 1000)  # it may hold the words of a cell
        text = for_stderr(f"sandbox-kernel: {end.kind}{where}: {reason}")
        terminal.say(f"{text}\nexit code {code}\n")
    terminal.finish(READER_SECONDS)
    return code


def _say_where(report: RunReport, path: OutputFile | None, terminal: OutputStream) -> None:
    if report.notebook is not None:
        terminal.say(f"notebook  {_path(report.notebook)}\n")
    if report.files:
        size = format_bytes(sum(row["bytes"] for row in report.files))
        terminal.say(f"files     {_path(report.output)} ({len(report.files)}, {size})\n")
    if path is not None:
        terminal.say(f"report    {_path(path.path)}\n")


def _path(name: object) -> str:
    """Return a path for people: a notebook from elsewhere may have any name."""
    return printable(str(name), 4096)


# --- one run ---------------------------------------------------------------------------------------------------------


def _run(options: argparse.Namespace, report: RunReport, stopper: Stopper, terminal: OutputStream) -> list[End]:
    from .progress import RunProgress
    from .run import Run

    plan = _plan(options, report, stopper)
    total = sum(cell.cell_type == "code" for cell in plan.source.notebook.cells)
    is_script = plan.source.kind == "script"
    live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not is_script
    progress = RunProgress(terminal, total=total, live=live, quiet=options.quiet)
    run = Run(plan, report, progress, (OutputStream(sys.stdout), terminal) if is_script else None)
    run.save()  # a folder that cannot be written to is known before anything runs
    cells = "1 cell" if total == 1 else f"{total} cells"
    progress.say(f"running {printable(plan.source.name)}: {cells} in {plan.settings.image}")
    for refused in plan.inputs.refused:
        progress.say(f"left out of the inputs: {refused['path']}: {refused['reason']}")
    for line in _unbrought(plan):
        progress.say(line)
    asked = None
    if options.cached is not None:
        asked = _asked(options, plan, stopper, progress)
        if asked is not None and _answered(asked, plan, report, run):
            return []
    asyncio.run(stopper.until_stopped(run))
    if asked is not None and decide(run.found).kind == "fine":
        report.end = decide(run.found)
        if reason := asked.keep(plan, report, run.outputs.text()):
            progress.say(f"not kept in the cache: {printable(reason, 300)}")
    return run.found


def _asked(
    options: argparse.Namespace, plan: RunPlan, stopper: Stopper, progress: RunProgress
) -> answers.CachedRun | None:
    """Return what may be answered by an earlier run; None, and say why, for what may not."""
    from . import answers

    with stopper.waiting():
        always, signed = options.cached == "always", options.receipt_file is not None
        asked = answers.CachedRun.of(plan, signed=signed, always=always)
    if isinstance(asked, str):
        progress.say(f"not from the cache: {printable(asked, 300)}")
        return None
    return asked


def _answered(asked: answers.CachedRun, plan: RunPlan, report: RunReport, run: Run) -> bool:
    """Take an earlier answer, if there is one."""
    from . import answers

    answer, damage = asked.answers.find(asked.key)
    if damage is not None:
        run.progress.say(f"warning: an answer in the cache is damaged, and is not taken: {printable(damage, 300)}")
    if answer is None:
        return False
    answers.give(answer, plan, report)
    run.progress.say(f"from the cache: the same was run at {printable(answer.report['started'])}")
    asyncio.run(run.print_again(answer.notebook))
    return True


def _unbrought(plan: RunPlan) -> list[str]:
    """Return what to say of the files that the code reads and no input brings; the way to each is one `--input`."""
    from ...files.notebook_files import Beside
    from .input_files import literal_paths, modules
    from .source_notebook import is_run

    if plan.settings.uploads is not None:
        return []  # whose files are not known yet
    brought = {file.path for file in plan.inputs.files}
    brought |= {
        "/".join(parts[:depth]) for parts in (path.split("/") for path in brought) for depth in range(len(parts))
    }
    cells = [cell.source for cell in plan.source.notebook.cells if is_run(cell)]
    folder = "" if plan.source.name == "-" else os.path.dirname(plan.source.name)  # noqa: PTH120 (as it was typed)
    look = Beside(folder or ".")
    beside = [look([f"{name}.py", name]) for name in modules(cells)]  # one that is not there is a package's
    missing = [path for path in (*literal_paths(cells), *filter(None, beside)) if path not in brought]
    lines = []
    for path in missing:
        way = shlex.quote(os.path.join(folder, path.partition("/")[0]))  # noqa: PTH118 (as it was typed)
        there = f"add --input {way}" if look([path]) else "--input FILE brings it; it is not beside the notebook either"
        lines.append(f"      {printable(path)}: {there}")
    look.close()
    if lines:
        what = "a file" if len(lines) == 1 else f"{len(lines)} files"
        lines.insert(0, f"{printable(plan.source.name)} reads {what} that no --input brings:")
    return lines


def _plan(options: argparse.Namespace, report: RunReport, stopper: Stopper) -> RunPlan:
    """Check everything that can be checked before a start. Raises `ConfigurationError`."""
    from . import input_files, risk, source_notebook
    from .run import FILES, RunPlan
    from .variations import Variation

    settings, _ = _settings(options)
    report.sandbox |= _about(settings)
    if options.receipt_file is not None:
        options.receipt_file.sign_by(settings)
    total = None if options.total_timeout is None else seconds(0.1)("total_timeout", options.total_timeout)
    report.sandbox["total_seconds"] = total
    parameters = source_notebook.read_parameters(
        options.parameters, options.parameters_raw, options.parameters_yaml, options.parameters_file
    )
    with stopper.waiting():
        data = fetch(options.source)
    found = source_notebook.read(options.source, data, settings.kernel)
    report.source |= {"kind": found.kind, "sha256": found.sha256}
    source_notebook.parameterize(found, parameters)
    report.source["parameters"] = found.parameters
    with stopper.waiting():
        copied = input_files.plan(options.input, FileLimits.of(settings.limits))
    report.inputs_refused = copied.refused
    output = Path(options.output or f"{found.stem}-output").absolute()
    for one in (found.name, options.report, options.receipt):
        if one and one != "-" and Path(one).resolve() == (output / f"{found.stem}.ipynb").resolve():
            options.receipt_file = None if one == options.receipt else options.receipt_file  # it is not written there
            raise ConfigurationError(
                UsageCode.PLACE_UNFIT, f"the executed notebook would replace {one}", setting="--output"
            )
    for what, place in (("report", options.report), ("receipt", options.receipt)):
        if place and Path(place).resolve().is_relative_to((output / FILES).resolve()):
            options.receipt_file = None if place == options.receipt else options.receipt_file
            raise ConfigurationError(
                UsageCode.PLACE_UNFIT, f"the {what} lies where cells choose the names of files", setting=f"--{what}"
            )
    # In the folder that the notebook came in, a link of these names may lie ready: it is not followed.
    with usable(UsageCode.PLACE_UNFIT, f"{output} cannot be made", setting="--output"):
        folder, files = open_folder(output, make=True), open_folder(output / FILES, make=True)
    if reason := why_not(files):
        raise ConfigurationError(UsageCode.PLACE_UNFIT, f"{output} cannot be used: it {reason}", setting="--output")
    settings, by_risk = _settings(options, downloads=str(files.path))
    if by_risk:
        settings, report.by_risk = risk.chosen(settings, found)
        report.sandbox |= _about(settings)
    variation = None if options.variation is None else Variation.of(options.variation)
    return RunPlan(
        source=found,
        settings=settings if variation is None else variation.applied(settings),
        inputs=copied,
        install=tuple(options.install),
        variation=variation,
        notebook=OutputFile(output / f"{found.stem}.ipynb", folder, setting="--output"),
        files=files,
        total_seconds=total,
        allow_errors=options.allow_errors,
        fail_on=options.fail_on_policy,
    )


def _settings(options: argparse.Namespace, **more: str) -> tuple[Settings, bool]:
    """Return the settings of a run, and whether its engine is still to be chosen, by what the code looks like."""
    values = many.settings_given(options)
    if "downloads" in values:
        raise ConfigurationError(
            UsageCode.NOT_TOGETHER, "a run copies what cells make to its output folder", setting="--output"
        )
    if options.timeout is not None:
        if "cell_timeout" in values:
            raise ConfigurationError(
                UsageCode.NOT_TOGETHER,
                "--timeout and --cell-timeout are the same: give one",
                setting="--timeout",
            )
        values["cell_timeout"] = options.timeout
    files = {name: value for name, value in from_files_for_all().items() if name != "downloads"}
    found = merged(files, values) | more
    by_risk = found.get("engine") == "by-risk"
    if by_risk:
        del found["engine"]  # until the code is known
        if found.get("runtime") is not None:
            raise ConfigurationError(
                UsageCode.NOT_TOGETHER, "engine by-risk has runtimes of its own", setting="runtime"
            )
    return resolve(found), by_risk


# --- what the report says of all runs --------------------------------------------------------------------------------


def _new_report(options: argparse.Namespace) -> RunReport:
    sandbox = {"session": None, "total_seconds": None, "fail_on_policy": options.fail_on_policy, **_about(Settings())}
    versions: dict[str, Any] = {
        "sandbox_kernel": __version__,
        "python": platform.python_version(),
        "nbclient": _version("nbclient"),
        "nbformat": _version("nbformat"),
        "sandbox_python": None,
        "sandbox_ipython": None,
    }
    source = {"name": options.source, "kind": None, "sha256": None, "parameters": {}}
    return RunReport(source=source, sandbox=sandbox, versions=versions)


def _about(settings: Settings) -> dict[str, Any]:
    about = {name: getattr(settings, name) for name in ("engine", "image", "runtime", "outputs")}
    return about | {"screen": settings.get("screen", "off"), "limits": dataclasses.asdict(settings.limits)}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


# --- signals ---------------------------------------------------------------------------------------------------------

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOP_SECONDS = 15.0
"""How long a run that is being stopped may take to end its sandbox and write what it has."""


class Stoppable(Protocol):
    """A run."""

    found: list[End]

    async def run(self) -> None: ...
    def stop(self, number: int, name: str) -> None: ...
    def finish(self) -> None: ...


class Stopped(BaseException):
    """A signal came while no cell could run."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


class Stopper:
    """Ends a run at the first signal, in order, and at the second at once.

    Before there is a loop, a signal is heard where the command waits for somebody. Elsewhere it is kept until then:
    an exception in the middle of an import makes extension modules crash that do not expect one.
    """

    def __init__(self, close: Callable[[End], int]) -> None:
        """`close` writes the report with that end and returns the exit code."""
        self.closing = False
        """Whether the run is over, and only its report is to be written."""
        self._close = close
        self._loop: asyncio.AbstractEventLoop | None = None
        self._run: Stoppable | None = None
        self._stopping = asyncio.Event()
        self._waiting = False
        self._kept: int | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Surround a step that may be broken off anywhere. Raises `Stopped` for a signal before it, and within."""
        self._waiting = True
        try:
            if self._kept is not None:
                raise Stopped(self._kept)
            yield
        finally:
            self._waiting = False

    def heard(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop, signal.Signals(number))
        elif self._waiting or (self._kept is not None and not self.closing):
            raise Stopped(number)
        else:
            self._kept = number

    async def until_stopped(self, run: Stoppable) -> None:
        """Run to the end, or until a signal; bounded from then on. Raises `Stopped` for a signal that came before."""
        self._run, self._loop = run, asyncio.get_running_loop()
        if self._kept is not None:
            self._loop = None
            raise Stopped(self._kept)
        task = asyncio.create_task(run.run())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=STOP_SECONDS)
        if not task.done():
            self._hurry(run)
        stopping.cancel()
        self._loop, self.closing = None, True
        if not task.cancelled():
            task.result()

    def _stop(self, number: signal.Signals) -> None:
        if self._run is None:
            return
        if self._stopping.is_set():
            self._hurry(self._run)
        self._run.stop(number, number.name)
        self._stopping.set()

    def _hurry(self, run: Stoppable) -> None:
        """End this process now; the sandbox goes with its connection to it."""
        with suppress(SandboxError):
            run.finish()
        code = self._close(decide(run.found))
        sys.stdout.flush()
        os._exit(code)


@contextmanager
def signals(stopper: Stopper) -> Iterator[None]:
    """Have the stopper hear the signals that end a run; those that are ignored (nohup) stay ignored."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    wanted = [number for number in SIGNALS if before[number] is not signal.SIG_IGN]
    for number in wanted:
        signal.signal(number, stopper.heard)
    try:
        yield
    finally:
        for number in wanted:
            signal.signal(number, before[number])
