"""Commands without `await`. Written by `make blocking`."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Literal, overload

from ...sdk.callbacks import Callback
from ...sdk.output_text import OutputMessage
from ...sdk.values import CommandResult, ProcessInfo, PtySize
from .blocking_commands_base import CommandHandle, CommandsBase, PtyBase
from .running_command import DEFAULT_SECONDS


class Commands(CommandsBase):
    """The commands of a blocking sandbox. In the background, callbacks are given to `wait`. Ctrl-C kills a command."""

    @overload
    def run(
        self,
        cmd: str,
        *,
        background: Literal[False] | None = None,
        envs: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_stdout: Callback[OutputMessage] | None = None,
        on_stderr: Callback[OutputMessage] | None = None,
        stdin: bool | None = None,
        timeout: float | None = DEFAULT_SECONDS,
        retain_output: bool = True,
    ) -> CommandResult: ...
    @overload
    def run(
        self,
        cmd: str,
        *,
        background: Literal[True],
        envs: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_stdout: Callback[OutputMessage] | None = None,
        on_stderr: Callback[OutputMessage] | None = None,
        stdin: bool | None = None,
        timeout: float | None = DEFAULT_SECONDS,
        retain_output: bool = True,
    ) -> CommandHandle: ...
    def run(
        self,
        cmd: str,
        *,
        background: bool | None = None,
        envs: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_stdout: Callback[OutputMessage] | None = None,
        on_stderr: Callback[OutputMessage] | None = None,
        stdin: bool | None = None,
        timeout: float | None = DEFAULT_SECONDS,
        retain_output: bool = True,
    ) -> CommandResult | CommandHandle:
        """Run a command of bash.

        If the call is cancelled, the command is killed.

        Args:
            cmd: A line of bash.
            background: Whether to return at once.
            envs: Variables of its environment.
            cwd: The folder it runs in, relative to /mnt/data.
            on_stdout: Called with pieces of text as they come.
            on_stderr: Called with pieces of text as they come.
            stdin: Whether `send_stdin` may be used.
            timeout: Seconds, up to `cell_timeout`. 0 and None are `cell_timeout`.
            retain_output: Whether the result has the output.

        Returns:
            How it ended; with `background`, a handle that follows it.

        Raises:
            CommandExitException: The exit code is not 0, and `background` is not given.
            CellTimeout: It ran out of time.
            CommandError: It cannot be started, or is gone with its kernel.
        """
        return self._run(
            cmd,
            background=background,
            envs=envs,
            cwd=cwd,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            stdin=stdin,
            timeout=timeout,
            retain_output=retain_output,
        )

    def list(self) -> builtins.list[ProcessInfo]:
        """Return the commands that run."""
        return self._call(self._inner.list)

    def kill(self, pid: int) -> bool:
        """End a command with SIGKILL, and its children.

        Returns:
            Whether it ran.
        """
        return self._call(self._inner.kill, pid)

    def send_stdin(self, pid: int, data: str | bytes) -> None:
        """Write to the stdin of a command that was started with `stdin=True`."""
        self._call(self._inner.send_stdin, pid, data)

    def close_stdin(self, pid: int) -> None:
        """End the stdin of a command."""
        self._call(self._inner.close_stdin, pid)


class Pty(PtyBase):
    """Shells with a terminal, of a blocking sandbox. What they say is given to `wait(on_pty=...)`."""

    def send_stdin(self, pid: int, data: bytes) -> None:
        """Type into a shell."""
        self._call(self._inner.send_stdin, pid, data)

    def resize(self, pid: int, size: PtySize) -> None:
        """Change the size of a terminal."""
        self._call(self._inner.resize, pid, size)

    def kill(self, pid: int) -> bool:
        """End a shell with SIGKILL; return whether it ran."""
        return self._call(self._inner.kill, pid)
