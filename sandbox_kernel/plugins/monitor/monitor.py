"""The monitor of one session: what is noticed, how often, and what comes of it. None of it is the wall.

It hears the events of the audit, sees files pass, and looks now and then at the sandbox's processes, as the machine's
kernel shows them. A finding goes to the audit; an alert also to the person and to the operator; and an end to the
kernel, with all its processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ...core.codes import Code, EndCode, MessageCode, Survived
from ...core.errors import BehaviourBlocked, SandboxError
from ...core.events import (
    ABSENT,
    CallsWatched,
    CallTried,
    ConnectionEnded,
    FileNotTransferred,
    KernelEnded,
    KernelFlooded,
    KernelReplaced,
    MessageDropped,
    OutputRemoved,
    RequestCondemned,
    RuleMet,
    SandboxEnded,
    SessionEvent,
)
from ...core.model import HOME, SCRATCH, ProcessSample, Settings
from ...core.tasks import log_defect
from ...files.scratch_files import entries
from ..api import SessionHandle, SessionService
from .alerts import Alerts
from .behaviour_rules import Monitoring, MonitorRule, RuleFinding, Signal, code_of
from .call_trace import CallTrace
from .codes import MonitorCode
from .ransomware import RansomwareDetector
from .settings import MonitorSettings

_GARBAGE = frozenset(
    (EndCode.NOT_FRAMES, EndCode.INTRODUCED_TWICE, EndCode.PARKED_AND_SPOKE, EndCode.NOT_ATTESTED, EndCode.NOT_READING)
)
_ASKED_FOR = frozenset((EndCode.KERNEL_RESTARTED, EndCode.BEHAVIOUR_BLOCKED))
"""Ends of kernels that somebody wanted; the monitor's own are not counted against the code again."""
METADATA_SERVICE = "metadata-service"
"""The code of a connection to one; it is another plugin's."""
MAX_HOST = 60


def heard(event: SessionEvent) -> Iterator[Signal]:
    """Yield what an event counts for. What is of no account yields nothing."""
    match event:
        case ConnectionEnded(code=code) if code.severity == "violation":
            host = code.code if event.host in {ABSENT, ""} else event.host
            what = ascii(host[:MAX_HOST]).strip("'\"")
            yield Signal(MonitorCode.MANY_DENIALS, 1, what)
            if code.code == METADATA_SERVICE:
                yield Signal(MonitorCode.METADATA_SOUGHT, 1, what)
        case OutputRemoved(code=code) if code.severity == "violation":
            yield Signal(MonitorCode.REMOVED_OUTPUTS, 1, code.code)
        # What a kernel that is on its way out still says is no forgery.
        case MessageDropped(code=code) if code.severity == "violation" and code is not MessageCode.NO_KERNEL_READY:
            yield Signal(MonitorCode.FORGED_MESSAGES, 1, code.code)
        case FileNotTransferred(op="download", code=code) if code.severity == "violation":
            yield Signal(MonitorCode.UNFIT_FILES, 1, code.code)
        case RequestCondemned(code=Code() as code) | KernelFlooded(code=Code() as code) if code.severity == "limit":
            yield Signal(MonitorCode.MANY_LIMITS, 1, code.code)
        case KernelEnded(code=code) if code not in _ASKED_FOR:
            yield Signal(MonitorCode.MANY_KERNELS, 1, code.code)
            memory = code is EndCode.OUT_OF_MEMORY
            yield Signal(MonitorCode.MANY_LIMITS if memory else MonitorCode.KERNELS_DIE_YOUNG, 1, code.code)
        case KernelReplaced():
            yield Signal(MonitorCode.MANY_KERNELS, 1, event.name)
        case SandboxEnded(code=code) if code in _GARBAGE:
            yield Signal(MonitorCode.WIRE_GARBAGE, 1, code.code)
        case SandboxEnded(code=EndCode.NO_KERNEL_STARTS as code):
            yield Signal(MonitorCode.KERNELS_DIE_YOUNG, 1, code.code)
        case SandboxEnded(code=EndCode.OUT_OF_MEMORY as code):
            yield Signal(MonitorCode.MANY_LIMITS, 1, code.code)
        case CallsWatched(watching=False):
            yield Signal(MonitorCode.NOT_WATCHED, 1, "the calls that it refuses")
        case CallTried(call="secret"):
            yield Signal(MonitorCode.SECRET_SOUGHT, event.count, f"{event.target}, by {event.program}")
        case CallTried(call=call) if call not in {"connect", "program"}:
            yield Signal(MonitorCode.ESCAPE_TRIED, event.count, f"{call}, by {event.program}")


WRITABLE = ("/memfd:", f"{SCRATCH}/", f"{HOME}/", "/tmp/", "/dev/shm/")  # noqa: S108 (of the sandbox)
"""How the paths of files begin that cells can make: the kernel names a file in memory so."""
UNSEEN_LOOKS = 2
"""Samples without a process, one after another, that make it unseen: a kernel may be on its way in one of them."""
MAX_KNOWN = 1000
MAX_SHOWN = 3


class SeenPrograms:
    """What the samples of one sandbox have shown."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()
        self._unseen = 0
        self._seconds: dict[str, float] = {}
        self.busiest = ""
        """The programs that used most of the processors between the last two samples; safe to print."""

    def look(self, programs: Sequence[ProcessSample] | None) -> Iterator[Signal]:
        """Yield what is new in a sample; None is one in which the host sees no process."""
        if programs is None:
            self._unseen += 1
            self.busiest = ""
            if self._unseen == UNSEEN_LOOKS:
                yield Signal(MonitorCode.NOT_WATCHED, 1, "its processes")
            return
        self._unseen = 0
        self._compare(programs)
        for program in programs:
            file = next((file for file in program.files if file.startswith(WRITABLE)), None)
            if file is not None and (program.identity, file) not in self._known:
                if len(self._known) >= MAX_KNOWN:
                    self._known.clear()
                self._known.add((program.identity, file))
                yield Signal(MonitorCode.DROPPED_PROGRAM, 1, file)

    def _compare(self, programs: Sequence[ProcessSample]) -> None:
        used = [(one.cpu_seconds - self._seconds.get(one.identity, 0.0), one.name) for one in programs]
        self._seconds = {one.identity: one.cpu_seconds for one in programs}
        most = sorted((pair for pair in used if pair[0] > 0), reverse=True)[:MAX_SHOWN]
        self.busiest = ", ".join(name for _, name in most)


class Targets:
    """Which addresses and ports a sandbox has connected to lately: each counts once in the time of its rule."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._at: dict[str, float] = {}

    def look(self, event: CallTried, now: float) -> Iterator[Signal]:
        """Yield what is new in a connection; what could not be read may be another one each time."""
        target = event.target
        if target == "?":
            yield Signal(MonitorCode.PORT_SCAN, event.count, "addresses that could not be read")
        elif target not in self._at or self._at[target] <= now - self._seconds:
            if len(self._at) >= MAX_KNOWN:
                self._at.clear()
            self._at[target] = now
            yield Signal(MonitorCode.PORT_SCAN, 1, f"{target}, by {event.program}")

    def forget(self) -> None:
        """Count each anew: the rule was met."""
        self._at.clear()


MAX_KEPT = 256
"""Moments of one rule that are kept; nearer ones are taken together, and none is forgotten early."""
MAX_FINDINGS = 100
"""Of one rule in a session that are news; what comes after is one more of the same."""


class _Window:
    """One rule, and what came of its signal lately."""

    def __init__(self, rule: MonitorRule) -> None:
        self.rule = rule
        self._came: deque[tuple[float, int]] = deque()
        self._sum = 0
        self._quiet_until = float("-inf")
        self._findings = 0

    def take(self, signal: Signal, now: float) -> RuleFinding | None:
        while self._came and self._came[0][0] <= now - self.rule.seconds:
            self._sum -= self._came.popleft()[1]
        if self._came and len(self._came) >= MAX_KEPT:
            self._came[-1] = (now, self._came[-1][1] + signal.weight)
        else:
            self._came.append((now, signal.weight))
        self._sum += signal.weight
        if self._sum < self.rule.count:
            return None
        count, self._sum = self._sum, 0
        self._came.clear()
        quiet = now < self._quiet_until or self._findings >= MAX_FINDINGS
        if not quiet:
            self._quiet_until = now + self.rule.seconds
            self._findings += 1
        return RuleFinding(code_of(self.rule), self.rule.level, count, self.rule.seconds, signal.what, quiet)


class Windows:
    """All rules of a session. A rule that was met is quiet for its seconds: what meets it then is no news."""

    def __init__(self, monitoring: Monitoring) -> None:
        self._windows = {code_of(rule): _Window(rule) for rule in monitoring.rules}

    def take(self, signal: Signal, now: float) -> RuleFinding | None:
        """Count a signal; return what is to be said of it, if its rule is met now."""
        window = self._windows.get(signal.code)
        return None if window is None else window.take(signal, now)

    def rule(self, code: object) -> MonitorRule | None:
        """Return the rule of a code, None if it is off."""
        return next((window.rule for known, window in self._windows.items() if known is code), None)


LOOKS = 6
"""How many looks there are in the time of a rule, so that a stretch is not missed by much."""
SHORTEST, LONGEST = 0.1, 15.0
"""Seconds from one look to the next."""


def look_every(seconds: float) -> float:
    """Return the seconds from one look to the next, for a rule of so many."""
    return max(SHORTEST, min(LONGEST, seconds / LOOKS))


class Pulse:
    """What the processors did since a stretch of the same kind began: with a cell, or without one."""

    def __init__(self, in_silence: MonitorRule | None, without_cell: MonitorRule | None, cpus: float) -> None:
        """Either rule may be off. `cpus` is how many processors may be busy at most."""
        self._rules = {True: in_silence, False: without_cell}
        self._cpus = cpus
        self._last: tuple[float, float] | None = None
        self._began: float | None = None
        self._kind: tuple[bool, int] | None = None

    @property
    def interval(self) -> float | None:
        """Seconds from one look to the next; None if nobody has to look."""
        times = [rule.seconds for rule in self._rules.values() if rule is not None]
        return look_every(min(times)) if times else None

    def look(self, now: float, cpu_seconds: float | None, *, running: bool, shown: int) -> Signal | None:
        """Take the processor time used until now; None if it is not known. `shown` counts what cells showed.

        Returns a signal once they were busy for as long as the rule says, and then begins anew.
        """
        last, self._last = self._last, None if cpu_seconds is None else (now, cpu_seconds)
        kind, rule = (running, shown), self._rules[running]
        if last is None or cpu_seconds is None or rule is None or now <= last[0]:
            self._began, self._kind = None, kind
            return None
        percent = 100 * (cpu_seconds - last[1]) / (now - last[0]) / self._cpus
        if percent < rule.count or kind != self._kind:
            self._began, self._kind = None, kind
            return None
        self._began = last[0] if self._began is None else self._began
        if now - self._began < rule.seconds:
            return None
        self._began = None
        code = MonitorCode.BUSY_IN_SILENCE if running else MonitorCode.BUSY_WITHOUT_CELL
        return Signal(code, rule.count, f"{min(percent, 100):.0f} % at the last look")


UNSEEN = frozenset({"runsc"})
"""Runtimes whose processes on this machine are not those of the cells: gVisor's own."""
LOOK_SECONDS = 2.0
"""Between two looks at the programs, at most: one that ends sooner may not be seen."""
SCHEMA = "urn:sandbox-kernel:alert:1"


class AlertLost(SessionEvent):
    """An alert could not be sent."""

    name = "alert_lost"
    reason: str


class Monitor(SessionService):
    """See the module: an `EventListener` and a `TransferListener`."""

    def __init__(
        self,
        settings: Settings,
        session: SessionHandle,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        monitoring = settings.of(MonitorSettings).monitor
        monitoring = monitoring or Monitoring(())  # where calls are only written down
        self._settings = settings
        self._session = session
        self._clock = clock
        self._windows = windows = Windows(monitoring)
        self._pulse = Pulse(
            windows.rule(MonitorCode.BUSY_IN_SILENCE),
            windows.rule(MonitorCode.BUSY_WITHOUT_CELL),
            settings.limits.cpus,
        )
        crowded, dropped = windows.rule(MonitorCode.PROCESSES_REFUSED), windows.rule(MonitorCode.DROPPED_PROGRAM)
        times = [
            self._pulse.interval,
            None if crowded is None else look_every(crowded.seconds),
            None if dropped is None else min(LOOK_SECONDS, look_every(dropped.seconds)),
        ]
        self._interval = min((seconds for seconds in times if seconds is not None), default=None)
        self._programs = SeenPrograms()
        self._pulse_at = float("-inf")
        self._refused: int | None = None
        """Processes that were refused until the last look; None before the first at a sandbox that was taken over."""
        self._ransomware = RansomwareDetector()
        self._next_look: asyncio.TimerHandle | None = None
        self._look_under_way: asyncio.Task[object] | None = None
        scan = windows.rule(MonitorCode.PORT_SCAN)
        self._targets = None if scan is None else Targets(scan.seconds)
        trace = settings.of(MonitorSettings).trace
        self._trace = None if trace is None else CallTrace(trace)
        self._alerts = Alerts.of(settings, lambda text: session.emit(AlertLost(reason=text)))
        self._charged: dict[MonitorCode, frozenset[str]] = {}
        """Of each rule, the cells that ran when it was met last: each has it in its report once."""

    # --- what it is told of ---

    def hear(self, event: SessionEvent) -> None:
        """Take an event."""
        if isinstance(event, CallTried):
            try:
                if self._trace is not None:
                    self._trace.write(event, self._session)
            finally:  # a disk that is full, which files of cells may have filled, disarms no rule
                if event.call == "connect" and self._targets is not None:
                    self.take(self._targets.look(event, self._clock()))
                self.take(heard(event))
            return
        self.take(heard(event))

    def transferred(
        self, op: str, data: bytes, fields: Mapping[str, Any], reply: Mapping[str, Any], answer: bytes
    ) -> None:
        """Take a question about files and its answer; what the sandbox says in it may be anything."""
        try:
            beginning = data if op == "file.write" else answer
            if fields.get("offset", 0) == 0:
                self._look_at(op, str(fields.get("path", "")), beginning, reply)
        except Exception as defect:
            log_defect("what the monitor saw pass", defect)

    def _look_at(self, op: str, path: str, beginning: bytes, reply: Mapping[str, Any]) -> None:
        detector, more = self._ransomware, 0
        if op == "file.write":
            more = detector.given(path, beginning)
        elif op == "file.read":
            more = detector.taken(path, beginning)
        elif op == "file.list" and reply.get("complete") is True:
            more = detector.listed({name for name, _ in entries(dict(reply))})
        elif op == "file.remove":
            more = detector.removed(path)
        if more:
            self.take((Signal(MonitorCode.SCRAMBLED_INPUTS, more),))

    def begin(self, *, afresh: bool) -> None:
        """Look at the processes from now on; idempotent. `afresh`: at a sandbox that holds nothing yet."""
        if afresh:
            self._ransomware, self._programs = RansomwareDetector(), SeenPrograms()
            self._refused = 0
        if self._next_look is None:
            self._wait_for_a_look()

    def take(self, signals: Iterable[Signal]) -> None:
        """Count signals, and act on each rule that is met."""
        for signal in signals:
            finding = self._windows.take(signal, self._clock())
            if finding is not None:
                self._act(finding)

    async def close(self) -> None:
        """Let what is to be sent go; bounded."""
        self.abandon()
        if self._alerts is not None:
            await self._alerts.close()

    def abandon(self) -> None:
        """End without a loop; what is to be sent goes on being sent, once, as long as the process lives."""
        if self._next_look is not None:
            self._next_look.cancel()
        if self._trace is not None:
            self._trace.close()
        if self._alerts is not None:
            self._alerts.end()

    # --- what comes of it ---

    def _act(self, finding: RuleFinding) -> None:
        note = finding.note
        if self._targets is not None and note.code is MonitorCode.PORT_SCAN:
            self._targets.forget()
        running = frozenset(cell.id for cell in self._session.running_cells() if cell.sent)
        before, self._charged[finding.code] = self._charged.get(finding.code, frozenset()), running
        if finding.quiet and running <= before:
            return
        self._session.emit(
            RuleMet(
                code=note.code,
                level=finding.level,
                reason=note.text,
                count=finding.amount,
                seconds=finding.seconds,
                quiet=finding.quiet or ABSENT,
            )
        )
        if finding.level == "note":
            return
        if not finding.quiet:
            self._session.say(f"{'ended' if finding.level == 'kill' else 'alert'}: {note.text}")
            if self._alerts is not None:
                self._alerts.send(self._document(finding))
        if finding.level == "kill" and self._session.is_open:
            self._session.block(BehaviourBlocked(note, setting="monitor", kept=Survived.FILES))

    def _document(self, finding: RuleFinding) -> dict[str, object]:
        """Return an alert for programs. Nothing in it is a cell's own words, but for names in `reason`."""
        note, settings = finding.note, self._settings
        return {
            "schema": SCHEMA,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "session": self._session.id,
            "display_name": settings.display_name,
            "image": settings.image,
            "runtime": settings.runtime or "default",
            "code": note.code.code,
            "severity": note.code.severity,
            "level": finding.level,
            "reason": note.text,
            "count": finding.amount,
            "seconds": finding.seconds,
            "remedy": note.code.remedy,
        }

    def _running(self) -> tuple[bool, int]:
        """Return whether a cell runs that waits for nobody, and how many messages those that run have sent."""
        cells = [cell for cell in self._session.running_cells() if cell.sent]
        shown = sum(cell.messages for cell in cells)
        return any(not cell.awaiting_input for cell in cells), shown

    def _wait_for_a_look(self) -> None:
        if self._interval is not None and not self._session.is_closed:
            self._next_look = asyncio.get_running_loop().call_later(self._interval, self._begin_look)

    def _begin_look(self) -> None:
        self._wait_for_a_look()
        if self._session.is_open and (self._look_under_way is None or self._look_under_way.done()):
            self._look_under_way = self._session.start(self._look(), "looking at the processes of a sandbox")

    async def _look(self) -> None:
        try:
            sample = await self._session.sample()
        except SandboxError:
            return
        self._count_refused(sample.refused_processes)
        self.take(self._programs.look(None if self._settings.runtime in UNSEEN else sample.programs))
        now = self._clock()
        if self._pulse.interval is not None and now >= self._pulse_at:
            self._pulse_at = now + self._pulse.interval - (self._interval or 0.0) / 2
            await self._look_at_processors(sample.cpu_seconds)

    async def _look_at_processors(self, used: float | None) -> None:
        """See how busy they were; `used` is what the host's kernel has counted, else the sandbox's word has to do."""
        if used is None:
            with contextlib.suppress(SandboxError):
                used = await self._session.cpu_seconds()
        running, shown = self._running()
        signal = self._pulse.look(self._clock(), used, running=running, shown=shown)
        if signal is not None:
            what = ": ".join(filter(None, [signal.what, self._programs.busiest]))
            self.take((signal._replace(what=what),))

    def _count_refused(self, refused: int | None) -> None:
        before, self._refused = self._refused, refused if refused is not None else self._refused
        if refused is not None and before is not None and refused > before:
            self.take((Signal(MonitorCode.PROCESSES_REFUSED, refused - before),))
