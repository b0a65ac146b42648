"""What a plugin says of itself, and how its part of a session is called. Ours or that of another package.

Imports core alone: whatever asks for plugins may import this, and a plugin's own modules are imported when it is used.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..core.codes import Code
from ..core.errors import SandboxError
from ..core.events import SessionEvent
from ..core.model import Audience, ExitReason, Inside, Message, OpenedDatasetFile, SandboxSample, SandboxSpec, Settings
from ..core.screen_findings import Finding

if TYPE_CHECKING:
    import argparse
    import asyncio
    from pathlib import Path

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
    methods. An exception of a guard ends the cell; those of the others are logged, and change nothing.
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
class Question:
    """What a person is asked before a request goes into the sandbox."""

    text: str
    """Plain lines. How to answer is added to them."""
    decide: Callable[[str | None], SandboxError | None]
    """Takes None for a yes, or the reason why there is none. Returns what ends the request; None lets it through."""


@dataclass(frozen=True, slots=True)
class Review:
    """What a guard says of a request."""

    findings: tuple[Finding, ...] = ()
    """For callers and entry points, in the order of its lines."""
    error: SandboxError | None = None
    """Ends it: it never reaches the sandbox."""
    warning: str | None = None
    """One line for the person in front of it."""
    question: Question | None = None
    """It waits for the answer of the person in front of it. Where no person can be asked, the answer is no."""
    later: Callable[[], Awaitable[Review]] | None = None
    """It waits for this, which says the rest within a bound of its own. What fails does not let it through."""


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


# --- sandboxes --------------------------------------------------------------------------------------------------------


class SessionRequest(RunningCell, Protocol):
    """A request of a front end and what became of it, for those who follow a session."""

    @property
    def message(self) -> Message:
        """It, as it came; without its content once it has ended."""

    @property
    def seconds(self) -> float | None:
        """A time limit of its own; it never extends the one that every cell has."""

    @property
    def reads(self) -> str | None:
        """Of a cell of this host's own: what guards read in place of its code."""

    @property
    def caller(self) -> str:
        """Who asks, where one process serves several."""

    @property
    def finished(self) -> bool:
        """Whether it has its end; the kernel may not have come so far."""

    @property
    def verdict(self) -> SandboxError | None:
        """Why the host ends it; None if its kernel does."""

    @property
    def is_over(self) -> bool:
        """Whether nothing of its content is needed any more; nobody says when a comm message is done with."""


class SessionFront(Protocol):
    """Gets what a session says to its front ends."""

    def deliver(self, message: Message, client: bytes | None) -> None:
        """Send a message to one client, or publish it to all. Its header holds a type only. Must not raise."""

    def drain(self) -> None:
        """Submit the requests that have arrived but were not read yet."""


class SessionObserver(Protocol):
    """What is told of each cell, and of the ends of kernels."""

    def cell_sent(self, cell: SessionRequest) -> None: ...
    def cell_ended(self, cell: SessionRequest) -> None: ...
    def kernel_gone(self) -> None: ...


class AgentPipe(Protocol):
    """The pipe of a further agent in a session's sandbox; it ends with that."""

    @property
    def id(self) -> str:
        """The sandbox's."""

    @property
    def held(self) -> bool:
        """Whether the machine itself enforces the sandbox's limits."""

    async def send(self, data: bytes) -> None: ...
    async def receive(self, minimum: int = 1) -> bytes:
        """Return what has come, waiting for it; b"" at its end."""

    async def wait(self) -> ExitReason:
        """Return why it has ended, once it has."""

    async def kill(self) -> None:
        """End it with all of its processes."""


class NotStill(Exception):
    """A sandbox cannot be written down while something runs in it; `str` says why."""


class NotWhole(Exception):
    """A sandbox cannot be written down, since that would lack a part of it; `str` says which."""


class OwnedSession(SessionHandle, Protocol):
    """The session, as those know it who have its sandbox: servers, keepers, and what makes more kernels in it."""

    @property
    def settings(self) -> Settings: ...

    @property
    def engine(self) -> object:
        """What starts its sandboxes, a `sandbox_kernel.engines.base.Engine`."""

    @property
    def kernel_info(self) -> dict[str, Any]:
        """The part of the first kernel's info that is passed on; empty until one was ready."""

    @property
    def prepared(self) -> dict[str, Any]:
        """What plugins have to know, by their names, to serve its sandboxes from another process."""

    @property
    def failure(self) -> SandboxError | None:
        """Why the last start failed or the last sandbox ended; None once another one was started."""

    @property
    def is_starting(self) -> bool:
        """Whether a sandbox or its kernel is on its way."""

    @property
    def cells_begun(self) -> int:
        """How many cells were sent so far."""

    @property
    def record_head(self) -> str | None:
        """What names the last line that was written down of it; None if there is none."""

    def part(self, plugin: str) -> SessionService | None:
        """Return what a plugin has in it; None if it takes no part."""

    # --- its sandbox ---

    async def started(self) -> str:
        """Start a sandbox unless there is one; return its id once it is attested and ready. Raises `SandboxError`."""

    async def settled(self) -> None:
        """Wait until the kernel is ready, or its start has failed."""

    async def renew(self) -> None:
        """Replace the kernel by a new one in the same sandbox; without a sandbox, start one. `settled` waits for it."""

    def adopt(self, fd: int, state: dict[str, Any]) -> None:
        """Go on with a sandbox that another process had, whose `state` has what its engine needs to take it over.

        Without `folders`, what that process knew of its folders is unknown.
        """

    def begin_from(self, state: dict[str, Any], opens: Callable[[SandboxSpec], Awaitable[Any]]) -> None:
        """Begin with the container that `opens` returns, which goes on from a snapshot."""

    async def save(self, fd: int) -> dict[str, Any]:
        """Write the sandbox down to `fd`, an empty file; return what its engine needs to know beside it.

        It goes on afterwards, whatever comes of it. Raises `NotStill` while something runs in it, `NotWhole`,
        `AbilityMissing`, `SandboxDied` without a sandbox, `SandboxPaused` and `EngineError`.
        """

    def demand_pause(self) -> None:
        """Raise `AbilityMissing` if its engine, or the sandbox that it has, cannot be paused."""

    def touch(self) -> None:
        """Note that the sandbox is in use; its idleness counts from now."""

    def abandon(self) -> None:
        """Let go of the sandbox, which ends then. For where no loop runs any more."""

    async def close(self) -> None:
        """End the session and its sandbox; idempotent, bounded."""

    # --- its cells ---

    def submit(self, request: Message, client: bytes, seconds: float | None = None, reads: str | None = None) -> None:
        """Take a request of a front end; `seconds` is a shorter time limit than that of every cell.

        `reads` is what guards read in place of its code, where that is ours.
        """

    def submit_silently(self, code: str) -> None:
        """Submit a cell of the host's own, if there is one, whose messages nobody takes."""

    def find(self, message_id: object) -> SessionRequest | None:
        """Return a request of its front ends by its id."""

    def lose_cells(self, error: SandboxError) -> None:
        """End all cells with `error`, as the end of its sandbox does."""

    # --- who follows it ---

    def join(self, front: SessionFront) -> None:
        """Have a further front end get what the first one gets."""

    def observe(self, observer: SessionObserver) -> None: ...

    def on_change(self, heard: Callable[[SessionRequest], None]) -> None:
        """Have each change of a request heard."""

    def listen(self, listener: EventListener) -> None:
        """Have a listener hear all events, before those are told that write them down."""

    def hints_are_for(self, audience: Audience) -> None:
        """Have hints say what this audience can do."""

    def hold_downloads(self, folder: Any) -> None:
        """Take a download folder that the caller has open, a `sandbox_kernel.files.host_paths.Folder`."""

    # --- what else is in its sandbox ---

    def transmit(self, kind: int, parts: list[bytes]) -> None:
        """Send a frame of `container.wire`. Raises `SandboxDied`."""

    async def open_nested(self, config: Mapping[str, Any]) -> AgentPipe:
        """Start one more agent in its sandbox, and the sandbox before that if it does not run.

        Raises `SandboxError`, and `ConfigurationError` if its kernel cannot begin there.
        """

    async def nested_kernelspecs(self) -> Any:
        """Return what the sandbox says of its image's kernelspecs; anything. Raises `SandboxError`."""


class Origin(Protocol):
    """What a sandbox that did not start yet goes on from."""

    async def begin(self, session: OwnedSession) -> None:
        """Start a session where it goes on from. Raises as `OwnedSession.started`."""

    def close(self) -> None:
        """Idempotent."""


class Transport(Protocol):
    """The way of a kernel's messages to its clients."""

    def send(self, message: Message, client: bytes | None = None) -> None:
        """Send a message to one client, or to all. Its header has a type only; `ServedKernel.headers` make the rest.

        Raises `ProtocolError` if it cannot be said in JSON.
        """

    def unsent_bytes(self) -> int:
        """Return the bytes of large replies that no client has taken yet."""


class KernelProcess(Protocol):
    """What a client takes for the process of its kernel, and asks of it; kernels differ in this."""

    def ports(self) -> Mapping[str, Any]:
        """Return where it listens. Raises `ProtocolError` if that is no port."""

    async def interrupt(self) -> None:
        """Interrupt what runs."""

    async def restart(self) -> None:
        """Do what comes before the reply to a shutdown that is a restart."""

    async def shut_down(self, request: Message) -> None:
        """Do what comes after the reply to a shutdown, which may be a restart."""


class KernelHeaders(Protocol):
    """The headers of what a kernel sends: its session, and a number that each message raises by one."""

    def renew(self) -> None:
        """Begin another session: front ends leave out what they asked of the one before."""

    def of(self, kind: str) -> dict[str, str]:
        """Return the header of the next message, which is of a type."""


class ServedKernel(Protocol):
    """The kernel of one session, for all clients of one transport."""

    @property
    def headers(self) -> KernelHeaders: ...

    def receive(self, request: Message, client: bytes, process: KernelProcess) -> Coroutine[Any, Any, None] | None:
        """Take a request of a client. Whatever fails with it, it is answered.

        Returns:
            What is to be run for its answer, if the host gives it.
        """

    def publish(self, message: Message) -> None:
        """Send all clients what a cell's page bears of a message of the session's."""

    def status(self, state: str, request: Message | None = None, client: bytes | None = None) -> None:
        """Say a state of the kernel, or of a request, to all clients or to one."""

    def say_busy(self) -> None:
        """Say of running cells that they run: clients keep one state for a kernel, and have just heard idle."""


class SandboxHandle(Protocol):
    """A sandbox of the SDK, as plugins know it that are a part of it."""

    @property
    def settings(self) -> Settings: ...

    @property
    def session(self) -> OwnedSession: ...

    @property
    def given(self) -> Mapping[str, object]:
        """What its caller gives to plugins, by their names."""

    def part(self, plugin: str) -> Any:
        """Return what a plugin has for callers of this sandbox. Raises `ConfigurationError` if it is not here."""

    def check(self, *, paused: bool = False) -> None:
        """Raise `SandboxClosed` unless this sandbox may be used here, and `SandboxPaused` unless now, or `paused`."""

    async def ready(self, *, fresh: bool, again: bool = False) -> None:
        """Wait for a sandbox that is attested and ready; with `fresh`, start one if there is none.

        Without, the loss of the last one is raised: what a caller looks for is gone with it.
        """

    async def run_own(self, code: str, *, reads: str, timeout: float, context: Any = None) -> Any:
        """Run a cell of this package's own for at most `timeout` seconds; return its `sdk.execution.Execution`.

        The screen reads `reads` in its place: a cell that would do as much, or empty for what no rule is about.
        """

    def serve(self, transport: Transport, engine: str) -> ServedKernel:
        """Serve its kernel to all clients of a transport; they are told `engine` of what makes the sandbox."""

    def session_within(self, settings: Settings, engine: Any) -> OwnedSession:
        """Return a session for one more kernel in this sandbox, which `engine` starts there, later."""

    def resume_cell(
        self,
        request: Message,
        seconds: float,
        reads: str | None,
        *,
        elapsed: float,
        left: float,
        wanted: frozenset[str] | None,
    ) -> None:
        """Take up a cell that another process sent to the kernel `elapsed` seconds ago, in its place.

        Args:
            request: The cell, as it was sent.
            seconds: The time limit that it was sent with.
            reads: What guards read in its place.
            elapsed: Seconds.
            left: Seconds that it may still run.
            wanted: The events that a caller of `rejoin` gets; None if nobody is to get any.
        """


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


class ConnectionService(Protocol):
    """What serves the connections of one session, over all its kernels and containers: see `StreamService`."""

    async def serve(self, stream: Stream, cell: Cell) -> None: ...


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


# --- files for front ends ---------------------------------------------------------------------------------------------

Answer = tuple[dict[str, Any], list[bytes]]
"""Content and buffers of a reply."""


class FileAnswers(Protocol):
    """Answers requests of a session's front ends about files."""

    async def answer(self, request: Message) -> Answer:
        """Return content and buffers of the reply, whatever is wrong with the request."""

    async def close(self) -> None:
        """Answer no more, and remove what has not arrived as a whole; bounded."""


@dataclass(frozen=True, slots=True)
class FileRequests:
    """What a plugin does with these requests."""

    described: Callable[[], dict[str, int]]
    """Return what kernel_info says of them."""
    answers: Callable[..., FileAnswers]
    """Make what answers for one session, from what its `FileMessages` takes."""


# --- hints ------------------------------------------------------------------------------------------------------------

Beside = Callable[[Sequence[str]], str | None]
"""Returns the first of some relative paths that lies beside the notebook. It may wait for a disk."""
MAX_SEARCHED = 5000
"""Characters of an exception or an output that are looked at; each may be as long as a message."""


@dataclass(frozen=True, slots=True)
class CellFailure:
    """An exception of a cell, by its name and its text; hints are for it."""

    name: str
    value: str
    traceback: Sequence[object] = ()
    """Its lines, or pieces of several; those of the exceptions that it came of are among them."""

    @property
    def said(self) -> str:
        return f"{self.name}: {self.value[:MAX_SEARCHED]}"


class CellHints(Protocol):
    """Says what ordinary failures of a session's cells have to do with its sandbox."""

    def of_cell(self, failure: CellFailure | None, found: str | None, program: str | None, code: str) -> Sequence[str]:
        """Return lines for a cell: its exception, with the file `found` of those `sought`, and what its shell lacks."""

    def sought(self, failure: CellFailure) -> Sequence[str]:
        """Return the relative paths that an exception may be about and that are worth a check."""

    def program_not_found(self, printed: str) -> str | None:
        """Return the program that a shell in a cell did not find, if it is one that is known."""


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
    skipped: bool = False
    """Whether there is nothing to look at; `there` says so."""


Sign = Callable[[Sequence[tuple[str, str]], Mapping[str, Any]], str]
"""Takes names with their SHA-256 in hexadecimal digits, and the statement's fields; returns the signed statement."""


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
    comms: Callable[[], object] | None = None
    """Return the class of a kernel's comms that may pass, a `sandbox_kernel.policy.comms.Comms`."""
    file_requests: FileRequests | None = None
    """Answers front ends' requests about files."""
    hints: Callable[[Settings, Audience, Beside | None], CellHints] | None = None
    """Makes the hints of a session for an audience, which may be told what lies beside its notebook."""
    outputs: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    """Types of outputs that pass with it, each with what builds a value of the type again; None for an improper one."""
    cell_reader: Callable[[], Callable[[str], str]] | None = None
    """Return what turns a cell, or what its cell magic is given, into Python."""
    requirements: Callable[[Path], tuple[str, Callable[..., object]]] | None = None
    """Reads a file of requirements: returns what stands for them in a digest, and what fetches their wheels, as
    `image_wheels.all_locked` does, for `target` and maybe `fresh`. Raises `ConfigurationError`."""
    nested: Callable[[Any], Any] | None = None
    """Makes what has further agents of a container, from the link to its own agent (`session.agent_link`)."""
    streams: Callable[[], object] | None = None
    """Return the class of what carries the connections of a container's cells."""
    snapshots: Callable[[], object] | None = None
    """Return what writes sandboxes down, a `sandbox_kernel.sdk.snapshots.Snapshots`."""
    inventory: Callable[[Settings], Mapping[str, Diagnosis]] | None = None
    """Say what it has on this machine besides sandboxes, by what `doctor` calls it; nothing of what is not."""
    after_setup: Callable[[argparse.Namespace, Path], int] | None = None
    """Does its part when `setup` ends, in the order of the index: takes the options, with `user` and `prefix` as they
    were, and the folder of the kernelspec; prints what it did, and returns an exit code."""
    tidy: Callable[[Settings], str] | None = None
    """Remove of that what is too old, or was never finished, for `reap`; return what went, in words."""
    sdk: Callable[[SandboxHandle], Any] | None = None
    """Makes what methods of the SDK call for one sandbox."""
    diagnose: Callable[[Settings, Mapping[str, str]], Diagnosis] | None = None
    """Looks whether what the settings name is there, for a kernel that has these variables. `doctor` asks it."""
    python_alone: bool = False
    """Whether it reads or runs Python: sessions with another kernel are refused it, and so are callers of its `sdk`."""
    no_snapshot: Callable[[Settings], str | None] | None = None
    """Says why a snapshot of a session with it would lack something that counts; None if it would not."""
