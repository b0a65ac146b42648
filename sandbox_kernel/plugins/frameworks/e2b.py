"""E2B's Python SDK by its own names and with its own meanings: code that was written for it needs another import only.

The sandboxes are those of this package, with its settings, limits and output policy. Where the two SDKs differ in what
a call means, this module does as E2B does: a string has no quotes in `text`, a call that takes too long raises an
exception, and a listing has one level and absolute paths. docs/e2b.md lists what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Self, TypeVar

from ... import (
    BarChart,
    BoxAndWhiskerChart,
    Chart,
    ChartType,
    CommandExitException,
    CommandResult,
    Context,
    EntryInfo,
    Execution,
    ExecutionError,
    FilesystemEvent,
    FilesystemEventType,
    FileType,
    LineChart,
    Logs,
    OutputMessage,
    PieChart,
    ProcessInfo,
    PtySize,
    Result,
    SandboxMetrics,
    ScaleType,
    ScatterChart,
    SuperChart,
)
from ...core.codes import EndCode, Note
from ...core.errors import (
    CellTimeout,
    ConfigurationError,
    EngineError,
    FileNotThere,
    SandboxClosed,
    SandboxError,
    wrong_argument,
)
from ...sdk import blocking, client, values
from ...sdk.blocking_base import Caller
from ...sdk.folder_entries import AsyncWatchHandle, FileInfo
from .e2b_arguments import hosted, opened, own, waited
from .e2b_commands import (
    AsyncCommandHandle,
    AsyncHostedCommands,
    AsyncHostedPty,
    CommandHandle,
    HostedCommands,
    HostedPty,
)
from .e2b_files import AsyncFilesystem, Filesystem, WatchHandle
from .e2b_lists import AsyncSandboxPaginator, SandboxInfo, SandboxPaginator, SandboxQuery

__all__ = [
    "AsyncCommandHandle", "AsyncSandbox", "AsyncSandboxPaginator", "AsyncWatchHandle", "AuthenticationException",
    "BarChart", "BoxAndWhiskerChart", "Chart", "ChartType", "CommandExitException", "CommandHandle",
    "CommandResult", "Context", "EntryInfo", "Execution", "ExecutionError", "FileNotFoundException", "FileType",
    "FilesystemEvent", "FilesystemEventType", "InvalidArgumentException", "LineChart", "Logs", "MIMEType",
    "NotEnoughSpaceException", "NotFoundException", "OutputHandler", "OutputMessage", "PieChart", "ProcessInfo",
    "PtyOutput", "PtySize", "RateLimitException", "Result", "RunCodeLanguage", "Sandbox", "SandboxException",
    "SandboxInfo", "SandboxMetrics", "SandboxNotFoundException", "SandboxNotRunningException", "SandboxPaginator",
    "SandboxQuery", "ScaleType", "ScatterChart", "SnapshotInfo", "Stderr", "Stdout", "SuperChart", "TemplateException",
    "TimeoutException", "WatchHandle", "WriteInfo",
]  # fmt: skip

T = TypeVar("T")
Handler = Callable[[T], Any]
SandboxException = SandboxError
TimeoutException = CellTimeout
InvalidArgumentException = ConfigurationError
NotFoundException = FileNotThere
FileNotFoundException = NotFoundException
OutputHandler = Callable[[T], Any]
RunCodeLanguage = Stdout = Stderr = MIMEType = str
PtyOutput = bytes
WriteInfo = FileInfo


class SandboxNotRunningException(TimeoutException):
    """The sandbox was ended while a call was at work in it."""


class AuthenticationException(Exception):
    """Never raised: there is no key. It is here for the `except` clauses of code that is moved over."""


class RateLimitException(SandboxException):
    """Never raised; see `AuthenticationException`."""


class NotEnoughSpaceException(SandboxException):
    """Never raised; see `AuthenticationException`."""


class TemplateException(SandboxException):
    """Never raised; see `AuthenticationException`."""


class SandboxNotFoundException(NotFoundException):
    """No sandbox that may be had has that id."""


_PORTS = "no port leads into a sandbox: files come and go through `files`"
_ABSENT = {
    "list_snapshots": "use `snapshots`, which lists those of this user",
    **dict.fromkeys(("get_host", "upload_url", "download_url"), _PORTS),
    **dict.fromkeys(("get_mcp_url", "get_mcp_token"), "no server runs in a sandbox: `sandbox-kernel mcp` is one"),
    "beta_pause": "use `pause`",
    "update_network": "the hosts that cells may reach are set when a sandbox is made",
    "git": "the image has no git, and cells have no network: upload a checkout",
}
"""What a sandbox of E2B has besides, and why it is not here."""


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A snapshot that was taken."""

    snapshot_id: str
    names: list[str] = field(default_factory=list)


PAUSE = "a paused sandbox keeps its memory; to keep files alone, download them"
SNAPSHOT = "a snapshot has the memory; to keep files alone, download them"


class _Hosted:
    """What both sandboxes have by E2B's names, and why the rest is not here."""

    @property
    def sandbox_id(self) -> str:
        identity: str = self.id
        return identity

    @property
    def info(self) -> SandboxInfo:
        """What the sandbox is."""
        found: Any = super()
        return SandboxInfo.of(found.info)

    def __getattr__(self, name: str) -> Any:
        """Say of what is missing why it is. Raises AttributeError, as for any name."""
        why = _ABSENT.get(name)
        raise AttributeError(
            f"{type(self).__name__} has no {name}: {why}" if why else f"{type(self).__name__} has no {name}"
        )


class AsyncSandbox(_Hosted, client.AsyncSandbox):
    """See `sandbox_kernel.AsyncSandbox`; what differs is told in this module's docstring."""

    get_metrics = hosted(client.AsyncSandbox.get_metrics, "start", "end")
    resume = hosted(client.AsyncSandbox.resume)
    fork = hosted(client.AsyncSandbox.fork, "count")
    restart_code_context = hosted(client.AsyncSandbox.restart_context, "context", "request_timeout")
    remove_code_context = hosted(client.AsyncSandbox.remove_context, "context", "request_timeout")
    create_code_context = hosted(client.AsyncSandbox.create_context, "cwd", "language", "request_timeout")

    def __init__(self, template: Any = None, /, **keywords: Any) -> None:
        """Check the settings, which are the keywords besides E2B's own. Raises `InvalidArgumentException`."""
        given, rest = opened(template, keywords)
        super().__init__(given, **rest)

    @classmethod
    async def create(cls, template: Any = None, /, **keywords: Any) -> Self:
        """Return a sandbox that has started."""
        return await super().create(template, **keywords)

    @classmethod
    def prepared(cls, name: str, settings: Any = None, **keywords: Any) -> Self:
        """See `sandbox_kernel.AsyncSandbox.prepared`."""
        return super().prepared(name, settings, **opened(None, keywords)[1])

    @cached_property
    def files(self) -> AsyncFilesystem:
        """Its files."""
        return AsyncFilesystem(self._instance)

    @cached_property
    def commands(self) -> AsyncHostedCommands:
        """Its commands."""
        return AsyncHostedCommands(self._instance)

    @cached_property
    def pty(self) -> AsyncHostedPty:
        """Its shells with a terminal."""
        return AsyncHostedPty(self.commands.requests)

    async def run_code(
        self,
        code: str,
        language: str | None = None,
        context: Context | str | None = None,
        *,
        on_stdout: Handler[OutputMessage] | None = None,
        on_stderr: Handler[OutputMessage] | None = None,
        on_result: Handler[Result] | None = None,
        on_error: Handler[ExecutionError] | None = None,
        envs: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **more: Any,
    ) -> Execution:
        """Run a cell. Raises `TimeoutException` for one that takes too long, or whose sandbox is killed meanwhile.

        `timeout` is in seconds and may be up to `cell_timeout`.
        """
        execution = await super().run_code(
            code,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_result=None if on_result is None else lambda result: on_result(_unquoted(result)),
            on_error=on_error,
            envs=envs,
            language=language,
            context=context,
            timeout=timeout,
            **own(more),
        )
        error = execution.error
        parts = {} if error is None else {"limit": error.limit, "value": error.reached, "setting": error.setting}
        if error is not None and error.code == EndCode.CELL_TIMEOUT.code:
            raise TimeoutException(EndCode.CELL_TIMEOUT, kept=error.kept, **parts)
        if error is not None and error.code == EndCode.SANDBOX_ENDED_BY_OWNER.code:
            why = "the sandbox was killed while the request was in progress"
            raise SandboxNotRunningException(EndCode.SANDBOX_ENDED_BY_OWNER, why, kept=error.kept, **parts)
        execution.results[:] = [_unquoted(result) for result in execution.results]
        return execution

    async def list_code_contexts(self, request_timeout: float | None = None) -> Any:
        """Return the contexts, with one for each language of the image."""
        return await self.list_contexts(offered=True)

    async def is_running(self, request_timeout: float | None = None) -> bool:
        """Return whether a container runs that was attested."""
        return self.is_alive

    async def get_info(self, **service: Any) -> SandboxInfo:
        """Return `info`."""
        return self.info

    async def pause(self, keep_memory: bool | None = None, *, mode: str | None = None, **service: Any) -> bool:
        """Freeze the sandbox. Raises `InvalidArgumentException` for a pause that does not keep the memory."""
        _whole(mode, PAUSE, refused=keep_memory is False)
        return await super().pause()

    async def create_snapshot(
        self, name: str | None = None, *, mode: str | None = None, **service: Any
    ) -> SnapshotInfo:
        """Write the sandbox down; see `snapshot`. Raises `InvalidArgumentException` unless `mode` is None or "full"."""
        _whole(mode, SNAPSHOT)
        taken = await self.snapshot(name)
        return SnapshotInfo(taken, [taken])

    @staticmethod
    async def delete_snapshot(snapshot_id: str, **service: Any) -> bool:
        """Remove a snapshot; return whether there was one."""
        return await client.AsyncSandbox.delete_snapshot(snapshot_id)

    @classmethod
    def list(  # type: ignore[override]
        cls,
        query: values.SandboxQuery | None = None,
        limit: int | None = None,
        next_token: str | None = None,
        order: str | None = None,
        **more: Any,
    ) -> AsyncSandboxPaginator:
        """Return the sandboxes that run, of this process and detached ones."""
        return AsyncSandboxPaginator(partial(super().list, query, **own(more)), limit, next_token, order)

    async def connect(self: Any, timeout: float | None = None, **more: Any) -> Any:  # type: ignore[override]
        """Return the sandbox with an id, of this process or a detached one. Raises `SandboxNotFoundException`."""
        cls, identity = _named(self, AsyncSandbox)
        try:
            return await super(AsyncSandbox, cls).connect(identity, timeout=timeout, **own(more))
        except (SandboxClosed, EngineError) as error:
            raise _not_found(self, error) from None

    async def set_timeout(self: AsyncSandbox | str, timeout: float, **more: Any) -> None:
        """Have a sandbox end `timeout` seconds from now on, this one or, by its id, a detached one."""
        if isinstance(self, str):
            await client.AsyncSandbox.set_timeout_by_id(self, timeout, **own(more))
        else:
            await client.AsyncSandbox.set_timeout(self, timeout)

    async def kill(self: AsyncSandbox | str, **more: Any) -> bool:
        """End a sandbox, this one or, by its id, another one. Returns whether there was one to end."""
        by_id = client.AsyncSandbox.kill_by_id
        return await (by_id(self, **own(more)) if isinstance(self, str) else client.AsyncSandbox.kill(self))


class Sandbox(_Hosted, blocking.Sandbox):
    """See `sandbox_kernel.Sandbox`; what differs is told in this module's docstring."""

    _asynchronous = AsyncSandbox
    run_code = waited(AsyncSandbox.run_code)
    create_code_context = waited(AsyncSandbox.create_code_context)
    list_code_contexts = waited(AsyncSandbox.list_code_contexts)
    restart_code_context = waited(AsyncSandbox.restart_code_context)
    remove_code_context = waited(AsyncSandbox.remove_code_context)
    get_metrics = waited(AsyncSandbox.get_metrics)
    pause = waited(AsyncSandbox.pause)
    resume = waited(AsyncSandbox.resume)
    create_snapshot = waited(AsyncSandbox.create_snapshot)
    fork = hosted(blocking.Sandbox.fork, "count")

    def __init__(self, template: Any = None, /, **keywords: Any) -> None:
        """Check the settings, which are the keywords besides E2B's own. Raises `InvalidArgumentException`."""
        super().__init__(template, **keywords)

    @classmethod
    def create(cls, template: Any = None, /, **keywords: Any) -> Self:
        """Return a sandbox that has started."""
        return super().create(template, **keywords)

    @cached_property
    def files(self) -> Filesystem:
        """Its files."""
        return Filesystem(self._inner.files, Caller(self._call))

    @cached_property
    def commands(self) -> HostedCommands:
        """Its commands."""
        return HostedCommands(self._inner.commands, Caller(self._call))

    @cached_property
    def pty(self) -> HostedPty:
        """Its shells with a terminal."""
        return HostedPty(self._inner.pty, Caller(self._call))

    def is_running(self, request_timeout: float | None = None) -> bool:
        """Return whether a container runs that was attested."""
        return self.is_alive

    def get_info(self, **service: Any) -> SandboxInfo:
        """Return `info`."""
        return self.info

    @staticmethod
    def delete_snapshot(snapshot_id: str, **service: Any) -> bool:
        """Remove a snapshot; return whether there was one."""
        return blocking.Sandbox.delete_snapshot(snapshot_id)

    @classmethod
    def list(  # type: ignore[override]
        cls,
        query: values.SandboxQuery | None = None,
        limit: int | None = None,
        next_token: str | None = None,
        order: str | None = None,
        **more: Any,
    ) -> SandboxPaginator:
        """Return the sandboxes that run, of this process and detached ones."""
        return SandboxPaginator(partial(super().list, query, **own(more)), limit, next_token, order)

    def connect(self: Any, timeout: float | None = None, **more: Any) -> Any:  # type: ignore[override]
        """Return the sandbox with an id, of this process or a detached one. Raises `SandboxNotFoundException`."""
        cls, identity = _named(self, Sandbox)
        try:
            return super(Sandbox, cls).connect(identity, timeout=timeout, **own(more))
        except (SandboxClosed, EngineError) as error:
            raise _not_found(self, error) from None

    def set_timeout(self: Sandbox | str, timeout: float, **more: Any) -> None:
        """Have a sandbox end `timeout` seconds from now on, this one or, by its id, a detached one."""
        if isinstance(self, str):
            blocking.Sandbox.set_timeout_by_id(self, timeout, **own(more))
        else:
            blocking.Sandbox.set_timeout(self, timeout)

    def kill(self: Sandbox | str, **more: Any) -> bool:
        """End a sandbox, this one or, by its id, another one. Returns whether there was one to end."""
        by_id = blocking.Sandbox.kill_by_id
        return by_id(self, **own(more)) if isinstance(self, str) else blocking.Sandbox.kill(self)


def _whole(mode: str | None, why: str, *, refused: bool = False) -> None:
    if refused or mode not in {None, "full"}:
        raise wrong_argument("mode", why)


def _named(given: Any, cls: Any) -> tuple[Any, str]:
    """Return the class and the id that a call is about: of a sandbox, or of the class with an id in its place."""
    return (cls, given) if isinstance(given, str) else (type(given), given.id)


def _not_found(identity: object, error: SandboxException) -> SandboxException:
    missing = isinstance(identity, str) and error.code in {EndCode.SANDBOX_NOT_HERE, EndCode.DETACHED_NOT_THERE}
    return SandboxNotFoundException(Note(error.code, error.message)) if missing else error


def _unquoted(result: Result) -> Result:
    """Return a result whose text is a string's own, and not the form in which Python shows it."""
    text = result.text
    if text is None or len(text) < 2 or text[0] not in "'\"" or text[-1] != text[0]:
        return result
    return replace(result, data={**result.data, "text/plain": text[1:-1]})
