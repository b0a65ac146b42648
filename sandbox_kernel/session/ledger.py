"""What a session knows of its requests: which are open, which may be sent, and whose outputs may pass.

Pure bookkeeping: no I/O, no clock of its own, and nothing of the container's is believed. A request is known from its
arrival on, long after its end too, because a thread may print late; how many are remembered is bounded.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ..core.errors import CallCancelled, SandboxError
from ..core.model import Message
from ..policy import CellBudget
from . import protocol

MAX_REMEMBERED = 10_000
"""Finished requests whose late outputs still find their cell."""
MAX_WAITING = 1_000
"""Requests waiting in one queue; "run all" of a long notebook is a few hundred."""


@dataclass(slots=True, eq=False)
class Entry:
    """One request of a front end and what became of it."""

    request: Message
    client: bytes
    queue: str
    sent: bool = False
    busy: bool = False
    idle: bool = False
    finished: bool = False
    reply: Message | None = None
    verdict: SandboxError | None = None
    """Why the request is being ended from outside."""
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
    interrupted: bool = False
    """Whether a front end interrupted the kernel while it had this cell."""
    started: float = 0.0
    seconds: float | None = None
    """A time limit of its own; it never extends the one that every cell has."""
    remaining: float | None = None
    """Seconds left on the clock while it is stopped."""
    paused: asyncio.TimerHandle | None = None
    """Runs while the clock is stopped, to what all pauses of a cell may come to."""
    pause_left: float | None = None
    """Seconds of pause that it still may have; None before the first."""
    timer: asyncio.TimerHandle | None = None
    patience: asyncio.TimerHandle | None = None
    """Runs while only one of reply and idle has come."""
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_execute(self) -> bool:
        return self.request.type == "execute_request"

    @property
    def is_heard(self) -> bool:
        """Whether it is a cell whose outputs somebody waits for."""
        return self.is_execute and not isinstance(self.verdict, CallCancelled)

    @property
    def is_comm(self) -> bool:
        return self.request.type in protocol.COMMS

    @property
    def reply_type(self) -> str | None:
        return protocol.reply_type(self.request.type)

    @property
    def over_budget(self) -> bool:
        return self.budget is not None and self.budget.exceeded is not None

    @property
    def complete(self) -> bool:
        """Whether the kernel has said everything it owes."""
        return self.idle and (self.reply is not None or self.reply_type is None)

    def stop_timers(self) -> None:
        for timer in (self.timer, self.patience, self.paused):
            if timer is not None:
                timer.cancel()
        self.timer = self.patience = self.paused = None

    def forget_content(self) -> None:
        """Keep what a late output needs, the request's header, and nothing of what was asked, answered or said."""
        self.request = replace(self.request, metadata={}, content={}, buffers=())
        self.reply, self.traceback, self.held_bytes = None, (), 0


class Ledger:
    """All requests of one session, in queues: one for each subshell, and one for the control channel.

    At most one cell of a queue is in the kernel at a time, and nothing else of that queue beside it: so the clock of a
    cell starts when the kernel can run it, and a kernel's death takes one cell, not a notebook. Comm messages are the
    exception, since a running cell may wait for one.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, Entry] = OrderedDict()
        self._waiting: dict[str, deque[Entry]] = {}
        self._in_flight: dict[str, Entry] = {}

    def add(self, request: Message, client: bytes) -> Entry | None:
        """Register a request; None if its id is taken or too many are waiting."""
        queue = request.channel
        subshell = request.header.get("subshell_id")
        if queue == "shell" and isinstance(subshell, str):
            queue = f"shell {subshell}"  # type: ignore[assignment]
        waiting = self._waiting.setdefault(queue, deque())
        if request.id in self._known or len(waiting) >= MAX_WAITING:
            return None
        entry = Entry(request, client, queue)
        self._known[request.id] = entry
        waiting.append(entry)
        self._forget()
        return entry

    def find(self, message_id: object) -> Entry | None:
        return self._known.get(message_id) if isinstance(message_id, str) else None

    def sendable(self) -> list[Entry]:
        """Take the requests that may go to the kernel now, in order."""
        ready = []
        for name, waiting in self._waiting.items():
            busy = [entry for entry in self._in_flight.values() if entry.queue == name]
            kept: deque[Entry] = deque()
            for entry in waiting:
                if entry.is_comm:
                    # It must not wait behind a cell that waits for it.
                    ready.append(entry)
                elif name != "control" and (
                    kept or (busy and entry.is_execute) or any(other.is_execute for other in busy)
                ):
                    kept.append(entry)
                else:
                    ready.append(entry)
                    busy.append(entry)
                    self._in_flight[entry.request.id] = entry
            self._waiting[name] = kept
        self._waiting = {name: waiting for name, waiting in self._waiting.items() if waiting}
        return ready

    def mark_busy(self, entry: Entry) -> None:
        """Note that the kernel works on a request; a comm message counts as under way only from here on.

        ipykernel handles one without any status while a cell awaits, so it may never be heard of again.
        """
        entry.busy = True
        self._in_flight[entry.request.id] = entry

    def finish(self, entry: Entry) -> None:
        entry.finished = True
        entry.stop_timers()
        entry.done.set()
        self._in_flight.pop(entry.request.id, None)

    def take_waiting(self, entry: Entry) -> bool:
        """Take one request out of its queue; return whether it was still waiting there."""
        waiting = self._waiting.get(entry.queue, deque())
        if entry not in waiting:
            return False
        waiting.remove(entry)
        return True

    def unsent_cells(self) -> list[Entry]:
        """Take the cell of each queue that is its next one, if it was not sent yet."""
        found = [entry for entry in self._in_flight.values() if entry.is_execute and not entry.sent]
        for name, waiting in self._waiting.items():
            cell = next((entry for entry in waiting if entry.is_execute), None)
            if cell is not None and not any(entry.queue == name for entry in self.running_cells()):
                waiting.remove(cell)
                found.append(cell)
        return found

    def take_waiting_cells(self, queue: str) -> list[Entry]:
        """Take out the cells that a failed one aborts (`stop_on_error`)."""
        waiting = self._waiting.get(queue, deque())
        cells = [entry for entry in waiting if entry.is_execute]
        for entry in cells:
            waiting.remove(entry)
        return cells

    def take_all(self) -> tuple[list[Entry], list[Entry]]:
        """Take out everything, as (in flight, waiting)."""
        flying = list(self._in_flight.values())
        waiting = [entry for queue in self._waiting.values() for entry in queue]
        self._waiting.clear()
        return flying, waiting

    @property
    def held_bytes(self) -> int:
        """What all replies that wait for their idle cost in memory, at most."""
        return sum(entry.held_bytes for entry in self._in_flight.values())

    @property
    def in_flight(self) -> list[Entry]:
        return list(self._in_flight.values())

    @property
    def active(self) -> bool:
        """Whether anything is waiting or under way."""
        return bool(self._in_flight) or any(self._waiting.values())

    def running_cells(self) -> Iterator[Entry]:
        return (entry for entry in self._in_flight.values() if entry.is_execute)

    def _forget(self) -> None:
        while len(self._known) > MAX_REMEMBERED:
            for key, entry in self._known.items():
                if entry.finished or (entry.is_comm and entry.sent and key not in self._in_flight):
                    del self._known[key]
                    break
            else:
                return


def parent_of(entry: Entry | None) -> dict[str, Any]:
    """Return the parent header that the host can vouch for: the one it received itself."""
    return dict(entry.request.header) if entry is not None else {}


def error_content(entry: Entry, error: SandboxError) -> dict[str, Any]:
    """Return the content of an error that the host writes, behind what the kernel itself said of it."""
    first, *rest = error.lines()
    return {
        "ename": error.name,
        "evalue": str(error),
        "traceback": [*entry.traceback, f"\x1b[0;31m{error.name}\x1b[0m: {first}", *rest],
    }


def error_reply(entry: Entry, error: SandboxError) -> Message:
    """Return the reply that the host writes in place of the kernel's."""
    content = {"status": "error", **error_content(entry, error)}
    if entry.is_execute:
        content |= {"execution_count": entry.execution_count, "user_expressions": {}, "payload": []}
    kind = entry.reply_type or "error_reply"
    return Message(channel=entry.request.channel, header={"msg_type": kind}, content=content)
