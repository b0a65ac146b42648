"""The end of a request on the host: its front end gets what it is still owed, whatever became of the kernel.

Every request ends here, once: with the kernel's reply, or with one that says why there is none; always with idle.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from ...core.codes import EndCode, Survived
from ...core.errors import CellInterrupted, ReplyLost, SandboxError
from ...core.model import Limits, Message
from ...core.tasks import Tasks
from ..hints import Failure, Hints
from .outbound import Notes, Outbound
from .queue import PendingRequest, RequestQueue
from .request_states import Event
from .time_limits import Clocks

LOOK_SECONDS = 2.0
"""How long a cell's end waits at most for a look at the notebook's folder."""

Hook = Callable[[], Awaitable[Notes]]
"""Files are copied in one; a cell shows what it returns."""


class Recorder(Protocol):
    """Writes cells down."""

    def cell_begun(self) -> None: ...
    def cell_done(self, request: PendingRequest, reply: Message | None) -> None: ...


class NoRecorder:
    """Writes nothing down."""

    def cell_begun(self) -> None:
        """Do nothing."""

    def cell_done(self, request: PendingRequest, reply: Message | None) -> None:
        """Do nothing."""


class Completion:
    """Ends requests towards their front ends."""

    def __init__(
        self,
        limits: Limits,
        requests: RequestQueue,
        outbound: Outbound,
        clocks: Clocks,
        *,
        tasks: Tasks,
        recorder: Recorder,
        hints: Hints,
    ) -> None:
        self._limits = limits
        self._requests = requests
        self._outbound = outbound
        self._clocks = clocks
        self._tasks = tasks
        self._recorder = recorder
        self._hints = hints
        self._hooks: list[Hook] = []

    def add_hook(self, hook: Hook) -> None:
        """Call `hook` after each cell and before its reply, before those that were added earlier."""
        if hook not in self._hooks:
            self._hooks.insert(0, hook)

    # --- as the kernel says ---

    def look(self, request: PendingRequest) -> None:
        """End a request if the kernel has said all that it owes, and else wait for the rest of it."""
        if request.complete:
            self.end(request)
        else:
            self._clocks.wait_for_rest(request)

    def give_up(self, request: PendingRequest) -> None:
        """End a request whose rest does not come."""
        self._outbound.emit("completed", reason="idle without reply" if request.idle else "reply without idle")
        if request.interrupted and request.reply is None:
            request.condemn(CellInterrupted(EndCode.CELL_INTERRUPTED, kept=Survived.VARIABLES_AND_FILES))
        self.end(request)

    def end(self, request: PendingRequest) -> None:
        """End a request, a cell after its files are copied."""
        sought = self._sought(request)
        if request.is_execute and (self._hooks or sought):
            self._clocks.stop(request)
            work = self._copy_and_end(request, sought)
            self._tasks.start(work, "what comes after a cell", failed=partial(self.fail, request))
        else:
            self.end_now(request)

    async def _copy_and_end(self, request: PendingRequest, sought: list[str]) -> None:
        try:
            for hook in list(self._hooks):
                self._outbound.notice(*await hook())
        except (SandboxError, OSError) as error:
            self._outbound.notice(str(error))
        if sought and self._hints.beside is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    request.find_beside(await asyncio.to_thread(self._hints.beside, sought))
        self.end_now(request)

    def _sought(self, request: PendingRequest) -> list[str]:
        """Return the files that a cell did not find, if a person may be told whether they lie beside the notebook.

        A cell must not get to hear it. What it prints is read back into the sandbox by an Output widget, and by any
        script in the page: where there may be one, no file is looked up.
        """
        failure = _failure(request)
        if failure is None or not request.is_heard or request.verdict is not None:
            return []
        return [] if self._outbound.policy.overheard else self._hints.sought(failure)

    # --- as the host says ---

    def end_now(self, request: PendingRequest) -> None:
        """Deliver what a request is still owed, and let the next one go."""
        if request.finished:
            return
        if request.is_execute:
            # What was sent before this cell's end is known must be known too: its failure may abort it. That comes
            # first, for a cell that is submitted after `finish` is sent.
            self._outbound.front.drain()
        self._requests.advance(request, Event.END)
        if not request.busy:
            self._outbound.status("busy", request)
        reply = self._reply(request)
        self._outbound.say_notices(request)
        failed = reply is not None and reply.content.get("status") == "error"
        if reply is not None:
            self._outbound.reply(request, reply)
        self._outbound.status("idle", request)
        if request.is_execute:
            self._recorder.cell_done(request, reply)
        stop = failed and request.is_execute and request.message.content.get("stop_on_error", True)
        if stop:
            for waiting in self._requests.take_waiting_cells(request):
                self.abort(waiting)
        self._requests.advance(request, Event.CLOSE)

    def condemn_and_end(self, request: PendingRequest, error: SandboxError) -> None:
        """End a request at once, with a reason, without a step towards the kernel."""
        if not request.finished:
            request.condemn(error)
            self.end_now(request)

    def fail(self, request: PendingRequest, defect: BaseException) -> None:
        """End a request whose handling met a defect of ours: the caller must not wait for ever."""
        self._requests.take_waiting(request)
        self.condemn_and_end(
            request,
            SandboxError(EndCode.PLATFORM_FAILED, f"sandbox_kernel failed at this {request.message.type}: {defect!r}"),
        )

    def abort(self, request: PendingRequest) -> None:
        """End a cell that does not run, since one before it failed."""
        self._requests.advance(request, Event.END)
        self._outbound.abort(request)
        self._requests.advance(request, Event.CLOSE)

    def _reply(self, request: PendingRequest) -> Message | None:
        """Return the reply that a request gets, and say of a cell why it was ended or why it failed."""
        if request.interrupted and _failed_in_silence(request):
            request.condemn(CellInterrupted(EndCode.CELL_INTERRUPTED, kept=Survived.VARIABLES_AND_FILES))
        if request.reply is None and request.reply_type is not None:
            request.condemn(ReplyLost(EndCode.KERNEL_NO_REPLY, kept=Survived.VARIABLES_AND_FILES))
        reply, error = request.reply, request.verdict
        if error is not None:
            if request.is_execute:
                self._outbound.error(request, error)
            return self._outbound.ours(request, error) if request.reply_type is not None else None
        if request.is_execute and request.is_heard:
            if reply is not None and reply.content.get("status") == "error" and _failed_in_silence(request):
                self._outbound.failure(request, reply.content)
            failure = _failure(request)
            said = None if failure is None else self._hints.of_failure(failure, request.beside)
            code = str(request.message.content.get("code", ""))
            self._outbound.notice(*([said] if said else []), *self._hints.of_code(code))
        return reply

    # --- deaths ---

    def kernel_died(self, error: SandboxError, *, asked_for: bool = False) -> None:
        """End what was in the kernel; what waits will go to the next one. A requested end is not reported."""
        flying = self._requests.in_flight
        if not asked_for and not any(request.is_heard for request in flying):
            cancelled = any(request.is_execute for request in flying)
            when = "after a cell was cancelled" if cancelled else "between two cells"
            self._outbound.notice(f"{error} (This happened {when}.)")
        for request in flying:
            if request.reply is None:  # a reply that was sent before the death still counts
                request.condemn(error)
            self.end_now(request)

    def sandbox_died(self, error: SandboxError, *, keep_waiting: bool = False, lost: bool = True) -> None:
        """End everything, also what has not been sent, unless that may wait for the next sandbox.

        Without a cell to tell it, the next one tells what was lost, if anything was.
        """
        if keep_waiting and not any(self._requests.running_cells()):
            self._outbound.notice(str(error))
            for request in self._requests.in_flight:
                self.condemn_and_end(request, error)
            return
        flying, waiting = self._requests.take_all()
        if lost and not any(request.is_heard for request in flying + waiting):
            self._outbound.notice(str(error))
        aborting: set[tuple[str, str]] = set()
        for request in flying + waiting:
            of = request.queue, request.caller
            if request.is_execute and of in aborting:
                self.abort(request)
                continue
            # Read first: nothing is left of its content after its end.
            if request.is_execute and request.message.content.get("stop_on_error", True):
                aborting.add(of)
            self.condemn_and_end(request, error)


def _failed_in_silence(request: PendingRequest) -> bool:
    """Return whether a kernel says a cell's failure in its reply alone, as Deno does of a syntax error.

    IPython writes a wrong use of a magic to stderr, and publishes no error.
    """
    content = request.reply.content if request.reply is not None else {}
    failed = content.get("status") in ("error", "abort") and content.get("ename") != "UsageError"
    return request.is_execute and not request.showed_error and failed


def _failure(request: PendingRequest) -> Failure | None:
    """Return the exception in a cell's own reply, if there is one."""
    reply = request.reply
    if reply is None or not request.is_execute or reply.content.get("status") != "error":
        return None
    said = reply.content
    return Failure(str(said.get("ename")), str(said.get("evalue")), said.get("traceback") or ())
