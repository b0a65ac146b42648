"""One run: a sandbox, the inputs, the cells one after another, and at every moment a notebook and a report of it.

Whatever happens ends up in the report: nothing here raises but a defect.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass

from ...core.behaviour import THRESHOLD, Observation
from ...core.codes import Survived
from ...core.errors import ConfigurationError, FileRefused, SandboxError
from ...core.events import FileTransferred, OutputRemoved, SandboxAttested, SessionEvent
from ...core.model import Audience, Message, Settings
from ...files.host_paths import Folder
from ...policy.safe_text import PrintedStream
from ...sdk.client import AsyncSandbox, handle_of
from ...sdk.execution import Execution
from .codes import BatchCode
from .executed_notebook import Outputs, sizes
from .exit_codes import End, Kind, kind_of, of_error
from .input_files import InputFile, Inputs, produced
from .output_stream import OutputStream
from .policy_events import Events, FailOn, classify
from .progress import RunProgress
from .run_report import CellRecord, NetworkRecord, OutputFile, RunFailure, RunReport, now
from .source_notebook import SourceNotebook, is_run
from .variations import MAX_ACTIONS, TOLD, Variation, actions

FILES = "files"
"""The folder within the output folder that holds what cells made: apart from notebook and report, which are ours."""
SAVE_SHARE = 20
"""The notebook is saved after a cell if the last save took less than this part of the time since then."""
NEVER = 0.0, 0.0
TICK_SECONDS = 0.5
MAX_OWN = 1 << 20
SCRIPT = "import sys; sys.argv = [{name!r}]; del sys; __file__ = '/mnt/data/' + {name!r}"
"""What a script expects to find, in place of the kernel's own."""
OWN_SECONDS = 60.0
"""How long a cell of this module's own may take."""

AUDIENCE = Audience(bring="Bring files in with --input FILE, or --input FOLDER/. for the contents of a folder.")

STATUS: dict[Kind, str] = {"code failed": "failed", "limit reached": "limit", "policy broken": "failed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What is to be run and how; everything in here was checked."""

    source: SourceNotebook
    settings: Settings
    inputs: Inputs
    notebook: OutputFile
    """Where the executed notebook is written."""
    files: Folder
    """The folder that receives what cells make: opened when it was checked, and this one whatever its name means."""
    install: tuple[str, ...] = ()
    """Packages that are installed before the first cell."""
    variation: Variation | None = None
    """The circumstances that a comparison asks for."""
    total_seconds: float | None = None
    allow_errors: bool = False
    fail_on: FailOn = "violation"


class Run:
    """See the module. `report` is filled as the run goes on."""

    def __init__(
        self, plan: RunPlan, report: RunReport, progress: RunProgress, streams: tuple[OutputStream, OutputStream] | None
    ) -> None:
        """`streams` take what the cells print (stdout, stderr), as it comes; None keeps it in the notebook."""
        self.plan = plan
        self.report = report
        self.progress = progress
        self.found: list[End] = []
        self._streams = streams
        self._shown = PrintedStream()
        self._cell: CellRecord | None = None
        self._copied: set[str] = set()
        self._exited = False
        self._began = time.monotonic()
        self._saved = NEVER
        self.outputs = Outputs(plan.source.notebook)
        report.cells = _records(plan.source)
        settings = plan.settings
        report.threshold = settings.get("screen_threshold", THRESHOLD)
        if settings.has_way_out:
            secrets = tuple(secret.name for secret in settings.get("secrets", ()))
            report.network = NetworkRecord(settings.get("network", ()), secrets)

    async def run(self) -> None:
        """Run to the end, or to what stops it."""
        ticker = asyncio.create_task(self._tick())
        try:
            await self._in_sandbox()
        except SandboxError as error:
            self._note(of_error(error, self._cell.number if self._cell is not None else None))
        finally:
            ticker.cancel()
            self._judge(self.report.events)
            self.finish()

    def stop(self, number: int, name: str) -> None:
        """Note that a signal stops the run."""
        reason, cell = f"stopped by {name}", self._cell.number if self._cell is not None else None
        if self._cell is not None:
            self._cell.reason = reason
        self._note(End(kind="stopped", reason=reason, cell=cell, signal=number))

    def finish(self) -> None:
        """Write the notebook with what there is, and note the files; may be called again."""
        self.save()
        self.report.notebook = str(self.plan.notebook.path)
        self.report.output = str(self.plan.files.path)
        self.report.files = produced(self.plan.files, self._copied)

    def save(self) -> None:
        """Write the executed notebook as it is now.

        Raises `ConfigurationError` if that cannot be done the first time; later it is the machine's fault, and noted.
        """
        began = time.monotonic()
        try:
            self.report.notebook_sha256 = self.plan.notebook.write(self.outputs.text())
        except ConfigurationError as error:
            if self._saved == NEVER:
                raise
            self._note(End(kind="platform failed", reason=str(error)))
        self._saved = time.monotonic(), time.monotonic() - began

    # --- the sandbox and its cells ---

    async def _in_sandbox(self) -> None:
        sandbox = AsyncSandbox(self.plan.settings)
        session = handle_of(sandbox).session
        session.hints_are_for(AUDIENCE)
        session.hold_downloads(self.plan.files)
        session.listen(self)
        try:
            try:
                async with asyncio.timeout(self._left()):
                    await sandbox.start()
                    self._describe(sandbox)
                    await self._put_inputs(sandbox)
                    if self.plan.install:
                        await sandbox.install(*self.plan.install, progress=self.progress.say)
                    if (variation := self.plan.variation) is not None:
                        self.report.variation = {"as": variation.word, "actions": []}
                        variation.check_clock(await self._own(sandbox, variation.begin()))
                    if self.plan.source.kind == "script":
                        await self._own(sandbox, SCRIPT.format(name=f"{self.plan.source.stem}.py"))
            except TimeoutError:
                self._note(self._late())
                return
            self.progress.say(f"sandbox ready after {time.monotonic() - self._began:.1f} s")
            for record in self.report.cells:
                if record.status != "skipped" and not await self._run_cell(sandbox, record):
                    break
        finally:
            await sandbox.kill()
            if (head := session.record_head) is not None:
                self.report.audit = {"session": session.id, "head": head}
            if self.report.network is not None:
                self.report.network.usage = sandbox.network_usage

    async def _own(self, sandbox: AsyncSandbox, code: str) -> str:
        """Return what a cell of our own prints; it may be anything, of which the end may be missing."""
        execution = await handle_of(sandbox).run_own(code, reads="", timeout=OWN_SECONDS)
        return "".join(execution.logs.stdout)[:MAX_OWN]

    async def _note_actions(self, sandbox: AsyncSandbox, record: CellRecord) -> None:
        if self.report.variation is not None and not _is_gone(record):
            known = self.report.variation["actions"]
            said = await self._own(sandbox, TOLD)
            known += [one for one in actions(said, self.plan.settings.limits) if one not in known]
            del known[MAX_ACTIONS:]

    def _describe(self, sandbox: AsyncSandbox) -> None:
        self.report.sandbox["session"] = sandbox.id
        self.report.versions["sandbox_python"] = sandbox.info.python
        self.report.versions["sandbox_ipython"] = handle_of(sandbox).session.kernel_info.get("implementation_version")

    async def _put_inputs(self, sandbox: AsyncSandbox) -> None:
        total, before = sum(item.file.stamp.size for item in self.plan.inputs.files), 0
        for item in self.plan.inputs.files:
            reader = InputFile(item, heard=lambda count, before=before: self.progress.copied(before + count, total))  # type: ignore[misc]
            try:
                with reader.opened() as file:
                    await sandbox.files.write(item.path, file)
            except FileRefused as error:  # what the user named is no fault of the notebook's
                message = f"the input {item.path} cannot go in: {error.message}"
                raise ConfigurationError(
                    error.code, message, limit=error.limit, value=error.value, setting=error.setting
                ) from None
            self.report.inputs.append(reader.row())
            before += item.file.stamp.size
        self.progress.clear()

    async def _run_cell(self, sandbox: AsyncSandbox, record: CellRecord) -> bool:
        """Run one cell; return whether the next one is to run."""
        left = self._left()
        if left is not None and left <= 0:
            self._note(self._late())
            return False
        self._cell = record
        self.outputs.begin(record.index)
        self.progress.begin(record.number, record.source)
        record.started, began = now(), time.monotonic()
        record.status = "stopped"  # until it has ended
        try:
            own = left if left is not None and left < sandbox.settings.limits.cell_timeout else None
            sandbox.notebook_cell = f"{record.index}"
            execution = await sandbox.run_code(record.source, timeout=own, on_message=self._take)
            self._ended(record, execution)
        except SandboxError as error:
            record.status, record.reason = "sandbox", str(error)
            record.error = RunFailure(
                error.name, str(error), error.fault, kept=error.kept, code=error.code.code, by_host=True
            )
            raise
        finally:
            record.seconds = time.monotonic() - began
            record.execution_count = self.outputs.end()
            record.outputs = sizes(self.plan.source.notebook.cells[record.index].outputs)
            self.progress.end(record.status, record.seconds, record.reason or "")
        await self._note_actions(sandbox, record)
        self._judge(record.events, record)
        self._save_if_cheap()
        self._cell = None
        return self._goes_on(record)

    def _ended(self, record: CellRecord, execution: Execution) -> None:
        """Note how a cell has ended and what that means for the run."""
        record.cpu_seconds = execution.usage.cpu_seconds
        record.memory_peak_bytes = execution.usage.memory_peak_bytes
        record.findings, record.behaviour = execution.findings, execution.behaviour.of_cell(record.number)
        record.status = "ok"
        error = execution.error
        if error is None:
            return
        tags = self.plan.source.notebook.cells[record.index].metadata.get("tags", ())
        expected = self.plan.source.kind != "script" and (self.plan.allow_errors or "raises-exception" in tags)
        if not expected and _is_exit(error.name, error.value, error.from_sandbox):
            self._exited = True
            self._note(End(kind="fine", reason=f"the {self.plan.source.kind} ended itself", cell=record.number))
            return
        kind: Kind = kind_of(error.name, error.fault) if error.from_sandbox else "code failed"
        end = End(kind=kind, reason=f"{error.name}: {error.value}", cell=record.number, why=error.code)
        left = self._left()
        if error.from_sandbox and error.name == "CellTimeout" and left is not None and left <= 0:
            end = self._late(record.number)
        record.status, record.reason = STATUS.get(kind, "sandbox"), end.reason
        record.error = RunFailure(
            error.name, error.value, error.fault, error.limit, error.reached, error.survived, setting=error.setting
        )
        record.error.by_host, record.error.kept, record.error.code = error.from_sandbox, error.kept, error.code
        if not (kind == "code failed" and "raises-exception" in tags):
            self._note(end)

    def _goes_on(self, record: CellRecord) -> bool:
        error = record.error
        if error is None:
            return not self._exited
        gone = _is_gone(record)
        tags = self.plan.source.notebook.cells[record.index].metadata.get("tags", ())
        return not gone and (self.plan.allow_errors or (record.status == "failed" and "raises-exception" in tags))

    async def print_again(self, notebook: str) -> None:
        """Print what the cells of an executed notebook had printed."""
        cells = (cell for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code")
        for number, cell in enumerate(cells, start=1):
            for one in cell["outputs"]:
                if one["output_type"] == "stream":
                    await self._print(str(one["name"]), "".join(one["text"]), str(number))

    async def _print(self, name: str, text: str, cell: str) -> None:
        if self._streams is not None:
            await self._streams[name == "stderr"].write(self._shown.feed(name, text, cell))

    # --- what is heard of the session ---

    async def _take(self, message: Message) -> None:
        if problem := self.outputs.take(message):
            self.hear(OutputRemoved(type=message.type, code=problem.code, reason=problem.text))
        if message.type == "stream":
            # The next cell waits for a reader that pauses; the clock of this one does not.
            cell = str(self._cell and self._cell.number)
            await self._print(str(message.content.get("name")), str(message.content["text"]), cell)

    def hear(self, event: SessionEvent) -> None:
        """Take an event of the session."""
        if isinstance(event, FileTransferred) and event.op == "download":
            self._copied.add(event.path)
        elif isinstance(event, SandboxAttested):
            self.report.attested = event.line()
        elif found := classify(event):
            (self._cell.events if self._cell is not None else self.report.events).add(found)

    def _judge(self, events: Events, record: CellRecord | None = None) -> None:
        """Note what the events of a cell, or of no cell, mean for the run."""
        broken, limit = events.worst(self.plan.fail_on), events.limit()
        found: tuple[tuple[Kind, Observation | None], ...] = (("policy broken", broken), ("limit reached", limit))
        for kind, event in found:
            if event is None:
                continue
            cell = record.number if record is not None else None
            self._note(End(kind=kind, reason=event.reason, cell=cell, why=event.code.code))
            self.progress.say(f"      {event.severity}: {event.reason}")
            if record is not None:
                record.reason = record.reason or event.reason

    # --- small things ---

    def _note(self, end: End) -> None:
        self.found.append(end)

    def _left(self) -> float | None:
        """Return the seconds that are left of the run's time, None without such a limit."""
        total = self.plan.total_seconds
        return None if total is None else total - (time.monotonic() - self._began)

    def _late(self, cell: int | None = None) -> End:
        limit = f"{self.plan.total_seconds:g} s"
        code = BatchCode.RUN_TIMEOUT
        reason = f"{code.text}. Limit: {limit}. Setting to change: --total-timeout."
        return End(kind="limit reached", reason=reason, cell=cell, why=code.code)

    def _save_if_cheap(self) -> None:
        at, took = self._saved
        if time.monotonic() - at >= SAVE_SHARE * took:
            self.save()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.progress.tick()


def _is_gone(record: CellRecord) -> bool:
    """Return whether the cell took its sandbox along."""
    return record.status == "sandbox" or (record.error is not None and record.error.kept is Survived.NOTHING)


def _is_exit(name: str, value: str, by_host: bool) -> bool:
    """Return whether that is sys.exit() or sys.exit(0), which ends a script or a notebook well."""
    return name == "SystemExit" and not by_host and value in ("", "0", "None", "False")


def _records(source: SourceNotebook) -> list[CellRecord]:
    code = [(index, cell) for index, cell in enumerate(source.notebook.cells) if cell.cell_type == "code"]
    return [
        CellRecord(
            index=index,
            number=number,
            source=cell.source,
            status="not run" if is_run(cell) else "skipped",
            injected="injected-parameters" in cell.metadata.get("tags", ()),
        )
        for number, (index, cell) in enumerate(code, start=1)
    ]
