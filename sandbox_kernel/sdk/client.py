"""Door 2: a sandbox in the caller's process, awaited. `Sandbox` in blocking.py is the same without `await`.

A session runs on the caller's event loop; there is no subprocess and no socket but the one into the container. This
module turns `run_code` into a request of the session, and the messages that come back into an `Execution`.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

from ..core.codes import EndCode, Survived, UsageCode
from ..core.errors import CellInterrupted, ConfigurationError, SandboxClosed, SandboxDied, SandboxError
from ..core.model import Message, Settings
from ..core.tasks import Tasks, noted_in
from ..engines.select import chosen, make_engine, of_session
from ..files.names import FileLimits
from ..session.session import Session
from . import starts, variables
from .callbacks import Callback, Callbacks, Prompt
from .cell import Cell, Front, Tell
from .commands import AsyncCommands, AsyncPty
from .execution import Execution, ExecutionError, Result
from .files import AsyncFiles, Place
from .identity import Lifetime
from .lifetimes import Finalizers
from .network import Network
from .opening import Opening
from .outliving import Outliving, opening_of
from .said import OutputMessage
from .values import Keywords, seconds, seconds_within

if TYPE_CHECKING:
    from ..core.finding import Screened

MARGIN_SECONDS = 5.0


class AsyncSandbox(Outliving):
    """A sandbox: a Python session in a container of its own, with variables and files that stay between calls.

    `async with AsyncSandbox(memory="1G") as sandbox` starts it and ends it; so do `create` and `kill`. It belongs to
    the event loop that it was started on. What a sandbox has lost (its container was killed, was idle for too long)
    is told by the error of one call; the next call has a new sandbox.
    """

    _reaped: ClassVar[bool] = False
    _known: ClassVar[weakref.WeakValueDictionary[str, AsyncSandbox]] = weakref.WeakValueDictionary()

    def __init__(self, settings: Settings | str | None = None, /, **keywords: Unpack[Keywords]) -> None:
        """Check the settings; nothing is started yet. Raises `ConfigurationError`."""
        opening = Opening.of(settings, keywords)
        self.settings = opening.settings
        self._detached = detached = opening.kept()
        taken = of_session(self.settings)
        self._engine = chosen(taken) if detached is None else detached.address
        self.metadata, self.notebook_cell = opening.metadata, opening.notebook_cell
        self._cells: dict[str, Cell] = {}
        self._network = network = Network(self.settings, self._cells, opening.tools)
        self._session = Session(
            self.settings,
            make_engine(taken) if detached is None else detached.engine,
            Front(self._cells),
            inside=network.inside,
            service=network.service,
            identity=detached.name if detached is not None else None,
        )
        self.files = AsyncFiles(Place(self._session, self._ready), FileLimits.of(self.settings.limits))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._finalizers: Finalizers | None = None
        self._turn = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None
        self._tasks = Tasks(noted_in(self._session.audit))
        self._calls = self._interrupts = 0
        self._life = Lifetime(opening.seconds if detached is None else None)
        self.commands = AsyncCommands(self.settings, self._run)
        self.pty = AsyncPty(self.commands)
        self._known.setdefault(self.id, self)

    @classmethod
    async def create(cls, settings: Settings | str | None = None, /, **keywords: Unpack[Keywords]) -> Self:
        """Return a sandbox that has started. Raises `SandboxError` if none can start, and leaves nothing then."""
        return await cls(settings, **keywords).__aenter__()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.release()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.kill()

    async def start(self) -> None:
        """Start now what the first call would start. Raises `SandboxError` if that fails."""
        await self._ready(fresh=True)

    # --- cells ---

    async def run_code(
        self,
        code: str,
        *,
        timeout: float | None = None,
        on_stdout: Callback[OutputMessage] | None = None,
        on_stderr: Callback[OutputMessage] | None = None,
        on_result: Callback[Result] | None = None,
        on_error: Callback[ExecutionError] | None = None,
        on_message: Callback[Message] | None = None,
        on_input: Callable[[Prompt], Awaitable[str] | str] | None = None,
        stop_on_error: bool = False,
        envs: Mapping[str, str] | None = None,
        request_timeout: float | None = None,
    ) -> Execution:
        """Run a cell and return what it brought; code that fails, or meets a limit, gives `Execution.error`.

        Calls of one sandbox run one after another, in the order of the calls; each is independent of the others unless
        `stop_on_error` says that its failure ends those that wait behind it. `timeout` is in seconds, counts from the
        moment the cell runs, and may be up to `cell_timeout`; 0 and None are that. Cancelling the call interrupts the
        cell. `envs` are variables of the environment for this call; `request_timeout` has no effect.

        The callbacks are called while the cell runs, in the order of its messages; an update of a display changes its
        `Result` in the execution, and only `on_message` hears of it. One that raises is not called
        again; the cell runs on to its end, and then `CallbackFailed` is raised, which has the execution. Without
        `on_input`, `input()` raises StdinNotImplementedError in the cell; if it fails, the cell is interrupted.

        Raises `ConfigurationError` for a `timeout` over `cell_timeout`, `EngineError` if no sandbox can be started, and
        `SandboxClosed` after `kill`.
        """
        callbacks = Callbacks(
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_result=on_result,
            on_error=on_error,
            on_message=on_message,
            on_input=on_input,
        )
        none = timeout is None or (timeout == 0 and timeout is not False)
        limit = None if none else seconds_within(timeout, self.settings.limits)
        around = variables.around(envs)
        execution = await self._run(code, limit, stop_on_error, callbacks.wanted, callbacks.call, around=around)
        return callbacks.finish(execution)

    async def _run(
        self,
        code: str,
        timeout: float | None,
        stop_on_error: bool,
        wanted: frozenset[str],
        tell: Tell,
        *,
        reads: str | None = None,
        around: tuple[str, str] | None = None,
    ) -> Execution:
        """Run a cell and `tell` of each event that is wanted; what that returns counts for `input` only."""
        if not isinstance(code, str):
            raise ConfigurationError(
                UsageCode.WRONG_ARGUMENT, f"code must be text, not {type(code).__name__}", setting="code"
            )
        self._network.check_outside(self.id)
        limit = None if timeout is None else seconds(timeout)
        interrupts = self._interrupts
        self._calls += 1
        try:
            if not self._session.is_open:
                await self._ready(fresh=True)
            self._check()
            if interrupts != self._interrupts:
                error = ExecutionError.of(CellInterrupted(EndCode.CELL_NOT_RUN))
                if "error" in wanted:
                    await tell("error", error)
                return Execution(code=code, error=error)
            cell = Cell(code, wanted, self._session, reads, self.notebook_cell)
            return await cell.run(self._cells, limit, stop_on_error, tell, around)
        finally:
            self._calls -= 1

    def screen(self, code: str) -> Screened:
        """Return what the screen finds in a cell that would run next, whatever the setting `screen` says.

        Nothing is run or sent, and no sandbox is started. It is triage: no finding does not mean that code is harmless.
        """
        return self._session.screening.preview(code)

    async def interrupt(self) -> bool:
        """Raise KeyboardInterrupt in the cell that runs, and return whether there was one.

        What waits for its files, or for the sandbox to start, ends without having run.
        """
        self._check()
        if not (self._calls or self._runs_a_cell):
            return False
        self._interrupts += 1
        await self._session.interrupt()
        return True

    async def restart(self) -> None:
        """Start Python anew: variables are gone, files stay. A cell that runs ends as `KernelDied`."""
        await self._ready(fresh=True)
        await self._session.restart()
        await self._ready(fresh=False, again=True)

    async def connect(
        self: AsyncSandbox | str,
        timeout: float | None = None,
        *,
        take: bool = False,
        kind: type[AsyncSandbox] | None = None,
        **service: Any,
    ) -> AsyncSandbox:
        """Return the sandbox with an id, the very same if it is here: `await AsyncSandbox.connect(sandbox_id)`.

        Else it is a detached one of this user's, without an owner unless this process is to `take` it, and of the class
        `kind`. `timeout` is set as by `set_timeout`; one that is paused goes on. Raises `SandboxClosed` and
        `EngineError` for other ids.
        """
        found = AsyncSandbox._known.get(self) if isinstance(self, str) else self
        if found is None:
            settings, how = await opening_of(str(self), take, service)
            found = await (kind or AsyncSandbox)(settings, **how).__aenter__()
        if found.is_paused:
            await found.resume()
        await found.start()
        if timeout is not None:
            await found.set_timeout(timeout)
        return found

    # --- from start to end ---

    async def kill(self: AsyncSandbox | str, **service: Any) -> bool:
        """End the sandbox with its variables and files; cells that run or wait end as `SandboxDied`. Idempotent.

        Returns whether there was one to end. `AsyncSandbox.kill(sandbox_id)` ends another one of this process,
        or a detached one of this user's.
        """
        if isinstance(self, str):
            if (found := AsyncSandbox._known.get(self)) is not None:
                return await found.kill()
            from .keeping import ended

            return await ended(self, service)
        if self._pid != os.getpid():
            return False  # its connection was closed with the fork
        open_until_now = self._closing is None and not self._session.is_closed
        if self._known.get(self.id) is self:
            del self._known[self.id]
        running, own = asyncio.get_running_loop(), self._loop or asyncio.get_running_loop()
        if own.is_closed():
            self._session.abandon()
        elif own is not running and own.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.kill(), own))
        elif own is not running:
            raise SandboxClosed(EndCode.LOOP_STOPPED)
        else:
            self._closing = self._closing or self._tasks.hold(self._close(), "the end of a sandbox")
            await asyncio.shield(self._closing)
        return open_until_now

    async def _close(self) -> None:
        session = self._session
        if self._origin is not None:
            self._origin.close()
        self._life.stop()
        if self._detached is None or not self._detached.is_left:
            session.router.sandbox_died(SandboxDied(EndCode.SANDBOX_ENDED_BY_OWNER, kept=Survived.NOTHING))
        await self._tasks.close()
        await session.close()
        if self._finalizers is not None:
            self._finalizers.detach()

    async def _ready(self, *, fresh: bool, again: bool = False) -> None:
        """Wait for a sandbox that is attested and ready; with `fresh`, start one if there is none.

        Without, the loss of the last one is raised: what a caller looks for is gone with it.
        """
        self._check()
        async with self._turn:
            session = self._session
            if session.is_open and not again:
                return
            if session.is_gone and (not fresh or self._detached is not None):
                raise session.failure or SandboxDied(EndCode.SANDBOX_DIED, "the sandbox is gone", kept=Survived.NOTHING)
            self._begin(asyncio.get_running_loop())
            async with starts.turn(asyncio.get_running_loop()):
                self._check()
                await self._started()
        if not AsyncSandbox._reaped:
            AsyncSandbox._reaped = True
            self._tasks.start(starts.reap(self._session), "removing what others left")

    async def _started(self) -> None:
        """Start, within the time that is set for it."""
        seconds = self.settings.limits.start_seconds + MARGIN_SECONDS
        try:
            async with asyncio.timeout(seconds):
                origin, self._origin = self._origin, None
                await (self._start_session() if origin is None else self._begin_from(origin))
        except TimeoutError:
            raise SandboxDied(EndCode.NO_INTRODUCTION, limit=f"{seconds:g} s") from None
        except SandboxError:
            self._check()  # killed meanwhile: that is the reason, then
            raise

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._finalizers is None:
            self._loop = loop
            self._life.begin(loop, self.kill)
            owned = self._session if self._detached is None else self._detached.leaving(self._session)
            self._finalizers = Finalizers(self, owned, loop)


def session_of(sandbox: AsyncSandbox) -> Session:
    """Return what stands behind a sandbox; for the doors of this package."""
    return sandbox._session  # noqa: SLF001 (a part of the class that its users need not see)
