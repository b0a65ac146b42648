"""What differs without `await`, by hand: how commands are started and followed.

Two classes are the bases of those in blocking_commands.py, which `make blocking` writes from the asynchronous ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from ...sdk.blocking_base import BlockingPart, Caller, Inner
from ...sdk.callbacks import Callback, Callbacks
from ...sdk.event_loop_thread import awaited
from ...sdk.output_text import OutputMessage
from ...sdk.values import CommandResult, PtySize
from .commands import AsyncCommands, AsyncPty, OnPty
from .running_command import DEFAULT_SECONDS, CommandRequests, Following, late, limit_of, pieces


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
        """The output that callers have waited for."""
        return self._following.text("stdout")

    @property
    def stderr(self) -> str | None:
        """The output that callers have waited for."""
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

    def send_stdin(self, data: str | bytes) -> None:
        """Write to its stdin, which needs `stdin=True`."""
        self._call(self._following.requests.send, self.pid, data)

    def close_stdin(self) -> None:
        """End its stdin."""
        self._call(self._following.requests.send, self.pid, b"", end=True)

    def disconnect(self) -> None:
        """Follow it no more; it runs on."""
        self._left = True


class Commanding(BlockingPart[Inner]):
    """What starts commands, follows them and writes to them."""

    _handle: ClassVar[type[CommandHandle]] = CommandHandle

    def _follow(
        self,
        requests: CommandRequests,
        pid: int,
        timeout: float | None,
        *,
        after: int | None = None,
        retain: bool = True,
    ) -> CommandHandle:
        """Follow a command from piece `after` of its output on; None is from now on."""
        if after is None:
            after = self._call(requests.newest, pid)
        return self._handle(self._call, Following(requests, pid, after=after, timeout=timeout, retain=retain))

    def _stream(self, requests: CommandRequests, pid: int, data: Iterable[str | bytes], timeout: float | None) -> None:
        limit, began = limit_of(timeout), time.monotonic()
        for piece in pieces(data):
            if limit is not None and time.monotonic() - began > limit:
                raise late(limit)
            self._call(requests.send, pid, piece)


class CommandsBase(Commanding[AsyncCommands]):
    """The commands of a blocking sandbox. In the background, callbacks are given to `wait`. Ctrl-C kills a command."""

    def _run(
        self,
        cmd: str,
        *,
        background: bool | None,
        on_stdout: Callback[OutputMessage] | None,
        on_stderr: Callback[OutputMessage] | None,
        stdin: bool | None,
        timeout: float | None,
        retain_output: bool,
        **more: Any,
    ) -> CommandResult | CommandHandle:
        callbacks = Callbacks(on_stdout=on_stdout, on_stderr=on_stderr)
        requests = self._inner.requests
        pid = self._call(requests.start, cmd, timeout=timeout, stdin=bool(stdin), **more)
        handle = self._follow(requests, pid, timeout, after=0, retain=retain_output)
        if background:
            return handle
        try:
            return handle.finish(callbacks)
        except KeyboardInterrupt:
            handle.kill()
            raise

    def connect(
        self, pid: int, *, timeout: float | None = DEFAULT_SECONDS, retain_output: bool = True
    ) -> CommandHandle:
        """Follow a command from now on; its clock stays as it is. Raises `CommandError` if it is not there."""
        return self._follow(self._inner.requests, pid, timeout, retain=retain_output)

    def stream_input(self, pid: int, data: Iterable[str | bytes], *, timeout: float | None = DEFAULT_SECONDS) -> None:
        """Write pieces to the stdin of a command as they come, for `timeout` seconds; None and 0 are no limit.

        While a piece is waited for, no time is looked at.
        """
        self._stream(self._inner.requests, pid, data, timeout)


class PtyBase(Commanding[AsyncPty]):
    """Shells with a terminal, of a blocking sandbox. What they say is given to `wait(on_pty=...)`."""

    def create(
        self,
        size: PtySize,
        *,
        cwd: str | None = None,
        envs: Mapping[str, str] | None = None,
        timeout: float | None = DEFAULT_SECONDS,
    ) -> CommandHandle:
        """Start a shell with a terminal."""
        requests, measures = self._inner.requests, (int(size.rows), int(size.cols))
        pid = self._call(requests.start, "", cwd=cwd, envs=envs, timeout=timeout, size=measures)
        return self._follow(requests, pid, timeout, after=0)

    def connect(self, pid: int, *, timeout: float | None = DEFAULT_SECONDS) -> CommandHandle:
        """Follow a shell from now on."""
        return self._follow(self._inner.requests, pid, timeout)

    def stream_input(self, pid: int, data: Iterable[str | bytes], *, timeout: float | None = DEFAULT_SECONDS) -> None:
        """Type pieces into a shell as they come; see `Commands.stream_input`."""
        self._stream(self._inner.requests, pid, data, timeout)
