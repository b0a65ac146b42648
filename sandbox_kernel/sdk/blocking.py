"""The SDK without `await`: the same sandbox on an event loop in another thread.

Callbacks are called in the thread that makes the call, so they may use the sandbox.

The methods below each line `# --- generated from …` are written by `make blocking`: they have the signatures and the
docstrings of the asynchronous class, around one call on that loop. What differs without `await` is written by hand.
"""

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures
import inspect
import os
import threading
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, ParamSpec, Self, TypeVar, Unpack, cast, overload

from ..core.codes import EndCode, UsageCode
from ..core.errors import ConfigurationError, SandboxClosed
from ..core.model import Message, Settings
from ..engines.abilities import Ability
from ..files.snapshot_parts import Snapshot
from .callbacks import Callback, Callbacks, Prompt
from .client import AsyncSandbox, session_of
from .commands import AsyncCommands, AsyncPty, OnPty, PtySize
from .event_loop_thread import Background, awaited
from .execution import Execution, ExecutionError, Result
from .file_copies import Progress, followed
from .files import AsyncFiles, Data, Steps, check_service
from .folder_entries import Entries, EntryInfo, FileInfo, FileList, FilesystemEvent, Watching
from .output_text import OutputMessage
from .paginators import SandboxPaginator, asked_for
from .running_command import DEFAULT_SECONDS, CommandResult, Following, ProcessInfo, late, limit_of, pieces
from .sandbox_paths import Name
from .snapshotting import SnapshotInfo, own_store
from .values import (
    Context,
    InstalledPackage,
    Keywords,
    Missed,
    NetworkUsage,
    SandboxInfo,
    SandboxMetrics,
    SandboxQuery,
    SandboxUsage,
)

if TYPE_CHECKING:
    from ..core.screen_findings import Screened

P = ParamSpec("P")
T = TypeVar("T")


class Caller:
    """Calls methods for a part of a blocking sandbox, which it does not hold: a cycle would keep a dropped one."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._bound = weakref.WeakMethod(call)

    def __call__(self, method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **keywords: P.kwargs) -> T:
        call = self._bound()
        if call is None:
            raise SandboxClosed(EndCode.SANDBOX_DROPPED)
        result: T = call(method, *args, **keywords)
        return result

    def each(self, values: AsyncIterator[T]) -> Iterator[T]:
        """Fetch one value after the other, each when it is asked for."""
        end = object()
        while (value := self(_next, values, end)) is not end:
            yield cast("T", value)


async def _next(values: AsyncIterator[object], end: object) -> object:
    return await anext(values, end)


class Sandbox:
    """A sandbox: a Python session in a container of its own, with variables and files that stay between calls.

    `with Sandbox(memory="1G") as sandbox` starts it and ends it; so do the first call and `kill`. It may be used from
    several threads; their cells run one after another. Callbacks are called in the thread that made the call, while it
    waits. Ctrl-C cancels a call, and so interrupts the cell.
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
            self.start()
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

    # --- its end ---

    def kill(self: Sandbox | str, **service: Any) -> bool:
        """End the sandbox with its variables and files. Idempotent.

        Returns whether there was one to end. `Sandbox.kill(sandbox_id)` ends another one of this process, or a
        detached one of this user's.
        """
        if isinstance(self, str):
            found = Sandbox._known.get(self)
            return found.kill() if found is not None else bool(in_a_loop(AsyncSandbox.kill(self, **service)))
        return self._end(AsyncSandbox.kill)

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

    # --- what is asked of any, also of one that was killed ---

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

    def set_timeout(self: Sandbox | str, timeout: float, **service: Any) -> None:
        """Have the sandbox end `timeout` seconds from now on; see `AsyncSandbox.set_timeout`."""
        if isinstance(self, str):
            in_a_loop(AsyncSandbox.set_timeout(self, timeout, **service))
            return
        self._call(self._inner.set_timeout, timeout, **service)

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
        from .ownership import keeper

        here = [one.info for one in cls._known.values()]
        kept = in_a_loop(keeper().listed(service))
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
            from .ownership import keeper

            settings, how = in_a_loop(keeper().described(str(self), take=take, service=service))
            found = (kind or Sandbox)(settings, **how).__enter__()
        if found.is_paused:
            found.resume()
        found.start()
        if timeout is not None:
            found.set_timeout(timeout)
        return found

    # --- what makes other sandboxes ---

    def fork(self, count: int = 1, *, timeout: float | None = None, **service: Any) -> builtins.list[Self]:
        """Return `count` sandboxes that go on from where this one stands; see `AsyncSandbox.fork`."""
        made = [self._of(one) for one in self._call(self._inner.fork, count, timeout=timeout)]
        for one in made:
            one.start()  # it has, and by this belongs to the thread of all blocking ones
        return made

    @classmethod
    def from_snapshot(cls, name: str, **keywords: Any) -> Self:
        """Return a sandbox that goes on from a snapshot; see `AsyncSandbox.from_snapshot`."""
        made = cls._of(AsyncSandbox.prepared(name, **keywords))
        try:
            made.start()
        except BaseException:
            made.kill()
            raise
        return made

    @staticmethod
    def snapshots(settings: Settings | None = None) -> builtins.list[Snapshot]:
        """Return this user's snapshots, the newest first."""
        return builtins.list(own_store(settings).list())

    @staticmethod
    def delete_snapshot(snapshot_id: str, **service: Any) -> bool:
        """Remove a snapshot; return whether there was one."""
        return own_store(None).delete(snapshot_id)

    # --- how it is called ---

    def _join(self) -> Background:
        if self._killed:
            raise SandboxClosed(EndCode.SANDBOX_KILLED)
        if os.getpid() != self._pid:
            raise SandboxClosed(EndCode.SANDBOX_OF_ANOTHER_PROCESS)
        with self._lock:
            if self._background is None:
                self._background = Background.join(self._inner)
                self._finalizer = weakref.finalize(self, self._background.drop, self.id)
                self._finalizer.atexit = False
            return self._background

    def _call(self, method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **keywords: P.kwargs) -> T:
        return self._join().call(method, *args, **keywords)

    # --- generated from AsyncSandbox ---

    def start(self) -> None:
        """Start now what the first call would start.

        Raises:
            SandboxError: It cannot start.
        """
        self._call(self._inner.start)

    def run_code(
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
        language: str | None = None,
        context: Context | str | None = None,
        request_timeout: float | None = None,
    ) -> Execution:
        """Run a cell. Code that fails, or meets a limit, gives `Execution.error` and no exception.

        Calls of one context run one after another, in the order of the calls. Cancelling a call interrupts its cell.
        The callbacks are called while the cell runs, in the order of its messages. One that raises is not called again;
        the cell runs on to its end, and then `CallbackFailed` is raised.

        Args:
            code: A cell of a notebook: Python, or what the kernel or the context takes.
            timeout: Seconds from the moment the cell runs, up to `cell_timeout`. 0 and None are `cell_timeout`.
            on_stdout: Called with each piece of text on stdout.
            on_stderr: Called with each piece of text on stderr.
            on_result: Called with each display and with the value of the last line.
            on_error: Called with the exception of the code, or the limit that ended it.
            on_message: Called with each message of Jupyter's protocol, updates of displays included.
            on_input: Answers `input()`, which raises StdinNotImplementedError without it. If it fails, the cell is
                interrupted.
            stop_on_error: Whether a failure ends the calls that wait behind this one.
            envs: Variables of the environment for this call, in Python, R, JavaScript, TypeScript and Bash.
            language: Run it in the context of this language, which is made with the first such call.
            context: Run it in this context, by itself or its id.
            request_timeout: No effect.

        Returns:
            Text, results and displays of the cell, its error, and what it used.

        Raises:
            ConfigurationError: `timeout` is over `cell_timeout`, or an argument is not of its type.
            EngineError: No sandbox can be started.
            SandboxClosed: The sandbox was killed by this process.
            CallbackFailed: A callback raised. It has the execution.
        """
        return self._call(
            self._inner.run_code,
            code,
            timeout=timeout,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_result=on_result,
            on_error=on_error,
            on_message=on_message,
            on_input=on_input,
            stop_on_error=stop_on_error,
            envs=envs,
            language=language,
            context=context,
            request_timeout=request_timeout,
        )

    def create_context(self, language: str | None = None, cwd: str | None = None) -> Context:
        """Start one more kernel in the sandbox: with variables of its own, and the same files, limits and connections.

        What ends a kernel ends its context's cells alone. All of them end with the sandbox.

        Args:
            language: "python", or one for which the image has a kernel: its name, or that of its kernelspec. None is
                that of the sandbox.
            cwd: The folder in which it begins, made if it is not there. None is the one of cells.

        Returns:
            What `run_code` takes as `context`.

        Raises:
            ConfigurationError: The image has no such kernel, or an argument is not of its type.
            SandboxError: It cannot start.
        """
        return self._call(self._inner.create_context, language, cwd)

    def list_contexts(self) -> builtins.list[Context]:
        """Return the contexts: that of the sandbox's own kernel first, which is there without being made."""
        return self._call(self._inner.list_contexts)

    def restart_context(self, context: Context | str) -> None:
        """Start the kernel of a context again: its variables are gone. A cell that runs in it ends as `KernelDied`.

        Raises:
            ConfigurationError: There is no such context.
            SandboxError: It cannot start.
        """
        self._call(self._inner.restart_context, context)

    def remove_context(self, context: Context | str) -> None:
        """End a context with all of its processes. A cell that runs in it ends as `KernelDied`.

        Raises:
            ConfigurationError: There is no such context, or it is that of the sandbox's own kernel.
        """
        self._call(self._inner.remove_context, context)

    def create_code_context(
        self, cwd: str | None = None, language: str | None = None, request_timeout: float | None = None
    ) -> Context:
        """Do as `create_context`. Hosted interpreters have these names."""
        return self._call(self._inner.create_code_context, cwd, language, request_timeout)

    def list_code_contexts(self, request_timeout: float | None = None) -> builtins.list[Context]:
        """Return what `list_contexts` does, and a context for each other language of the image."""
        return self._call(self._inner.list_code_contexts, request_timeout)

    def restart_code_context(self, context: Context | str, request_timeout: float | None = None) -> None:
        """See `restart_context`."""
        self._call(self._inner.restart_code_context, context, request_timeout)

    def remove_code_context(self, context: Context | str, request_timeout: float | None = None) -> None:
        """See `remove_context`."""
        self._call(self._inner.remove_code_context, context, request_timeout)

    def screen(self, code: str) -> Screened:
        """Return what the screen finds in a cell, whatever the setting `screen` says.

        Nothing is run or sent, and no sandbox is started. No finding does not mean that code is harmless.
        """
        return self._inner.screen(code)

    def interrupt(self, context: Context | str | None = None) -> bool:
        """Raise KeyboardInterrupt in the cell that runs. One that waits for its start ends without having run.

        Args:
            context: The context whose cell that is. None is that of the sandbox's own kernel.

        Returns:
            Whether there was a cell to interrupt.
        """
        return self._call(self._inner.interrupt, context)

    def restart(self) -> None:
        """Start Python again: variables are gone, files stay. A cell that runs ends as `KernelDied`."""
        self._call(self._inner.restart)

    def install(
        self, *packages: str | os.PathLike[str], progress: Callable[[str], object] | None = None
    ) -> builtins.list[InstalledPackage]:
        """Install packages and what they need.

        `sandbox.install("humanize>=4", "dist/mine-1.0-py3-none-any.whl")`.
        Wheels only, for the sandbox's Python and platform. What it has already keeps its version. Nothing of a package
        runs on this machine. They are there until the sandbox ends.

        Args:
            *packages: Requirements for the index that this machine's pip uses, or paths of wheels.
            progress: Called with one line of text at a time.

        Returns:
            What came, with version and SHA-256.

        Raises:
            ConfigurationError: It cannot be, for the reason that its code says.
        """
        return self._call(self._inner.install, *packages, progress=progress)

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def sandbox_id(self) -> str:
        """The same as `id`, by the name of hosted interpreters."""
        return self._inner.sandbox_id

    @property
    def is_alive(self) -> bool:
        """Whether a container runs that was attested."""
        return self._inner.is_alive

    @property
    def is_detached(self) -> bool:
        """Whether it outlives this process, until its lifetime is over."""
        return self._inner.is_detached

    @property
    def info(self) -> SandboxInfo:
        return self._inner.info

    @property
    def network_usage(self) -> NetworkUsage:
        """What the connections of its cells came to until now."""
        return self._inner.network_usage

    def usage(self) -> SandboxUsage:
        """Return what the sandbox uses now, by its own word.

        Raises:
            SandboxDied: It is gone.
        """
        return self._call(self._inner.usage)

    def get_metrics(
        self,
        start: datetime | None = None,
        end: datetime | None = None,
        **service: Any,
    ) -> builtins.list[SandboxMetrics]:
        """Return what the sandbox uses now, as one row: no history is kept.

        The share of the processors counts from the last call on, and from the start at first. The sandbox reports it
        itself; a cell can make it lie.

        Args:
            start: Without a row before this time.
            end: Without a row after this time.
            **service: No effect.

        Raises:
            SandboxDied: The sandbox is gone.
        """
        return self._call(self._inner.get_metrics, start, end, **service)

    @property
    def abilities(self) -> frozenset[Ability]:
        """Which of `pause`, `snapshot` and `fork` its engine has; the others raise `AbilityMissing` at once."""
        return self._inner.abilities

    @property
    def is_paused(self) -> bool:
        """Whether it stands still."""
        return self._inner.is_paused

    def pause(
        self, keep_memory: bool | None = None, *, mode: str | None = None, strict: bool = False, **service: Any
    ) -> bool:
        """Freeze the sandbox with all that runs in it, so that it uses no processor.

        A cell that runs is frozen with its clock, and goes on with `resume`; the code sees that the time of day has
        moved on. Until then every other call raises `SandboxPaused`. Its lifetime counts on, `kill` ends it, and it
        ends as unused `idle_timeout` seconds after the pause. Its memory is kept: there, or with the engine qemu after
        `pause_memory` seconds in a file that is gone with this process.

        Args:
            keep_memory: None or True.
            mode: None or "full".
            strict: No effect: what does not answer is frozen, too.
            **service: No effect.

        Returns:
            Whether it ran until now.

        Raises:
            ConfigurationError: Another `mode` or `keep_memory`.
            AbilityMissing: The engine cannot do it.
            SandboxPaused: A cell is being ended, or a kernel is starting.
            EngineError: The engine failed.
            SandboxDied: The sandbox is gone.
        """
        return self._call(self._inner.pause, keep_memory, mode=mode, strict=strict, **service)

    def resume(self, **service: Any) -> bool:
        """Let a paused sandbox go on where it was.

        Returns:
            Whether it was paused.

        Raises:
            SandboxDied: It has ended meanwhile.
            EngineError: It cannot go on, and stays paused.
        """
        return self._call(self._inner.resume, **service)

    def snapshot(self, name: str | None = None) -> str:
        """Write the sandbox down with variables, files and processes. It is paused meanwhile, and goes on.

        The file has all that the sandbox has in memory. It lies in this user's data folder, readable for nobody else.

        Args:
            name: Up to 64 letters, digits, ".", "-" and "_". None makes one up.

        Returns:
            The snapshot's name.

        Raises:
            AbilityMissing: The engine cannot do it.
            SandboxPaused: It is paused.
            FileRefused: A cell runs, the name is taken or improper, there is no room (`snapshots_size`), or the
                sandbox has connections or folders of the host, or a screen that blocks.
        """
        return self._call(self._inner.snapshot, name)

    def create_snapshot(self, name: str | None = None, *, mode: str | None = None, **service: Any) -> SnapshotInfo:
        """Do as `snapshot`, by the name of hosted interpreters.

        Raises:
            ConfigurationError: `mode` is neither None nor "full".
        """
        return self._call(self._inner.create_snapshot, name, mode=mode, **service)

    @property
    def missed(self) -> Missed:
        """What the cell that ran when this process took the sandbox over had sent, and nobody kept."""
        return self._inner.missed

    def rejoin(
        self,
        *,
        on_stdout: Callback[OutputMessage] | None = None,
        on_stderr: Callback[OutputMessage] | None = None,
        on_result: Callback[Result] | None = None,
        on_error: Callback[ExecutionError] | None = None,
        on_input: Callable[[Prompt], Awaitable[str] | str] | None = None,
    ) -> Execution | None:
        """Return the cell that ran when the previous owner was gone, once it has ended. It is taken once.

        Its output begins with the cell's start, for the callbacks too; what was not kept is counted in `missed`.
        Cancelling the call interrupts the cell. The callbacks are those of `run_code`.

        Returns:
            The execution. None if no cell ran.
        """
        return self._call(
            self._inner.rejoin,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_result=on_result,
            on_error=on_error,
            on_input=on_input,
        )

    # --- end of what is generated ---


class Files:
    """The files of a blocking sandbox. Methods raise `FileRefused` with the reason."""

    def __init__(self, inner: AsyncFiles, call: Caller) -> None:
        self._inner = inner
        self._call = call

    @overload
    def read(self, path: Name, format: Literal["text"] = "text", **service: Any) -> str: ...
    @overload
    def read(self, path: Name, format: Literal["bytes"], **service: Any) -> bytes: ...
    @overload
    def read(self, path: Name, format: Literal["stream"], **service: Any) -> Iterator[bytes]: ...
    def read(
        self,
        path: Name,
        format: Literal["text", "bytes", "stream"] = "text",  # noqa: A002 (the name people know)
        **service: Any,
    ) -> bytes | str | Iterator[bytes]:
        """Return a file: its text (UTF-8), its bytes, or its pieces of at most 1 MiB.

        What is no text is refused as such: `read(path, "bytes")`. As text or bytes a file may have 256 MiB, which are
        all in memory; a larger one is read as a stream, or copied with `download`.
        """
        method: Any = self._inner.read  # overloaded, as this is
        found: Any = self._call(method, path, format, **service)
        return self._call.each(found) if format == "stream" else found

    @overload
    def list(self, path: Name = "", depth: None = None, **service: Any) -> FileList: ...
    @overload
    def list(self, path: Name = "", *, depth: int, **service: Any) -> Entries: ...
    @overload
    def list(self, path: Name, depth: int, **service: Any) -> Entries: ...
    def list(self, path: Name = "", depth: int | None = None, **service: Any) -> FileList | Entries:
        """Return what lies in a folder; see `AsyncFolders.list`."""
        method: Any = self._inner.list  # overloaded, as this is
        found: FileList | Entries = self._call(method, path, depth, **service)
        return found

    def watch_dir(
        self, path: Name, *, recursive: bool = False, include_entry: bool = False, **service: Any
    ) -> WatchHandle:
        """Look at a folder now; what changes is fetched by `get_new_events` of what is returned."""
        watching = self._call(
            self._inner.watching, path, recursive=recursive, include_entry=include_entry, service=service
        )
        return WatchHandle(self._call, watching)

    def write(
        self,
        path: Name,
        data: Data,
        *,
        progress: Callback[Progress] | None = None,
        sha256: str | None = None,
        **service: Any,
    ) -> FileInfo:
        """Write a file as a whole, with the folders above it; see `AsyncFiles.write`."""
        check_service(service)
        return self._followed(self._inner.writing(path, data, sha256), progress)

    def upload(
        self,
        local: str | os.PathLike[str],
        path: Name | None = None,
        *,
        progress: Callback[Progress] | None = None,
        sha256: str | None = None,
        resume: bool = False,
    ) -> FileList:
        """Copy a file of this machine, or a folder with all its regular files; see `AsyncFiles.upload`."""
        return self._followed(self._inner.uploading(local, path, sha256, resume=resume), progress)

    def download(
        self,
        path: Name,
        local: str | os.PathLike[str] | None = None,
        *,
        progress: Callback[Progress] | None = None,
        sha256: str | None = None,
        resume: bool = False,
    ) -> Path:
        """Copy a file to this machine. A file or a link of that name is replaced; see `AsyncFiles.download`."""
        return self._followed(self._inner.downloading(path, local, sha256, resume=resume), progress)

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

    # --- generated from AsyncFiles ---

    def read_part(self, path: Name, offset: int, size: int) -> tuple[bytes, int]:
        """Read a piece of a file.

        Args:
            path: Which file, relative to /mnt/data.
            offset: Where to begin, in bytes.
            size: How many bytes at most.

        Returns:
            The bytes, and the size of the whole file.

        Raises:
            FileRefused: It is no regular file, changes meanwhile, or more than 256 MiB are asked for of it.
        """
        return self._call(self._inner.read_part, path, offset, size)

    def write_files(self, files: Sequence[Mapping[str, Any]], **service: Any) -> FileList:
        """Write several files, one after another: `[{"path": "a.txt", "data": "text"}, ...]`."""
        return self._call(self._inner.write_files, files, **service)

    def exists(self, path: Name, **service: Any) -> bool:
        """Return whether there is a regular file, or a folder, of that name."""
        return self._call(self._inner.exists, path, **service)

    def get_info(self, path: Name, **service: Any) -> EntryInfo:
        """Return what a file, a folder or a link is, as the sandbox says. Raises `FileNotThere` for nothing."""
        return self._call(self._inner.get_info, path, **service)

    def rename(self, old_path: Name, new_path: Name, **service: Any) -> EntryInfo:
        """Move a file or a folder, with the folders above the new place; a file there is replaced.

        Between two file systems of the sandbox, such as /mnt/data and /tmp, only a file is moved.
        """
        return self._call(self._inner.rename, old_path, new_path, **service)

    def remove(self, path: Name, *, recursive: bool = False, **service: Any) -> None:
        """Remove a file or an empty folder; with `recursive`, a folder with all that is in it."""
        self._call(self._inner.remove, path, recursive=recursive, **service)

    def make_folder(self, path: Name) -> None:
        """Make a folder and those above it; that it is there already is fine."""
        self._call(self._inner.make_folder, path)

    def make_dir(self, path: Name, **service: Any) -> bool:
        """Make a folder and those above it; return whether it was not there already."""
        return self._call(self._inner.make_dir, path, **service)

    # --- end of what is generated ---


class WatchHandle:
    """A folder that is watched until `stop`: it is looked at when somebody asks."""

    def __init__(self, call: Caller, watching: Watching) -> None:
        self._call = call
        self._watching: Watching | None = watching

    def get_new_events(self, request_timeout: float | None = None) -> list[FilesystemEvent]:
        """Return what has changed since the last look; what came and went in between is not seen.

        Raises `SandboxClosed` after `stop`.
        """
        if self._watching is None:
            raise SandboxClosed(EndCode.SANDBOX_CLOSED, "the folder is not watched any more")
        return self._call(self._watching.look)

    def stop(self, request_timeout: float | None = None) -> None:
        """Watch it no more."""
        self._watching = None


class CommandHandle:
    """A command that runs beside the cells; iterating gives (stdout, stderr, pty) as it comes, two of them None.

    It is followed while somebody waits for it, and callbacks are called in the thread that waits.
    """

    def __init__(self, call: Caller, following: Following) -> None:
        self._call = call
        self._following = following
        self._left = False

    @property
    def pid(self) -> int:
        return self._following.pid

    @property
    def stdout(self) -> str | None:
        """What it has said, as far as somebody has waited for it."""
        return self._following.text("stdout")

    @property
    def stderr(self) -> str | None:
        """What it has said, as far as somebody has waited for it."""
        return self._following.text("stderr")

    @property
    def exit_code(self) -> int | None:
        """None until somebody has waited for its end."""
        return self._following.exit_code

    def _steps(self) -> Iterator[tuple[str, str]]:
        while not self._following.ended and not self._left:
            yield from self._call(self._following.step)

    def __iter__(self) -> Iterator[tuple[str | None, str | None, bytes | None]]:
        for stream, text in self._steps():
            yield (
                text if stream == "stdout" else None,
                text if stream == "stderr" else None,
                text.encode() if stream == "pty" else None,
            )

    def wait(
        self,
        on_pty: OnPty | None = None,
        on_stdout: Callback[OutputMessage] | None = None,
        on_stderr: Callback[OutputMessage] | None = None,
    ) -> CommandResult:
        """Wait for its end, and return how it ended. Raises as `AsyncCommandHandle.wait`."""
        return self.finish(Callbacks(on_pty=on_pty, on_stdout=on_stdout, on_stderr=on_stderr))

    def finish(self, callbacks: Callbacks) -> CommandResult:
        for stream, text in self._steps():
            value = text.encode() if stream == "pty" else text
            callbacks.call_here(stream, value, lambda waiting: self._call(awaited, waiting))
        callbacks.check(self._following)
        return self._following.result()

    def kill(self) -> bool:
        """End it with SIGKILL, and its children; return whether it ran."""
        return self._call(self._following.requests.kill, self.pid)

    def send_stdin(self, data: str | bytes, request_timeout: float | None = None) -> None:
        """Write to its stdin, which needs `stdin=True`."""
        self._call(self._following.requests.send, self.pid, data)

    def close_stdin(self, request_timeout: float | None = None) -> None:
        """End its stdin."""
        self._call(self._following.requests.send, self.pid, b"", end=True)

    def disconnect(self) -> None:
        """Follow it no more; it runs on."""
        self._left = True


class Commands:
    """The commands of a blocking sandbox."""

    def __init__(self, inner: AsyncCommands, call: Caller) -> None:
        self._inner = inner
        self._call = call

    @overload
    def run(
        self,
        cmd: str,
        background: Literal[False] | None = None,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        on_stdout: Callback[OutputMessage] | None = None,
        on_stderr: Callback[OutputMessage] | None = None,
        stdin: bool | None = None,
        timeout: float | None = DEFAULT_SECONDS,
        request_timeout: float | None = None,
        *,
        retain_output: bool = True,
    ) -> CommandResult: ...
    @overload
    def run(
        self,
        cmd: str,
        background: Literal[True],
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        on_stdout: Callback[OutputMessage] | None = None,
        on_stderr: Callback[OutputMessage] | None = None,
        stdin: bool | None = None,
        timeout: float | None = DEFAULT_SECONDS,
        request_timeout: float | None = None,
        *,
        retain_output: bool = True,
    ) -> CommandHandle: ...
    def run(  # noqa: PLR0917 (as are those of hosted interpreters)
        self,
        cmd: str,
        background: bool | None = None,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        on_stdout: Callback[OutputMessage] | None = None,
        on_stderr: Callback[OutputMessage] | None = None,
        stdin: bool | None = None,
        timeout: float | None = DEFAULT_SECONDS,
        request_timeout: float | None = None,
        *,
        retain_output: bool = True,
    ) -> CommandResult | CommandHandle:
        """Run a command of bash; return how it ended, or with `background` at once what follows it.

        See `AsyncCommands.run`. In the background, callbacks are given to `wait`. Ctrl-C kills the command.
        """
        callbacks = Callbacks(on_stdout=on_stdout, on_stderr=on_stderr)
        pid = self._call(
            self._inner.requests.start, cmd, cwd=cwd, envs=envs, user=user, timeout=timeout, stdin=bool(stdin)
        )
        handle = _follow(self._call, self._inner, pid, timeout, after=0, retain=retain_output)
        if background:
            return handle
        try:
            return handle.finish(callbacks)
        except KeyboardInterrupt:
            handle.kill()
            raise

    def connect(
        self,
        pid: int,
        timeout: float | None = DEFAULT_SECONDS,
        request_timeout: float | None = None,
        *,
        retain_output: bool = True,
    ) -> CommandHandle:
        """Follow a command from now on; its clock stays as it is. Raises `CommandError` if it is not there."""
        return _follow(self._call, self._inner, pid, timeout, retain=retain_output)

    def stream_input(self, pid: int, data: Iterable[str | bytes], *, timeout: float | None = DEFAULT_SECONDS) -> None:
        """Write pieces to the stdin of a command as they come, for `timeout` seconds; None and 0 are no limit.

        While a piece is waited for, no time is looked at.
        """
        _stream(self._call, self._inner, pid, data, timeout)

    # --- generated from AsyncCommands ---

    def list(self, request_timeout: float | None = None) -> builtins.list[ProcessInfo]:
        """Return the commands that run."""
        return self._call(self._inner.list, request_timeout)

    def kill(self, pid: int, request_timeout: float | None = None) -> bool:
        """End a command with SIGKILL, and its children.

        Returns:
            Whether it ran.
        """
        return self._call(self._inner.kill, pid, request_timeout)

    def send_stdin(self, pid: int, data: str | bytes, request_timeout: float | None = None) -> None:
        """Write to the stdin of a command that was started with `stdin=True`."""
        self._call(self._inner.send_stdin, pid, data, request_timeout)

    def close_stdin(self, pid: int, request_timeout: float | None = None) -> None:
        """End the stdin of a command."""
        self._call(self._inner.close_stdin, pid, request_timeout)

    # --- end of what is generated ---


class Pty:
    """Shells with a terminal, of a blocking sandbox. What they say is given to `wait(on_pty=...)`."""

    def __init__(self, inner: AsyncCommands, call: Caller) -> None:
        self._commands = inner
        self._inner = AsyncPty(inner)
        self._call = call

    def create(  # noqa: PLR0917 (as are those of hosted interpreters)
        self,
        size: PtySize,
        user: str | None = None,
        cwd: str | None = None,
        envs: Mapping[str, str] | None = None,
        timeout: float | None = DEFAULT_SECONDS,
        request_timeout: float | None = None,
    ) -> CommandHandle:
        """Start a shell with a terminal."""
        measures = (int(size.rows), int(size.cols))
        start = self._commands.requests.start
        pid = self._call(start, "", cwd=cwd, envs=envs, user=user, timeout=timeout, size=measures)
        return _follow(self._call, self._commands, pid, timeout, after=0)

    def connect(
        self,
        pid: int,
        timeout: float | None = DEFAULT_SECONDS,
        request_timeout: float | None = None,
    ) -> CommandHandle:
        """Follow a shell from now on."""
        return _follow(self._call, self._commands, pid, timeout)

    def stream_input(self, pid: int, data: Iterable[str | bytes], *, timeout: float | None = DEFAULT_SECONDS) -> None:
        """Type pieces into a shell as they come; see `Commands.stream_input`."""
        _stream(self._call, self._commands, pid, data, timeout)

    # --- generated from AsyncPty ---

    def send_stdin(self, pid: int, data: bytes, request_timeout: float | None = None) -> None:
        """Type into a shell."""
        self._call(self._inner.send_stdin, pid, data, request_timeout)

    def resize(self, pid: int, size: PtySize, request_timeout: float | None = None) -> None:
        """Change the size of a terminal."""
        self._call(self._inner.resize, pid, size, request_timeout)

    def kill(self, pid: int, request_timeout: float | None = None) -> bool:
        """End a shell with SIGKILL; return whether it ran."""
        return self._call(self._inner.kill, pid, request_timeout)

    # --- end of what is generated ---


def _follow(
    call: Caller,
    commands: AsyncCommands,
    pid: int,
    timeout: float | None,
    *,
    after: int | None = None,
    retain: bool = True,
) -> CommandHandle:
    """Follow a command from piece `after` of its output on; None is from now on."""
    if after is None:
        after = call(commands.requests.newest, pid)
    return CommandHandle(call, Following(commands.requests, pid, after=after, timeout=timeout, retain=retain))


def _stream(
    call: Caller, commands: AsyncCommands, pid: int, data: Iterable[str | bytes], timeout: float | None
) -> None:
    limit, began = limit_of(timeout), time.monotonic()
    for piece in pieces(data):
        if limit is not None and time.monotonic() - began > limit:
            raise late(limit)
        call(commands.requests.send, pid, piece)


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


def cell_of(sandbox: Sandbox, code: str) -> concurrent.futures.Future[Execution]:
    """Start a cell, and return its future: for callers that await it on a loop of their own. Cancelled, it ends.

    Raises `SandboxClosed` after `kill`.
    """
    return asyncio.run_coroutine_threadsafe(
        sandbox._inner.run_code(code),  # noqa: SLF001 (a part of the class that its users need not see)
        sandbox._join().loop,  # noqa: SLF001
    )
