"""What a kernel says, sent on its way: each message to the request it belongs to, or nowhere.

It passes the tables of `protocol`, the requests that are known, the limits and the output policy, in that order; what
is left leaves with a parent header that the host itself received. What takes long is done in another thread, one
message at a time, so that an interrupt need not wait for it. Knows neither links nor containers; whether a kernel is
ready is described elsewhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ...container import wire
from ...core.answer_allowance import MEMORY_FACTOR
from ...core.codes import Code, EndCode, MessageCode, Note, Survived
from ...core.errors import OutputLimit, ProtocolError, ReplyLost
from ...core.model import Limits, Message, format_bytes
from ...policy import CellBudget, SessionBudget, Verdict, cut
from ...policy.json_check import count
from .. import protocol
from ..agent_messages import Oversized
from .escalation import Escalation
from .outbound import OUTPUTS, Outbound
from .queue import PendingRequest, RequestQueue
from .request_end import Completion
from .request_states import Event
from .time_limits import Clocks

SMALL = 1 << 16
"""Bytes up to which what a kernel owes, a status or a reply, is charged to the session alone."""


class Quota:
    """Counts what a kernel sends, and sees to it that too much has an end."""

    def __init__(self, limits: Limits, outbound: Outbound, escalation: Escalation) -> None:
        self._limits = limits
        self._outbound = outbound
        self._escalation = escalation
        self._session = SessionBudget(limits)
        self._dropped = CellBudget(limits)
        """What was sent and did not pass. That costs work too, so there is as little of it as of one cell's output."""
        self._flooded = False
        self._flood: OutputLimit | None = None

    @property
    def flood(self) -> OutputLimit | None:
        """Why this kernel has to go, if it sent a flood."""
        return self._flood

    def allows(self, kind: str, request: PendingRequest | None, size: int, *, owed: bool = False) -> bool:
        """Charge an output to its cell and to the session; see to it that a flood ends.

        What is `owed` counts by its size: an honest cell that uses its limit to the last message still gets its reply.
        """
        own = request.allowance(self._limits) if request is not None and not (owed and size < SMALL) else None
        for budget in (self._session, own):
            if budget is None or budget.charge(size, 0 if owed else 1).allowed:
                continue
            if request is not None and not request.finished:
                self._escalation.end(request, budget.exceeded or too_much())
            else:
                # A thread goes on after its cell: nothing to interrupt, so its kernel has to go.
                self._end_flood(budget.exceeded, kind)
            return False
        return True

    def charge_status(self, size: int) -> None:
        """Count a status, which always passes."""
        self._session.charge(size, 0)

    def drop(self, why: Code | Note, size: int, kind: str = "", *, quietly: bool = False) -> None:
        """Note a message that does not pass; a kernel that goes on sending such is ended."""
        if not quietly:
            self._outbound.dropped(why, kind)
        if not self._dropped.charge(size).allowed:
            self._end_flood(self._dropped.exceeded, kind)

    def forget_kernel(self) -> None:
        """Begin again for the next kernel; what its session may send stays what it was."""
        self._flooded, self._flood = False, None
        self._dropped = CellBudget(self._limits)

    def _end_flood(self, error: OutputLimit | None, kind: str) -> None:
        if self._flooded:
            return
        self._flooded, self._flood = True, error
        self._outbound.emit("flood", code=error.code.code if error else None, reason=str(error), type=kind)
        self._escalation.end_kernel(
            error or OutputLimit(EndCode.OUTPUT_TOO_LARGE, "a thread of an earlier cell went on sending")
        )


def too_much() -> OutputLimit:
    return OutputLimit(EndCode.OUTPUT_TOO_LARGE.note(who="cell"))


GO_ON = frozenset({"continue", "next", "stepIn", "stepOut", "disconnect", "terminate"})
"""Commands after which a cell runs again."""


class Debugger:
    """What front ends asked the debugger, and what it says."""

    def __init__(self, requests: RequestQueue, clocks: Clocks) -> None:
        self._requests = requests
        self._clocks = clocks
        self.attached = False

    def asked(self, command: str) -> None:
        """Note a command of a front end."""
        if command == "attach":
            self.attached = True
        elif command in {"disconnect", "terminate"}:
            self.attached = False
        if command in GO_ON:
            for request in self._requests.running_cells():
                self._clocks.resume(request)

    def said(self, event: object) -> None:
        """Take in an event of the kernel's."""
        for request in self._requests.running_cells():
            if event == "stopped":
                self._clocks.pause(request)
            elif event == "continued":
                self._clocks.resume(request)

    def forget_kernel(self) -> None:
        self.attached = False


REWRITES = frozenset({"clear_output", "error", "execute_result"})
"""What a cell may publish only while it runs."""
LARGE, MEDIUM = 1 << 20, 1 << 15
"""Bytes from which a message is parsed, and filtered, in another thread: an interrupt must not wait for that."""
MAX_TOLD_CHARACTERS = 1000
"""Of one line that the host says in a cell."""


class Inbound:
    """The messages of a session's kernels, one after another."""

    def __init__(
        self,
        limits: Limits,
        requests: RequestQueue,
        outbound: Outbound,
        clocks: Clocks,
        *,
        escalation: Escalation,
        completion: Completion,
        answer_nothing: Callable[[PendingRequest], None],
    ) -> None:
        """`answer_nothing` answers a question that no front end may be asked: some kernels ask all the same."""
        self._limits = limits
        self._answer_nothing = answer_nothing
        self._requests = requests
        self._outbound = outbound
        self._clocks = clocks
        self._escalation = escalation
        self._completion = completion
        self.debugger = Debugger(requests, clocks)
        self._quota = Quota(limits, outbound, escalation)
        self._kernel_worked = False

    @property
    def kernel_worked(self) -> bool:
        """Whether this kernel took up a cell."""
        return self._kernel_worked

    @property
    def flood(self) -> OutputLimit | None:
        """Why this kernel has to go, if it sent a flood."""
        return self._quota.flood

    def forget_kernel(self) -> None:
        """Begin again for the next kernel."""
        self._kernel_worked = False
        self._quota.forget_kernel()
        self.debugger.forget_kernel()
        self._outbound.forget_kernel()

    # --- what comes: the caller waits for one message of a container before the next ---

    async def parse(self, kind: int, parts: list[bytes], size: int) -> Message | None:
        """Return the message of a frame of `size` bytes, None for one that may not pass; empties `parts`."""
        most = self._limits.message_limit
        try:
            if size < LARGE:
                message = protocol.decode(kind, parts, most)
            else:
                message = await asyncio.to_thread(protocol.decode, kind, parts, most)
        except protocol.TooHeavyError as error:
            parts.clear()
            self.too_heavy(error, size)
            return None
        except protocol.UnreadableError as error:
            self.unreadable(error, size)
            return None
        except ProtocolError as error:
            self.drop(Note(error.code, error.message), size)
            return None
        parts.clear()  # before the message is written again: what came and what goes are not held together
        return message

    async def pass_on(self, message: Message, size: int) -> None:
        """Give a message of a kernel that is ready to the request it belongs to.

        What it becomes in memory counts as well as what came: a cell may send many messages, and a program keeps them.
        """
        verdict = await asyncio.to_thread(self.judge, message) if size >= MEDIUM else None
        self.receive(message, max(size, message.memory // MEMORY_FACTOR), verdict)

    def judge(self, message: Message) -> Verdict | None:
        """Apply the output policy to a large message ahead of `receive`; may run in another thread, one at a time."""
        request = self._requests.find(message.parent.get("msg_id"))
        if message.parent and (request is None or not request.sent or request.over_budget):
            return None
        begun = time.thread_time()
        verdict = self._outbound.judge(message, request)
        if request is not None:
            request.allowance(self._limits).spend(time.thread_time() - begun)
        return verdict

    def receive(self, message: Message, size: int, verdict: Verdict | None = None) -> None:
        """Take a decoded message of the kernel, of `size` bytes on the wire; `verdict` is what `judge` said of it."""
        request = self._requests.find(message.parent.get("msg_id"))
        if request is None and (message.parent or message.channel != "iopub"):
            self.drop(MessageCode.UNKNOWN_PARENT, size, message.type)
            return
        if request is not None and not request.sent:
            self.drop(MessageCode.NOT_SENT_YET, size, message.type)
            return
        if message.mended:
            self._outbound.noted("policy", MessageCode.MENDED, message.type)
        if message.channel == "iopub":
            self._published(message, request, size, verdict)
        elif request is not None and message.channel == "stdin":
            self._input_request(message, request, size)
        elif request is not None:
            self._replied(message, request, size, verdict)

    def too_heavy(self, error: protocol.TooHeavyError, size: int) -> None:
        """End the cell that sent a message which was not even parsed."""
        request = self._requests.find(error.parent.get("msg_id"))
        if request is None or request.finished or not request.sent:
            self.drop(MessageCode.NOT_TAKEN_IN.note(why=error.message), size, error.kind)
        elif self._quota.allows(error.kind, request, size):
            limit = OutputLimit(
                EndCode.MESSAGE_TOO_HEAVY.note(why=error.message),
                limit=f"{format_bytes(protocol.MEMORY_FACTOR * self._limits.message_limit)} of memory",
                value=f"more than that, from {format_bytes(size)} as it came",
                setting="message_limit",
            )
            self._escalation.end(request, limit)

    def unreadable(self, error: protocol.UnreadableError, size: int) -> None:
        """Say in the cell what was left out; end at once what waits for a reply that cannot be read.

        What no honest kernel sends is dropped, and the cell goes on.
        """
        why, welcome = Note(error.code, error.message), error.code is MessageCode.WELCOME
        self.drop(why, size, error.kind, quietly=welcome)
        request = self._requests.find(error.parent.get("msg_id"))
        forged = error.code in {MessageCode.NOT_A_REPLY, MessageCode.NOT_ON_STDIN}
        if request is None or request.finished or not request.sent or welcome or forged:
            return
        if error.channel == "iopub":
            self._leave_out(why, error.kind, request)
        elif error.channel == "stdin":  # the cell would wait for an answer that cannot come
            self._escalation.end(request, ProtocolError(Note(error.code, error.message)))
        elif error.channel == request.message.channel and request.reply is None:
            self._lost(request, error.message)

    def _lost(self, request: PendingRequest, why: str) -> None:
        """End a request whose reply has come, and is of no use."""
        error = ReplyLost(EndCode.REPLY_UNREADABLE.note(why=why), kept=Survived.VARIABLES_AND_FILES)
        request.answer(self._outbound.ours(request, request.verdict or error))
        self._completion.look(request)

    def _leave_out(self, why: Note, kind: str, request: PendingRequest) -> None:
        if (
            kind in OUTPUTS
            and request.is_heard
            and request.tell()
            and self._quota.allows("stream", request, len(why.text))
        ):
            self._outbound.leave_out(why, kind, request)

    def oversized(self, message: Oversized | None, size: int) -> None:
        """End the cell that sent a message which its agent did not even pass on; its word came in `size` bytes."""
        request = None if message is None else self._requests.find(message.parent_id)
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
        self._escalation.end(request, error)

    def tell(self, text: str) -> None:
        """Say one line of the host's own on stderr of the cell that began last, within what the cell may send."""
        line = " ".join(text.split())[:MAX_TOLD_CHARACTERS]
        for request in reversed(list(self._requests.running_cells())):
            if request.is_heard and request.sent and not request.finished and request.tell():
                if self._quota.allows("stream", request, len(line)):
                    self._outbound.tell(line, request)
                return

    def drop(self, why: Code | Note, size: int, kind: str = "", *, quietly: bool = False) -> None:
        """Note a message that does not pass; a kernel that goes on sending such is ended."""
        self._quota.drop(why, size, kind, quietly=quietly)

    # --- each on its way ---

    def _published(self, message: Message, request: PendingRequest | None, size: int, verdict: Verdict | None) -> None:
        if message.type == "status":
            self._status(message, request, size)
            return
        if request is not None and message.type == "execute_input":
            self._input(message, request, size)
            return
        if request is not None and request.finished and message.type in REWRITES:
            # A thread may print late, but it cannot remove what an earlier cell has shown.
            self.drop(MessageCode.CELL_HAS_ENDED, size, message.type)
            return
        if not self._quota.allows(message.type, request, size):
            return
        if message.type == "debug_event":
            if not self.debugger.attached:
                return
            self.debugger.said(message.content.get("event"))
        if request is not None:
            if request.verdict is not None and not request.finished and message.type == "error":
                request.keep_traceback(cut(message.content["traceback"]))
                return
            if message.type == "error":
                request.note_error()
            self._clocks.prolong(request)
        why = self._outbound.publish(message, request, verdict or self.judge(message))
        if why is not None and request is not None and not request.finished:
            self._leave_out(why, message.type, request)

    def _input(self, message: Message, request: PendingRequest, size: int) -> None:
        """Say which cell runs, once; what that is, the host knows better."""
        number = message.content["execution_count"]
        if not request.is_execute or request.finished or request.execution_count or not count(number):
            self.drop(MessageCode.OUT_OF_TURN, size, message.type)
        elif self._quota.allows(message.type, request, size, owed=True):
            request.number(int(number))
            self._outbound.input(request)
            self._outbound.say_notices(request)

    def _status(self, message: Message, request: PendingRequest | None, size: int) -> None:
        state = message.content["execution_state"]
        if request is None or request.finished or size > SMALL:
            self.drop(MessageCode.STATUS_OUT_OF_TURN, size, message.type)
            return
        self._quota.charge_status(size)
        if state == "busy" and not request.busy:
            if request.is_comm:
                request.start(time.monotonic())
            self._requests.advance(request, Event.START)
            self._kernel_worked = self._kernel_worked or request.is_execute
            self._outbound.status("busy", request)
        elif state == "idle" and request.busy and not request.idle:
            self._requests.advance(request, Event.STOP)
            self._completion.look(request)
        else:
            self.drop(MessageCode.STATUS_OUT_OF_TURN, size, message.type)

    def _replied(self, message: Message, request: PendingRequest, size: int, verdict: Verdict | None) -> None:
        if request.finished:
            self.drop(MessageCode.CELL_HAS_ENDED, size, message.type)
        elif message.channel != request.message.channel or request.reply_type is None:
            self.drop(MessageCode.OTHER_REPLY, size, message.type)
        elif request.reply is not None:
            self.drop(MessageCode.SECOND_REPLY, size, message.type)
        elif message.type != request.reply_type:
            self.drop(MessageCode.OTHER_REPLY, size, message.type)
        else:
            if self._quota.allows(message.type, request, size, owed=True):
                reply = self._outbound.kept(message, self._requests, request, size, verdict)
            else:
                reply = self._outbound.ours(request, request.verdict or too_much())
            request.answer(reply)
            self._completion.look(request)

    def _input_request(self, message: Message, request: PendingRequest, size: int) -> None:
        if request.finished or request.awaiting_input or not request.message.content.get("allow_stdin", False):
            self.drop(MessageCode.INPUT_NOT_ALLOWED, size, message.type)
            if not request.finished and not request.awaiting_input and request.pass_over():
                self._answer_nothing(request)
            return
        if not self._quota.allows(message.type, request, size):
            return
        if (allowed := self._outbound.allowed(message, request)) is not None:
            request.ask()
            self._clocks.pause(request)
            self._outbound.ask(allowed, request)
