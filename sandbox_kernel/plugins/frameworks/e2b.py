"""E2B's Python SDK by its own names and with its own meanings: code that was written for it needs another import only.

The sandboxes are those of this package, with its settings, limits and output policy. Where the two SDKs differ in what
a call means, this module does as E2B does: a string has no quotes in `text`, a call that takes too long raises an
exception, and a listing has one level and absolute paths. docs/e2b.md lists what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

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
    SandboxInfo,
    SandboxMetrics,
    SandboxQuery,
    ScaleType,
    ScatterChart,
    SuperChart,
)
from ...core.codes import EndCode, Note
from ...core.errors import CellTimeout, ConfigurationError, EngineError, FileNotThere, SandboxClosed, SandboxError
from ...sdk import blocking, client
from ...sdk.blocking import CommandHandle, WatchHandle
from ...sdk.commands import AsyncCommandHandle
from ...sdk.folder_entries import AsyncWatchHandle, FileInfo
from ...sdk.paginators import AsyncSandboxPaginator, SandboxPaginator
from .e2b_files import AsyncFilesystem, Filesystem

__all__ = [
    "AsyncCommandHandle", "AsyncSandbox", "AsyncSandboxPaginator", "AsyncWatchHandle", "AuthenticationException",
    "BarChart", "BoxAndWhiskerChart", "Chart", "ChartType", "CommandExitException", "CommandHandle",
    "CommandResult", "Context", "EntryInfo", "Execution", "ExecutionError", "FileNotFoundException", "FileType",
    "FilesystemEvent", "FilesystemEventType", "InvalidArgumentException", "LineChart", "Logs", "MIMEType",
    "NotEnoughSpaceException", "NotFoundException", "OutputHandler", "OutputMessage", "PieChart", "ProcessInfo",
    "PtyOutput", "PtySize", "RateLimitException", "Result", "RunCodeLanguage", "Sandbox", "SandboxException",
    "SandboxInfo", "SandboxMetrics", "SandboxNotFoundException", "SandboxNotRunningException", "SandboxPaginator",
    "SandboxQuery", "ScaleType", "ScatterChart", "Stderr", "Stdout", "SuperChart", "TemplateException",
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


class _Absent:
    def __getattr__(self, name: str) -> Any:
        """Say of what is missing why it is. Raises AttributeError, as for any name."""
        why = _ABSENT.get(name)
        raise AttributeError(
            f"{type(self).__name__} has no {name}: {why}" if why else f"{type(self).__name__} has no {name}"
        )


class AsyncSandbox(_Absent, client.AsyncSandbox):
    """See `sandbox_kernel.AsyncSandbox`; what differs is told in this module's docstring."""

    files: AsyncFilesystem

    def __init__(self, template: Any = None, /, **keywords: Any) -> None:
        """Check the settings, which are the keywords besides E2B's own. Raises `InvalidArgumentException`."""
        super().__init__(template, **keywords)
        self.files = AsyncFilesystem.over(self.files)

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
        request_timeout: float | None = None,
        **more: Any,
    ) -> Execution:
        """Run a cell. Raises `TimeoutException` for one that takes too long, or whose sandbox is killed meanwhile.

        `timeout` is in seconds and may be up to `cell_timeout`.
        """
        execution = await super().run_code(
            code,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_result=_of_unquoted(on_result),
            on_error=on_error,
            envs=envs,
            language=language,
            context=context,
            timeout=timeout,
            **more,
        )
        return _as_there(execution)

    async def connect(self: Any, timeout: float | None = None, **service: Any) -> Any:
        """Return the sandbox with an id, of this process or a detached one. Raises `SandboxNotFoundException`."""
        try:
            return await client.AsyncSandbox.connect(self, timeout, kind=AsyncSandbox, **service)
        except (SandboxClosed, EngineError) as error:
            raise _not_found(self, error) from None


class Sandbox(_Absent, blocking.Sandbox):
    """See `sandbox_kernel.Sandbox`; what differs is told in this module's docstring."""

    files: Filesystem

    def __init__(self, template: Any = None, /, **keywords: Any) -> None:
        """Check the settings, which are the keywords besides E2B's own. Raises `InvalidArgumentException`."""
        super().__init__(template, **keywords)
        self.files = Filesystem.over(self.files)

    def run_code(
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
        request_timeout: float | None = None,
        **more: Any,
    ) -> Execution:
        """Run a cell; see `AsyncSandbox.run_code`."""
        execution = super().run_code(
            code,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_result=_of_unquoted(on_result),
            on_error=on_error,
            envs=envs,
            language=language,
            context=context,
            timeout=timeout,
            **more,
        )
        return _as_there(execution)

    def connect(self: Any, timeout: float | None = None, **service: Any) -> Any:
        """Return the sandbox with an id, of this process or a detached one. Raises `SandboxNotFoundException`."""
        try:
            return blocking.Sandbox.connect(self, timeout, kind=Sandbox, **service)
        except (SandboxClosed, EngineError) as error:
            raise _not_found(self, error) from None


def _not_found(identity: object, error: SandboxException) -> SandboxException:
    missing = isinstance(identity, str) and error.code in {EndCode.SANDBOX_NOT_HERE, EndCode.DETACHED_NOT_THERE}
    return SandboxNotFoundException(Note(error.code, error.message)) if missing else error


def _of_unquoted(handler: Handler[Result] | None) -> Handler[Result] | None:
    return None if handler is None else lambda result: handler(_unquoted(result))


def _unquoted(result: Result) -> Result:
    """Return a result whose text is a string's own, and not the form in which Python shows it."""
    text = result.text
    if text is None or len(text) < 2 or text[0] not in "'\"" or text[-1] != text[0]:
        return result
    return replace(result, data={**result.data, "text/plain": text[1:-1]})


def _as_there(execution: Execution) -> Execution:
    error = execution.error
    parts = {} if error is None else {"limit": error.limit, "value": error.reached, "setting": error.setting}
    if error is not None and error.code == EndCode.CELL_TIMEOUT.code:
        raise TimeoutException(EndCode.CELL_TIMEOUT, kept=error.kept, **parts)
    if error is not None and error.code == EndCode.SANDBOX_ENDED_BY_OWNER.code:
        why = "the sandbox was killed while the request was in progress"
        raise SandboxNotRunningException(EndCode.SANDBOX_ENDED_BY_OWNER, why, kept=error.kept, **parts)
    execution.results[:] = [_unquoted(result) for result in execution.results]
    return execution
