"""One call of `run_code` as a request of a session, and the session's front for all of them."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from ..core.behaviour import THRESHOLD, Behaviour, Observation, Observations, observed
from ..core.codes import EndCode
from ..core.errors import CallCancelled, ConfigurationError, EngineError
from ..core.events import ConnectionEnded, RuleMet, SessionEvent
from ..core.model import Message
from ..core.tasks import Tasks
from ..session.requests.queue import PendingRequest
from ..session.session import Session, request_header
from .callbacks import Callbacks, Prompt
from .execution import Event, Execution, ExecutionRecorder
from .values import CellUsage, NetworkDenial

Tell = Callable[[str, Any], Coroutine[Any, Any, Any]]

MAX_DENIALS = 100
"""Of one cell, that its execution lists."""


class CellFront:
    """The session's front: each message goes to its cell. It must not hold the sandbox, which people may drop."""

    own_events = True
    """It hears no events of the sessions within its own, which have a front of theirs."""

    def __init__(self, cells: dict[str, CellCall]) -> None:
        self._cells = cells
        self.session = ""
        """The id of the session that it is the front of, once it hears its events."""

    def deliver(self, message: Message, client: bytes | None) -> None:
        cell = self._cells.get(str(message.parent.get("msg_id")))
        if cell is not None and client in {None, cell.client}:  # another front's client chooses its ids itself
            cell.take(message)

    def hear(self, event: SessionEvent) -> None:
        """Note an event for the cell that it names, or for those that run now; from any thread.

        A rule of the monitor is about the whole sandbox, and any other event about the kernel of this session.
        """
        seen = observed(event)
        if seen is None:
            return
        for cell in list(self._cells.values()):
            if isinstance(event, ConnectionEnded):
                noted = event.cell == cell.id
            else:
                noted = isinstance(event, RuleMet) or cell.session_id == self.session
            if noted:
                cell.note(seen)

    def drain(self) -> None:
        """Nothing waits to be read: a call is submitted at once."""


class CellCall:
    """One call of `run_code` under way."""

    def __init__(
        self,
        code: str,
        wanted: frozenset[str],
        session: Session,
        reads: str | None = None,
        notebook_cell: str | None = None,
        *,
        identity: str | None = None,
    ) -> None:
        self.id = identity or secrets.token_hex(16)
        self.client = self.id.encode()
        self.events: asyncio.Queue[Event | None] = asyncio.Queue()
        """Bounded by what a cell may send, and ended by None."""
        self._recorder = ExecutionRecorder(code)
        self._wanted = wanted
        self._reads = reads
        self._metadata = {} if notebook_cell is None else {"cellId": notebook_cell}
        self._session = session
        self._tasks = Tasks()
        self._metering: asyncio.Task[tuple[float | None, int | None]] | None = None
        self._asking: asyncio.Task[object] | None = None
        self._questions: deque[int] = deque()
        """The numbers of those for which nobody was asked yet."""
        self._denied: list[NetworkDenial] = []
        self._observations = Observations()
        self._ended = False
        self._seconds = 0.0

    def request(self, stop_on_error: bool) -> Message:
        content = {
            "code": self._recorder.execution.code,
            "silent": False,
            "store_history": self._reads is None,  # an internal cell has no number
            "user_expressions": {},
            "allow_stdin": "input" in self._wanted,
            "stop_on_error": stop_on_error,
        }
        head = request_header("execute_request", self._session.id, self.id)
        return Message(channel="shell", header=head, content=content, metadata=self._metadata)

    @property
    def session_id(self) -> str:
        return self._session.id

    @property
    def pending(self) -> PendingRequest | None:
        return self._session.find(self.id)

    def take(self, message: Message) -> None:
        """Take in one message that has passed the output policy."""
        if self._ended:
            return
        pending = self.pending
        if "message" in self._wanted:
            self.events.put_nowait(("message", message))
        if message.type == "input_request":
            prompt = Prompt.of(str(message.content["prompt"]), password=bool(message.content["password"]))
            if self._asking is not None:
                self._asking.cancel()  # the question before it was given up
            self._questions.append(pending.questions if pending is not None else 0)
            self.events.put_nowait(("input", prompt))
        elif message.type == "status":
            if message.content["execution_state"] == "busy":
                self._session.measure()
            else:
                self._end(pending)
            return
        for event in self._recorder.take(message, pending.verdict if pending is not None else None):
            if event[0] in self._wanted:
                self.events.put_nowait(event)
        if pending is None:
            self._end(None)  # refused: nothing follows

    def _end(self, pending: PendingRequest | None) -> None:
        self._ended = True
        if self._asking is not None:
            self._asking.cancel()
        if pending is not None and pending.started:
            self._seconds = time.monotonic() - pending.started
            # Asked for now: the next cell, which may be on its way already, starts the meter again.
            self._metering = self._session.measured(self.id)
        self.events.put_nowait(None)

    async def run(
        self,
        cells: dict[str, CellCall],
        limit: float | None,
        stop_on_error: bool,
        tell: Tell,
        around: tuple[str, str] | None = None,
    ) -> Execution:
        """Run it among `cells` to its end, and `tell` of what it says.

        `around` is what goes right before and right after the cell, as internal cells without callbacks.
        """
        cells[self.id] = self
        before, after = around or ("", "")
        try:
            self._session.submit_silently(before)
            self._session.submit(self.request(stop_on_error), self.client, limit, self._reads)
            self._session.submit_silently(after)
            while (event := await self.events.get()) is not None:
                if event[0] == "input":
                    await self.ask(tell(*event))
                else:
                    await tell(*event)
        except BaseException:
            self.give_up()
            raise
        finally:
            del cells[self.id]
        execution = await self.finish()
        if stop_on_error and execution.error is not None:
            self._session.submit_silently(after)  # it was aborted with what stood behind the cell
        return execution

    async def follow(self, cells: dict[str, CellCall], callbacks: Callbacks) -> Execution:
        """Follow a cell that another owner began, one of `cells`, to its end."""
        try:
            while (event := await self.events.get()) is not None:
                if event[0] == "input":
                    await self.ask(callbacks.call(*event))
                elif event[0] in callbacks.wanted:
                    await callbacks.call(*event)
        except BaseException:
            self.give_up()
            raise
        finally:
            cells.pop(self.id, None)
        return callbacks.finish(await self.finish())

    async def ask(self, asking: Coroutine[Any, Any, object]) -> None:
        """Answer the cell's `input()` with what `asking` returns; the cell may end before that."""
        number = self._questions.popleft()
        self._asking = self._tasks.hold(asking, "asking a person")
        try:
            await asyncio.wait({self._asking})
            answer = None if self._asking.cancelled() else self._asking.result()
        finally:
            self._asking.cancel()
            self._asking = None
        pending = self.pending
        if self._ended or pending is None or not pending.awaiting_input or pending.questions != number:
            return  # it was interrupted meanwhile, and may have asked something else
        if isinstance(answer, str):
            head = request_header("input_reply", self._session.id)
            self._session.submit(Message(channel="stdin", header=head, content={"value": answer}), self.client)
        else:
            await self._session.interrupt()  # nobody will ever answer, and the cell's clock stands still

    def hear(self, denial: NetworkDenial) -> None:
        """Note that one of its connections was not let out."""
        if len(self._denied) < MAX_DENIALS:
            self._denied.append(denial)

    def note(self, seen: Observation) -> None:
        """Note what it does, from when it is sent until it has ended."""
        pending = self.pending
        if pending is not None and pending.sent and not self._ended:
            self._observations.add(seen)

    def give_up(self) -> None:
        """End the cell, for which nobody waits any more."""
        pending = self.pending
        if pending is not None and not pending.finished:
            self._session.requests.withdraw(
                pending, CallCancelled(EndCode.CALL_CANCELLED, "the caller gave the cell up")
            )

    async def finish(self) -> Execution:
        execution, pending = self._recorder.execution, self.pending
        execution.seconds, execution.denied = self._seconds, self._denied
        execution.findings = list(pending.findings) if pending is not None else []
        if self._metering is not None:
            cpu, peak = await asyncio.shield(self._metering)
            execution.usage = CellUsage(cpu_seconds=cpu, memory_peak_bytes=peak)
        verdict = pending.verdict if pending is not None else None
        self._observations.end(execution.findings, verdict)
        seen = Behaviour(
            rows=self._observations.rows(),
            threshold=self._session.settings.get("screen_threshold", THRESHOLD),
            seconds=execution.seconds,
            cpu_seconds=execution.usage.cpu_seconds,
            memory_peak_bytes=execution.usage.memory_peak_bytes,
        )
        execution.behaviour = seen.of_cell(execution.execution_count)
        if isinstance(verdict, (EngineError, ConfigurationError)):
            raise verdict
        return execution
