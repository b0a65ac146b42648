"""The SDK without `await`: the same sandbox on an event loop in another thread.

Callbacks are called in the thread that calls `run_code`, so they may use the sandbox.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import queue
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from ..core.codes import EndCode
from ..core.errors import SandboxClosed
from ..core.model import Message, Settings
from .background import Background
from .callbacks import Callbacks, Prompt
from .client import AsyncSandbox, session_of
from .execution import Execution, ExecutionError, Result
from .files import AsyncFiles, Data, FileInfo, FileList, Name
from .values import Keywords, NetworkUsage, SandboxInfo, SandboxUsage

if TYPE_CHECKING:
    from ..policy.screen import Screened

T = TypeVar("T")


class Sandbox:
    """A sandbox: a Python session in a container of its own, with variables and files that stay between calls.

    `with Sandbox(memory="1G") as sandbox` starts it and ends it; so do the first call and `kill`. It may be used from
    several threads; their cells run one after another. What every method does is told at `AsyncSandbox`.
    """

    def __init__(self, settings: Settings | None = None, /, **keywords: Unpack[Keywords]) -> None:
        """Check the settings; nothing is started yet. Raises `ConfigurationError`."""
        self._inner = AsyncSandbox(settings, **keywords)
        self._pid = os.getpid()
        self.settings = self._inner.settings
        self._background: Background | None = None
        self._killed = False
        self._lock = threading.Lock()
        self.files = Files(self._inner.files, self._call)

    @classmethod
    def create(cls, settings: Settings | None = None, /, **keywords: Unpack[Keywords]) -> Self:
        """Return a sandbox that has started. Raises `SandboxError` if none can start, and leaves nothing then."""
        return cls(settings, **keywords).__enter__()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
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
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
        on_result: Callable[[Result], object] | None = None,
        on_error: Callable[[ExecutionError], object] | None = None,
        on_message: Callable[[Message], object] | None = None,
        on_input: Callable[[Prompt], str] | None = None,
        stop_on_error: bool = False,
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
        work = self._inner.run_code(code, timeout=timeout, stop_on_error=stop_on_error, **wanted)
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

    def interrupt(self) -> bool:
        """Raise KeyboardInterrupt in the cell that another thread, or the caller of this callback, runs.

        Returns whether there was one.
        """
        return self._call(self._inner.interrupt())

    def restart(self) -> None:
        """Start Python anew: variables are gone, files stay."""
        self._call(self._inner.restart())

    def kill(self) -> None:
        """End the sandbox with its variables and files. Idempotent."""
        self._killed = True
        background, self._background = self._background, None
        if self._inner.is_new:
            session_of(self._inner).abandon()  # its audit may be open
        if background is not None and os.getpid() == self._pid:
            try:
                background.run(self._inner.kill())
            finally:
                self._finalizer.detach()
                background.leave(self.id)

    def usage(self) -> SandboxUsage:
        """Return what the sandbox uses. Raises `SandboxDied` if it is gone."""
        return self._call(self._inner.usage())

    def screen(self, code: str) -> Screened:
        """Return what the screen finds in a cell that would run next, whatever the setting `screen` says.

        Nothing is run or sent, and no sandbox is started. It is triage: no finding does not mean that code is harmless.
        """
        return self._inner.screen(code)

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def is_alive(self) -> bool:
        """Whether a container runs that was attested."""
        return self._inner.is_alive

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


class Files:
    """The files of a blocking sandbox; see `AsyncFiles`."""

    def __init__(self, inner: AsyncFiles, call: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._inner = inner
        # Not the method itself: a cycle would keep a sandbox that nobody holds until the next collection.
        self._bound = weakref.WeakMethod(call)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        call = self._bound()
        if call is None:
            work.close()
            raise SandboxClosed(EndCode.SANDBOX_DROPPED)
        result: T = call(work)
        return result

    def write(self, path: Name, data: Data) -> FileInfo:
        """Write a file as a whole, with the folders above it. A `str` is its text; a `Path` is a file to copy."""
        return self._call(self._inner.write(path, data))

    @overload
    def read(self, path: Name, format: Literal["bytes"] = "bytes") -> bytes: ...
    @overload
    def read(self, path: Name, format: Literal["text"]) -> str: ...
    @overload
    def read(self, path: Name, format: Literal["stream"]) -> Iterator[bytes]: ...
    def read(
        self,
        path: Name,
        format: Literal["bytes", "text", "stream"] = "bytes",  # noqa: A002 (the name people know)
    ) -> bytes | str | Iterator[bytes]:
        """Return a file: its bytes, its text (UTF-8), or its pieces of at most 1 MiB."""
        found: Any = self._call(self._inner.read(path, format))
        return self._pieces(found) if format == "stream" else found

    def read_part(self, path: Name, offset: int, size: int) -> tuple[bytes, int]:
        """Return up to `size` bytes of a file from `offset` on, and the size of the whole file."""
        return self._call(self._inner.read_part(path, offset, size))

    def list(self, path: Name = "") -> FileList:
        """Return the regular files in a folder and in those below it, in the order of their paths."""
        return self._call(self._inner.list(path))

    def exists(self, path: Name) -> bool:
        """Return whether there is a regular file, or a folder, of that name."""
        return self._call(self._inner.exists(path))

    def remove(self, path: Name) -> None:
        """Remove a file or an empty folder."""
        self._call(self._inner.remove(path))

    def make_folder(self, path: Name) -> None:
        """Make a folder and those above it; that it is there already is fine."""
        self._call(self._inner.make_folder(path))

    def upload(self, local: str | os.PathLike[str], path: Name | None = None) -> FileList:
        """Copy a file of this machine, or a folder with all its regular files."""
        return self._call(self._inner.upload(local, path))

    def download(self, path: Name, local: str | os.PathLike[str] | None = None) -> Path:
        """Copy a file to this machine: under `local`, into it if that is a folder, else to the current folder."""
        return self._call(self._inner.download(path, local))

    def _pieces(self, pieces: AsyncIterator[bytes]) -> Iterator[bytes]:
        while (piece := self._call(_next(pieces))) is not None:
            yield piece


def cell_of(sandbox: Sandbox, code: str) -> concurrent.futures.Future[Execution]:
    """Start a cell, and return its future: for callers that await it on a loop of their own. Cancelled, it ends.

    Raises `SandboxClosed` after `kill`.
    """
    return asyncio.run_coroutine_threadsafe(
        sandbox._inner.run_code(code),  # noqa: SLF001 (a part of the class that its users need not see)
        sandbox._join().loop,  # noqa: SLF001
    )


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


async def _awaited(waiting: Any) -> Any:
    return await waiting


def _answer(answer: asyncio.Future[Any], given: object) -> None:
    if not answer.done():
        answer.set_result(given)
