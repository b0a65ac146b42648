"""Commands of a sandbox without `await`. What runs beside the cells is followed while somebody waits for it.

Callbacks are called in the thread that waits, so they may use the sandbox.
"""

from __future__ import annotations

import builtins
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar, overload

from ..core.codes import EndCode
from ..core.errors import SandboxClosed
from .callbacks import Callback, Callbacks
from .commands import AsyncCommands, OnPty, PtySize
from .following import DEFAULT_SECONDS, CommandResult, Following, ProcessInfo, Requests
from .input import late, limit_of, pieces
from .said import OutputMessage

T = TypeVar("T")


class Caller:
    """Runs work of a blocking sandbox. It does not hold the sandbox: a cycle would keep one that nobody holds."""

    def __init__(self, call: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._bound = weakref.WeakMethod(call)

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        call = self._bound()
        if call is None:
            work.close()
            raise SandboxClosed(EndCode.SANDBOX_DROPPED)
        result: T = call(work)
        return result


class CommandHandle:
    """A command that runs beside the cells; iterating gives (stdout, stderr, pty) as it comes, two of them None."""

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

    def __iter__(self) -> Iterator[tuple[str | None, str | None, bytes | None]]:
        while not self._following.ended and not self._left:
            for stream, text in self._call(self._following.step()):
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
        callbacks = Callbacks(on_pty=on_pty, on_stdout=on_stdout, on_stderr=on_stderr)
        return self.finish(callbacks)

    def finish(self, callbacks: Callbacks) -> CommandResult:
        while not self._following.ended and not self._left:
            for stream, text in self._call(self._following.step()):
                value = text.encode() if stream == "pty" else text
                callbacks.call_here(stream, value, lambda waiting: self._call(_awaited(waiting)))
        callbacks.check(self._following)
        return self._following.result()

    def kill(self) -> bool:
        """End it with SIGKILL, and its children; return whether it ran."""
        return self._call(self._following.requests.kill(self.pid))

    def send_stdin(self, data: str | bytes, request_timeout: float | None = None) -> None:
        """Write to its stdin, which needs `stdin=True`."""
        self._call(self._following.requests.send(self.pid, data))

    def close_stdin(self, request_timeout: float | None = None) -> None:
        """End its stdin."""
        self._call(self._following.requests.send(self.pid, b"", end=True))

    def disconnect(self) -> None:
        """Follow it no more; it runs on."""
        self._left = True


class Commands:
    """The commands of a blocking sandbox; see `AsyncCommands`."""

    def __init__(self, inner: AsyncCommands, call: Caller) -> None:
        self._requests = inner.requests
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
        start = self._requests.start(cmd, cwd=cwd, envs=envs, user=user, timeout=timeout, stdin=bool(stdin))
        following = Following(self._requests, self._call(start), after=0, timeout=timeout, retain=retain_output)
        handle = CommandHandle(self._call, following)
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
        after = self._call(self._requests.newest(pid))
        return CommandHandle(
            self._call, Following(self._requests, pid, after=after, timeout=timeout, retain=retain_output)
        )

    def list(self, request_timeout: float | None = None) -> builtins.list[ProcessInfo]:
        """Return the commands that run."""
        return [ProcessInfo.of(row) for row in self._call(self._requests.list())]

    def kill(self, pid: int, request_timeout: float | None = None) -> bool:
        """End a command with SIGKILL, and its children; return whether it ran."""
        return self._call(self._requests.kill(pid))

    def send_stdin(self, pid: int, data: str | bytes, request_timeout: float | None = None) -> None:
        """Write to the stdin of a command that was started with `stdin=True`."""
        self._call(self._requests.send(pid, data))

    def stream_input(self, pid: int, data: Iterable[str | bytes], *, timeout: float | None = DEFAULT_SECONDS) -> None:
        """Write pieces to the stdin of a command as they come, for `timeout` seconds; None and 0 are no limit.

        While a piece is waited for, no time is looked at.
        """
        _stream(self._call, self._requests, pid, data, timeout)

    def close_stdin(self, pid: int, request_timeout: float | None = None) -> None:
        """End the stdin of a command."""
        self._call(self._requests.send(pid, b"", end=True))


class Pty:
    """Shells with a terminal, of a blocking sandbox; see `AsyncPty`. What they say is given to `wait(on_pty=...)`."""

    def __init__(self, inner: AsyncCommands, call: Caller) -> None:
        self._requests = inner.requests
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
        start = self._requests.start("", cwd=cwd, envs=envs, user=user, timeout=timeout, size=measures)
        return CommandHandle(self._call, Following(self._requests, self._call(start), after=0, timeout=timeout))

    def connect(
        self,
        pid: int,
        timeout: float | None = DEFAULT_SECONDS,
        request_timeout: float | None = None,
    ) -> CommandHandle:
        """Follow a shell from now on."""
        after = self._call(self._requests.newest(pid))
        return CommandHandle(self._call, Following(self._requests, pid, after=after, timeout=timeout))

    def send_stdin(self, pid: int, data: bytes, request_timeout: float | None = None) -> None:
        """Type into a shell."""
        self._call(self._requests.send(pid, data))

    def stream_input(self, pid: int, data: Iterable[str | bytes], *, timeout: float | None = DEFAULT_SECONDS) -> None:
        """Type pieces into a shell as they come; see `Commands.stream_input`."""
        _stream(self._call, self._requests, pid, data, timeout)

    def resize(self, pid: int, size: PtySize, request_timeout: float | None = None) -> None:
        """Change the size of a terminal."""
        self._call(self._requests.resize(pid, int(size.rows), int(size.cols)))

    def kill(self, pid: int, request_timeout: float | None = None) -> bool:
        """End a shell with SIGKILL; return whether it ran."""
        return self._call(self._requests.kill(pid))


def _stream(call: Caller, requests: Requests, pid: int, data: Iterable[str | bytes], timeout: float | None) -> None:
    limit, began = limit_of(timeout), time.monotonic()
    for piece in pieces(data):
        if limit is not None and time.monotonic() - began > limit:
            raise late(limit)
        call(requests.send(pid, piece))


async def _awaited(waiting: Awaitable[Any]) -> Any:
    return await waiting
