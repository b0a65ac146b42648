"""The requests of a session: which are open, which may be sent, and whose outputs may pass.

Pure bookkeeping: no I/O, no timer, and nothing of the container's is believed. A request is known from its arrival on,
long after its end too, because a thread may print late; how many are remembered is bounded.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...core.call_context import caller
from ...core.errors import CallCancelled, SandboxError
from ...core.model import Limits, Message
from ...policy import protocol
from ...policy.budget import CellBudget
from .request_states import TABLE, RequestEvent, RequestState, Step, following

if TYPE_CHECKING:
    from ...core.screen_findings import Finding
    from ...plugins.api import Question, Review

MAX_REMEMBERED = 10_000
"""Finished requests whose late outputs still find their cell."""
MAX_WAITING = 1_000
"""Requests waiting in one queue; "run all" of a long notebook is a few hundred."""
MAX_UNASKED = 100
"""Answers to one cell that asks for input where none is allowed; each waits for the kernel to take it."""
MAX_TOLD = 50
"""Lines of the host's own in one cell while it runs; the audit has them all."""

_COUNTED = re.compile(r"(.{1,200}_([0-9]{1,20})_)([0-9]{1,15})", re.DOTALL)
"""An id of jupyter_client's: its session, its process, and a number that each of its messages raises by one."""


@dataclass(slots=True, eq=False)
class PendingRequest:
    """One request of a front end and what became of it. Everybody may read it; its queue and the machine change it."""

    message: Message
    client: bytes
    queue: str
    seconds: float | None = None
    """A time limit of its own; it never extends the one that every cell has."""
    reads: str | None = None
    """Of a cell of this host's own: what it does for its caller, which guards read in place of its code."""
    order: int = 0
    """Which of its queue's requests it is: an id comes again, where one manager makes one client after another."""
    batch: str | None = None
    """Of cells without an id that their client has sent one after another: which of its queue's batches they are."""
    caller: str = field(default_factory=caller.get)

    id: str = field(init=False)
    is_execute: bool = field(init=False)
    is_comm: bool = field(init=False)
    reply_type: str | None = field(init=False)
    """None for a request that has no reply."""

    # How far it came.
    state: RequestState = RequestState.WAITING
    sent: bool = False
    busy: bool = False
    """Whether the kernel took it up, be it done with it or not."""
    idle: bool = False
    finished: bool = False
    """Whether it has its end; the kernel may not have come so far."""
    started: float = 0.0
    """When it was sent, or a comm message was taken up, by `time.monotonic`; 0 before that."""

    # When the machine looks at it again, by the same clock; None is never.
    limit_at: float | None = None
    """Its time is up."""
    left: float | None = None
    """Seconds left of that while it waits for a person."""
    pause_at: float | None = None
    """It has waited for a person for too long."""
    pause_left: float | None = None
    """Seconds left of that, once it has waited."""
    rest_at: float | None = None
    """What it is still owed, reply or idle, does not come."""
    step_at: float | None = None
    """The next step of its end from outside is due."""
    ask_at: float | None = None
    """The host's own question about it is open no longer."""
    step: Step = Step.NONE

    # What came of it.
    reply: Message | None = None
    verdict: SandboxError | None = None
    """Why the request is being ended from outside; the first reason stands."""
    held_bytes: int = 0
    """What the reply costs in memory, at most, while it waits for its idle."""
    traceback: tuple[str, ...] = ()
    """Of the kernel's own error output, held back while a verdict stands."""
    execution_count: int = 0
    budget: CellBudget | None = None
    """What it may still send; made with its first output."""
    awaiting_input: bool = False
    questions: int = 0
    """How often it has asked for input."""
    unasked: int = 0
    """How often it was answered without anybody being asked."""
    told: int = 0
    """Lines that the host has said in it while it ran."""
    findings: tuple[Finding, ...] = ()
    """What guards found in it before it was sent."""
    reviews: list[Callable[[], Awaitable[Review]]] = field(default_factory=list)
    """What guards have still to say of it, in their order, before anybody is asked."""
    asks: list[Question] = field(default_factory=list)
    """What a person is asked before it is sent. The first one is open, and each needs a yes."""
    yes: str = ""
    """The answer to that which is a yes."""
    beside: str | None = None
    """A file beside the notebook that the cell did not find."""
    not_found: str | None = None
    """A program that a shell in the cell did not find, as far as its output says."""
    showed_error: bool = False
    """Whether the kernel published an error of it."""
    interrupted: bool = False
    """Whether the kernel was interrupted while it had this cell."""

    def __post_init__(self) -> None:
        kind = self.message.type
        self.id = self.message.id
        self.is_execute, self.is_comm = kind == "execute_request", kind in protocol.COMMS
        self.reply_type = protocol.reply_type(kind)

    @property
    def is_heard(self) -> bool:
        """Whether it is a cell whose outputs somebody waits for."""
        return self.is_execute and not isinstance(self.verdict, CallCancelled)

    @property
    def messages(self) -> int:
        """How many counted messages it has sent."""
        return 0 if self.budget is None else self.budget.messages

    @property
    def is_over(self) -> bool:
        """Whether nothing of its content is needed any more; nobody says when a comm message is done with."""
        return self.finished or (self.is_comm and self.sent)

    @property
    def over_budget(self) -> bool:
        return self.budget is not None and self.budget.exceeded is not None

    @property
    def complete(self) -> bool:
        """Whether the kernel has said everything it owes."""
        return self.idle and (self.reply is not None or self.reply_type is None)

    def condemn(self, error: SandboxError) -> None:
        """Note why it is ended from outside, unless there is a reason already."""
        self.verdict = self.verdict or error

    def interrupt(self, limits: Limits) -> None:
        """Note that the kernel is interrupted: what is still to come has little time left to be looked at."""
        self.interrupted = self.is_execute
        self.allowance(limits).hurry()

    def tell(self) -> bool:
        """Count a line that the host says in it; return whether it may be said."""
        self.told += 1
        return self.told <= MAX_TOLD

    def pass_over(self) -> bool:
        """Count a question that nobody may be asked; return whether it is answered all the same."""
        self.unasked += 1
        return self.unasked <= MAX_UNASKED

    def allowance(self, limits: Limits) -> CellBudget:
        """Return what it may still send."""
        if self.budget is None:
            self.budget = CellBudget(limits)
        return self.budget

    def forget_content(self) -> None:
        """Keep what a late output needs, the request's header, and nothing of what was asked, answered or said."""
        self.message = replace(self.message, metadata={}, content={}, buffers=())
        self.reply, self.traceback, self.held_bytes = None, (), 0
        self.asks.clear()
        self.reviews.clear()

    def forget_times(self) -> None:
        """Have no time count for it any more."""
        self.limit_at = self.left = self.pause_at = self.rest_at = self.step_at = self.ask_at = None


Changed = Callable[[PendingRequest, RequestState], None]
"""Takes a request that has changed, and its state before."""


class RequestQueue:
    """All requests of one session, in queues: one for each subshell, and one for the control channel.

    At most one cell of a queue is in the kernel at a time, and nothing else of that queue beside it: so the clock of a
    cell starts when the kernel can run it, and a kernel's death takes one cell, not a notebook. Comm messages are the
    exception, since a running cell may wait for one.
    """

    def __init__(self) -> None:
        self.listeners: list[Changed] = []
        """Called with each change, in this order, after the queue itself knows."""
        self._known: OrderedDict[str, PendingRequest] = OrderedDict()
        self._waiting: dict[str, deque[PendingRequest]] = {}
        self.flying: dict[str, PendingRequest] = {}
        """What is in the kernel or on its way, by id."""
        self._count = 0
        self._batch = ("", 0, "")
        """The newest cell of the newest batch: what its id begins with, its number, and the batch."""

    def add(
        self, message: Message, client: bytes, seconds: float | None = None, reads: str | None = None
    ) -> PendingRequest | None:
        """Register a request; None if one of its id has not ended yet, or too many are waiting."""
        queue: str = message.channel
        subshell = message.header.get("subshell_id")
        if queue == "shell" and isinstance(subshell, str):
            queue = f"shell {subshell}"
        waiting = self._waiting.setdefault(queue, deque())
        name = message.id
        known = self._known.get(name)
        if (known is not None and not self._is_over(known)) or len(waiting) >= MAX_WAITING:
            return None
        self._count += 1
        batch = self._batch_of(message, name)
        request = PendingRequest(message, client, queue, seconds, reads, self._count, batch)
        self._known[name] = request
        self._known.move_to_end(name)
        waiting.append(request)
        self._forget()
        return request

    def _batch_of(self, message: Message, name: str) -> str | None:
        """Return the batch of a cell that a program runs which writes a notebook: nbclient, and what stands on it.

        Such a program has started this process, answers no question, names no cell, and asks for nothing between two of
        them. Others show each output by itself, or run a cell again: a cell of theirs is in no batch.
        """
        content, counted = message.content, _COUNTED.fullmatch(name)
        starters = {str(os.getppid()), os.environ.get("JPY_PARENT_PID")}  # the parent may be a fork server
        if message.type != "execute_request" or counted is None or counted[2] not in starters:
            return None
        shown = content.get("store_history", True) is True and content.get("silent", False) is False
        if not shown or content.get("allow_stdin") is not False or "cellId" in message.metadata:
            return None
        begins, before, batch = self._batch
        number = int(counted[3])
        if (counted[1], number) != (begins, before + 1):
            batch = f"{name} {self._count}"  # an id comes again
        self._batch = counted[1], number, batch
        return batch

    def find(self, message_id: object) -> PendingRequest | None:
        return self._known.get(message_id) if isinstance(message_id, str) else None

    def take_sendable(self) -> list[PendingRequest]:
        """Take the requests that may go to the kernel now, in order."""
        ready: list[PendingRequest] = []
        if not self._waiting:
            return ready
        for name, waiting in self._waiting.items():
            busy = [request for request in self.flying.values() if request.queue == name]
            kept: deque[PendingRequest] = deque()
            for request in waiting:
                if request.is_comm:
                    # It must not wait behind a cell that waits for it.
                    ready.append(request)
                elif name != "control" and (
                    kept or (busy and request.is_execute) or any(other.is_execute for other in busy)
                ):
                    kept.append(request)
                else:
                    ready.append(request)
                    busy.append(request)
            self._waiting[name] = kept
        self._waiting = {name: waiting for name, waiting in self._waiting.items() if waiting}
        for request in ready:
            self.advance(request, RequestEvent.TAKE)
        return ready

    def advance(self, request: PendingRequest, event: RequestEvent) -> None:
        """Have something happen to a request, and tell it. Raises `ImpossibleError` for what cannot happen to it."""
        before = request.state
        state = request.state = TABLE[before].get(event) or following(before, event)
        # A comm message counts as under way only once the kernel works on it: ipykernel handles one without any status
        # while a cell awaits, so it may never be heard of again.
        if state is RequestState.BUSY or (state is RequestState.NEXT and not request.is_comm):
            self.flying[request.id] = request
        if state is RequestState.SENT:
            request.sent = True
        elif state is RequestState.BUSY:
            request.busy = True
        elif state is RequestState.IDLE:
            request.idle = True
        elif state is RequestState.ENDED:
            request.finished, request.step = True, Step.NONE
            request.forget_times()
            self.flying.pop(request.id, None)
        elif state is RequestState.CLOSED:
            request.forget_content()
        for listener in self.listeners:
            listener(request, before)

    def take_waiting(self, request: PendingRequest) -> bool:
        """Take one request out of its queue; return whether it was still waiting there."""
        waiting = self._waiting.get(request.queue, deque())
        if request not in waiting:
            return False
        waiting.remove(request)
        return True

    def take_unsent_cells(self) -> list[PendingRequest]:
        """Take the cell of each queue that is its next one, if it was not sent yet."""
        found = [request for request in self.flying.values() if request.is_execute and not request.sent]
        for name, waiting in self._waiting.items():
            cell = next((request for request in waiting if request.is_execute), None)
            if cell is not None and not any(request.queue == name for request in self.running_cells()):
                waiting.remove(cell)
                found.append(cell)
        return found

    def take_waiting_cells(self, failed: PendingRequest) -> list[PendingRequest]:
        """Take out the cells that a failed one aborts (`stop_on_error`): those of its queue and of its caller."""
        waiting = self._waiting.get(failed.queue, deque())
        cells = [request for request in waiting if request.is_execute and request.caller == failed.caller]
        for request in cells:
            waiting.remove(request)
        return cells

    def take_all(self) -> tuple[list[PendingRequest], list[PendingRequest]]:
        """Take out everything, as (in flight, waiting)."""
        flying = list(self.flying.values())
        waiting = [request for queue in self._waiting.values() for request in queue]
        self._waiting.clear()
        return flying, waiting

    @property
    def held_bytes(self) -> int:
        """What all replies that wait for their idle cost in memory, at most."""
        return sum(request.held_bytes for request in self.flying.values())

    @property
    def in_flight(self) -> list[PendingRequest]:
        return list(self.flying.values())

    @property
    def active(self) -> bool:
        """Whether anything is waiting or under way."""
        return bool(self.flying) or any(self._waiting.values())

    @property
    def has_own_alone(self) -> bool:
        """Whether all that is waiting or under way are cells of this host's own."""
        waiting = (request for requests in self._waiting.values() for request in requests)
        return all(request.reads is not None for request in (*self.flying.values(), *waiting))

    def running_cells(self) -> Iterator[PendingRequest]:
        return (request for request in self.flying.values() if request.is_execute)

    def _forget(self) -> None:
        while len(self._known) > MAX_REMEMBERED:
            for key, request in self._known.items():
                if self._is_over(request):
                    del self._known[key]
                    break
            else:
                return

    def _is_over(self, request: PendingRequest) -> bool:
        return request.is_over and (request.finished or request.id not in self.flying)


def parent_of(request: PendingRequest | None) -> dict[str, Any]:
    """Return the parent header that the host can vouch for: the one it received itself."""
    return dict(request.message.header) if request is not None else {}
