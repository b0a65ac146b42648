"""The traffic between front ends and one kernel: requests in, outputs out, a clock and a limit on each.

Every request ends with its reply and with idle, whatever died; whatever the kernel says passes the tables, the ledger,
the limits and the output policy, in that order, and leaves with a parent header that the host itself received. Knows
neither containers nor sockets: those are the two protocols below.
"""

from __future__ import annotations

import asyncio
import hashlib
import signal
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from ..container import wire
from ..core.errors import CellInterrupted, CellTimeout, KernelDied, OutputLimit, SandboxDied, SandboxError
from ..core.model import Limits, Message, format_bytes
from ..core.tasks import Tasks, noted_in
from ..policy import CellBudget, OutputPolicy, SessionBudget, Verdict, cut
from ..policy.plain import count
from . import protocol
from .delivery import Audit, Delivery, Front, Notes
from .hints import hint
from .ledger import Entry, Ledger, parent_of

PATIENCE_SECONDS = 10.0
"""How long a reply may wait for its idle, or idle for its reply, with nothing else heard of the request.

Idle comes behind the cell's displays: one of 2 GB takes 4 s from the kernel to the agent on a busy machine, and what
the agent then says of it must still find its cell. The front end waits for nothing meanwhile: it gets both together.
"""
FORGOTTEN_SECONDS = 0.3
"""The same after an interrupt: ipykernel never replies if that met it outside the cell's code."""
KILL_SECONDS = 3.0
"""How long a killed kernel may take to be seen dead, before its sandbox is ended."""

SMALL = 1 << 16
"""Bytes up to which what a kernel owes, a status or a reply, is charged to the session alone."""
REWRITES = frozenset({"clear_output", "error", "execute_result"})
"""What a cell may publish only while it runs."""

Hook = Callable[[], Awaitable[Notes]]


class Port(Protocol):
    """The way to the kernel."""

    ready: bool

    def touch(self) -> None: ...
    def transmit(self, kind: int, parts: list[bytes]) -> None: ...
    async def signal(self, number: int) -> None: ...
    async def kill_kernel(self) -> None: ...
    async def kill_sandbox(self, error: SandboxError) -> None: ...


class Traffic:
    """See the module; one for a session's whole life, over all its kernels and containers."""

    def __init__(
        self,
        limits: Limits,
        port: Port,
        front: Front,
        policy: OutputPolicy,
        audit: Audit,
        *,
        before_cell: Hook | None = None,
        after_cell: Hook | None = None,
        notices: Notes | None = None,
    ) -> None:
        self.limits = limits
        self.port = port
        self.front = front
        self.audit = audit
        self.before_cell = before_cell
        self.after_cell = after_cell
        self.ledger = Ledger()
        self.delivery = Delivery(front, policy, audit, notices if notices is not None else [])
        self._inputs: dict[str, Entry] = {}
        self._debugger_attached = False
        self._session_budget = SessionBudget(limits)
        self._dropped = CellBudget(limits)
        """What was sent and did not pass. That costs work too, so there is as little of it as of one cell's output."""
        self.kernel_worked = False
        """Whether this kernel took up a cell."""
        self._flooded = False
        self._pumping = self._pump_again = False
        self._kernel_verdict: SandboxError | None = None
        self._defect = noted_in(audit)
        self._tasks = Tasks(self._defect)

    # --- requests ---

    def submit(self, request: Message, client: bytes, seconds: float | None = None) -> None:
        """Take a request of a front end; it goes to the kernel when its turn comes. `seconds` is a shorter limit."""
        if request.channel == "stdin":
            self._input_reply(request, client)
            return
        entry = self.ledger.add(request, client)
        if entry is None:
            refused = Entry(request, client, "")
            error = SandboxDied("the request is refused: its id was used before, or too many requests are waiting")
            if refused.reply_type is not None:
                self.delivery.reply(refused, self.delivery.ours(refused, error))
            return
        entry.seconds = seconds
        try:
            if entry.is_comm:
                self.delivery.policy.observe(request)
            if request.type == "debug_request":
                self._watch_debugger(str(request.content.get("command", "")))
        except Exception as defect:
            self._defect(f"a {request.type}", defect)
            self._failed(entry, defect)
        self.pump()

    def pump(self) -> None:
        """Send what may be sent now."""
        self._pump_again = True
        if self._pumping:
            return  # what cannot be sent ends at once and lets the next one go: a loop, and not ever deeper
        self._pumping = True
        try:
            while self._pump_again and self.port.ready:
                self._pump_again = False
                for entry in self.ledger.sendable():
                    if entry.is_execute and self.before_cell is not None:
                        work = self._prepare_and_transmit(entry, self.before_cell)
                        self._tasks.start(work, "what comes before a cell", failed=partial(self._failed, entry))
                    else:
                        self._transmit(entry)
        finally:
            self._pumping = False

    async def _prepare_and_transmit(self, entry: Entry, hook: Hook) -> None:
        try:
            notes = await hook()
        except (SandboxError, OSError) as error:
            notes = [str(error)]
        if not entry.finished:
            self.delivery.notice(*notes)
            self._transmit(entry)

    def _transmit(self, entry: Entry) -> None:
        entry.sent = True
        entry.started = time.monotonic()
        try:
            self.port.transmit(wire.CHANNELS[entry.request.channel], protocol.encode(entry.request))
        except SandboxError as error:
            if entry.is_comm:
                self.delivery.notice(str(error))
            entry.verdict = error
            self._finish_now(entry)
            return
        except Exception as defect:  # the others that were taken out of their queue must still go
            self._defect(f"a {entry.request.type}", defect)
            self._failed(entry, defect)
            return
        if entry.is_comm:
            entry.forget_content()  # it may never be heard of again
        else:
            self._start_clock(entry, min(self.limits.cell_seconds, entry.seconds or self.limits.cell_seconds))

    # --- clocks ---

    def _start_clock(self, entry: Entry, seconds: float) -> None:
        if entry.timer is not None:
            entry.timer.cancel()
        loop = asyncio.get_running_loop()
        entry.timer = loop.call_later(seconds, self._time_is_up, entry)
        entry.remaining = None

    def _stop_clock(self, entry: Entry) -> None:
        """Let a cell wait for a person; all its waits together may last as long as an unused sandbox."""
        if entry.timer is not None:
            loop = asyncio.get_running_loop()
            entry.remaining = max(0.0, entry.timer.when() - loop.time())
            entry.timer.cancel()
            entry.timer = None
            left = self.limits.idle_seconds if entry.pause_left is None else entry.pause_left
            entry.paused = loop.call_later(left, self._pause_is_over, entry)

    def _resume_clock(self, entry: Entry) -> None:
        if entry.paused is not None:
            entry.pause_left = max(0.0, entry.paused.when() - asyncio.get_running_loop().time())
            entry.paused.cancel()
            entry.paused = None
        if entry.remaining is not None and not entry.finished:
            self._start_clock(entry, entry.remaining)

    def _pause_is_over(self, entry: Entry) -> None:
        if not self.port.ready:
            return  # the sandbox is on its way out, which says why
        limit = f"{self.limits.idle_seconds:g} s"
        self.condemn(entry, CellTimeout("the cell waited too long for a person", limit=limit, setting="idle_timeout"))

    def _time_is_up(self, entry: Entry) -> None:
        what = "the cell" if entry.is_execute else f"a {entry.request.type}"
        own = entry.seconds is not None and entry.seconds < self.limits.cell_seconds
        error = CellTimeout(
            f"{what} ran longer than its time limit and was stopped",
            limit=f"{entry.seconds if own else self.limits.cell_seconds:g} s",
            value=f"{time.monotonic() - entry.started:.1f} s",
            setting="timeout" if own else "cell_timeout",
        )
        if entry.request.channel == "control":
            # Nothing on control deserves an interrupt, which would meet the running cell.
            entry.verdict = error
            self._finish_now(entry)
        else:
            self.condemn(entry, error)

    def withdraw(self, entry: Entry, error: SandboxError) -> None:
        """End a request that nobody waits for any more; it may not even have been sent."""
        if self.ledger.take_waiting(entry):
            self._abort(entry)
        elif not entry.sent and not entry.finished:
            entry.verdict = error
            self._finish_now(entry)
        elif not entry.complete:  # else only its files are being copied, and there is nothing to interrupt
            self.condemn(entry, error)

    def condemn(self, entry: Entry, error: SandboxError) -> None:
        """End a request from outside: interrupt, then kill its kernel, then its sandbox."""
        if entry.finished or entry.verdict is not None:
            return
        entry.verdict = error
        self._budget(entry).hurry()
        error.survived = "variables and files"  # now: the cell may end before the interrupt is answered
        entry.interrupted = entry.is_execute
        if entry.patience is not None and entry.idle:
            self._finish_when_complete(entry)  # with the shorter patience
        self.audit("condemned", request=entry.request.type, error=error.name, reason=str(error))
        self._tasks.start(self._end(entry, error), "the end of a cell", failed=lambda _: self._end_sandbox(error))

    async def _end(self, entry: Entry, error: SandboxError) -> None:
        try:
            if entry.finished:
                return  # the signal would meet the next cell
            await self.port.signal(signal.SIGINT)
            if await _within(entry.done.wait(), self.limits.interrupt_grace_seconds):
                return
            error.survived = "files, but no variables: the cell ignored the interrupt and its kernel was replaced"
            await self.port.kill_kernel()
            if await _within(entry.done.wait(), KILL_SECONDS):
                return
        except SandboxError as failure:
            self.audit("ladder", reason=str(failure))
        if not entry.finished:
            error.survived = "nothing: the sandbox had to be ended"
            await self.port.kill_sandbox(error)

    def _watch_debugger(self, command: str) -> None:
        if command == "attach":
            self._debugger_attached = True
        elif command in {"disconnect", "terminate"}:
            self._debugger_attached = False
        if command in {"continue", "next", "stepIn", "stepOut", "disconnect", "terminate"}:
            for entry in self.ledger.running_cells():
                self._resume_clock(entry)

    def interrupted(self) -> None:
        """Note that a front end interrupted the kernel: nobody waits for input any more."""
        for entry in self.ledger.in_flight:
            entry.interrupted = entry.is_execute
            self._budget(entry).hurry()
            if entry.awaiting_input:
                entry.awaiting_input = False
                self._resume_clock(entry)
        for entry in self.ledger.unsent_cells():
            entry.verdict = CellInterrupted("the cell was interrupted before it ran")
            self._finish_now(entry)

    # --- messages of the kernel ---

    def judge(self, message: Message) -> Verdict | None:
        """Apply the output policy to a large message ahead of `receive`; may run in another thread, one at a time."""
        entry = self.ledger.find(message.parent.get("msg_id"))
        if message.parent and (entry is None or not entry.sent or entry.over_budget):
            return None
        begun = time.thread_time()
        verdict = self.delivery.judge(message, entry)
        if entry is not None:
            self._budget(entry).spend(time.thread_time() - begun)
        return verdict

    def receive(self, message: Message, size: int, verdict: Verdict | None = None) -> None:
        """Take a decoded message of the kernel, of `size` bytes on the wire; `verdict` is what `judge` said of it."""
        entry = self.ledger.find(message.parent.get("msg_id"))
        if entry is None and (message.parent or message.channel != "iopub"):
            self.drop("unknown parent", size, message.type)
            return
        if entry is not None and not entry.sent:
            self.drop("its request was not sent yet", size, message.type)
            return
        if message.channel == "iopub":
            self._published(message, entry, size, verdict)
        elif entry is not None and message.channel == "stdin":
            self._input_request(message, entry, size)
        elif entry is not None:
            self._replied(message, entry, size, verdict)

    def too_heavy(self, kind: str, parent: object, size: int, reason: str) -> None:
        """End the cell that sent a message which was not even parsed."""
        entry = self.ledger.find(parent)
        if entry is None or entry.finished or not entry.sent:
            self.drop(f"not taken in: {reason}", size, kind)
        elif self._within_limits(kind, entry, size):
            error = OutputLimit(
                f"the cell sent a message that is not taken in: {reason}",
                limit=f"{format_bytes(protocol.MEMORY_FACTOR * self.limits.message_bytes)} of memory",
                value=f"more than that, from {format_bytes(size)} as it came",
                setting="message_limit",
            )
            self.condemn(entry, error)

    def drop(self, reason: str, size: int, kind: str = "", *, quietly: bool = False) -> None:
        """Note a message that does not pass; a kernel that goes on sending such is ended."""
        if not quietly:
            self.delivery.note("dropped", reason=reason, type=kind)
        if not self._dropped.charge(size).allowed:
            self._end_flood(self._dropped.exceeded, kind)

    def _published(self, message: Message, entry: Entry | None, size: int, verdict: Verdict | None) -> None:
        if message.type == "status":
            self._status(message, entry, size)
            return
        if entry is not None and message.type == "execute_input":
            if (
                not entry.is_execute
                or entry.finished
                or entry.execution_count
                or not count(message.content["execution_count"])
            ):
                self.drop("out of turn", size, message.type)
            elif self._within_limits(message.type, entry, size, owed=True):
                entry.execution_count = int(message.content["execution_count"])
                self.delivery.input(entry)
                self.delivery.say_notices(entry)
            return
        if entry is not None and entry.finished and message.type in REWRITES:
            # A thread may print late, but nobody takes away what an earlier cell has shown.
            self.drop("its cell has ended", size, message.type)
            return
        if not self._within_limits(message.type, entry, size):
            return
        if message.type == "debug_event":
            if not self._debugger_attached:
                return
            self._debug_event(message)
        if entry is not None:
            if entry.verdict is not None and not entry.finished and message.type == "error":
                entry.traceback = cut(message.content["traceback"])
                return
            self._be_patient(entry)
        self.delivery.publish(message, entry, verdict or self.judge(message))

    def _within_limits(self, kind: str, entry: Entry | None, size: int, *, owed: bool = False) -> bool:
        """Charge an output to its cell and to the session; see to it that a flood ends.

        What is `owed` counts by its size: an honest cell that uses its limit to the last message still gets its reply.
        """
        own = self._budget(entry) if entry is not None and not (owed and size < SMALL) else None
        for budget in (self._session_budget, own):
            if budget is None or budget.charge(size, 0 if owed else 1).allowed:
                continue
            if entry is not None and not entry.finished:
                self.condemn(entry, budget.exceeded or OutputLimit("the cell sent too much output"))
            else:
                # A thread goes on after its cell: nothing to interrupt, so its kernel has to go.
                self._end_flood(budget.exceeded, kind)
            return False
        return True

    def _budget(self, entry: Entry) -> CellBudget:
        if entry.budget is None:
            entry.budget = CellBudget(self.limits)
        return entry.budget

    def _end_flood(self, error: SandboxError | None, kind: str) -> None:
        if self._flooded:
            return
        self._flooded = True
        self.audit("flood", reason=str(error), type=kind)
        self._kernel_verdict = error
        ending = error or OutputLimit("a thread of an earlier cell went on sending")
        work = self._kill_flooding_kernel()
        self._tasks.start(work, "the end of a flood", failed=lambda _: self._end_sandbox(ending))

    async def _kill_flooding_kernel(self) -> None:
        try:
            await self.port.kill_kernel()
        except SandboxError as failure:
            self.audit("ladder", reason=str(failure))
            await self.port.kill_sandbox(failure)

    def _status(self, message: Message, entry: Entry | None, size: int) -> None:
        state = message.content["execution_state"]
        if entry is None or entry.finished or size > SMALL:
            self.drop("out of turn", size, message.type)
            return
        self._session_budget.charge(size, 0)
        if state == "busy" and not entry.busy:
            self.ledger.mark_busy(entry)
            self.kernel_worked = self.kernel_worked or entry.is_execute
            if entry.is_comm:
                entry.started = time.monotonic()
                self._start_clock(entry, self.limits.cell_seconds)
            self.delivery.status("busy", entry)
        elif state == "idle" and entry.busy and not entry.idle:
            entry.idle = True
            self._finish_when_complete(entry)
        else:
            self.drop("out of turn", size, message.type)

    def _replied(self, message: Message, entry: Entry, size: int, verdict: Verdict | None) -> None:
        if message.type != entry.reply_type or message.channel != entry.request.channel:
            self.drop("not the reply to its request", size, message.type)
        elif entry.reply is not None or entry.finished:
            self.drop("a second reply", size, message.type)
        else:
            if self._within_limits(message.type, entry, size, owed=True):
                entry.reply = self.delivery.kept(message, self.ledger, entry, size, verdict)
            else:
                entry.reply = self.delivery.ours(entry, entry.verdict or OutputLimit("the cell sent too much output"))
            self._finish_when_complete(entry)

    def _input_request(self, message: Message, entry: Entry, size: int) -> None:
        if entry.finished or entry.awaiting_input or not entry.request.content.get("allow_stdin", False):
            self.drop("input was not allowed", size, message.type)
            return
        if not self._within_limits(message.type, entry, size):
            return
        if (allowed := self.delivery.allowed(message, entry)) is not None:
            entry.awaiting_input = True
            entry.questions += 1
            self._stop_clock(entry)
            self.front.deliver(allowed, entry.client)

    def _input_reply(self, reply: Message, client: bytes) -> None:
        for entry in self.ledger.in_flight:
            if entry.awaiting_input and entry.client == client:
                entry.awaiting_input = False
                self._resume_clock(entry)
                try:
                    self.port.transmit(wire.STDIN, protocol.encode(reply))
                except SandboxError as error:  # the cell would wait for an answer that cannot come
                    self.condemn(entry, error)
                return

    def _debug_event(self, message: Message) -> None:
        event = message.content.get("event")
        for entry in self.ledger.running_cells():
            if event == "stopped":
                self._stop_clock(entry)
            elif event == "continued":
                self._resume_clock(entry)

    # --- ends ---

    def _be_patient(self, entry: Entry) -> None:
        if entry.patience is not None:
            entry.patience.cancel()
            entry.patience = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._lose_patience, entry)

    def _lose_patience(self, entry: Entry) -> None:
        entry.patience = None
        self.audit("completed", reason="idle without reply" if entry.idle else "reply without idle")
        if entry.interrupted and entry.reply is None:
            entry.verdict = entry.verdict or CellInterrupted("the cell was interrupted", survived="variables and files")
        self._finish(entry)

    def _finish_when_complete(self, entry: Entry) -> None:
        if entry.patience is not None:
            entry.patience.cancel()
        if entry.complete:
            self._finish(entry)
        else:
            seconds = FORGOTTEN_SECONDS if entry.interrupted and entry.idle else PATIENCE_SECONDS
            entry.patience = asyncio.get_running_loop().call_later(seconds, self._lose_patience, entry)

    def _finish(self, entry: Entry) -> None:
        if entry.is_execute and self.after_cell is not None:
            entry.stop_timers()
            work = self._collect_and_finish(entry, self.after_cell)
            self._tasks.start(work, "what comes after a cell", failed=partial(self._failed, entry))
        else:
            self._finish_now(entry)

    async def _collect_and_finish(self, entry: Entry, hook: Hook) -> None:
        try:
            self.delivery.notice(*await hook())
        except (SandboxError, OSError) as error:
            self.delivery.notice(str(error))
        if not entry.finished:
            self._finish_now(entry)

    def _finish_now(self, entry: Entry) -> None:
        """Deliver what a request is still owed, and let the next one go."""
        if entry.finished:
            return
        if entry.is_execute:
            # What was sent before this cell's end is known must be known too: its failure may abort it. That comes
            # first, for a cell that is submitted after `finish` is sent.
            self.front.drain()
        self.ledger.finish(entry)
        if not entry.busy:
            self.delivery.status("busy", entry)
        reply = entry.reply
        if entry.verdict is not None:
            if entry.is_execute:
                self.delivery.error(entry, entry.verdict)
            reply = self.delivery.ours(entry, entry.verdict) if entry.reply_type is not None else None
        elif reply is None and entry.reply_type is not None:
            reply = self.delivery.ours(entry, KernelDied("the kernel sent no reply"))
        elif reply is not None and entry.is_execute and reply.content.get("status") == "error":
            said = hint(str(reply.content.get("ename")), str(reply.content.get("evalue")), self.limits)
            self.delivery.notice(*([said] if said else []))
        self.delivery.say_notices(entry)
        failed = reply is not None and reply.content.get("status") == "error"
        if reply is not None:
            self.delivery.reply(entry, reply)
        self.delivery.status("idle", entry)
        self.port.touch()
        if entry.is_execute:
            self._record_cell(entry, reply)
        stop = failed and entry.is_execute and entry.request.content.get("stop_on_error", True)
        entry.forget_content()
        if stop:
            self._abort_waiting(entry.queue)
        self.pump()

    def _record_cell(self, entry: Entry, reply: Message | None) -> None:
        """Write the one line that the audit keeps of every cell; the code itself stays with its author."""
        content = reply.content if reply is not None else {}
        self.audit(
            "cell",
            source_sha256=hashlib.sha256(
                str(entry.request.content.get("code", "")).encode(errors="replace")
            ).hexdigest(),
            execution_count=entry.execution_count,
            seconds=round(time.monotonic() - entry.started, 3) if entry.started else 0,
            status=content.get("status"),
            error=content.get("ename"),
            output_bytes=entry.budget.bytes if entry.budget is not None else 0,
            output_messages=entry.budget.messages if entry.budget is not None else 0,
        )

    def _abort_waiting(self, queue: str) -> None:
        for entry in self.ledger.take_waiting_cells(queue):
            self._abort(entry)

    def kernel_died(self, error: SandboxError, *, asked_for: bool = False) -> None:
        """End what was in the kernel; what waits will go to the next one. Nobody is told of an end they asked for."""
        if self._kernel_verdict is not None:
            error = self._kernel_verdict
            error.survived = "files, but no variables: a thread of an earlier cell went on sending"
        self._forget_kernel()
        flying = self.ledger.in_flight
        if not asked_for and not any(entry.is_heard for entry in flying):
            when = "after a cell was cancelled" if any(entry.is_execute for entry in flying) else "between two cells"
            self.delivery.notice(f"{error} (This happened {when}.)")
        for entry in flying:
            if entry.reply is None:  # a reply that was sent before the death still counts
                entry.verdict = entry.verdict or error
            self._finish_now(entry)

    def sandbox_died(self, error: SandboxError, *, keep_waiting: bool = False, lost: bool = True) -> None:
        """End everything, also what has not been sent, unless that may wait for the next sandbox.

        Without a cell to tell it, the next one tells what was lost, if anything was.
        """
        self._forget_kernel()
        if keep_waiting and not any(self.ledger.running_cells()):
            self.delivery.notice(str(error))
            for entry in self.ledger.in_flight:
                entry.verdict = entry.verdict or error
                self._finish_now(entry)
            return
        flying, waiting = self.ledger.take_all()
        if lost and not any(entry.is_heard for entry in flying + waiting):
            self.delivery.notice(str(error))
        aborting: set[str] = set()
        for entry in flying + waiting:
            if entry.is_execute and entry.queue in aborting:
                self._abort(entry)
                continue
            entry.verdict = entry.verdict or error
            if entry.is_execute and entry.request.content.get("stop_on_error", True):
                aborting.add(entry.queue)
            self._finish_now(entry)

    def _forget_kernel(self) -> None:
        self._kernel_verdict, self._flooded, self._debugger_attached = None, False, False
        self.kernel_worked = False
        self._dropped = CellBudget(self.limits)
        self.delivery.forget_kernel()

    def _abort(self, entry: Entry) -> None:
        self.ledger.finish(entry)
        self.delivery.status("busy", entry)
        content = {"status": "aborted", "execution_count": 0, "user_expressions": {}, "payload": []}
        header = {"msg_type": "execute_reply"}
        self.delivery.reply(entry, Message(channel="shell", header=header, parent=parent_of(entry), content=content))
        self.delivery.status("idle", entry)
        entry.forget_content()

    # --- housekeeping ---

    def _failed(self, entry: Entry, defect: BaseException) -> None:
        """End a request whose handling met a defect of ours: whoever asked must not wait for ever."""
        if not entry.finished:
            self.ledger.take_waiting(entry)
            message = f"sandbox_kernel failed at this {entry.request.type}: {defect!r}"
            entry.verdict = entry.verdict or SandboxError(message)
            self._finish_now(entry)

    def _end_sandbox(self, error: SandboxError) -> None:
        self._tasks.start(self.port.kill_sandbox(error), "the end of a sandbox")

    async def close(self) -> None:
        """Cancel what is still under way."""
        for entry in self.ledger.in_flight:
            entry.stop_timers()
        await self._tasks.close()


async def _within(awaitable: Awaitable[object], seconds: float) -> bool:
    """Wait for something for a bounded time; return whether it came."""
    try:
        async with asyncio.timeout(seconds):
            await awaitable
    except TimeoutError:
        return False
    return True
