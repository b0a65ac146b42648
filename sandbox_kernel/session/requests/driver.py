"""What drives the machine of a session's requests: it hears of what happens, and does what the machine commands.

Time, tasks, threads and the order of calls are here, and no decision on a request. Knows neither containers nor
sockets: those are `Port` and `SessionFront`.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from ...container import wire
from ...core.answer_allowance import MEMORY_FACTOR
from ...core.codes import Code, EndCode, Note
from ...core.errors import ProtocolError, SandboxError
from ...core.events import Emit
from ...core.model import Limits, Message, Settings
from ...core.tasks import Tasks, noted_in
from ...plugins.api import CellGuard, SessionFront, SessionObserver
from ...policy import protocol
from ...policy.output_policy import OutputPolicy
from ...policy.verdict import Verdict
from ..agent_messages import Oversized
from ..hints import SessionHints
from . import machine as commands
from .machine import RequestMachine
from .queue import PendingRequest

LARGE, MEDIUM = 1 << 20, 1 << 15
"""Bytes from which a message is parsed, and filtered, in another thread: an interrupt must not wait for that."""
LOOK_SECONDS = 2.0
"""How long a cell's end waits at most for a look at the notebook's folder."""

Notes = list[str]
Hook = Callable[[], Awaitable[Notes]]
"""Files are copied in one; a cell shows what it returns."""


class Recorder(Protocol):
    """Writes cells down."""

    def cell_begun(self) -> None: ...
    def cell_done(self, request: PendingRequest, reply: Message | None) -> None: ...


class Port(Protocol):
    """The way to the kernel. What cannot be done raises `SandboxError`."""

    @property
    def ready(self) -> bool:
        """Whether the kernel takes requests."""

    def touch(self) -> None:
        """Note that the sandbox was used."""

    def transmit(self, kind: int, parts: list[bytes]) -> None: ...
    async def signal(self, number: int) -> None: ...
    async def kill_kernel(self) -> None: ...
    async def kill_sandbox(self, error: SandboxError) -> None: ...


class Requests:
    """The requests of a session's front ends; one for its whole life, over all its kernels and containers."""

    def __init__(
        self,
        limits: Limits,
        port: Port,
        front: SessionFront,
        policy: OutputPolicy,
        emit: Emit,
        *,
        before_cell: Hook | None = None,
        after_cell: Hook | None = None,
        observers: Iterable[SessionObserver] = (),
        recorder: Recorder | None = None,
        guards: Sequence[CellGuard] = (),
        hints: SessionHints | None = None,
        answers_questions: bool = False,
    ) -> None:
        """`answers_questions` is for a kernel that asks for input where none is allowed, and waits for an answer."""
        self._limits = limits
        self._port = port
        self._fronts = [front]
        self._before_cell = before_cell
        self._hooks = [] if after_cell is None else [after_cell]
        self.observers: list[SessionObserver] = list(observers)
        self._hints = hints or SessionHints(Settings(limits=limits))
        self._defect = noted_in(emit)
        self._tasks = Tasks(self._defect)
        self.machine = RequestMachine(
            limits, policy, hints=self._hints, guards=guards, answers_questions=answers_questions
        )
        self.queue = self.machine.queue
        self._going = self._stirred = self._is_closed = False
        self._steps = 0
        """Signals and kills that are on their way."""
        self._calm = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._due: float | None = None
        """When the timer rings."""
        self._do: dict[type[Any], Callable[[Any], None]] = {
            commands.Deliver: self._deliver,
            commands.Transmit: self._transmit,
            commands.PrepareCell: self._prepare,
            commands.AwaitReview: self._await_review,
            commands.Settle: self._settle,
            commands.CloseRequest: self._closed,
            commands.EmitEvent: lambda command: emit(command.event),
            commands.NoteBegun: lambda command: None if recorder is None else recorder.cell_begun(),
            commands.NoteDone: lambda command: None if recorder is None else recorder.cell_done(*command),
            commands.Answer: self._answer,
            commands.Interrupt: self._interrupt,
            commands.KillKernel: self._kill_kernel,
            commands.KillSandbox: self._kill_sandbox,
            commands.NoteDefect: lambda command: self._defect(*command),
        }

    def call_after_cells(self, hook: Hook) -> None:
        """Have `hook` called after each cell and before its reply, before what is called then already."""
        if hook not in self._hooks:
            self._hooks.insert(0, hook)

    def join(self, front: SessionFront) -> None:
        """Have a further front end get what the first one gets; its `deliver` must not raise."""
        self._fronts.append(front)

    # --- what happens ---

    def _go(self, event: Callable[..., None] | None = None, *of: Any, stirred: bool = False, **more: Any) -> None:
        """Tell the machine of an event, do what it commands, send what may be sent, and see when it is looked at again.

        What is done may make something happen: that is one more round of this loop, and not ever deeper.
        """
        machine = self.machine
        machine.at(asyncio.get_running_loop().time())
        if event is not None:
            event(*of, **more)
        self._stirred = self._stirred or stirred
        if self._going:
            return
        self._going = True
        defect: Exception | None = None
        try:
            while machine.commands or self._stirred:
                while machine.commands:
                    command = machine.commands.popleft()
                    try:
                        self._do[type(command)](command)
                    except Exception as error:  # what else is to be done is owed all the same
                        defect = defect or error
                if self._stirred:
                    self._stirred = False
                    if self._port.ready and not machine.killing:
                        machine.pump()
        finally:
            self._going = False
        if not (self._steps or machine.ending):
            self._calm.set()
        if (due := machine.next_time()) != self._due:
            self._look_again(due)
        if defect is not None:
            raise defect  # what a kernel sent and met a defect ends its sandbox

    def _look_again(self, due: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = None if self._is_closed else due
        self._timer = None if self._due is None else asyncio.get_running_loop().call_at(self._due, self._tick)

    def _tick(self) -> None:
        self._timer = self._due = None
        self._go(self.machine.tick, ready=self._port.ready)

    def submit(self, message: Message, client: bytes, seconds: float | None = None, reads: str | None = None) -> None:
        """Take a request of a front end; it goes to the kernel when its turn comes. `seconds` is a shorter limit.

        `reads` is what guards read in place of its code, where that is ours.
        """
        self._go(self.machine.submit, message, client, seconds, reads, stirred=True)

    def go_on(
        self, message: Message, client: bytes, seconds: float, reads: str | None, *, elapsed: float, left: float
    ) -> PendingRequest | None:
        """Take up a cell that another process sent to this kernel, `elapsed` seconds ago; so many are `left` to it."""
        if (request := self.queue.add(message, client, seconds, reads)) is not None:
            self.queue.take_sendable()
            self._go(self.machine.go_on, request, elapsed, left)
        return request

    def pump(self) -> None:
        """Send what may be sent now."""
        self._go(stirred=True)

    def seconds_left(self) -> float | None:
        """Return how long the running cell may still run: the shortest if there are several, None if there is none."""
        self._go()
        return self.machine.seconds_left()

    def hold_clock(self, cell: str, *, held: bool) -> None:
        """Stop the clock of a cell, or let it go on once nothing holds it; all its pauses together are bounded."""
        self._go(self.machine.hold_clock, cell, held=held)

    def withdraw(self, request: PendingRequest, error: SandboxError) -> None:
        """End an abandoned request; it may not even have been sent."""
        self._go(self.machine.withdraw, request, error)

    def block(self, error: SandboxError) -> None:
        """End the kernel with all of its processes, and the cells that run in it with `error`."""
        self._go(self.machine.block, error)

    def say(self, text: str) -> None:
        """Say one line on stderr of the cell that runs, or of the next one."""
        self._go(self.machine.say, text)

    def tell(self, text: str) -> None:
        """Say one line on stderr of the cell that began last, within what the cell may send."""
        self._go(self.machine.tell, text)

    def take_back_questions(self) -> None:
        """Cancel open input requests: the kernel is about to be interrupted."""
        self._go(self.machine.take_back_questions)

    def interrupted(self) -> None:
        """Note that a front end interrupted the kernel."""
        self._go(self.machine.interrupted)

    async def freeze(self) -> None:
        """Let no time pass for any request, once none is being ended; what waits goes on to wait."""
        while self._steps or self.machine.ending:
            self._calm.clear()
            await self._calm.wait()
        self._go(self.machine.freeze)

    def thaw(self) -> None:
        """Go on after `freeze`."""
        self.machine.thaw(asyncio.get_running_loop().time())
        self.pump()

    def kernel_ready(self) -> None:
        """Begin with a kernel that takes requests from now on."""
        self._port.touch()
        self.pump()

    def kernel_died(self, error: SandboxError, *, asked_for: bool = False) -> None:
        """End what was in the kernel; what waits will go to the next one. A requested end is not reported."""
        self._go(self.machine.kernel_died, error, asked_for=asked_for)
        for observer in self.observers:
            observer.kernel_gone()

    def sandbox_died(self, error: SandboxError, *, keep_waiting: bool = False, lost: bool = True) -> None:
        """End everything, also what has not been sent, unless that may wait for the next sandbox.

        Without a cell to tell it, the next one tells what was lost, if anything was.
        """
        self._go(self.machine.sandbox_died, error, keep_waiting=keep_waiting, lost=lost)
        self.machine.thaw(asyncio.get_running_loop().time())  # one that ended while it was paused is resumed nowhere
        for observer in self.observers:
            observer.kernel_gone()

    # --- what comes from a kernel: the caller waits for one message of a container before the next ---

    @property
    def kernel_worked(self) -> bool:
        """Whether this kernel took up a cell."""
        return self.machine.kernel_worked

    async def parse(self, kind: int, parts: list[bytes], size: int) -> Message | None:
        """Return the message of a frame of `size` bytes, None for one that may not pass; empties `parts`."""
        most = self._limits.message_limit
        try:
            if size < LARGE:
                message = protocol.decode(kind, parts, most)
            else:
                message = await asyncio.to_thread(protocol.decode, kind, parts, most)
        except ProtocolError as error:
            if isinstance(error, protocol.TooHeavyError):
                parts.clear()
                self._go(self.machine.too_heavy, error, size)
            elif isinstance(error, protocol.UnreadableError):
                self._go(self.machine.unreadable, error, size)
            else:
                self.drop(Note(error.code, error.message), size)
            return None
        parts.clear()  # before the message is written again: what came and what goes are not held together
        return message

    async def pass_on(self, message: Message, size: int) -> None:
        """Give a message of a kernel that is ready to the request it belongs to.

        What it becomes in memory counts as well as what came: a cell may send many messages, and a program keeps them.
        """
        verdict = await asyncio.to_thread(self.machine.judge, message) if size >= MEDIUM else None
        self.receive(message, max(size, message.memory // MEMORY_FACTOR), verdict)

    def receive(self, message: Message, size: int, verdict: Verdict | None = None) -> None:
        """Take a decoded message of the kernel, which counts as `size` bytes; `verdict` is what was judged of it."""
        self._go(self.machine.receive, message, size, verdict)

    def oversized(self, message: Oversized | None, size: int) -> None:
        """End the cell that sent a message which its agent did not even pass on; its word came in `size` bytes."""
        self._go(self.machine.oversized, message, size)

    def drop(self, why: Code | Note, size: int, kind: str = "", *, quietly: bool = False) -> None:
        """Note a message that does not pass; a kernel that goes on sending such is ended."""
        self._go(self.machine.drop, why, size, kind, quietly=quietly)

    # --- what is to be done ---

    def _deliver(self, command: commands.Deliver) -> None:
        try:
            for front in tuple(self._fronts):
                front.deliver(command.message, command.client)
        except ProtocolError as error:
            self.machine.undelivered(command, error)

    def _prepare(self, command: commands.PrepareCell) -> None:
        request = command.request
        if self._before_cell is None:
            self.machine.prepared(request)
            return
        failed = partial(self._failed, request)
        self._tasks.start(self._prepared(request, self._before_cell), "what comes before a cell", failed=failed)

    async def _prepared(self, request: PendingRequest, hook: Hook) -> None:
        try:
            notes = await hook()
        except (SandboxError, OSError) as error:
            notes = [str(error)]
        self._go(self.machine.prepared, request, notes)

    def _await_review(self, command: commands.AwaitReview) -> None:
        async def reviewed() -> None:
            self._go(self.machine.reviewed, command.request, await command.review())

        self._tasks.start(reviewed(), "what a guard says later", failed=partial(self._failed, command.request))

    def _transmit(self, command: commands.Transmit) -> None:
        request = command.request
        if request.finished:
            return
        if request.is_execute:  # and not with its state: a process that took a cell over has not sent it
            for observer in self.observers:
                observer.cell_sent(request)
        try:
            self._port.transmit(wire.CHANNELS[request.message.channel], protocol.encode(request.message))
        except SandboxError as error:
            self.machine.not_sent(request, error)
        except Exception as defect:  # the others that were taken out of their queue must still go
            self._defect(f"a {request.message.type}", defect)
            self.machine.fail(request, defect)
        else:
            if request.is_comm:
                request.forget_content()  # it may never be heard of again

    def _answer(self, command: commands.Answer) -> None:
        try:
            self._port.transmit(wire.STDIN, protocol.encode(command.message))
        except SandboxError as error:
            self.machine.not_answered(command.request, error)

    def _settle(self, command: commands.Settle) -> None:
        request = command.request
        if command.after and (self._hooks or command.sought):
            work = self._copy_and_end(request, command.sought)
            self._tasks.start(work, "what comes after a cell", failed=partial(self._failed, request))
        elif command.aborts:
            self.machine.abort(request)
        else:
            self._end(request)

    def _end(self, request: PendingRequest) -> None:
        if request.is_execute and not request.finished:
            # What was sent before this cell's end is known must be known too: its failure may abort it. That comes
            # first, for a cell that is submitted after `finish` is sent.
            self._fronts[0].drain()
        self.machine.end(request)

    async def _copy_and_end(self, request: PendingRequest, sought: Sequence[str]) -> None:
        try:
            for hook in list(self._hooks):
                self.machine.notice(*await hook())
        except (SandboxError, OSError) as error:
            self.machine.notice(str(error))
        if sought and self._hints.beside is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    self.machine.found(request, await asyncio.to_thread(self._hints.beside, list(sought)))
        self._go(self._end, request)

    def _failed(self, request: PendingRequest, defect: BaseException) -> None:
        self._go(self.machine.fail, request, defect)

    def _closed(self, command: commands.CloseRequest) -> None:
        request = command.request
        self.machine.close(request)
        if request.is_execute and request.sent:
            for observer in self.observers:
                observer.cell_ended(request)
        self._port.touch()
        self._stirred = True

    def _interrupt(self, command: commands.Interrupt) -> None:
        async def signalled() -> None:
            if not command.request.finished:  # else the signal would meet the next cell
                await self._port.signal(signal.SIGINT)
                self._go(self.machine.signalled, command.request)

        self._step(signalled, command.request)

    def _kill_kernel(self, _: commands.KillKernel) -> None:
        async def killed() -> None:
            self.machine.kills()
            await self._port.kill_kernel()
            self._go(self.machine.killed)

        self._step(killed, None)

    def _step(self, step: Callable[[], Awaitable[None]], request: PendingRequest | None) -> None:
        """Take a step towards the end of a kernel; where it cannot be taken, the machine has the next one."""

        async def taken() -> None:
            try:
                await step()
            except SandboxError as failure:
                self._go(self.machine.step_failed, request, failure)
            except Exception as defect:  # the last step: an earlier one met a bug
                self._defect("the end of a cell", defect)
                self._go(self.machine.step_failed, request, SandboxError(EndCode.PLATFORM_FAILED, repr(defect)))
            finally:
                self._steps -= 1
                self._go()

        self._steps += 1
        self._tasks.start(taken(), "the end of a cell")

    def _kill_sandbox(self, command: commands.KillSandbox) -> None:
        self._tasks.start(self._port.kill_sandbox(command.error), "the end of a sandbox")

    # --- housekeeping ---

    async def close(self) -> None:
        """Cancel what is still under way."""
        self._is_closed = True
        self._look_again(None)
        await self._tasks.close()
