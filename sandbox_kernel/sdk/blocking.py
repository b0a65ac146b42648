"""The SDK without `await`: the same sandbox on an event loop in another thread.

Callbacks are called in the thread that calls `run_code`, so they may use the sandbox.
"""

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures
import os
import queue
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar, Unpack

from ..core.codes import EndCode
from ..core.errors import SandboxClosed
from ..core.model import Message, Settings
from ..engines.abilities import Ability
from .background import Background
from .blocking_commands import Caller, Commands, Pty
from .blocking_files import Files
from .blocking_outliving import Outliving
from .blocking_storing import BlockingStores
from .callbacks import Callbacks, Prompt
from .client import AsyncSandbox, session_of
from .execution import Execution, ExecutionError, Result
from .identity import SandboxPaginator
from .installing import InstalledPackage
from .outliving import asked_for, detached_ones, in_a_loop, opening_of
from .said import OutputMessage
from .values import Keywords, NetworkUsage, SandboxInfo, SandboxMetrics, SandboxQuery, SandboxUsage

if TYPE_CHECKING:
    from ..policy.screen import Screened

T = TypeVar("T")


class Sandbox(Outliving, BlockingStores):
    """A sandbox: a Python session in a container of its own, with variables and files that stay between calls.

    `with Sandbox(memory="1G") as sandbox` starts it and ends it; so do the first call and `kill`. It may be used from
    several threads; their cells run one after another. What every method does is told at `AsyncSandbox`.
    """

    _known: ClassVar[weakref.WeakValueDictionary[str, Sandbox]] = weakref.WeakValueDictionary()

    def __init__(self, settings: Settings | str | None = None, /, **keywords: Unpack[Keywords]) -> None:
        """Check the settings; nothing is started yet. Raises `ConfigurationError`."""
        self._take(AsyncSandbox(settings, **keywords))

    def _take(self, inner: AsyncSandbox) -> None:
        self._inner = inner
        self._pid = os.getpid()
        self.settings = self._inner.settings
        self._background: Background | None = None
        self._killed = False
        self._lock = threading.Lock()
        call = Caller(self._call)
        self.files = Files(self._inner.files, call)
        self.commands = Commands(self._inner.commands, call)
        self.pty = Pty(self._inner.commands, call)
        self._known[self.id] = self

    @classmethod
    def create(cls, settings: Settings | str | None = None, /, **keywords: Unpack[Keywords]) -> Self:
        """Return a sandbox that has started. Raises `SandboxError` if none can start, and leaves nothing then."""
        return cls(settings, **keywords).__enter__()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start now what the first call would start. Raises `SandboxError` if that fails."""
        self._call(self._inner.start())

    def run_code(
        self,
        code: str,
        *,
        timeout: float | None = None,
        on_stdout: Callable[[OutputMessage], object] | None = None,
        on_stderr: Callable[[OutputMessage], object] | None = None,
        on_result: Callable[[Result], object] | None = None,
        on_error: Callable[[ExecutionError], object] | None = None,
        on_message: Callable[[Message], object] | None = None,
        on_input: Callable[[Prompt], str] | None = None,
        stop_on_error: bool = False,
        envs: Mapping[str, str] | None = None,
        request_timeout: float | None = None,
    ) -> Execution:
        """Run a cell and return what it brought; see `AsyncSandbox.run_code`. Ctrl-C interrupts the cell.

        Callbacks are called in this thread while the cell runs.
        """
        callbacks = Callbacks(
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_result=on_result,
            on_error=on_error,
            on_message=on_message,
            on_input=on_input,
        )
        told: queue.SimpleQueue[tuple[str, Any, asyncio.Future[Any] | None] | None] = queue.SimpleQueue()

        def told_of(name: str) -> Callable[[Any], object]:
            def tell(value: Any) -> object:
                answer = asyncio.get_running_loop().create_future() if name == "input" else None
                told.put((name, value, answer))
                return answer

            return tell

        background = self._join()
        background.check_thread()
        wanted: dict[str, Any] = {f"on_{name}": told_of(name) for name in callbacks.wanted}
        work = self._inner.run_code(code, timeout=timeout, stop_on_error=stop_on_error, envs=envs, **wanted)
        future = asyncio.run_coroutine_threadsafe(work, background.loop)
        future.add_done_callback(lambda _: told.put(None))
        try:
            while (event := told.get()) is not None:
                name, value, answer = event
                given = callbacks.call_here(name, value, lambda waiting: background.run(_awaited(waiting)))
                if answer is not None:
                    background.loop.call_soon_threadsafe(_answer, answer, given)
            return callbacks.finish(future.result())
        except BaseException:
            future.cancel()
            raise

    def install(
        self, *packages: str | os.PathLike[str], progress: Callable[[str], object] | None = None
    ) -> builtins.list[InstalledPackage]:
        """Install packages and what they need into the sandbox; see `AsyncSandbox.install`."""
        return self._call(self._inner.install(*packages, progress=progress))

    def interrupt(self) -> bool:
        """Raise KeyboardInterrupt in the cell that another thread, or the caller of this callback, runs.

        Returns whether there was one.
        """
        return self._call(self._inner.interrupt())

    def restart(self) -> None:
        """Start Python anew: variables are gone, files stay."""
        self._call(self._inner.restart())

    def kill(self: Sandbox | str, **service: Any) -> bool:
        """End the sandbox with its variables and files. Idempotent.

        Returns whether there was one to end. `Sandbox.kill(sandbox_id)` ends another one of this process, or a
        detached one of this user's.
        """
        if isinstance(self, str):
            found = Sandbox._known.get(self)
            return found.kill() if found is not None else bool(in_a_loop(AsyncSandbox.kill(self, **service)))
        return self._end(AsyncSandbox.kill)

    def _end(self, how: Callable[[AsyncSandbox], Coroutine[Any, Any, object]]) -> bool:
        open_until_now, self._killed = not self._killed, True
        self._known.pop(self.id, None)
        background, self._background = self._background, None
        if self._inner.is_new:
            session_of(self._inner).abandon()  # its audit may be open
        if background is not None and os.getpid() == self._pid:
            try:
                return bool(background.run(how(self._inner)))
            finally:
                self._finalizer.detach()
                background.leave(self.id)
        return open_until_now and os.getpid() == self._pid

    def pause(
        self, keep_memory: bool | None = None, *, mode: str | None = None, strict: bool = False, **service: Any
    ) -> bool:
        """Let the sandbox stand still, so that it uses no processor; see `AsyncSandbox.pause`."""
        return self._call(self._inner.pause(keep_memory, mode=mode, strict=strict))

    def resume(self, **service: Any) -> bool:
        """Let a paused sandbox go on where it was; return whether it stood still."""
        return self._call(self._inner.resume())

    def usage(self) -> SandboxUsage:
        """Return what the sandbox uses. Raises `SandboxDied` if it is gone."""
        return self._call(self._inner.usage())

    def get_metrics(
        self, start: datetime | None = None, end: datetime | None = None, **service: Any
    ) -> builtins.list[SandboxMetrics]:
        """Return what the sandbox uses now, as one row; see `AsyncSandbox.get_metrics`."""
        return self._call(self._inner.get_metrics(start, end, **service))

    def set_timeout(self: Sandbox | str, timeout: float, **service: Any) -> None:
        """Have the sandbox end `timeout` seconds from now on; see `AsyncSandbox.set_timeout`."""
        if isinstance(self, str):
            in_a_loop(AsyncSandbox.set_timeout(self, timeout, **service))
            return
        self._call(self._inner.set_timeout(timeout, **service))

    def screen(self, code: str) -> Screened:
        """Return what the screen finds in a cell that would run next, whatever the setting `screen` says.

        Nothing is run or sent, and no sandbox is started. It is triage: no finding does not mean that code is harmless.
        """
        return self._inner.screen(code)

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def sandbox_id(self) -> str:
        """The same as `id`, by the name of hosted interpreters."""
        return self._inner.id

    @property
    def metadata(self) -> dict[str, str]:
        """What the caller wrote on it."""
        return self._inner.metadata

    def is_running(self, request_timeout: float | None = None) -> bool:
        """Return whether a container runs that was attested. `request_timeout` has no effect: no server is asked."""
        return self.is_alive

    def get_info(self, **service: Any) -> SandboxInfo:
        """Return `info`. What says how a hosted service is reached has no effect."""
        return self.info

    @classmethod
    def list(
        cls,
        query: SandboxQuery | None = None,
        limit: int | None = None,
        next_token: str | None = None,
        order: Literal["asc", "desc"] | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        **service: Any,
    ) -> SandboxPaginator:
        """Return the sandboxes that run, of this process and detached ones; see `AsyncSandbox.list`."""
        here = [one.info for one in cls._known.values()]
        kept = in_a_loop(detached_ones(service))
        return SandboxPaginator([*here, *kept], asked_for(query, metadata), limit, next_token, order)

    def connect(
        self: Sandbox | str,
        timeout: float | None = None,
        *,
        take: bool = False,
        kind: type[Sandbox] | None = None,
        **service: Any,
    ) -> Sandbox:
        """Return the sandbox with an id, of this process or a detached one; see `AsyncSandbox.connect`."""
        found = Sandbox._known.get(self) if isinstance(self, str) else self
        if found is None:
            settings, how = in_a_loop(opening_of(str(self), take, service))
            found = (kind or Sandbox)(settings, **how).__enter__()
        if found.is_paused:
            found.resume()
        found.start()
        if timeout is not None:
            found.set_timeout(timeout)
        return found

    @property
    def is_alive(self) -> bool:
        """Whether a container runs that was attested."""
        return self._inner.is_alive

    @property
    def is_paused(self) -> bool:
        """Whether it stands still."""
        return self._inner.is_paused

    @property
    def abilities(self) -> frozenset[Ability]:
        """Which of `pause`, `snapshot` and `fork` its engine has; the others raise `AbilityMissing` at once."""
        return self._inner.abilities

    @property
    def info(self) -> SandboxInfo:
        return self._inner.info

    @property
    def network_usage(self) -> NetworkUsage:
        return self._inner.network_usage

    def __repr__(self) -> str:
        return repr(self._inner).replace("AsyncSandbox", "Sandbox", 1)

    def _join(self) -> Background:
        if self._killed:
            raise SandboxClosed(EndCode.SANDBOX_KILLED)
        if os.getpid() != self._pid:
            raise SandboxClosed(
                EndCode.SANDBOX_OF_ANOTHER_PROCESS,
            )
        with self._lock:
            if self._background is None:
                self._background = Background.join(self._inner)
                self._finalizer = weakref.finalize(self, self._background.drop, self.id)
                self._finalizer.atexit = False
            return self._background

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            background = self._join()
        except SandboxClosed:
            work.close()
            raise
        return background.run(work)


def cell_of(sandbox: Sandbox, code: str) -> concurrent.futures.Future[Execution]:
    """Start a cell, and return its future: for callers that await it on a loop of their own. Cancelled, it ends.

    Raises `SandboxClosed` after `kill`.
    """
    return asyncio.run_coroutine_threadsafe(
        sandbox._inner.run_code(code),  # noqa: SLF001 (a part of the class that its users need not see)
        sandbox._join().loop,  # noqa: SLF001
    )


async def _awaited(waiting: Any) -> Any:
    return await waiting


def _answer(answer: asyncio.Future[Any], given: object) -> None:
    if not answer.done():
        answer.set_result(given)
