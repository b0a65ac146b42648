"""The way of a request: from a front end into its queue, to the kernel when its turn comes, and out again at its end.

It joins the parts that each do one thing for it: the queues, the clocks, what comes and what goes, and both kinds of
ends. Knows neither containers nor sockets: those are `Port` and `outbound.Front`.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Protocol

from ...container import wire
from ...core.codes import EndCode, Survived
from ...core.errors import CellInterrupted, SandboxDied, SandboxError
from ...core.model import Limits, Message
from ...core.tasks import Tasks, noted_in
from ...plugins.api import CellGuard
from ...policy import OutputPolicy
from .. import protocol
from ..hints import Hints
from .escalation import Escalation, KernelControl
from .inbound import Inbound
from .outbound import Emit, Front, Outbound
from .queue import PendingRequest, RequestQueue
from .request_end import Completion, Hook, NoRecorder, Recorder
from .request_states import Event, State
from .time_limits import Clocks


class Observer(Protocol):
    """A `CellObserver` of this package's own: it sees all of a request."""

    def cell_sent(self, cell: PendingRequest) -> None: ...
    def cell_ended(self, cell: PendingRequest) -> None: ...
    def kernel_gone(self) -> None: ...


class Port(KernelControl, Protocol):
    """The way to the kernel."""

    @property
    def ready(self) -> bool:
        """Whether the kernel takes requests."""

    def touch(self) -> None:
        """Note that the sandbox was used."""

    def transmit(self, kind: int, parts: list[bytes]) -> None:
        """Send a message. Raises `SandboxError`."""


class Scheduler:
    """The requests of a session's front ends; one for its whole life, over all its kernels and containers."""

    def __init__(
        self,
        limits: Limits,
        port: Port,
        front: Front,
        policy: OutputPolicy,
        emit: Emit,
        *,
        before_cell: Hook | None = None,
        after_cell: Hook | None = None,
        observers: Iterable[Observer] = (),
        recorder: Recorder | None = None,
        guards: Sequence[CellGuard] = (),
        hints: Hints | None = None,
        answers_questions: bool = False,
    ) -> None:
        """`answers_questions` is for a kernel that asks for input where none is allowed, and waits for an answer."""
        self._limits = limits
        self._port = port
        self._before_cell = before_cell
        self._answers_questions = answers_questions
        self._guards = guards
        self._defect = noted_in(emit)
        self._tasks = Tasks(self._defect)
        self._pumping = self._pump_again = False
        self.observers: list[Observer] = list(observers)
        self._held = Counter[str]()
        self.queue = RequestQueue()
        self._outbound = Outbound(front, policy, emit)
        self._clocks = Clocks(limits, self)
        self._escalation = Escalation(limits, port, self._clocks, emit, self._tasks)
        self._recorder = recorder or NoRecorder()
        self._completion = Completion(
            limits,
            self.queue,
            self._outbound,
            self._clocks,
            tasks=self._tasks,
            recorder=self._recorder,
            hints=hints or Hints(limits),
        )
        self.queue.listeners.extend([self._clocks.changed, self._escalation.changed, self._changed])
        if after_cell is not None:
            self._completion.add_hook(after_cell)
        self.inbound = Inbound(
            limits,
            self.queue,
            self._outbound,
            self._clocks,
            escalation=self._escalation,
            completion=self._completion,
            answer_nothing=self._answer_nothing,
        )

    def call_after_cells(self, hook: Hook) -> None:
        """Have `hook` called after each cell, before what is called then already."""
        self._completion.add_hook(hook)

    def join(self, front: Front) -> None:
        """Have a further front end get what the first one gets; its `deliver` must not raise."""
        self._outbound.join(front)

    # --- requests ---

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
            if request.is_comm:
                self._outbound.observe(message)
            if message.type == "debug_request":
                self.inbound.debugger.asked(str(message.content.get("command", "")))
        except Exception as defect:
            self._fail(request, defect)
        self.pump()

    def _refuse(self, refused: PendingRequest) -> None:
        if refused.reply_type is None:
            return
        # Front ends wait for an idle as well. One would end another request, if that has the same id.
        alone = self.queue.find(refused.id) is None
        if alone:
            self._outbound.status("busy", refused)
        self._outbound.reply(refused, self._outbound.ours(refused, SandboxDied(EndCode.REQUEST_REFUSED)))
        if alone:
            self._outbound.status("idle", refused)

    def go_on(self, request: PendingRequest, elapsed: float, left: float) -> None:
        """Take up a cell that another process sent to this kernel, `elapsed` seconds ago; so many are `left` to it."""
        request.start(time.monotonic() - elapsed)
        self.queue.advance(request, Event.SEND)
        self._clocks.start(request, left)

    def seconds_left(self) -> float | None:
        """Return how long the running cell may still run: the shortest if there are several, None if there is none."""
        known = [self._clocks.left(cell) for cell in self.queue.running_cells()]
        return min((left for left in known if left is not None), default=None)

    def hold_clock(self, cell: str, *, held: bool) -> None:
        """Stop the clock of a cell, or let it go on once nothing holds it; all its pauses together are bounded."""
        if held:
            self._held[cell] += 1
        elif self._held[cell] > 1:
            self._held[cell] -= 1
            return
        else:
            del self._held[cell]
        for request in self.queue.running_cells():
            if request.message.id == cell:
                (self._clocks.pause if held else self._clocks.resume)(request)

    def pump(self) -> None:
        """Send what may be sent now."""
        self._pump_again = True
        if self._pumping:
            return  # what cannot be sent ends at once and lets the next one go: a loop, and not ever deeper
        self._pumping = True
        try:
            while self._pump_again and self._port.ready and not self._escalation.is_killing:
                self._pump_again = False
                for request in self.queue.take_sendable():
                    if request.finished or not self._passes(request):
                        continue
                    if request.is_execute and self._before_cell is not None:
                        work = self._prepare_and_transmit(request, self._before_cell)
                        failed = partial(self._completion.fail, request)
                        self._tasks.start(work, "what comes before a cell", failed=failed)
                    else:
                        self._transmit(request)
        finally:
            self._pumping = False

    def _passes(self, request: PendingRequest) -> bool:
        """Return whether all guards let a request through; one that they do not ends here."""
        for guard in self._guards:
            try:
                review = guard.review(request.message, request.reads)
            except Exception as defect:  # what cannot be judged does not pass, and nothing waits for it
                self._fail(request, defect)
                return False
            request.find(review.findings)
            if review.error is not None:
                self._completion.condemn_and_end(request, review.error)
                return False
            if review.warning is not None and request.is_execute and not request.message.content.get("silent"):
                self._outbound.notice(review.warning)
        return True

    def withdraw(self, request: PendingRequest, error: SandboxError) -> None:
        """End an abandoned request; it may not even have been sent."""
        if self.queue.take_waiting(request):
            self._completion.abort(request)
        elif not request.sent:
            self._completion.condemn_and_end(request, error)
        elif not request.complete:  # else only its files are being copied, and there is nothing to interrupt
            self._escalation.end(request, error)

    def block(self, error: SandboxError) -> None:
        """End the kernel with all of its processes, and the cells that run in it with `error`."""
        running = [request for request in self.queue.running_cells() if request.sent and not request.finished]
        for request in running[1:]:
            request.condemn(error)  # they end with the first one's kernel
        if running:
            self._escalation.block(running[0], error)
        else:
            self._escalation.end_kernel(error)

    def say(self, text: str) -> None:
        """Say one line on stderr of the cell that runs, or of the next one."""
        if any(request.sent and not request.finished for request in self.queue.running_cells()):
            self.inbound.tell(text)
        else:
            self._outbound.notice(text)

    def take_back_questions(self) -> None:
        """Cancel open input requests: the kernel is about to be interrupted."""
        for request in self.queue.in_flight:
            if request.awaiting_input:
                request.stop_asking()
                self._clocks.resume(request)

    def interrupted(self) -> None:
        """Note that a front end interrupted the kernel."""
        for request in self.queue.in_flight:
            request.interrupt(self._limits)
        for request in self.queue.take_unsent_cells():
            self._completion.condemn_and_end(request, CellInterrupted(EndCode.CELL_NOT_RUN))

    async def freeze(self) -> None:
        """Let no time pass for any request, once none is being ended; what waits goes on to wait."""
        await self._escalation.calm()
        self._clocks.freeze()

    def thaw(self) -> None:
        """Go on after `freeze`."""
        self._clocks.thaw()
        self.pump()

    async def _prepare_and_transmit(self, request: PendingRequest, hook: Hook) -> None:
        try:
            notes = await hook()
        except (SandboxError, OSError) as error:
            notes = [str(error)]
        if not request.finished:
            self._outbound.notice(*notes)
            self._transmit(request)

    def _transmit(self, request: PendingRequest) -> None:
        request.start(time.monotonic())
        self.queue.advance(request, Event.SEND)
        if request.is_execute:  # and not by `changed`: a process that took a cell over has not sent it
            for observer in self.observers:
                observer.cell_sent(request)
        try:
            self._port.transmit(wire.CHANNELS[request.message.channel], protocol.encode(request.message))
        except SandboxError as error:
            if request.is_comm:
                self._outbound.notice(str(error))
            self._completion.condemn_and_end(request, error)
            return
        except Exception as defect:  # the others that were taken out of their queue must still go
            self._fail(request, defect)
            return
        if request.is_comm:
            request.forget_content()  # it may never be heard of again

    def _answer_nothing(self, request: PendingRequest) -> None:
        """Answer an input_request of a cell with an empty line, as a program gets it that has no terminal."""
        if not self._answers_questions:
            return  # Python's kernel asks nothing then
        head = {**request.message.header, "msg_id": secrets.token_hex(16), "msg_type": "input_reply"}
        reply = Message(channel="stdin", header=head, content={"value": ""})
        with contextlib.suppress(SandboxError):  # its end is told elsewhere
            self._port.transmit(wire.STDIN, protocol.encode(reply))

    def _input_reply(self, reply: Message, client: bytes) -> None:
        for request in self.queue.in_flight:
            if request.awaiting_input and request.client == client:
                request.stop_asking()
                self._clocks.resume(request)
                try:
                    self._port.transmit(wire.STDIN, protocol.encode(reply))
                except SandboxError as error:  # the cell would wait for an answer that cannot come
                    self._escalation.end(request, error)
                return

    def _fail(self, request: PendingRequest, defect: Exception) -> None:
        self._defect(f"a {request.message.type}", defect)
        self._completion.fail(request, defect)

    # --- ends ---

    def kernel_died(self, error: SandboxError, *, asked_for: bool = False) -> None:
        """End what was in the kernel; what waits will go to the next one. A requested end is not reported."""
        self._escalation.kernel_gone()
        if (flood := self.inbound.flood) is not None:
            flood.leaves(Survived.FILES, "a thread of an earlier cell went on sending")
        self.inbound.forget_kernel()
        self._completion.kernel_died(flood or error, asked_for=asked_for)
        for observer in self.observers:
            observer.kernel_gone()

    def sandbox_died(self, error: SandboxError, *, keep_waiting: bool = False, lost: bool = True) -> None:
        """End everything, also what has not been sent, unless that may wait for the next sandbox.

        Without a cell to tell it, the next one tells what was lost, if anything was.
        """
        self._escalation.kernel_gone()
        self.inbound.forget_kernel()
        self._completion.sandbox_died(error, keep_waiting=keep_waiting, lost=lost)
        self._clocks.thaw()  # one that ended while it was paused is not resumed elsewhere
        for observer in self.observers:
            observer.kernel_gone()

    def kernel_ready(self) -> None:
        """Begin with a kernel that takes requests from now on."""
        self._port.touch()
        self.pump()

    def _changed(self, request: PendingRequest, _: State) -> None:
        """Tell of a cell that is taken up or has ended; the next request may go when one is closed."""
        if request.is_execute and request.state is State.BUSY:
            self._recorder.cell_begun()
        elif request.state is State.CLOSED:
            if request.is_execute and request.sent:
                for observer in self.observers:
                    observer.cell_ended(request)
            self._port.touch()
            self.pump()

    # --- the clocks' alarm ---

    def time_is_up(self, request: PendingRequest, error: SandboxError) -> None:
        if request.message.channel == "control":
            # Nothing on control deserves an interrupt, which would meet the running cell.
            self._completion.condemn_and_end(request, error)
        else:
            self._escalation.end(request, error)

    def pause_is_over(self, request: PendingRequest, error: SandboxError) -> None:
        if self._port.ready:  # else the sandbox is on its way out, which says why
            self._escalation.end(request, error)

    def patience_is_lost(self, request: PendingRequest) -> None:
        self._completion.give_up(request)

    # --- housekeeping ---

    async def close(self) -> None:
        """Cancel what is still under way."""
        self._clocks.close()
        await self._tasks.close()
