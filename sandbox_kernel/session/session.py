"""One session: an entry point's cells, and one container after another that runs them.

Everything a user meets is a thin entry point to this. A container that ends is replaced with the next request. Imports
no sockets and no settings machinery.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ..core.codes import EndCode
from ..core.errors import SandboxDied, SandboxError
from ..core.events import ContainersReaped, ReapFailed, SessionEvent
from ..core.model import PYTHON_KERNEL, Audience, Inside, Message, SandboxSample, SandboxSpec, Settings
from ..core.tasks import Tasks, noted_in
from ..engines.abilities import Ability, demand
from ..engines.base import Container, Engine, Handover
from ..engines.preparations import Preparations
from ..engines.shipping import new_spec
from ..files.folder_sync import Folders
from ..files.host_paths import Folder
from ..plugins.api import AgentPipe, EventListener, Figures, FileWatch, SessionFront, SessionObserver, SessionService
from ..policy import protocol
from ..policy.handshake import KernelHandshake
from ..policy.output_policy import OutputPolicy
from .agent_link import Link
from .agent_messages import SandboxUsage, figures_of, usage_of
from .container_states import AWAITING_KERNEL, LET_GO, OPEN, TABLE, ContainerEvent, ContainerState
from .hints import SessionHints
from .lifecycle import Lifecycle
from .pauses import Pauses
from .plugin_parts import Services
from .requests.driver import Requests
from .requests.queue import PendingRequest
from .running_cells import NoStreams, RunningCells

SILENT_SECONDS = 60.0
"""What a cell of ours may take at most; an honest one needs milliseconds."""


class Idleness:
    """When a sandbox that nobody uses has to go: one timer, which looks again if it was used meanwhile."""

    def __init__(
        self, seconds: float, *, watched: Callable[[], bool], working: Callable[[], bool], expired: Callable[[], None]
    ) -> None:
        """`watched` says whether there is a sandbox that could go, `working` whether it is in use by itself."""
        self._seconds = seconds
        self._watched = watched
        self.is_working = working
        self._expired = expired
        self._used = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def touch(self) -> None:
        """Note a use."""
        loop = asyncio.get_running_loop()
        self._used = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._look)

    def left(self) -> float | None:
        """Return the seconds until it is ended as unused; None while it is used, or there is none."""
        if self._timer is None or not self._watched() or self.is_working():
            return None
        return max(0.0, self._used + self._seconds - asyncio.get_running_loop().time())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if not self._watched():
            return  # the next use begins again
        if self.is_working():
            self.touch()
            return
        loop = asyncio.get_running_loop()
        if (left := self._used + self._seconds - loop.time()) > 0:
            self._timer = loop.call_later(left, self._look)
        else:
            self._expired()


class Session:
    """Cells in, messages out, for one entry point.

    `submit` never blocks; what comes back goes to `front`. The container is started by `launch`, or by the first
    request that needs one, and again after it was lost.
    """

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        front: SessionFront,
        first: SandboxSpec | None = None,
        *,
        prepared: Preparations | None = None,
        identity: str | None = None,
        within: Session | None = None,
    ) -> None:
        """Make it; its sandbox is started later.

        Args:
            settings: Checked ones.
            engine: What starts its sandboxes.
            front: What gets what comes back.
            first: The spec of the first container, if the engine was asked for it already.
            prepared: What plugins have prepared for it, if they were asked before.
            identity: That of a sandbox which another process began.
            within: The session whose sandbox it runs in, beside the kernel of that one. Files, folders, connections and
                idleness are that one's, and it ends with it.

        Raises:
            ConfigurationError: A plugin that the settings ask for cannot take part.
        """
        self.settings = settings
        self.limits = settings.limits
        self.engine = engine
        self._first = first
        self.id = first.session_id if first is not None else identity or secrets.token_hex(16)
        self.handshake = KernelHandshake(settings.kernel)
        self._tasks = Tasks(noted_in(self.emit))
        self._interrupting: asyncio.Task[None] | None = None
        self._readings = Tasks()
        """Readings of the meter end by themselves, with the sandbox at the latest, so each caller gets an answer."""
        self._reading: tuple[str, asyncio.Task[Figures]] | None = None
        self._within = within
        self.beside: list[Session] = []
        """Those within this one."""
        self.folders: Folders = Folders(settings, self.ask, self.emit) if within is None else within.folders
        self._prepared = prepared if prepared is not None else Preparations(settings)
        self.cells: RunningCells = RunningCells() if within is None else within.cells
        outer = None if within is None else within.services
        self.services: Services = Services(self, self._prepared, outer)
        self.hints = SessionHints(settings)
        self.requests = Requests(
            self.limits,
            self,
            front,
            OutputPolicy(settings.outputs, self.limits.message_limit),
            self.emit,
            before_cell=self.folders.before_cell,
            after_cell=self.folders.after_cell,
            observers=[self.cells, self.services],
            recorder=self.services,
            guards=self.services.guards,
            hints=self.hints,
            answers_questions=settings.kernel != PYTHON_KERNEL,
        )
        self._life = self._next_life()
        self.pauses = Pauses(
            settings,
            engine,
            self.requests,
            self.emit,
            link=self._link,
            ready=lambda: self._life.ready and not any(one.is_starting for one in self.beside),
            touch=self.touch,
            beside=lambda: [(one.requests, one.link) for one in self.beside if one.link is not None],
        )
        self._idleness = Idleness(
            self.limits.idle_timeout,
            watched=lambda: ContainerEvent.IDLE in TABLE[self._life.state],
            working=self.is_working,
            expired=lambda: self._life.retire(),  # noqa: PLW0108 (there is another one later)
        )

        if within is not None:
            within.beside.append(self)

    @property
    def kernel_info(self) -> dict[str, Any]:
        """The part of the first kernel's info that is passed on; empty until one was ready."""
        return self.handshake.known

    @property
    def failure(self) -> SandboxError | None:
        """Why the last start failed or the last sandbox ended; None once another one was started."""
        return self._life.failure

    @property
    def held(self) -> bool | None:
        """Whether the machine itself enforces the sandbox's limits; None while there is no sandbox."""
        return None if self._life.link is None else self._life.link.container.held

    @property
    def link(self) -> Link | None:
        """The way to its agent, while there is one."""
        return self._life.link

    @property
    def inside(self) -> Inside | None:
        """What plugins have in its sandboxes."""
        return self._prepared.inside

    @property
    def prepared(self) -> dict[str, Any]:
        """What plugins have to know, by their names, to serve its sandboxes from another process."""
        return self._prepared.state()

    @property
    def is_new(self) -> bool:
        """Whether no container was asked for yet."""
        return self._life.state is ContainerState.NEW

    @property
    def is_starting(self) -> bool:
        """Whether a container or its kernel is on its way."""
        return self._life.state is ContainerState.STARTING or self._life.state in AWAITING_KERNEL

    @property
    def is_open(self) -> bool:
        """Whether a container runs that was attested, and whose kernel was ready once."""
        return self._life.state in OPEN

    @property
    def is_paused(self) -> bool:
        """Whether it is paused with all that runs in it. While it is written down, it is not: what is asked waits."""
        return self._is_held and not self.pauses.is_saving

    @property
    def _is_held(self) -> bool:
        return self._life.link is not None and self._life.link.is_held

    @property
    def is_gone(self) -> bool:
        """Whether the last container did not start, or ended."""
        return self._life.state is ContainerState.ENDED

    @property
    def is_closed(self) -> bool:
        return self._life.state in LET_GO

    @property
    def idle_left(self) -> float | None:
        """Seconds until the sandbox ends as unused; None while it is in use, or there is none."""
        return self._idleness.left()

    def emit(self, event: SessionEvent) -> None:
        """Tell all who listen of an event. Never raises."""
        self.services.emit(event)

    # --- what an entry point calls ---

    def launch(self) -> None:
        """Start a container unless there is one."""
        if self.is_gone:
            self._life = self._next_life()
        if self.is_new:
            if self._within is None:
                self.folders.forget_scratch()
            self.services.begin(afresh=True)
            first, self._first = self._first, None
            owner = self._within or self
            spec = first or new_spec(self.settings, self.id, owner.inside, watch=owner.settings.watches_calls)

            async def start() -> Container:
                return await self.engine.start(spec)

            self._life.launch(start, spec)

    def adopt(self, fd: int, state: dict[str, Any]) -> None:
        """Go on with a container that another process parked, or kept without a word on its folders."""
        if "folders" in state:
            self.folders.restore(state["folders"])
        self._go_on_with(state, lambda: self.engine.adopt(fd, state))

    def begin_from(self, state: dict[str, Any], opens: Callable[[SandboxSpec], Awaitable[Container]]) -> None:
        """Begin with a container that goes on from a snapshot."""
        spec = new_spec(self.settings, self.id, self._prepared.inside)
        self._go_on_with(state, lambda: opens(spec))

    def _go_on_with(self, state: dict[str, Any], opens: Callable[[], Awaitable[Container]]) -> None:
        self.handshake.restore(state.get("handshake"))  # cells may have run: this kernel is not asked
        self.services.begin(afresh=False)
        self._life.launch(opens, None)

    def submit(self, request: Message, client: bytes, seconds: float | None = None, reads: str | None = None) -> None:
        """Take a request of a front end; `seconds` is a shorter time limit than that of every cell.

        `reads` is what guards read in place of its code, where that is ours.
        """
        if self.is_closed:
            return
        self.touch()
        self.launch()
        self.requests.submit(request, client, seconds, reads)

    async def settled(self) -> None:
        """Wait until the kernel is ready, or its start has failed."""
        await self._life.settled()

    async def started(self) -> str:
        """Start a sandbox unless there is one; return its id once it is attested and ready. Raises `SandboxError`."""
        self.touch()
        if self._life.state is ContainerState.RETIRING or self._life.is_ending:
            await self._life.gone()
        self.launch()
        await self.settled()
        if self._life.link is None:
            raise self.failure or SandboxDied(EndCode.SANDBOX_NOT_RUNNING)
        return self._life.link.container.id

    async def interrupt(self) -> None:
        """Send SIGINT to the kernel and its children, if it handles a request; one that is on its way is for all."""
        self.requests.take_back_questions()  # now: one that comes of the interrupt may be here before its answer is
        if self.ready and self.requests.queue.in_flight:
            if self._interrupting is None or self._interrupting.done():
                self._interrupting = self._tasks.hold(self.signal(signal.SIGINT), "an interrupt")
            with contextlib.suppress(SandboxDied):
                await asyncio.shield(self._interrupting)
        self.requests.interrupted()

    async def reap(self) -> None:
        """Remove what others left that were killed between creating a container and starting it. Raises nothing."""
        try:
            if count := await self.engine.reap():
                self.emit(ContainersReaped(containers=count))
        except (SandboxError, TimeoutError, OSError) as error:
            self.emit(ReapFailed(reason=str(error)))

    async def usage(self) -> SandboxUsage:
        """Return what the sandbox uses of its limits, as it says. Raises `SandboxDied` when there is none."""
        return usage_of((await self.ask("usage", timeout=5.0))[0])

    async def sample(self) -> SandboxSample:
        """Return what the host's kernel says of the sandbox. Raises `SandboxDied` when there is none."""
        from ..engines.abilities import Sampled

        container = self._link().container
        return await container.sample() if isinstance(container, Sampled) else SandboxSample()

    def watch_files(self) -> FileWatch | None:
        """Hear which files of datasets the sandbox opens; None for a session within another one, which hears it.

        Raises `SandboxDied` when there is none, and `OSError` where this machine does not tell.
        """
        from ..engines.abilities import Nested, Watched

        container = self._link().container
        if isinstance(container, Nested):
            return None
        found = container.watch_files() if isinstance(container, Watched) else None
        if found is None:
            raise OSError("the engine does not say where the sandbox's datasets are on this machine")
        return found

    async def ask(self, op: str, data: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
        """Ask the agent. Raises `SandboxDied` when there is none or it does not answer."""
        link = self._link()
        if not op.startswith("file."):
            return await link.ask(op, data, **fields)
        self.touch()
        reply, answer = await link.ask(op, data, **fields)
        self.services.transferred(op, data, fields, reply, answer)
        return reply, answer

    async def restart(self) -> None:
        """Replace the kernel by a new one in the same container: files are kept. `settled` waits for it."""
        await self._life.restart()

    async def renew(self) -> None:
        """Do the same, or start a container if there is none."""
        await (self.started() if self._life.link is None else self.restart())

    async def park(self) -> Handover:
        """Give the container away for a restart of this process, with a new kernel starting in it already."""
        handover = await self._life.park()
        handover.state["folders"] = self.folders.state()
        handover.state["handshake"] = self.handshake.known
        return handover

    def abandon(self) -> None:
        """Let go of the container, which ends then. For where no loop runs any more: a closed one, a forked child."""
        for one in self.beside:
            one.abandon()
        self._life.abandon()
        self.services.abandon()

    async def close(self) -> None:
        """End the session and its container; idempotent, bounded."""
        self._idleness.stop()
        # Together: with the container the others end at once, paused or not, and none of them has lost it.
        await asyncio.gather(self._life.close(), *(one.close() for one in self.beside))
        await self.pauses.close()
        await self.requests.close()
        if self._within is None:
            self.folders.close()
        elif self in self._within.beside:
            self._within.beside.remove(self)
        await self.services.close()
        await self._tasks.close()

    # --- what plugins call besides (`plugins.api`) ---

    def _all(self) -> tuple[Session, ...]:
        """Return it and those within it."""
        return (self, *self.beside)

    @property
    def cells_begun(self) -> int:
        return self.cells.begun

    @property
    def record_head(self) -> str | None:
        return self.services.head

    def part(self, plugin: str) -> SessionService | None:
        return self.services.of(plugin)

    def listen(self, listener: EventListener) -> None:
        self.services.listen(listener)

    def measure(self) -> None:
        with contextlib.suppress(SandboxDied):
            self._link().tell("meter", start=True)

    def measured(self, cell: str) -> asyncio.Task[Figures]:
        if self._reading is None or self._reading[0] != cell:
            self._reading = cell, self._readings.hold(self._figures(), "reading the meter")
        return self._reading[1]

    async def _figures(self) -> Figures:
        try:
            reply, _ = await self.ask("meter", timeout=5.0)
        except SandboxDied:
            return None, None
        return figures_of(reply, self.limits.memory)

    async def cpu_seconds(self) -> float | None:
        return (await self.usage()).cpu_seconds

    def say(self, text: str) -> None:
        self.requests.say(text)

    def tell(self, text: str) -> None:
        charged = self.cells.charged
        found = (one for one in self._all() if charged is not None and one.find(charged.id) is not None)
        next(found, self).requests.tell(text)

    def hold_clock(self, cell: str, *, held: bool) -> None:
        for one in self._all():
            one.requests.hold_clock(cell, held=held)

    def block(self, error: SandboxError) -> None:
        """End each kernel that runs a cell, for nobody can say which it was; the session's own if none does."""
        running = [one for one in self._all() if any(one.requests.queue.running_cells())]
        for one in running or [self]:
            one.requests.block(error)

    def running_cells(self) -> Iterator[PendingRequest]:
        for one in self._all():
            yield from one.requests.queue.running_cells()

    def lose_cells(self, error: SandboxError) -> None:
        for one in self._all():
            one.requests.sandbox_died(error)

    def find(self, message_id: object) -> PendingRequest | None:
        return self.requests.queue.find(message_id)

    def submit_silently(self, code: str) -> None:
        if code:
            content = {"code": code, "silent": True, "store_history": False, "user_expressions": {}}
            content |= {"allow_stdin": False, "stop_on_error": False}
            request = Message(channel="shell", header=request_header("execute_request", self.id), content=content)
            self.submit(request, request.id.encode(), SILENT_SECONDS, "")

    def resume(
        self, request: Message, client: bytes, seconds: float, reads: str | None, *, elapsed: float, left: float
    ) -> None:
        """Take up a cell that another process sent, in its place; see `SandboxHandle.resume_cell`."""
        pending = self.requests.go_on(request, client, seconds, reads, elapsed=elapsed, left=left)
        if pending is not None:
            for observer in (self.cells, *self.services.observers_of_all):  # its connections are charged
                observer.cell_sent(pending)

    def join(self, front: SessionFront) -> None:
        self.requests.join(front)

    def observe(self, observer: SessionObserver) -> None:
        self.requests.observers.append(observer)

    def on_change(self, heard: Callable[[PendingRequest], None]) -> None:
        self.requests.queue.listeners.append(lambda request, _: heard(request))

    def hints_are_for(self, audience: Audience) -> None:
        self.hints.address(audience)

    def hold_downloads(self, folder: Folder) -> None:
        self.folders.hold_downloads(folder)

    def demand_pause(self) -> None:
        demand(Ability.PAUSE, self.engine, *(() if self.link is None else (self.link.container,)))

    async def save(self, fd: int) -> dict[str, Any]:
        return await self.pauses.save(fd)

    async def open_nested(self, config: Mapping[str, Any]) -> AgentPipe:
        await self.started()
        pipe: AgentPipe = await self._link().nested().open(config)
        return pipe

    async def nested_kernelspecs(self) -> Any:
        return await self._link().nested().kernelspecs()

    def start(self, work: Coroutine[Any, Any, object], what: str) -> asyncio.Task[object]:
        return self._tasks.start(work, what)

    # --- the port of its requests ---

    @property
    def ready(self) -> bool:
        """Whether the kernel takes requests."""
        return self._life.ready and not self._is_held

    def transmit(self, kind: int, parts: list[bytes]) -> None:
        self._link().send(kind, parts)

    async def signal(self, number: int) -> None:
        await self.ask("signal", signal=int(number), timeout=2.0)

    async def kill_kernel(self) -> None:
        await self.ask("stop_kernel", timeout=2.0, undo=True)

    async def kill_sandbox(self, error: SandboxError) -> None:
        await self._life.end(error)

    def touch(self) -> None:
        """Note that the sandbox is in use; its idleness counts from now."""
        if self._within is not None:
            self._within.touch()
        elif not (self.is_closed or self.is_paused):
            self._idleness.touch()

    # --- its containers ---

    def _next_life(self) -> Lifecycle:
        return Lifecycle(
            self.id,
            self.settings,
            self.requests,
            self.handshake,
            self.emit,
            tasks=self._tasks,
            carry=self._carry,
            again=self.launch,
        )

    def _carry(self, link: Link) -> Any:
        services, most = self.services, self.limits.network_connections
        if services.carrier is None:
            return NoStreams()
        return services.carrier(link, services.streams, self.cells, connections=most, report=noted_in(self.emit))

    def _link(self) -> Link:
        """Return the way to the agent. Raises `SandboxDied` when there is none."""
        if self._life.link is None:
            raise SandboxDied(EndCode.SANDBOX_DIED if self._life.is_ending else EndCode.SANDBOX_NOT_RUNNING)
        return self._life.link

    def is_working(self) -> bool:
        """Whether requests are under way that wait for no person, or a session within is on its way."""
        waiting = any(request.awaiting_input for request in self.requests.queue.in_flight)
        working = self.requests.queue.active and not waiting
        return (working or any(one.is_starting or one.is_working() for one in self.beside)) and not self._is_held


def request_header(kind: str, session: str, identity: str | None = None) -> dict[str, str]:
    """Return the header of a request of this host's own."""
    return {
        "msg_id": identity or secrets.token_hex(16),
        "msg_type": kind,
        "session": session,
        "username": "",
        "date": datetime.now(UTC).isoformat(),
        "version": protocol.PROTOCOL_VERSION,
    }
