"""The requests of a session as one machine: what happens goes in, and what has to be done comes out as commands.

It does no I/O, starts no timer and reads no clock. Whoever drives it sets `now` before each event, carries out
`commands` in their order, and looks again at `next_time`. It believes nothing of what a kernel says: a message passes
the requests that are known, their states, the limits and the output policy, and leaves with a parent header that the
host itself received.

Every request ends here, once: with the kernel's reply or with one that says why there is none, and always with idle.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...container import wire
from ...core import json_memory
from ...core.codes import Code, EndCode, MessageCode, Note, OutputCode, Survived
from ...core.errors import (
    CellInterrupted,
    CellTimeout,
    OutputLimit,
    ProtocolError,
    ReplyLost,
    SandboxDied,
    SandboxError,
)
from ...core.events import (
    EscalationFailed,
    KernelFlooded,
    MessageDropped,
    OutputRemoved,
    RequestCompleted,
    RequestCondemned,
    SessionEvent,
)
from ...core.model import Limits, Message, Settings, format_bytes
from ...core.tasks import log_defect
from ...plugins.api import CellGuard, Review
from ...policy import protocol
from ...policy.budget import MAX_REPLY, CellBudget, SessionBudget
from ...policy.json_check import MAX_COUNT
from ...policy.output_policy import OutputPolicy
from ...policy.replies import cut
from ...policy.verdict import Verdict
from ..agent_messages import Oversized
from ..hints import SessionHints
from . import host_words
from .queue import PendingRequest, RequestQueue, parent_of
from .request_states import RequestEvent, Step

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
MAX_NOTED = 10_000
"""Lines of the audit about what a session's code sends: it must not fill the disk of the host."""
MAX_NOTICES = 100
"""What waits to be said on stderr of the next cell."""
MAX_TOLD_CHARACTERS = 1000
"""Of one line that the host says in a cell."""
ASK_SECONDS = 300.0
"""How long a question of the host's waits for its answer; a cell that waits holds up all behind it."""
MAX_QUESTION = 4000
"""Characters of a question of the host's."""

OUTPUTS = frozenset({"stream", "display_data", "execute_result", "error"})
"""What a cell shows: a person is told what is missing of it."""
REWRITES = frozenset({"clear_output", "error", "execute_result"})
"""What a cell may publish only while it runs."""
GO_ON = frozenset({"continue", "next", "stepIn", "stepOut", "disconnect", "terminate"})
"""Commands of a debugger after which a cell runs again."""


# --- commands ---


class PrepareCell(NamedTuple):
    """Do what comes before a cell; then it is `prepared`."""

    request: PendingRequest


class AwaitReview(NamedTuple):
    """Wait for what a guard has still to say of a request; then it is `reviewed`."""

    request: PendingRequest
    review: Callable[[], Awaitable[Review]]


class Transmit(NamedTuple):
    """Send a request to the kernel. One that cannot be sent is `not_sent`."""

    request: PendingRequest


class Answer(NamedTuple):
    """Send an answer to a question of a request to the kernel. What cannot be sent is `not_answered`."""

    message: Message
    request: PendingRequest


class Deliver(NamedTuple):
    """Send a message to one client, or publish it to all. What cannot be delivered is `undelivered`."""

    message: Message
    client: bytes | None
    request: PendingRequest | None = None
    """Whose output or reply it is, if something else is said where it cannot be delivered."""


class Settle(NamedTuple):
    """Hear what the front ends have sent, and end a request: `end` follows, or `abort`."""

    request: PendingRequest
    after: bool = False
    """Whether what comes after a cell is done before."""
    sought: Sequence[str] = ()
    """Files that the cell did not find, and that may lie beside the notebook."""
    aborts: bool = False


class Interrupt(NamedTuple):
    """Send SIGINT to the kernel for a request; it is `signalled` then, or its `step_failed`."""

    request: PendingRequest


class KillKernel(NamedTuple):
    """End the kernel; it is `killed` then, or the `step_failed`."""


class KillSandbox(NamedTuple):
    """End the sandbox."""

    error: SandboxError


class NoteBegun(NamedTuple):
    """Note that the kernel has taken up a cell."""


class NoteDone(NamedTuple):
    """Note that a cell has its reply."""

    request: PendingRequest
    reply: Message | None


class CloseRequest(NamedTuple):
    """Note that nothing is left of a request."""

    request: PendingRequest


class NoteDefect(NamedTuple):
    """Note a defect of ours, met at a request."""

    what: str
    error: Exception


class EmitEvent(NamedTuple):
    """Tell of an event."""

    event: SessionEvent


Command = (
    PrepareCell
    | AwaitReview
    | Transmit
    | Answer
    | Deliver
    | Settle
    | Interrupt
    | KillKernel
    | KillSandbox
    | NoteBegun
    | NoteDone
    | CloseRequest
    | NoteDefect
    | EmitEvent
)


class RequestMachine:
    """See the module; one for a session's whole life, over all its kernels and containers."""

    def __init__(
        self,
        limits: Limits,
        policy: OutputPolicy,
        *,
        hints: SessionHints | None = None,
        guards: Sequence[CellGuard] = (),
        answers_questions: bool = False,
    ) -> None:
        """`answers_questions` is for a kernel that asks for input where none is allowed, and waits for an answer."""
        self.now = 0.0
        """When the event happens, in seconds of `time.monotonic`."""
        self.frozen = False
        """Whether no time passes."""
        self.commands: deque[Command] = deque()
        """What is to be done, in this order."""
        self.queue = RequestQueue()
        self.policy = policy
        self.kernel_worked = False
        """Whether this kernel took up a cell."""
        self.ending: set[PendingRequest] = set()
        """Requests that are being ended from outside."""
        self.killing = False
        """Whether the kernel is about to end: what is sent to it now would end with it."""
        self.debugs = False
        """Whether a debugger of a front end is attached."""
        self.flood: OutputLimit | None = None
        """Why this kernel has to go, if it sent a flood."""
        self.notices: list[str] = []
        """Said once, on stderr of the next cell."""
        self._limits = limits
        self._hints = hints or SessionHints(Settings(limits=limits))
        self._guards = guards
        self._answers_questions = answers_questions
        self._own_words = OutputPolicy(policy.mode, policy.message_bytes)
        """For what the host writes itself, which may come while another thread looks at a large message."""
        self._session = SessionBudget(limits)
        self._dropped = CellBudget(limits)
        """What was sent and did not pass. That costs work too, so there is as little of it as of one cell's output."""
        self._flooded = False
        self._noted = 0
        self._holds = Counter[str]()
        self._kill_asked = False
        self._kill_at: float | None = None
        self._flood_ends: SandboxError | None = None
        """Why the kernel is being killed, where no request is being ended."""

    # --- time ---

    def at(self, now: float) -> None:
        """Take the time of what happens next; while it is frozen, none passes."""
        if not self.frozen:
            self.now = now

    def next_time(self) -> float | None:
        """Return when `tick` has something to do; None is never."""
        if self.frozen:
            return None
        found = self._kill_at
        for request in self.queue.flying.values():
            for due in (request.limit_at, request.pause_at, request.rest_at, request.step_at, request.ask_at):
                if due is not None and (found is None or due < found):
                    found = due
        return found

    def tick(self, *, ready: bool) -> None:
        """Do what is due; `ready` says whether the kernel takes requests."""
        if self.frozen:
            return
        if self._kill_at is not None and self._kill_at <= self.now:
            self._not_dead()
        for request in self.queue.in_flight:
            if request.step_at is not None and request.step_at <= self.now:
                if request.verdict is not None:
                    request.verdict.leaves(Survived.FILES, "the cell ignored the interrupt and its kernel was replaced")
                self._kill_for(request)
            if request.limit_at is not None and request.limit_at <= self.now:
                request.limit_at = None
                self._time_is_up(request)
            if request.pause_at is not None and request.pause_at <= self.now:
                request.pause_at = None
                if ready:  # else the sandbox is on its way out, which says why
                    limit = f"{self._limits.idle_timeout:g} s"
                    waited = CellTimeout(EndCode.CELL_WAITED_TOO_LONG, limit=limit, setting="idle_timeout")
                    self.end_from_outside(request, waited)
            if request.rest_at is not None and request.rest_at <= self.now:
                request.rest_at = None
                self._give_up(request)
            if request.ask_at is not None and request.ask_at <= self.now:
                self._answered(request, f"there was no answer within {ASK_SECONDS:g} s")

    def freeze(self) -> None:
        """Let no time pass for any request, until `thaw`."""
        self.frozen = True

    def thaw(self, now: float) -> None:
        """Go on after `freeze`: what was due in a second then is due in a second now."""
        if not self.frozen:
            return
        frozen = now - self.now
        self.now, self.frozen = now, False
        if self._kill_at is not None:
            self._kill_at += frozen
        for request in self.queue.in_flight:
            for name in ("limit_at", "pause_at", "rest_at", "step_at", "ask_at"):
                if (due := getattr(request, name)) is not None:
                    setattr(request, name, due + frozen)

    def seconds_left(self) -> float | None:
        """Return how long the running cell may still run: the shortest if there are several, None if there is none."""
        found = [
            cell.left if cell.limit_at is None else max(0.0, cell.limit_at - self.now)
            for cell in self.queue.running_cells()
        ]
        return min((left for left in found if left is not None), default=None)

    def hold_clock(self, cell: str, *, held: bool) -> None:
        """Stop the clock of a cell, or let it go on once nothing holds it; all its pauses together are bounded."""
        if held:
            self._holds[cell] += 1
        elif self._holds[cell] > 1:
            self._holds[cell] -= 1
            return
        else:
            del self._holds[cell]
        for request in self.queue.running_cells():
            if request.id == cell:
                (self._pause if held else self._resume)(request)

    def _pause(self, request: PendingRequest) -> None:
        """Let a request wait for a person; all its waits together may last as long as an unused sandbox."""
        if request.limit_at is not None:
            request.left, request.limit_at = request.limit_at - self.now, None
            left = self._limits.idle_timeout if request.pause_left is None else request.pause_left
            request.pause_at = self.now + left

    def _resume(self, request: PendingRequest) -> None:
        if request.pause_at is not None:
            request.pause_left, request.pause_at = max(0.0, request.pause_at - self.now), None
        if request.left is not None:
            request.limit_at, request.left = self.now + request.left, None

    def _wait_for_rest(self, request: PendingRequest) -> None:
        """Wait for what the kernel still owes; not for long if it was interrupted and went idle without a reply."""
        forgotten = request.interrupted and request.idle
        request.rest_at = self.now + (FORGOTTEN_SECONDS if forgotten else PATIENCE_SECONDS)

    # --- requests of front ends ---

    def submit(self, message: Message, client: bytes, seconds: float | None = None, reads: str | None = None) -> None:
        """Take a request of a front end; it goes to the kernel when its turn comes. `seconds` is a shorter limit.

        `reads` is what guards read in place of its code, where that is ours.
        """
        if message.channel == "stdin":
            self._input_reply(message, client)
            return
        request = self.queue.add(message, client, seconds, reads)
        if request is None:
            self._refuse(PendingRequest(message, client, ""))
            return
        try:
            if request.is_comm:  # it decides what a kernel may say of it
                self.policy.observe(message)
            elif message.type == "debug_request":
                self._debugger_asked(str(message.content.get("command", "")))
        except Exception as defect:
            self._met(request, defect)

    def go_on(self, request: PendingRequest, elapsed: float, left: float) -> None:
        """Take up a cell that another process sent to this kernel, `elapsed` seconds ago; so many are `left` to it."""
        request.started = self.now - elapsed
        self.queue.advance(request, RequestEvent.SEND)
        request.limit_at = self.now + left

    def pump(self) -> None:
        """Send what may be sent now, to a kernel that is ready and not being killed."""
        for request in self.queue.take_sendable():
            if not self._guards or self._passes(request):
                self._enter(request)

    def _enter(self, request: PendingRequest) -> None:
        """Begin with a request that may go into the sandbox."""
        if request.is_execute:
            self.commands.append(PrepareCell(request))
        else:
            self._transmit(request)

    def prepared(self, request: PendingRequest, notes: Sequence[str] = ()) -> None:
        """Send a cell for which all was done that comes before it, unless it has ended meanwhile."""
        if not request.finished:
            self.notice(*notes)
            self._transmit(request)

    def not_sent(self, request: PendingRequest, error: SandboxError) -> None:
        """End a request that could not be sent."""
        if request.is_comm:
            self.notice(str(error))
        self._condemn_and_settle(request, error)

    def not_answered(self, request: PendingRequest, error: SandboxError) -> None:
        """End a cell that would wait for an answer that cannot come."""
        if request.message.content.get("allow_stdin", False):  # else it asked unasked, and its end is told elsewhere
            self.end_from_outside(request, error)

    def withdraw(self, request: PendingRequest, error: SandboxError) -> None:
        """End an abandoned request; it may not even have been sent."""
        if self.queue.take_waiting(request):
            self.abort(request)
        elif not request.sent:
            self._condemn_and_settle(request, error)
        elif not request.complete:  # else only its files are being copied, and there is nothing to interrupt
            self.end_from_outside(request, error)

    def block(self, error: SandboxError) -> None:
        """End the kernel with all of its processes, and the cells that run in it with `error`."""
        running = [request for request in self.queue.running_cells() if request.sent and not request.finished]
        for request in running[1:]:
            request.condemn(error)  # they end with the first one's kernel
        if not running:
            self._kill_kernel(error)
        elif running[0].verdict is None:
            error.leaves(Survived.FILES, "its kernel was ended with all of its processes")
            self._begin_end(running[0], error, Step.KILL)

    def take_back_questions(self) -> None:
        """Cancel open input requests: the kernel is about to be interrupted."""
        for request in self.queue.in_flight:
            if request.asks:
                self._answered(request, "the question was interrupted")
            elif request.awaiting_input:
                request.awaiting_input = False
                self._resume(request)

    def interrupted(self) -> None:
        """Note that a front end interrupted the kernel."""
        for request in self.queue.in_flight:
            request.interrupt(self._limits)
        for request in self.queue.take_unsent_cells():
            self._condemn_and_settle(request, CellInterrupted(EndCode.CELL_NOT_RUN))

    def _refuse(self, refused: PendingRequest) -> None:
        if refused.reply_type is None:
            return
        # Front ends wait for an idle as well. One would end another request, if that has the same id.
        alone = self.queue.find(refused.id) is None
        if alone:
            self._status("busy", refused)
        self._reply(refused, self._ours(refused, SandboxDied(EndCode.REQUEST_REFUSED)))
        if alone:
            self._status("idle", refused)

    def _passes(self, request: PendingRequest) -> bool:
        """Return whether all guards let a request through; else it ends here, or waits until a person has answered."""
        for guard in self._guards:
            try:
                review = guard.review(request.message, request.reads)
            except Exception as defect:  # what cannot be judged does not pass, and nothing waits for it
                self._met(request, defect)
                return False
            if not self._heeds(request, review):
                return False
        return self._is_cleared(request)

    def _heeds(self, request: PendingRequest, review: Review) -> bool:
        """Take what a guard says of a request; return whether that does not end it."""
        request.findings += review.findings
        if review.error is not None:
            self._condemn_and_settle(request, review.error)
            return False
        if review.warning is not None and request.is_execute and not request.message.content.get("silent"):
            self.notice(review.warning)
        if review.question is not None:
            request.asks.append(review.question)
        if review.later is not None:
            request.reviews.append(review.later)
        return True

    def _is_cleared(self, request: PendingRequest) -> bool:
        """Return whether nothing is left to be said or asked before a request goes on; else the next of it begins."""
        if request.reviews:
            self.commands.append(AwaitReview(request, request.reviews.pop(0)))
        elif request.asks:
            self._ask(request)
        else:
            return True
        return False

    def reviewed(self, request: PendingRequest, review: Review) -> None:
        """Take what a guard has said later, and go on with the request, unless it has ended meanwhile."""
        if not request.finished and self._heeds(request, review) and self._is_cleared(request):
            self._enter(request)

    def _ask(self, request: PendingRequest) -> None:
        """Ask the person in front of a request; where that cannot be done, the answer is no.

        No cell may answer for the person. The yes has a number that a cell cannot know: a reply does not say which
        question it answers, and one to a question of an earlier cell may come now. While this one is open, its front
        end is asked nothing else.
        """
        request.yes = f"yes {secrets.randbelow(10_000):04}"
        prompt = f"{request.asks[0].text[:MAX_QUESTION]}\nType {request.yes} to run it. Anything else blocks it: "
        content = {"prompt": prompt, "password": False}
        head, parent = {"msg_type": "input_request"}, dict(request.message.header)
        message = self._own(Message(channel="stdin", header=head, parent=parent, content=content))
        of_client = [one for one in self.queue.in_flight if one.client == request.client]
        if not request.is_execute or not request.message.content.get("allow_stdin", False):
            self._answered(request, "nobody can be asked here")
        elif message is None or any(one.awaiting_input for one in of_client):
            self._answered(request, "another question is open")
        else:
            request.awaiting_input = True
            request.questions += 1
            request.ask_at = self.now + ASK_SECONDS
            self.commands.append(Deliver(message, request.client))

    def _answered(self, request: PendingRequest, why: str | None) -> None:
        """Go on with a request after its question, or end it; `why` says why the answer is not yes."""
        request.awaiting_input, request.ask_at = False, None
        error = self._decide(request, why)
        if error is not None:
            request.asks.clear()
            self._condemn_and_settle(request, error)
        elif request.asks:
            self._ask(request)
        else:
            self._enter(request)

    def _decide(self, request: PendingRequest, why: str | None) -> SandboxError | None:
        """Tell the guard that asked, and return what ends the request; a guard that fails does not let it through."""
        try:
            return request.asks.pop(0).decide(why)
        except Exception as defect:
            self.commands.append(NoteDefect(f"a {request.message.type}", defect))
            return _failed(request, defect)

    def _transmit(self, request: PendingRequest) -> None:
        request.started = self.now
        self.queue.advance(request, RequestEvent.SEND)
        if not request.is_comm:  # which has time from when it is taken up
            every = self._limits.cell_timeout
            request.limit_at = self.now + min(every, request.seconds or every)
        self.commands.append(Transmit(request))

    def _input_reply(self, reply: Message, client: bytes) -> None:
        for request in self.queue.in_flight:
            if request.awaiting_input and request.client == client:
                if request.asks:
                    said = " ".join(str(reply.content.get("value")).split()).casefold()
                    self._answered(request, None if said == request.yes else "the answer was not yes")
                    return
                request.awaiting_input = False
                self._resume(request)
                self.commands.append(Answer(reply, request))
                return

    def _debugger_asked(self, command: str) -> None:
        if command == "attach":
            self.debugs = True
        elif command in {"disconnect", "terminate"}:
            self.debugs = False
        if command in GO_ON:
            for request in self.queue.running_cells():
                self._resume(request)

    # --- what a kernel says ---

    def judge(self, message: Message) -> Verdict | None:
        """Apply the output policy to a large message ahead of `receive`; may run in another thread, one at a time."""
        request = self.queue.find(message.parent.get("msg_id"))
        if message.parent and (request is None or not request.sent or request.over_budget):
            return None
        return self._judge_for(message, request)

    def _judge_for(self, message: Message, request: PendingRequest | None) -> Verdict:
        """Apply the output policy, and count the time that takes as the request's."""
        begun = time.thread_time()
        verdict = self._judge(message, request)
        if request is not None:
            request.allowance(self._limits).spend(time.thread_time() - begun)
        return verdict

    def receive(self, message: Message, size: int, verdict: Verdict | None = None) -> None:
        """Take a decoded message of the kernel, of `size` bytes on the wire; `verdict` is what `judge` said of it.

        What it becomes in memory counts as well: a cell may send many messages, and a program keeps them.
        """
        request = self.queue.find(message.parent.get("msg_id"))
        if request is None and (message.parent or message.channel != "iopub"):
            self.drop(MessageCode.UNKNOWN_PARENT, size, message.type)
            return
        if request is not None and not request.sent:
            self.drop(MessageCode.NOT_SENT_YET, size, message.type)
            return
        if message.mended:
            self._note(OutputRemoved, MessageCode.MENDED, message.type)
        if message.channel == "iopub":
            self._published(message, request, size, verdict)
        elif request is not None and message.channel == "stdin":
            self._asked_for_input(message, request, size)
        elif request is not None:
            self._replied(message, request, size, verdict)

    def too_heavy(self, error: protocol.TooHeavyError, size: int) -> None:
        """End the cell that sent a message which was not even parsed."""
        request = self.queue.find(error.parent.get("msg_id"))
        if request is None or request.finished or not request.sent:
            self.drop(MessageCode.NOT_TAKEN_IN.note(why=error.message), size, error.kind)
        elif self._allows(error.kind, request, size):
            limit = OutputLimit(
                EndCode.MESSAGE_TOO_HEAVY.note(why=error.message),
                limit=f"{format_bytes(protocol.MEMORY_FACTOR * self._limits.message_limit)} of memory",
                value=f"more than that, from {format_bytes(size)} as it came",
                setting="message_limit",
            )
            self.end_from_outside(request, limit)

    def unreadable(self, error: protocol.UnreadableError, size: int) -> None:
        """Say in the cell what was left out; end at once what waits for a reply that cannot be read.

        What no honest kernel sends is dropped, and the cell goes on.
        """
        why, welcome = Note(error.code, error.message), error.code is MessageCode.WELCOME
        self.drop(why, size, error.kind, quietly=welcome)
        request = self.queue.find(error.parent.get("msg_id"))
        forged = error.code in {MessageCode.NOT_A_REPLY, MessageCode.NOT_ON_STDIN}
        if request is None or request.finished or not request.sent or welcome or forged:
            return
        if error.channel == "iopub":
            self._leave_out(why, error.kind, request)
        elif error.channel == "stdin":  # the cell would wait for an answer that cannot come
            self.end_from_outside(request, ProtocolError(Note(error.code, error.message)))
        elif error.channel == request.message.channel and request.reply is None:
            lost = ReplyLost(EndCode.REPLY_UNREADABLE.note(why=error.message), kept=Survived.VARIABLES_AND_FILES)
            request.reply = self._ours(request, request.verdict or lost)
            self._look(request)

    def oversized(self, message: Oversized | None, size: int) -> None:
        """End the cell that sent a message which its agent did not even pass on; its word came in `size` bytes."""
        request = None if message is None else self.queue.find(message.parent_id)
        if message is None or request is None or request.finished or request.verdict is not None or not request.sent:
            self.drop(MessageCode.NOBODYS_OVERSIZED, size, "oversized")
            return
        if message.many:
            why = Note(EndCode.MESSAGE_TOO_LARGE, "the cell sent a single message with too many buffers")
            error = OutputLimit(why, limit=f"{wire.MAX_PARTS - 4} buffers", value="more")
        else:
            why = Note(EndCode.MESSAGE_TOO_LARGE, "the cell sent a single message that is too large")
            limit, value = format_bytes(self._limits.message_limit), format_bytes(message.size)
            error = OutputLimit(why, limit=limit, value=value, setting="message_limit")
        self.end_from_outside(request, error)

    def drop(self, why: Code | Note, size: int, kind: str = "", *, quietly: bool = False) -> None:
        """Note a message that does not pass; a kernel that goes on sending such is ended."""
        if not quietly:
            self._note(MessageDropped, why, kind)
        if not self._dropped.charge(size):
            self._end_flood(self._dropped.exceeded, kind)

    def _published(self, message: Message, request: PendingRequest | None, size: int, verdict: Verdict | None) -> None:
        kind = message.type
        if kind == "status":
            self._state(message, request, size)
            return
        if kind == "execute_input":
            self._input(message, request, size)
            return
        if request is not None and request.finished and kind in REWRITES:
            # A thread may print late, but it cannot remove what an earlier cell has shown.
            self.drop(MessageCode.CELL_HAS_ENDED, size, kind)
            return
        if not self._allows(kind, request, size):
            return
        if kind == "debug_event":
            if not self.debugs:
                return
            if (event := message.content.get("event")) in ("stopped", "continued"):
                for cell in self.queue.running_cells():
                    (self._pause if event == "stopped" else self._resume)(cell)
        if request is not None:
            if kind == "error":
                if request.verdict is not None and not request.finished:
                    request.traceback = cut(message.content["traceback"])
                    return
                request.showed_error = True
            if kind == "stream" and request.not_found is None:
                request.not_found = self._hints.program_not_found(message.content["text"])
            if request.rest_at is not None:  # what it still owes comes behind this
                request.rest_at = self.now + PATIENCE_SECONDS
        verdict = verdict or self._judge_for(message, request)
        if (passed := self._passed(message, verdict)) is not None:
            self.commands.append(Deliver(passed, None, request))
        elif kind in OUTPUTS and verdict.notes and request is not None and not request.finished:
            self._leave_out(verdict.notes[0], kind, request)

    def _input(self, message: Message, request: PendingRequest | None, size: int) -> None:
        """Say which cell runs, once; what that is, the host knows better."""
        number = message.content["execution_count"]
        counts = type(number) is int and 0 < number <= MAX_COUNT
        if request is None or request.finished or request.execution_count or not request.is_execute or not counts:
            self.drop(MessageCode.OUT_OF_TURN, size, message.type)
        elif self._allows(message.type, request, size, owed=True):
            request.execution_count = int(number)
            code = request.message.content.get("code", "")
            plain = isinstance(code, str) and code.isascii() and code.replace("\n", "").isprintable()
            self._say("execute_input", {"code": code, "execution_count": request.execution_count}, request, plain=plain)
            if self.notices:
                self._say_notices(request)

    def _state(self, message: Message, request: PendingRequest | None, size: int) -> None:
        state = message.content["execution_state"]
        if request is None or request.finished or size > SMALL:
            self.drop(MessageCode.STATUS_OUT_OF_TURN, size, message.type)
            return
        self._session.charge(size, 0)  # it always passes
        if state == "busy" and not request.busy:
            self.queue.advance(request, RequestEvent.START)
            if request.is_comm:
                request.started, request.limit_at = self.now, self.now + self._limits.cell_timeout
            elif request.is_execute:
                self.kernel_worked = True
                self.commands.append(NoteBegun())
            self._status("busy", request)
        elif state == "idle" and request.busy and not request.idle:
            self.queue.advance(request, RequestEvent.STOP)
            self._look(request)
        else:
            self.drop(MessageCode.STATUS_OUT_OF_TURN, size, message.type)

    def _replied(self, message: Message, request: PendingRequest, size: int, verdict: Verdict | None) -> None:
        if request.finished:
            self.drop(MessageCode.CELL_HAS_ENDED, size, message.type)
        elif request.reply_type is None or message.channel != request.message.channel:
            self.drop(MessageCode.OTHER_REPLY, size, message.type)
        elif request.reply is not None:
            self.drop(MessageCode.SECOND_REPLY, size, message.type)
        elif message.type != request.reply_type:
            self.drop(MessageCode.OTHER_REPLY, size, message.type)
        else:
            if self._allows(message.type, request, size, owed=True):
                request.reply = self._kept(message, request, size, verdict or self._judge(message, request))
            else:
                request.reply = self._ours(request, request.verdict or host_words.too_much())
            self._look(request)

    def _kept(self, message: Message, request: PendingRequest, size: int, verdict: Verdict) -> Message:
        """Return a reply as it will be delivered: filtered now, so that nothing else is kept until its idle comes."""
        passed = self._passed(message, verdict)
        if passed is None:
            return self._ours(request, ProtocolError(MessageCode.REPLY_REFUSED))
        # A small one costs a bounded multiple of what it came as; of a large one, what is left of it counts.
        try:
            small = size < json_memory.SMALL
            request.held_bytes = 32 * size if small else json_memory.kept(protocol.dumps(passed.content))
        except ProtocolError as error:
            return self._ours(request, error)
        if self.queue.held_bytes > MAX_REPLY:
            request.held_bytes = 0
            limit, value = f"{format_bytes(MAX_REPLY)} of memory", f"{format_bytes(size)} as it came"
            return self._ours(request, OutputLimit(EndCode.REPLY_TOO_LARGE, limit=limit, value=value))
        content = passed.content
        if request.message.content.get("allow_stdin") and content.get("status") == "ok" and host_words.leaves(request):
            said = content.get("payload")
            payload = said if isinstance(said, list) else []
            content = {**content, "payload": [*payload, {"source": "ask_exit", "keepkernel": False}]}
        return replace(passed, header={"msg_type": message.type}, content=content)

    def _asked_for_input(self, message: Message, request: PendingRequest, size: int) -> None:
        allowed = request.message.content.get("allow_stdin", False)
        asks = any(one.asks and one.client == request.client for one in self.queue.in_flight)
        if request.finished or not allowed or request.awaiting_input or asks:
            self.drop(MessageCode.INPUT_NOT_ALLOWED, size, message.type)
            if not request.finished and not request.awaiting_input and request.pass_over() and self._answers_questions:
                # An empty line, as a program gets it that has no terminal.
                head = {**request.message.header, "msg_id": secrets.token_hex(16), "msg_type": "input_reply"}
                self.commands.append(Answer(Message(channel="stdin", header=head, content={"value": ""}), request))
        elif self._allows(message.type, request, size):
            passed = self._passed(message, self._judge(message, request))
            if passed is not None:
                request.awaiting_input = True
                request.questions += 1
                self._pause(request)
                self.commands.append(Deliver(passed, request.client))

    # --- how much it may say ---

    def _allows(self, kind: str, request: PendingRequest | None, size: int, *, owed: bool = False) -> bool:
        """Charge an output to its cell and to the session; see to it that a flood ends.

        What is `owed` counts by its size: an honest cell that uses its limit to the last message still gets its reply.
        """
        own = request.allowance(self._limits) if request is not None and not (owed and size < SMALL) else None
        for budget in (self._session, own):
            if budget is None or budget.charge(size, 0 if owed else 1):
                continue
            if request is not None and not request.finished:
                self.end_from_outside(request, budget.exceeded or host_words.too_much())
            else:
                # A thread goes on after its cell: nothing to interrupt, so its kernel has to go.
                self._end_flood(budget.exceeded, kind)
            return False
        return True

    def _end_flood(self, error: OutputLimit | None, kind: str) -> None:
        if self._flooded:
            return
        self._flooded, self.flood = True, error
        self._emit(KernelFlooded(code=error.code if error else None, reason=str(error), type=kind))
        self._kill_kernel(error or OutputLimit(EndCode.OUTPUT_TOO_LARGE, "a thread of an earlier cell went on sending"))

    # --- the end of a request ---

    def end(self, request: PendingRequest) -> None:
        """Deliver what a request is still owed, and abort what its failure aborts."""
        if request.finished:
            return
        self.ending.discard(request)
        self.queue.advance(request, RequestEvent.END)
        while request.asks:
            self._decide(request, "the cell ended before there was an answer")
        if not request.busy:
            self._status("busy", request)
        reply = self._last_reply(request)
        if self.notices:
            self._say_notices(request)
        failed = reply is not None and reply.content.get("status") == "error"
        if reply is not None:
            self._reply(request, reply)
        self._status("idle", request)
        if request.is_execute:
            self.commands.append(NoteDone(request, reply))
        if failed and request.is_execute and request.message.content.get("stop_on_error", True):
            for waiting in self.queue.take_waiting_cells(request):
                self.abort(waiting)
        self.commands.append(CloseRequest(request))

    def abort(self, request: PendingRequest) -> None:
        """End a cell that does not run, since one before it failed, and say so from busy to idle."""
        if request.finished:
            return
        self.ending.discard(request)
        self.queue.advance(request, RequestEvent.END)
        self._status("busy", request)
        self._reply(request, host_words.aborted(request))
        self._status("idle", request)
        self.commands.append(CloseRequest(request))

    def found(self, request: PendingRequest, name: str | None) -> None:
        """Note what lies beside the notebook of what a cell did not find."""
        request.beside = name

    def close(self, request: PendingRequest) -> None:
        """Forget what was asked, answered and said: its front end has it all."""
        self.queue.advance(request, RequestEvent.CLOSE)

    def fail(self, request: PendingRequest, defect: BaseException) -> None:
        """End a request whose handling met a defect of ours: the caller must not wait for ever."""
        self.queue.take_waiting(request)
        self._condemn_and_settle(request, _failed(request, defect))

    def _met(self, request: PendingRequest, defect: Exception) -> None:
        self.commands.append(NoteDefect(f"a {request.message.type}", defect))
        self.fail(request, defect)

    def _look(self, request: PendingRequest) -> None:
        """End a request if the kernel has said all that it owes, and else wait for the rest of it."""
        if request.complete:
            self._settle(request)
        else:
            self._wait_for_rest(request)

    def _give_up(self, request: PendingRequest) -> None:
        """End a request whose rest does not come."""
        self._emit(RequestCompleted(reason="idle without reply" if request.idle else "reply without idle"))
        if request.interrupted and request.reply is None:
            request.condemn(CellInterrupted(EndCode.CELL_INTERRUPTED, kept=Survived.VARIABLES_AND_FILES))
        self._settle(request)

    def _settle(self, request: PendingRequest) -> None:
        """End a request, a cell after its files are copied."""
        request.forget_times()
        self.commands.append(Settle(request, request.is_execute, self._sought(request)))

    def _condemn_and_settle(self, request: PendingRequest, error: SandboxError) -> None:
        """End a request at once, with a reason, without a step towards the kernel."""
        if not request.finished:
            request.condemn(error)
            self.commands.append(Settle(request))

    def _sought(self, request: PendingRequest) -> Sequence[str]:
        """Return the files that a cell did not find, if a person may be told whether they lie beside the notebook.

        A cell must not get to hear it. What it prints is read back into the sandbox by an Output widget, and by any
        script in the page: where there may be one, no file is looked up.
        """
        if request.reply is None or request.reply.content.get("status") != "error" or request.verdict is not None:
            return ()
        failure = host_words.failure_of(request)
        return () if failure is None or self.policy.overheard else self._hints.sought(failure)

    def _last_reply(self, request: PendingRequest) -> Message | None:
        """Return the reply that a request gets, and say of a cell why it was ended or why it failed."""
        failed = request.reply is not None and request.reply.content.get("status") != "ok"
        silent = failed and host_words.failed_in_silence(request)
        if request.interrupted and silent:
            request.condemn(CellInterrupted(EndCode.CELL_INTERRUPTED, kept=Survived.VARIABLES_AND_FILES))
        if request.reply is None and request.reply_type is not None:
            request.condemn(ReplyLost(EndCode.KERNEL_NO_REPLY, kept=Survived.VARIABLES_AND_FILES))
        reply, error = request.reply, request.verdict
        if error is not None:
            if request.is_execute:
                self._say("error", host_words.error_content(request, error), request)
            return self._ours(request, error) if request.reply_type is not None else None
        if request.is_execute and request.is_heard:
            failure = host_words.failure_of(request) if failed else None
            if silent and failure is not None:
                name, value, lines = failure.name, failure.value, list(failure.traceback)
                self._say("error", {"ename": name, "evalue": value, "traceback": lines}, request)
            code = str(request.message.content.get("code", ""))
            self.notice(*self._hints.of_cell(failure, request.beside, request.not_found, code))
        return reply

    # --- ends from outside: an interrupt, then a new kernel, then the end of the sandbox, each bounded in time ---

    def end_from_outside(self, request: PendingRequest, error: SandboxError) -> None:
        """End a request: interrupt it, then kill its kernel, then its sandbox."""
        if not request.finished and request.verdict is None:
            error.leaves(Survived.VARIABLES_AND_FILES)  # now: the cell may end before the interrupt is answered
            self._begin_end(request, error, Step.INTERRUPT)

    def signalled(self, request: PendingRequest) -> None:
        """Give a request that was interrupted the time to end by itself."""
        if not request.finished and request.step is Step.INTERRUPT:
            request.step_at = self.now + self._limits.interrupt_grace

    def kills(self) -> None:
        """Send nothing more to a kernel that is killed now."""
        self.killing = self._kill_asked

    def killed(self) -> None:
        """Give the kernel that was killed the time to be seen dead."""
        if self.killing:
            self._kill_at = self.now + KILL_SECONDS

    def step_failed(self, request: PendingRequest | None, failure: SandboxError) -> None:
        """Take the next step after one that could not be taken, with the kernel or, for a request, its interrupt."""
        self._emit(EscalationFailed(reason=str(failure)))
        if request is None:
            self._not_dead(failure)
        elif not request.finished:
            self._end_sandbox(request)

    def _begin_end(self, request: PendingRequest, error: SandboxError, step: Step) -> None:
        request.condemn(error)
        request.interrupt(self._limits)
        if request.idle and request.rest_at is not None:
            self._wait_for_rest(request)  # with the shorter patience
        kind, reason = request.message.type, str(error)
        self._emit(RequestCondemned(request=kind, error=error.name, code=error.code, reason=reason))
        self.ending.add(request)
        if step is Step.KILL:
            self._kill_for(request)
        else:
            request.step = step
            self.commands.append(Interrupt(request))

    def _kill_for(self, request: PendingRequest) -> None:
        """Kill the kernel of a request, whose interrupt was ignored, or would be."""
        request.step, request.step_at = Step.KILL, None
        self._ask_kill()

    def _kill_kernel(self, error: SandboxError) -> None:
        """Have the kernel replaced, or its sandbox ended if that cannot be done; `error` says why."""
        self._flood_ends = error
        self._ask_kill()

    def _ask_kill(self) -> None:
        if not self._kill_asked:
            self._kill_asked = True
            self.commands.append(KillKernel())

    def _not_dead(self, failure: SandboxError | None = None) -> None:
        """End the sandbox of a kernel that could not be killed."""
        error, self._flood_ends = failure or self._flood_ends, None
        self._kernel_gone()
        waiting = [request for request in self.queue.in_flight if request.step is Step.KILL]
        if waiting:
            self._end_sandbox(*waiting)
        elif error is not None:
            self.commands.append(KillSandbox(error))

    def _end_sandbox(self, *requests: PendingRequest) -> None:
        self.ending.difference_update(requests)
        errors = [request.verdict for request in requests if request.verdict is not None]
        for error in errors:
            error.leaves(Survived.NOTHING, "the sandbox had to be ended")
        self.commands.append(KillSandbox(errors[0] if errors else SandboxDied(EndCode.SANDBOX_DIED)))

    def _kernel_gone(self) -> None:
        self._kill_asked, self.killing, self._kill_at = False, False, None

    def _time_is_up(self, request: PendingRequest) -> None:
        every = self._limits.cell_timeout
        what = "the cell" if request.is_execute else f"a {request.message.type}"
        code = EndCode.CELL_TIMEOUT if request.is_execute else EndCode.REQUEST_TIMEOUT
        own = request.seconds is not None and request.seconds < every
        error = CellTimeout(
            Note(code, f"{what} ran longer than its time limit and was stopped"),
            limit=f"{request.seconds if own else every:g} s",
            value=f"{self.now - request.started:.1f} s",
            setting="timeout" if own else "cell_timeout",
        )
        if request.message.channel == "control":
            # Nothing on control deserves an interrupt, which would meet the running cell.
            self._condemn_and_settle(request, error)
        else:
            self.end_from_outside(request, error)

    # --- deaths ---

    def kernel_died(self, error: SandboxError, *, asked_for: bool = False) -> None:
        """End what was in the kernel; what waits will go to the next one. A requested end is not reported."""
        self._kernel_gone()
        if (flood := self.flood) is not None:
            flood.leaves(Survived.FILES, "a thread of an earlier cell went on sending")
            error = flood
        self._forget_kernel()
        flying = self.queue.in_flight
        if not asked_for and not any(request.is_heard for request in flying):
            cancelled = any(request.is_execute for request in flying)
            when = "after a cell was cancelled" if cancelled else "between two cells"
            self.notice(f"{error} (This happened {when}.)")
        for request in flying:
            if error.kept is Survived.BEFORE_CELL and request.verdict is not None:
                request.verdict.leaves(Survived.BEFORE_CELL)
            if request.reply is None:  # a reply that was sent before the death still counts
                request.condemn(error)
            self.commands.append(Settle(request))

    def sandbox_died(self, error: SandboxError, *, keep_waiting: bool = False, lost: bool = True) -> None:
        """End everything, also what has not been sent, unless that may wait for the next sandbox.

        Without a cell to tell it, the next one tells what was lost, if anything was.
        """
        self._kernel_gone()
        self._forget_kernel()
        if keep_waiting and not any(self.queue.running_cells()):
            self.notice(str(error))
            for request in self.queue.in_flight:
                self._condemn_and_settle(request, error)
            return
        flying, waiting = self.queue.take_all()
        if lost and not any(request.is_heard for request in flying + waiting):
            self.notice(str(error))
        aborting: set[tuple[str, str]] = set()
        for request in flying + waiting:
            of = request.queue, request.caller
            if request.is_execute and of in aborting:
                self.commands.append(Settle(request, aborts=True))
                continue
            if request.is_execute and request.message.content.get("stop_on_error", True):
                aborting.add(of)
            self._condemn_and_settle(request, error)

    def _forget_kernel(self) -> None:
        """Begin again for the next kernel; what its session may send stays what it was."""
        self.kernel_worked = self.debugs = self._flooded = False
        self.flood = self._flood_ends = None
        self._dropped = CellBudget(self._limits)
        self.policy = self.policy.renewed()

    # --- what the host says ---

    def notice(self, *notices: str) -> None:
        """Have something said on stderr of the next cell."""
        self.notices.extend(notices[: max(0, MAX_NOTICES - len(self.notices))])

    def say(self, text: str) -> None:
        """Say one line on stderr of the cell that runs, or of the next one."""
        if any(request.sent and not request.finished for request in self.queue.running_cells()):
            self.tell(text)
        else:
            self.notice(text)

    def tell(self, text: str) -> None:
        """Say one line of the host's own on stderr of the cell that began last, within what the cell may send."""
        line = " ".join(text.split())[:MAX_TOLD_CHARACTERS]
        for request in reversed(list(self.queue.running_cells())):
            if request.is_heard and request.sent and not request.finished and request.tell():
                if self._allows("stream", request, len(line)):
                    self._tell(line, request)
                return

    def undelivered(self, command: Deliver, error: ProtocolError) -> None:
        """Say at once that a message cannot be delivered, as its reply or in its cell."""
        message, request, why = command.message, command.request, Note(error.code, str(error))
        self._note(MessageDropped, why, message.type)
        if request is None:
            return
        if command.client is not None:
            self.commands.appendleft(Deliver(self._ours(request, error), command.client))
        elif not request.finished:
            self._leave_out(why, message.type, request)

    def _leave_out(self, why: Note, kind: str, request: PendingRequest) -> None:
        """Say in a cell that one of its outputs is missing."""
        if kind in OUTPUTS and request.is_heard and request.tell() and self._allows("stream", request, len(why.text)):
            self._tell(f"left out {kind or 'a message'}: {why.text}", request)

    def _tell(self, line: str, request: PendingRequest) -> None:
        self._say("stream", {"name": "stderr", "text": f"[sandbox_kernel] {line}\n"}, request)

    def _say_notices(self, request: PendingRequest) -> None:
        if request.is_heard:
            text = "".join(f"[sandbox_kernel] {notice}\n" for notice in dict.fromkeys(self.notices[:20]))
            self.notices.clear()
            self._say("stream", {"name": "stderr", "text": text}, request)

    def _status(self, state: str, request: PendingRequest) -> None:
        header, parent, content = {"msg_type": "status"}, dict(request.message.header), {"execution_state": state}
        self.commands.append(Deliver(Message(channel="iopub", header=header, parent=parent, content=content), None))

    def _reply(self, request: PendingRequest, reply: Message) -> None:
        """Deliver a reply that has been filtered, or one that says why it cannot be sent."""
        self.commands.append(Deliver(reply, request.client, request))

    def _ours(self, request: PendingRequest, error: SandboxError) -> Message:
        """Return the reply that the host writes in place of the kernel's, as it may be delivered."""
        reply = host_words.error_reply(request, error)
        passed = self._own(reply)
        return passed if passed is not None else replace(reply, content=host_words.plain_error(error))

    def _say(self, kind: str, content: dict[str, object], request: PendingRequest, *, plain: bool = False) -> None:
        header, parent = {"msg_type": kind}, dict(request.message.header)
        message = Message(channel="iopub", header=header, parent=parent, content=content, plain=plain)
        if (passed := self._own(message)) is not None:
            self.commands.append(Deliver(passed, None))

    def _own(self, message: Message) -> Message | None:
        """Return what the host writes as it may pass: words of the code are in it. None if it may not.

        A defect of ours loses these words and nothing else: the end of a cell is still reported.
        """
        try:
            return self._own_words.apply(message).message
        except RecursionError:
            return None
        except Exception as defect:
            log_defect("the policy for what the host says", defect)
            self._note(MessageDropped, EndCode.DEFECT.note(what=repr(defect)[:200]), message.type)
            return None

    def _judge(self, message: Message, request: PendingRequest | None) -> Verdict:
        """Apply the output policy. May run in another thread, for one message at a time."""
        asked = request.message.content if request is not None else None
        message = replace(message, parent=parent_of(request))
        try:
            place = host_words.place_of(request) if message.channel == "iopub" else None
            return self.policy.apply(message, place, asked)
        except RecursionError:
            return Verdict(None, (OutputCode.TOO_DEEP.note(),))

    def _passed(self, message: Message, verdict: Verdict) -> Message | None:
        """Return a message as it may pass, None if it may not, and tell what was removed."""
        for note in verdict.notes:
            self._emit(OutputRemoved(type=message.type, code=note.code, reason=note.text))
        passed = verdict.message
        return replace(passed, work=verdict.work) if passed is not None and verdict.work else passed

    def _note(self, event: type[OutputRemoved | MessageDropped], why: Code | Note, kind: str) -> None:
        """Tell of a message, as often as a session may."""
        note = why.note() if isinstance(why, Code) else why
        self._noted += 1
        if self._noted < MAX_NOTED:
            self._emit(event(code=note.code, reason=note.text, type=kind))
        elif self._noted == MAX_NOTED:
            last = "no more of this is written in this session"
            self._emit(MessageDropped(code=note.code, reason=note.text, type=kind, last=last))

    def _emit(self, event: SessionEvent) -> None:
        self.commands.append(EmitEvent(event))


def _failed(request: PendingRequest, defect: BaseException) -> SandboxError:
    return SandboxError(EndCode.PLATFORM_FAILED, f"sandbox_kernel failed at this {request.message.type}: {defect!r}")
