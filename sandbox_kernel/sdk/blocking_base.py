"""What differs without `await`, by hand: how a call reaches the loop, a sandbox's start and end, what is followed.

Each class is the base of one in blocking.py, which `make blocking` writes from the asynchronous class.

Public: plugins may import it.
"""

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures
import inspect
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, Self, TypeVar, Unpack, cast

from ..core.codes import EndCode, UsageCode
from ..core.errors import ConfigurationError, SandboxClosed
from ..core.model import Settings
from .callbacks import Callback
from .client import AsyncSandbox, handle_of
from .event_loop_thread import Background, awaited
from .file_copies import Progress, followed
from .files import AsyncFiles, Steps
from .folder_entries import FilesystemEvent, Watching
from .keywords import SettingKeywords
from .ownership import keeper
from .sandbox_paths import Name
from .values import Keywords

if TYPE_CHECKING:
    from ..plugins.commands.blocking_commands import Commands, Pty  # type: ignore[import-not-found, unused-ignore]

P = ParamSpec("P")
T = TypeVar("T")
Inner = TypeVar("Inner")


class Caller:
    """Calls methods for a part of a blocking sandbox, which it does not hold: a cycle would keep a dropped one."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._bound = weakref.WeakMethod(call)

    def __call__(self, method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **keywords: P.kwargs) -> T:
        call = self._bound()
        if call is None:
            raise SandboxClosed(EndCode.SANDBOX_DROPPED)
        result: Any = call(method, *args, **keywords)
        return self.each(result) if isinstance(result, AsyncIterator) else result  # type: ignore[return-value]

    def each(self, values: AsyncIterator[T]) -> Iterator[T]:
        """Fetch one value after the other, each when it is asked for."""
        end = object()
        while (value := self(_next, values, end)) is not end:
            yield cast("T", value)


async def _next(values: AsyncIterator[object], end: object) -> object:
    return await anext(values, end)


class SandboxBase:
    """A sandbox: a Python session in a container of its own, with variables and files that stay between calls.

    `with Sandbox(memory="1G") as sandbox` starts it and ends it; so do the first call and `kill`. It may be used from
    several threads; their cells run one after another. Callbacks are called in the thread that made the call, while it
    waits. Ctrl-C cancels a call, and so interrupts the cell.
    """

    _asynchronous: ClassVar[type[AsyncSandbox]] = AsyncSandbox
    _known: ClassVar[weakref.WeakValueDictionary[str, SandboxBase]] = weakref.WeakValueDictionary()

    def __init__(self, settings: Settings | str | None = None, /, **keywords: Unpack[Keywords]) -> None:
        """Check the settings; nothing is started yet. Raises `ConfigurationError`."""
        self._take(self._asynchronous(settings, **keywords))

    def _take(self, inner: AsyncSandbox) -> None:
        self._inner = inner
        self._pid = os.getpid()
        self.settings = inner.settings
        self._background: Background | None = None
        self._killed = False
        self._lock = threading.Lock()
        self._known[inner.id] = self

    @classmethod
    def _of(cls, inner: AsyncSandbox) -> Self:
        made = cls.__new__(cls)
        made._take(inner)  # noqa: SLF001 (one of its own kind)
        return made

    @classmethod
    def create(cls, settings: Settings | str | None = None, /, **keywords: Unpack[Keywords]) -> Self:
        """Return a sandbox that has started. Raises `SandboxError` if none can start, and leaves nothing then."""
        return cls(settings, **keywords).__enter__()

    def __enter__(self) -> Self:
        try:
            self._call(self._inner.start)
        except BaseException:
            self.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def __repr__(self) -> str:
        return repr(self._inner).replace("AsyncSandbox", "Sandbox", 1)

    @property
    def metadata(self) -> dict[str, str]:
        """What the caller wrote on it."""
        return self._inner.metadata

    @cached_property
    def commands(self) -> Commands:
        """Its commands."""
        made: Commands = handle_of(self._inner).part("commands").blocking_commands(Caller(self._call))
        return made

    @cached_property
    def pty(self) -> Pty:
        """Its shells with a terminal."""
        made: Pty = handle_of(self._inner).part("commands").blocking_pty(Caller(self._call))
        return made

    # --- its end ---

    def kill(self) -> bool:
        """End the sandbox with its variables and files. Idempotent. Returns whether there was one to end."""
        return self._end(AsyncSandbox.kill)

    @classmethod
    def kill_by_id(cls, sandbox_id: str, **settings: Unpack[SettingKeywords]) -> bool:
        """Do as `kill` with a sandbox of this process, or a detached one of this user's; `engine` names its broker."""
        found = cls._known.get(sandbox_id)
        return found.kill() if found is not None else in_a_loop(AsyncSandbox.kill_by_id(sandbox_id, **settings))

    def detach(self) -> None:
        """Let go of a detached sandbox, which goes on; see `AsyncSandbox.detach`."""
        if not self._inner.is_detached:
            raise ConfigurationError(UsageCode.NOT_DETACHED)
        self._end(AsyncSandbox.detach)

    def release(self) -> None:
        """Leave it if it is detached, else end it."""
        self._end(AsyncSandbox.release)

    def _end(self, how: Callable[[AsyncSandbox], Coroutine[Any, Any, object]]) -> bool:
        open_until_now, self._killed = not self._killed, True
        self._known.pop(self._inner.id, None)
        background, self._background = self._background, None
        if self._inner.is_new:
            handle_of(self._inner).session.abandon()  # its audit may be open
        if background is not None and os.getpid() == self._pid:
            try:
                return bool(background.run(how(self._inner)))
            finally:
                self._finalizer.detach()
                background.leave(self._inner.id)
        return open_until_now and os.getpid() == self._pid

    # --- what is another sandbox, or may be ---

    @classmethod
    def connect(cls, sandbox_id: str, *, timeout: float | None = None, take: bool = False, **settings: Any) -> Self:
        """Return the sandbox with an id, of this process or a detached one; see `AsyncSandbox.connect`."""
        found: Any = cls._known.get(sandbox_id)
        if found is None:
            given, how = in_a_loop(keeper().described(sandbox_id, take=take, given=settings))
            found = cls(given, **how).__enter__()
        if found.is_paused:
            found.resume()
        found.start()
        if timeout is not None:
            found.set_timeout(timeout)
        return cast("Self", found)

    def fork(self, count: int = 1, *, timeout: float | None = None) -> builtins.list[Self]:
        """Return `count` sandboxes that go on from where this one stands; see `AsyncSandbox.fork`."""
        made = [self._of(one) for one in self._call(self._inner.fork, count, timeout=timeout)]
        return [one.__enter__() for one in made]  # which belong to the thread of all blocking ones by this

    @classmethod
    def from_snapshot(cls, name: str, **keywords: Any) -> Self:
        """Return a sandbox that goes on from a snapshot; see `AsyncSandbox.from_snapshot`."""
        return cls._of(cls._asynchronous.prepared(name, **keywords)).__enter__()

    # --- how it is called ---

    def _join(self) -> Background:
        if self._killed:
            raise SandboxClosed(EndCode.SANDBOX_KILLED)
        if os.getpid() != self._pid:
            raise SandboxClosed(EndCode.SANDBOX_OF_ANOTHER_PROCESS)
        with self._lock:
            if self._background is None:
                self._background = Background.join(self._inner)
                self._finalizer = weakref.finalize(self, self._background.drop, self._inner.id)
                self._finalizer.atexit = False
            return self._background

    def _call(self, method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **keywords: P.kwargs) -> T:
        return self._join().call(method, *args, **keywords)


class BlockingPart(Generic[Inner]):
    """A part of a blocking sandbox."""

    def __init__(self, inner: Inner, call: Caller) -> None:
        self._inner = inner
        self._call = call


class WatchHandle:
    """A folder that is watched until `stop`: it is looked at when somebody asks."""

    def __init__(self, call: Caller, watching: Watching) -> None:
        self._call = call
        self._watching: Watching | None = watching

    def get_new_events(self) -> list[FilesystemEvent]:
        """Return what has changed since the last look; what came and went in between is not seen.

        Raises `SandboxClosed` after `stop`.
        """
        if self._watching is None:
            raise SandboxClosed(EndCode.SANDBOX_CLOSED, "the folder is not watched any more")
        return self._call(self._watching.look)

    def stop(self) -> None:
        """Watch it no more."""
        self._watching = None


class FilesBase(BlockingPart[AsyncFiles]):
    """The files of a blocking sandbox. Methods raise `FileRefused` with the reason."""

    _handle: ClassVar[type[WatchHandle]] = WatchHandle

    def watch_dir(self, path: Name, *, recursive: bool = False, include_entry: bool = False) -> WatchHandle:
        """Look at a folder now; what changes is fetched by `get_new_events` of what is returned."""
        watching = self._call(self._inner.watching, path, recursive=recursive, include_entry=include_entry)
        return self._handle(self._call, watching)

    def _followed(self, steps: Steps[T], progress: Callback[Progress] | None) -> T:
        if progress is None or not callable(progress):
            return self._call(lambda: followed(steps, progress))
        try:
            for step in self._call.each(steps):
                if not isinstance(step, Progress):
                    result = step
                elif inspect.isawaitable(answer := progress(step)):
                    self._call(awaited, answer)
        finally:
            self._call(steps.aclose)
        return result


def in_a_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop in a thread of its own, for a caller whose thread may have one already."""
    future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run() -> None:
        try:
            future.set_result(asyncio.run(work))
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=run, name="sandbox_kernel list")
    thread.start()
    thread.join()
    return future.result()
