"""The seam between a session and what serves the connections of its cells: who is called, and with what.

A cell opens a TCP connection to the loopback of its container, and the host gets a `Stream`: bytes both ways, nothing
more. A `Service` reads what is wanted out of them. Imports codes and errors only; what carries the bytes does not
stand here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from ..core.codes import EndCode, Note
from ..core.errors import WireError

CHUNK_BYTES = 64 << 10
"""What one frame carries at most. A `receive` may return several frames' worth."""


class StreamReset(Exception):
    """The connection is broken: by the cell, by the service, or with the kernel that it belonged to."""

    def __init__(self, code: str) -> None:
        super().__init__(f"the connection was reset: {code}")
        self.code = code
        """What `reset` was called with, or one of `RESET_BY_CELL`, `RESET_BY_KERNEL` and `RESET_BY_END`."""


RESET_BY_CELL = "cell"
"""The cell broke it, or its process ended."""
RESET_BY_KERNEL = "kernel"
"""Its kernel was replaced, or its host process is about to be."""
RESET_BY_END = "end"
"""The sandbox ended, or the session."""
RESET_LEFT_OPEN = "left-open"
"""The service returned without an end of it."""
RESET_CROWDED = "crowded"
"""Nobody waited for it, and others may wait for its place."""
RESET_UNCHARGED = "uncharged"
"""It was opened before its kernel's first cell."""


class Stream(Protocol):
    """The host's end of one connection that a cell opened. One task may receive while another one sends.

    What has come and is not received yet is bounded, and so is what a `send` holds: a side that does not read makes
    the other one wait. A stream has no time limit of its own; the service sets them.
    """

    @property
    def number(self) -> int:
        """Unique within one container."""

    def idle(self, *, idle: bool) -> None:
        """Note whether it waits for a request of the cell's: then it may be broken, to make room for another one."""

    async def receive(self) -> bytes:
        """Return what has come, waiting for it; b"" once the cell has finished sending. Raises `StreamReset`."""

    async def send(self, data: bytes) -> None:
        """Send all of `data`; waits until it is on its way to the container. Raises `StreamReset`.

        Must not be called after `finish`. A send that is cancelled may have sent a part.
        """

    async def finish(self) -> None:
        """Say that nothing more will be sent, behind what was sent; idempotent. Raises `StreamReset`."""

    def reset(self, code: str) -> None:
        """Break the connection both ways, at once; idempotent. What was sent and has not arrived may be lost."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The cell that a connection is charged to: the one that ran when it was opened, or the last one that did.

    Threads outlive their cells, and the host cannot know whose a connection is: so between two cells, it is the one
    before. A connection that is opened before a kernel's first cell is reset, and no service hears of it.
    """

    id: str
    """The `msg_id` of its execute_request: unique within a session."""


class Identified(Protocol):
    """The request of a cell, as far as it is known here."""

    @property
    def id(self) -> str: ...


class RunningCells:
    """Which cells run, and which of them connections are charged to: an observer of cells."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._running: dict[str, Cell] = {}
        self._last: Cell | None = None

    @property
    def charged(self) -> Cell | None:
        """The cell that began last of those that run, or else that ended last; None before a kernel's first."""
        return next(reversed(self._running.values()), self._last)

    def cell_sent(self, cell: Identified) -> None:
        self._running[cell.id] = self._last = charged = Cell(cell.id)
        self._service.cell_began(charged)

    def cell_ended(self, cell: Identified) -> None:
        if (charged := self._running.pop(cell.id, None)) is not None:
            self._last = charged
            self._service.cell_ended(charged)

    def kernel_gone(self) -> None:
        """Charge nothing more to the cells of a kernel that is gone."""
        self._last = None


class Streams(Protocol):
    """The connections of one container's cells."""

    def begin(self) -> None:
        """Let cells open some; idempotent."""

    def take(self, parts: list[bytes]) -> None:
        """Act on a frame of the container. Raises `WireError` for one that no agent sends."""

    def reset_all(self, code: str) -> None:
        """Break all that are open; others may be opened."""

    async def close(self) -> None:
        """Break all for good, without a word to the container; idempotent, bounded."""


class NoStreams:
    """Those of a session without a service: none."""

    def begin(self) -> None: ...

    def take(self, parts: list[bytes]) -> None:
        raise WireError(EndCode.NOT_FRAMES, "the sandbox sent a frame of a stream, and was never allowed to open one")

    def reset_all(self, code: str) -> None: ...

    async def close(self) -> None: ...


class Reporter(Protocol):
    """Where a service reports: to the audit and to the running cell. Never blocks and never raises."""

    def note(self, note: Note, **fields: object) -> None:
        """Write one line of the audit, an event "network" with the note's code and text. Their number is bounded."""

    def tell(self, text: str) -> None:
        """Say one line on stderr of the running cell, if there is one that has not been told too much."""


works_for: ContextVar[str | None] = ContextVar("sandbox_works_for", default=None)
"""The session for which a tool works: what it did in a cell of that session would wait for itself."""


class ServiceContext(Reporter, Protocol):
    """What a service knows of its session. Apart from `ask`, nothing blocks or raises."""

    @property
    def id(self) -> str:
        """Of the session."""

    async def ask(self, op: str, data: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
        """Ask the agent. Raises `SandboxDied`."""

    def record(self, event: str, **fields: Any) -> None:
        """Write one line of the audit; their number is bounded."""

    def tool(self, note: Note, *, bounded: bool, **fields: object) -> None:
        """Write one line of the audit about the call of a tool.

        `bounded` says that the limits of calls bound these lines: each is written. Others have room for some.
        """

    def hold_clock(self, cell: str, *, held: bool) -> None:
        """Stop the clock of a cell, or let it go on once it was let go as often as it was held."""


class Service(Protocol):
    """What the host does for the connections of one session, over all its kernels and containers."""

    async def serve(self, stream: Stream, cell: Cell) -> None:
        """Serve one connection; returns when it is over.

        A stream that is left open then is reset. It is cancelled when the stream's container ends. A `StreamReset`
        that comes out of it is an ordinary end; any other error resets the stream and is reported as a defect.
        """

    def cell_began(self, cell: Cell) -> None:
        """Note that a cell was sent to the kernel. Several may run at once, in subshells."""

    def cell_ended(self, cell: Cell) -> None:
        """Note that a cell ended. Connections that are charged to it may live on, and new ones be charged to it."""

    async def close(self) -> None:
        """End with the session, after the last stream; idempotent, bounded."""


ServiceFactory = Callable[[ServiceContext], Service]
"""Makes the service of a session: `Session(..., service=lambda context: Egress(policy, context))`. Called once."""
