"""One sandbox as its parts see it: its session, and whether it may be used, here and now.

Parts (files, commands, packages, snapshots, figures) hold an `Instance`; people hold an `AsyncSandbox`, its handle. An
instance does not hold the handle: a sandbox ends when nobody holds that.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ..core.call_context import works_for
from ..core.codes import EndCode, Survived, UsageCode
from ..core.errors import (
    CellInterrupted,
    ConfigurationError,
    SandboxClosed,
    SandboxDied,
    SandboxError,
    SandboxPaused,
    wrong_argument,
)
from ..core.model import Message, Settings
from ..core.tasks import Tasks, noted_in
from ..engines.preparations import Preparations
from ..plugins import index
from ..plugins.api import Origin, Transport
from ..session.session import Session
from .cell_request import CellCall, CellFront, Tell
from .execution import Execution, ExecutionError
from .lifetimes import Finalizers
from .options import SandboxOptions
from .values import AttachedSandbox, NetworkDenial, seconds

if TYPE_CHECKING:
    from ..session.serving.server import KernelServer

STARTS_PER_CPU = 2
"""Sandboxes that start at once on one loop: more of them would only take turns within their time limits."""

_turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = weakref.WeakKeyDictionary()


def turn(loop: asyncio.AbstractEventLoop) -> asyncio.Semaphore:
    """Return what a start holds while it runs."""
    if loop not in _turns:
        _turns[loop] = asyncio.Semaphore(STARTS_PER_CPU * (os.cpu_count() or 1))
    return _turns[loop]


MARGIN_SECONDS = 5.0


def _denied(cells: Mapping[str, CellCall], cell: str, denial: NetworkDenial) -> None:
    """Tell a cell what it was denied. Holds the cells alone: an instance that nobody holds goes at once."""
    if (found := cells.get(cell)) is not None:
        found.hear(denial)


async def _ignore(kind: str, value: object) -> None:
    """Hear nothing of a cell before its end."""


def _hears(session: Session, front: CellFront) -> None:
    """Have a front hear the events of its session."""
    front.session = session.id
    session.listen(front)


class Handle(Protocol):
    """What people hold of a sandbox."""

    notebook_cell: str | None
    """The cell of a notebook that is run next, whose figures share a library; None where each result stands alone."""

    async def kill(self) -> bool: ...


class Instance:
    """See the module."""

    _reaped: ClassVar[bool] = False

    def __init__(self, handle: Handle, options: SandboxOptions) -> None:
        """Raises `ConfigurationError`."""
        self._handle = weakref.ref(handle)
        self.settings = options.settings
        self.ownership = options.ownership()
        self.lifetime = self.ownership.lifetime
        self.cells: dict[str, CellCall] = {}
        front = CellFront(self.cells)
        self._parts: dict[str, Any] = {}
        given = {**options.given, "network": partial(_denied, self.cells)}
        state = options.detached.prepared if isinstance(options.detached, AttachedSandbox) else None
        self.prepared = Preparations(self.settings, given, state=state)
        self.session = Session(
            self.settings,
            self.ownership.engine,
            front,
            prepared=self.prepared,
            identity=self.ownership.name,
        )
        _hears(self.session, front)
        self.origin: Origin | None = None
        """Where it goes on from, until it has started."""
        self._resumed: CellCall | None = None
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._finalizers: Finalizers | None = None
        self._turn = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None
        self._tasks = Tasks(noted_in(self.session.emit))
        self._calls = self._interrupts = 0

    # --- what it is ---

    @property
    def is_new(self) -> bool:
        """Whether it was never started."""
        return self._loop is None

    @property
    def is_killed(self) -> bool:
        return self._closing is not None

    @property
    def is_ended(self) -> bool:
        return self._closing is not None or self.session.is_closed

    @property
    def is_alive(self) -> bool:
        """Whether a container runs that was attested."""
        return self.session.is_open and self._pid == os.getpid()

    @property
    def runs_a_cell(self) -> bool:
        return any(self.session.running_cells())

    @property
    def given(self) -> Mapping[str, object]:
        """What its caller gives to plugins, by their names."""
        return self.prepared.given

    def part(self, plugin: str) -> Any:
        """Return what a plugin has for callers of this sandbox. Raises `ConfigurationError` if it is not here."""
        if plugin not in self._parts:
            made = index.fitting(index.plugin(plugin), self.settings, plugin).sdk
            assert made is not None  # noqa: S101 (for the type: the SDK names none else)
            self._parts[plugin] = made(self)
        return self._parts[plugin]

    def check(self, *, paused: bool = False) -> None:
        """Raise `SandboxClosed` unless this sandbox may be used here, and `SandboxPaused` unless now, or `paused`."""
        if self._pid != os.getpid():
            raise SandboxClosed(EndCode.SANDBOX_OF_ANOTHER_PROCESS)
        if self._loop is not None and self._loop.is_closed():
            raise SandboxClosed(EndCode.LOOP_CLOSED)
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise SandboxClosed(EndCode.SANDBOX_OF_ANOTHER_LOOP)
        if self.is_ended:
            raise SandboxClosed(EndCode.SANDBOX_KILLED)
        if self.session.is_paused and not paused:
            raise SandboxPaused(EndCode.SANDBOX_PAUSED)

    def _held(self) -> Handle:
        """Return the handle, so that a call holds it. Raises `SandboxClosed` if nobody did."""
        if (handle := self._handle()) is None:
            raise SandboxClosed(EndCode.SANDBOX_DROPPED)
        return handle

    # --- cells ---

    async def run(
        self,
        code: str,
        timeout: float | None,
        stop_on_error: bool,
        wanted: frozenset[str] = frozenset(),
        tell: Tell = _ignore,
        *,
        reads: str | None = None,
        around: tuple[str, str] | None = None,
        context: Session | None = None,
    ) -> Execution:
        """Run a cell and `tell` of each event that is wanted; what that returns counts for `input` only.

        `context` is the session of another kernel of the sandbox.
        """
        handle = self._held()
        if not isinstance(code, str):
            raise wrong_argument("code", f"code must be text, not {type(code).__name__}")
        if works_for.get() == self.session.id:  # a tool that one of its cells waits for
            raise ConfigurationError(UsageCode.SANDBOX_IN_TOOL)
        limit = None if timeout is None else seconds(timeout)
        is_own = context is None or context is self.session
        interrupts = self._interrupts
        self._calls += is_own
        try:
            if not self.session.is_open:
                await self.ready(fresh=True)
            self.check()
            if is_own and interrupts != self._interrupts:
                error = ExecutionError.of(CellInterrupted(EndCode.CELL_NOT_RUN))
                if "error" in wanted:
                    await tell("error", error)
                return Execution(code=code, error=error)
            cell = CellCall(code, wanted, context or self.session, reads, handle.notebook_cell)
            return await cell.run(self.cells, limit, stop_on_error, tell, around)
        finally:
            self._calls -= is_own

    async def run_own(self, code: str, *, reads: str, timeout: float, context: Session | None = None) -> Execution:
        """Run a cell of this package's own for at most `timeout` seconds. Raises as `run` does.

        The screen reads `reads` in its place: a cell that would do as much, or empty for what no rule is about.
        """
        return await self.run(code, timeout, False, reads=reads, context=context)

    def serve(self, transport: Transport, engine: str) -> KernelServer:
        """Serve its kernel to all clients of a transport; they are told `engine` of what makes the sandbox."""
        from ..session.serving.server import KernelServer  # few sandboxes have such clients

        return KernelServer(self.session, transport, engine)

    def session_within(self, settings: Settings, engine: Any) -> Session:
        """Return a session for one more kernel in this sandbox, which `engine` starts there, later."""
        front = CellFront(self.cells)
        session = Session(settings, engine, front, within=self.session)
        _hears(session, front)
        return session

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
        """See `SandboxHandle.resume_cell`."""
        if wanted is not None:
            cell = CellCall(str(request.content["code"]), wanted, self.session, identity=request.id)
            self.cells[request.id] = self._resumed = cell
        self.session.resume(request, request.id.encode(), seconds, reads, elapsed=elapsed, left=left)

    def take_resumed(self) -> CellCall | None:
        """Return the cell of the owner before, once."""
        cell, self._resumed = self._resumed, None
        return cell

    async def interrupt(self, context: Session | None = None) -> bool:
        """See `AsyncSandbox.interrupt`; `context` is the session of another kernel of the sandbox."""
        self.check()
        session = context or self.session
        is_own = session is self.session
        if not ((is_own and self._calls) or session.requests.queue.active):
            return False
        self._interrupts += is_own
        await session.interrupt()
        return True

    # --- from start to end ---

    async def ready(self, *, fresh: bool, again: bool = False) -> None:
        """Wait for a sandbox that is attested and ready; with `fresh`, start one if there is none.

        Without, the loss of the last one is raised: what a caller looks for is gone with it.
        """
        handle, session = self._held(), self.session
        self.check()
        async with self._turn:
            if session.is_open and not again:
                return
            if session.is_gone and (not fresh or self.ownership.is_detached):
                raise session.failure or SandboxDied(EndCode.SANDBOX_DIED, "the sandbox is gone", kept=Survived.NOTHING)
            self._begin(handle, asyncio.get_running_loop())
            async with turn(asyncio.get_running_loop()):
                self.check()
                await self._started()
            self.lifetime.is_ready()
        if not Instance._reaped:
            Instance._reaped = True
            self._tasks.start(session.reap(), "removing what others left")

    def _begin(self, handle: Handle, loop: asyncio.AbstractEventLoop) -> None:
        if self._finalizers is None:
            self._loop = loop
            self.lifetime.begin(loop, handle.kill)
            self._finalizers = Finalizers(handle, self.ownership.ends_with_caller(self.session), loop)

    async def _started(self) -> None:
        """Start, within the time that is set for it."""
        limit = self.settings.limits.start_timeout + MARGIN_SECONDS
        try:
            async with asyncio.timeout(limit):
                origin, self.origin = self.origin, None
                await (self.ownership.start(self) if origin is None else origin.begin(self.session))
        except TimeoutError:
            raise SandboxDied(EndCode.NO_INTRODUCTION, limit=f"{limit:g} s") from None
        except SandboxError:
            self.check()  # killed meanwhile: that is the reason, then
            raise

    async def end(self) -> bool:
        """End it, on the loop that it belongs to; return whether it was open. Idempotent."""
        if self._pid != os.getpid():
            return False  # its connection was closed with the fork
        open_until_now = not self.is_ended
        running, own = asyncio.get_running_loop(), self._loop or asyncio.get_running_loop()
        if own.is_closed():
            self.session.abandon()
        elif own is not running and own.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.end(), own))
        elif own is not running:
            raise SandboxClosed(EndCode.LOOP_STOPPED)
        else:
            self._closing = self._closing or self._tasks.hold(self._close(), "the end of a sandbox")
            await asyncio.shield(self._closing)
        return open_until_now

    async def _close(self) -> None:
        if self.origin is not None:
            self.origin.close()
        self.lifetime.stop()
        if not self.ownership.is_left:
            self.session.lose_cells(SandboxDied(EndCode.SANDBOX_ENDED_BY_OWNER, kept=Survived.NOTHING))
        await self._tasks.close()
        await self.session.close()
        if self._finalizers is not None:
            self._finalizers.detach()
