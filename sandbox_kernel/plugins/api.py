"""What a plugin says of itself, and how its part of a session is called. Ours or that of another package.

Imports core alone: whatever asks for plugins may import this, and a plugin's own modules are imported when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..core.codes import Code
from ..core.errors import SandboxError
from ..core.events import SessionEvent
from ..core.model import Inside, Message, OpenedDatasetFile, SandboxSample, Settings
from ..core.screen_findings import Finding

if TYPE_CHECKING:
    import argparse
    import asyncio

# --- commands ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of `sandbox-kernel`. The first line of its `run`'s docstring is its line in the help."""

    name: str
    run: Callable[[argparse.Namespace], int]
    """Take the options, with settings in `values`, unchecked. Return the exit code."""
    examples: Mapping[str, str]
    """Command lines, and what each is for. The help shows all of them; it needs at least one."""
    add_options: Callable[[argparse.ArgumentParser], object] | None = None
    settings: bool = True
    """Whether the command takes settings as options."""
    shown: tuple[str, ...] = ()
    """The settings that its help explains, if not all."""
    exit_codes: Mapping[str, str] | None = None
    """What each exit code means, if they are not those of the other commands."""
    group: str = "Plugins"
    """The title below which the help lists it."""


# --- sessions ---------------------------------------------------------------------------------------------------------


class Identified(Protocol):
    """A request of a session."""

    @property
    def id(self) -> str:
        """Its `msg_id`: unique within a session."""


class RunningCell(Identified, Protocol):
    """A cell, as services see it."""

    @property
    def sent(self) -> bool: ...

    @property
    def awaiting_input(self) -> bool: ...

    @property
    def messages(self) -> int:
        """How many it has sent."""


class FileWatch(Protocol):
    """Hears which files of its datasets a sandbox opens, as the machine's kernel tells, until it is closed."""

    @property
    def fd(self) -> int:
        """Can be read when something was heard; no more than `select` is for others."""

    @property
    def partial(self) -> bool:
        """Whether the sandbox's runtime opens a file once for several cells."""

    @property
    def overflowed(self) -> bool:
        """Whether more was opened than there was room for."""

    @property
    def elsewhere(self) -> int:
        """How often the sandbox opened something of a dataset by a path that is none of it."""

    def renew(self) -> FileWatch:
        """Return another one that hears what comes from now on. Raises `OSError`."""

    def read(self, most: int) -> Iterable[OpenedDatasetFile]:
        """Return what was heard, `most` events at most; waits for nothing. From any thread, one at a time."""

    def close(self) -> None:
        """Hear no more. Idempotent; for a thread, as it may take some milliseconds."""


Figures = tuple[float | None, int | None]
"""CPU seconds, and the peak of memory in bytes; None where it is not known. Cells can make their sandbox lie."""


class SessionHandle(Protocol):
    """The session, as its services know it."""

    @property
    def id(self) -> str: ...

    @property
    def is_open(self) -> bool:
        """Whether a sandbox runs that was attested."""

    @property
    def is_closed(self) -> bool: ...

    def emit(self, event: SessionEvent, /) -> None:
        """Tell all listeners of an event; where an audit is kept, it has a line of it. Never raises."""

    def measure(self) -> None:
        """Have the sandbox measure what is used from now on; does nothing without one."""

    def measured(self, cell: str) -> asyncio.Task[Figures]:
        """Return what was used since `measure`, as the sandbox says; whoever asks for the same cell gets the same."""

    def say(self, text: str) -> None:
        """Say one line on stderr of the cell that runs, or of the next one."""

    def tell(self, text: str) -> None:
        """Say one line on stderr of the cell that runs, if there is one that was not told too much already."""

    def hold_clock(self, cell: str, *, held: bool) -> None:
        """Stop the clock of a cell, or let it go on once it was let go as often as it was held."""

    async def ask(self, op: str, data: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
        """Ask the sandbox's agent; what it says may be anything. Raises `SandboxDied`."""

    def block(self, error: SandboxError) -> None:
        """End the kernel with all of its processes, and the cells that run in it with `error`."""

    def running_cells(self) -> Iterable[RunningCell]: ...

    async def sample(self) -> SandboxSample:
        """Return what the host's kernel says of the sandbox. Raises `SandboxDied` when there is none."""

    def watch_files(self) -> FileWatch | None:
        """Hear which files of datasets are opened; None in a session within another one, which hears of them.

        Raises `SandboxDied` when there is none, and `OSError` where this machine does not tell.
        """

    async def cpu_seconds(self) -> float | None:
        """Return what the sandbox says that it used of processors. Raises `SandboxDied` when there is none."""

    def start(self, work: Coroutine[Any, Any, object], what: str) -> asyncio.Task[object]:
        """Run something beside the session, until it ends; a failure of it is logged as one of `what`."""


class SessionService:
    """A plugin's part in one session.

    It may be a `CellGuard`, a `CellObserver`, an `EventListener` and a `TransferListener` besides, by having their
    methods. What a guard raises ends the cell; what the others raise is logged, and nobody else's.
    """

    of_sandbox = False
    """Whether it observes the cells of all kernels in its sandbox, as those do that serve connections."""

    def begin(self, *, afresh: bool) -> None:
        """Take note that a sandbox starts. `afresh`: it holds nothing yet, of an earlier process' or of a snapshot."""

    def kernel_gone(self) -> None:
        """Take note that a kernel is gone, after the ends of its cells."""

    def abandon(self) -> None:
        """End where no loop runs any more; at once."""

    async def close(self) -> None:
        """End with the session. It may take five seconds; then it is cancelled."""


@dataclass(frozen=True, slots=True)
class Review:
    """What a guard says of a request."""

    findings: tuple[Finding, ...] = ()
    """For callers and entry points, in the order of its lines."""
    error: SandboxError | None = None
    """Ends it: it never reaches the sandbox."""
    warning: str | None = None
    """One line for the person in front of it."""


@runtime_checkable
class CellGuard(Protocol):
    """Reads requests before they go into the sandbox."""

    def review(self, request: Message, reads: str | None) -> Review:
        """Say what is to become of a request. `reads`, where it is ours, is read in place of its code."""


@runtime_checkable
class CellObserver(Protocol):
    """What is told of each cell; it answers nothing, and delays none."""

    def cell_sent(self, cell: RunningCell) -> None:
        """Take note of a cell that is about to be sent to the kernel."""

    def cell_ended(self, cell: RunningCell) -> None:
        """Take note of the end of a cell that was sent, however it ended; nothing of its content is left."""


@runtime_checkable
class EventListener(Protocol):
    """Hears what happens in a session."""

    def hear(self, event: SessionEvent) -> None:
        """Take an event, as it happens; from any thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedCell:
    """A cell that has its reply."""

    id: str
    code: str
    begun: bool
    """Whether a kernel took it up."""
    seconds: float
    """Since it was sent; 0 for one that was not."""
    execution_count: int | None
    reply: Message | None
    verdict: SandboxError | None
    """Why the host ended it; None if its kernel did."""
    output_bytes: int
    output_messages: int
    caller: str = ""
    """Who asked, where a server knows several: a wire, a space, and a name."""


@runtime_checkable
class CellRecorder(Protocol):
    """Writes each cell down. It hears events, and is ended, after the other parts of its session."""

    @property
    def head(self) -> str | None:
        """What names the last line that was written, also after its end; None if there is none."""

    def cell_begun(self) -> None:
        """Take note that a kernel has taken up a cell."""

    def cell_done(self, cell: EndedCell) -> None:
        """Write down a cell that has its reply."""


@runtime_checkable
class TransferListener(Protocol):
    """Sees files pass between host and sandbox."""

    def transferred(
        self, op: str, data: bytes, fields: Mapping[str, Any], reply: Mapping[str, Any], answer: bytes
    ) -> None:
        """Take a question about files and its answer; what the sandbox says in it may be anything."""


# --- connections of cells ---------------------------------------------------------------------------------------------


RESET_BY_CELL = "cell"
"""The cell broke it, or its process ended."""
RESET_BY_KERNEL = "kernel"
"""Its kernel was replaced, or its host process is about to be."""
RESET_BY_END = "end"
"""The sandbox ended, or the session."""
RESET_LEFT_OPEN = "left-open"
"""The service returned without an end of it."""
RESET_CROWDED = "crowded"
"""No request waited for it, and others may wait for its place."""
RESET_UNSERVED = "unserved"
"""No service is for what it begins with."""
RESET_UNCHARGED = "uncharged"
"""It was opened before its kernel's first cell."""


class StreamReset(Exception):
    """The connection is broken: by the cell, by the service, or with the kernel that it belonged to."""

    def __init__(self, code: str) -> None:
        super().__init__(f"the connection was reset: {code}")
        self.code = code
        """What `reset` was called with, or one of the codes above."""


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


@runtime_checkable
class StreamService(Protocol):
    """Serves connections that cells open to a port of their sandbox's loopback."""

    @property
    def preamble(self) -> bytes:
        """The first bytes of its connections, that no other service's begin with; b"": those without such bytes."""

    async def serve(self, stream: Stream, cell: Cell) -> None:
        """Serve one connection, behind the preamble; returns when it is over.

        A stream that is left open then is reset. It is cancelled when the stream's container ends. A `StreamReset`
        that comes out of it is an ordinary end; any other error resets the stream and is reported as a defect.
        """


class Preparation(Protocol):
    """A plugin's part in a session, made before the session is: its sandboxes start with what it has for them.

    A sandbox keeps that, so a process that takes one over makes its part of what the process before knew.
    """

    @property
    def inside(self) -> Inside:
        """What goes into each sandbox of the session."""

    def service(self, session: SessionHandle) -> SessionService:
        """Return the part, once there is the session. Called once."""

    def state(self) -> dict[str, Any]:
        """Return what the process has to know that takes over the sandbox: JSON, without a value of a secret."""


class Prepare(Protocol):
    """Makes a preparation."""

    def __call__(
        self,
        settings: Settings,
        given: object,
        state: Mapping[str, Any],
        environment: Mapping[str, str],
    ) -> Preparation:
        """Make it.

        Args:
            settings: Of the session.
            given: What its caller gives the plugin, unchecked; None if that is nothing.
            state: The `state` of the process before; empty without one.
            environment: Variables of this process.

        Raises:
            ConfigurationError: There cannot be a session: a file that is missing, a value that is improper.
        """


# --- plugins ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Problem:
    """What is missing, or may be, and what to do."""

    missing: str
    remedy: str
    certain: bool = True
    """Whether a kernel would miss it too: a variable may be set for a Jupyter that was started elsewhere."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a plugin says of what its settings name."""

    there: str
    """One line for when nothing is missing."""
    problems: tuple[Problem, ...] = ()


Sign = Callable[[Sequence[tuple[str, str]], Mapping[str, Any]], str]
"""Takes names with their SHA-256 in hexadecimal digits, and what is said of them; returns the signed statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """One plugin. To make it imports nothing large: a plugin's own modules are imported when they are used."""

    name: str
    page: str
    """Where people read about it: a path in this project, or an address."""
    extra: str | None = None
    """The extra of this project that has the packages it needs; None if it needs none."""
    commands: tuple[Command, ...] = ()
    engines: Sequence[object] = ()
    """Engines that it brings, each a `sandbox_kernel.engines.select.EngineProvider`."""
    codes: Mapping[str, type[Code]] = field(default_factory=dict)
    """Tables of its own codes, by title. A table's docstring says what they are about."""
    service: Callable[[Settings, SessionHandle], SessionService] | None = None
    """Makes its part of a session, when the session is made. For ours `index` says which setting asks for it; that of
    another package takes part where the setting `plugins` names it."""
    prepare: Prepare | None = None
    """Makes its part of a session where sandboxes have to start with something of it; in place of `service`."""
    sign: Callable[[Settings], Sign] | None = None
    """Return what signs a statement with the key that the settings name. Raises `ConfigurationError` if none can be."""
    attachments: Callable[[], object] | None = None
    """Return what it knows of what is mounted into sandboxes, a `sandbox_kernel.engines.attachment.Attachments`."""
    snapshots: Callable[[], object] | None = None
    """Return what writes sandboxes down, a `sandbox_kernel.sdk.snapshots.Snapshots`."""
    inventory: Callable[[Settings], Mapping[str, Diagnosis]] | None = None
    """Say what it keeps on this user's disk besides sandboxes, by what `doctor` calls it; nothing of what is not."""
    tidy: Callable[[Settings], str] | None = None
    """Remove of that what is too old, or was never finished, for `reap`; return what went, in words."""
    sdk: Callable[[Any], Any] | None = None
    """Makes what methods of the SDK call for one sandbox, of its `sandbox_kernel.sdk.instance.Instance`."""
    diagnose: Callable[[Settings, Mapping[str, str]], Diagnosis] | None = None
    """Looks whether what the settings name is there, for a kernel that has these variables. `doctor` asks it."""
    python_alone: bool = False
    """Whether it reads or runs Python: sessions with another kernel are refused it, and so are callers of its `sdk`."""
    no_snapshot: Callable[[Settings], str | None] | None = None
    """Says why a snapshot of a session with it would lack something that counts; None if it would not."""
