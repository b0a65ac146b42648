"""Commands of a sandbox, awaited: run to their end, or beside the cells, with their streams, stdin and a terminal.

A command is a process in the sandbox that its kernel starts, under the same limits. It has a clock of its own, which
`cell_timeout` bounds. A cell that runs holds up what is asked of commands, and not the commands.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, Literal, overload

from ...core.codes import EndCode
from ...core.errors import CommandError, SandboxError
from ...core.tasks import Tasks
from ...sdk.callbacks import Callback, Callbacks
from ...sdk.output_text import OutputMessage
from ...sdk.values import CommandResult, ProcessInfo, PtySize
from ..api import SandboxHandle
from .running_command import DEFAULT_SECONDS, CommandRequests, Following, Streamed, process_info, stream

OnPty = Callable[[bytes], Awaitable[object] | object]


class AsyncCommandHandle:
    """A command that runs beside the cells. It is followed from its start on, whether `wait` is called or not."""

    def __init__(self, following: Following, callbacks: Callbacks) -> None:
        self._following = following
        self._callbacks = callbacks
        self._tasks = Tasks()
        self._failure: SandboxError | None = None
        self._task = self._tasks.hold(self._follow(), "a command")

    @property
    def pid(self) -> int:
        return self._following.pid

    @property
    def stdout(self) -> str | None:
        """What it has said until now."""
        return self._following.text("stdout")

    @property
    def stderr(self) -> str | None:
        """What it has said until now."""
        return self._following.text("stderr")

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._following.exit_code

    @property
    def error(self) -> str | None:
        """Why it is not followed any more, if that was not its end."""
        return str(self._failure) if self._failure is not None else self._following.error

    async def wait(self) -> CommandResult:
        """Wait for the command's end.

        Returns:
            Its output and exit code.

        Raises:
            CommandExitException: The exit code is not 0.
            CellTimeout: It ran out of time.
            OutputLimit: It said too much.
            CallbackFailed: A callback raised.
            CommandError: It is gone with its kernel.
        """
        await asyncio.wait({self._task})
        if self._task.cancelled():
            raise CommandError(EndCode.COMMAND_GONE, "the command is not followed any more: connect to it again")
        if self._failure is not None:
            raise self._failure
        self._callbacks.check(self._following)
        return self._following.result()

    async def kill(self) -> bool:
        """End it with SIGKILL, and its children.

        Returns:
            Whether it ran.
        """
        return await self._following.requests.kill(self.pid)

    async def send_stdin(self, data: str | bytes) -> None:
        """Write to its stdin, which needs `stdin=True`."""
        await self._following.requests.send(self.pid, data)

    async def close_stdin(self) -> None:
        """End its stdin."""
        await self._following.requests.send(self.pid, b"", end=True)

    async def disconnect(self) -> None:
        """Follow it no more; it runs on."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _follow(self) -> None:
        try:
            while not self._following.ended:
                for stream, text in await self._following.step():
                    await self._callbacks.call(stream, text.encode() if stream == "pty" else text)
        except SandboxError as error:
            self._failure = error


class AsyncCommands:
    """The commands of a sandbox; see the module."""

    _handle: ClassVar[type[AsyncCommandHandle]] = AsyncCommandHandle

    def __init__(self, sandbox: SandboxHandle) -> None:
        self.requests = CommandRequests(sandbox)

    @overload
    async def run(
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
    async def run(
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
    ) -> AsyncCommandHandle: ...
    async def run(
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
    ) -> CommandResult | AsyncCommandHandle:
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
        callbacks = Callbacks(on_stdout=on_stdout, on_stderr=on_stderr)
        pid = await self.requests.start(cmd, cwd=cwd, envs=envs, timeout=timeout, stdin=bool(stdin))
        following = Following(self.requests, pid, after=0, timeout=timeout, retain=retain_output)
        handle = self._handle(following, callbacks)
        if background:
            return handle
        try:
            return await handle.wait()
        except asyncio.CancelledError:
            await handle.disconnect()
            await handle.kill()
            raise

    async def connect(
        self,
        pid: int,
        *,
        timeout: float | None = DEFAULT_SECONDS,
        on_stdout: Callback[OutputMessage] | None = None,
        on_stderr: Callback[OutputMessage] | None = None,
        retain_output: bool = True,
    ) -> AsyncCommandHandle:
        """Follow a command from now on; its clock stays as it is.

        Raises:
            CommandError: There is no command with this `pid`.
        """
        after = await self.requests.newest(pid)
        following = Following(self.requests, pid, after=after, timeout=timeout, retain=retain_output)
        return self._handle(following, Callbacks(on_stdout=on_stdout, on_stderr=on_stderr))

    async def list(self) -> builtins.list[ProcessInfo]:
        """Return the commands that run."""
        return [process_info(row) for row in await self.requests.list()]

    async def kill(self, pid: int) -> bool:
        """End a command with SIGKILL, and its children.

        Returns:
            Whether it ran.
        """
        return await self.requests.kill(pid)

    async def send_stdin(self, pid: int, data: str | bytes) -> None:
        """Write to the stdin of a command that was started with `stdin=True`."""
        await self.requests.send(pid, data)

    async def stream_input(self, pid: int, data: Streamed, *, timeout: float | None = DEFAULT_SECONDS) -> None:
        """Write pieces to the stdin of a command as they come, for `timeout` seconds; None and 0 are no limit."""
        await stream(self.requests, pid, data, timeout)

    async def close_stdin(self, pid: int) -> None:
        """End the stdin of a command."""
        await self.requests.send(pid, b"", end=True)


class AsyncPty:
    """Shells with a terminal. What they say passes as text with colours: no sequence moves anybody's cursor or more."""

    _handle: ClassVar[type[AsyncCommandHandle]] = AsyncCommandHandle

    def __init__(self, requests: CommandRequests) -> None:
        self.requests = requests

    async def create(
        self,
        size: PtySize,
        on_data: OnPty,
        *,
        cwd: str | None = None,
        envs: Mapping[str, str] | None = None,
        timeout: float | None = DEFAULT_SECONDS,
    ) -> AsyncCommandHandle:
        """Start a shell with a terminal; `on_data` gets what it says, as bytes."""
        pid = await self.requests.start("", cwd=cwd, envs=envs, timeout=timeout, size=(int(size.rows), int(size.cols)))
        following = Following(self.requests, pid, after=0, timeout=timeout)
        return self._handle(following, Callbacks(on_pty=on_data))

    async def connect(
        self,
        pid: int,
        on_data: OnPty,
        *,
        timeout: float | None = DEFAULT_SECONDS,
    ) -> AsyncCommandHandle:
        """Follow a shell from now on."""
        following = Following(self.requests, pid, after=await self.requests.newest(pid), timeout=timeout)
        return self._handle(following, Callbacks(on_pty=on_data))

    async def send_stdin(self, pid: int, data: bytes) -> None:
        """Type into a shell."""
        await self.requests.send(pid, data)

    async def stream_input(self, pid: int, data: Streamed, *, timeout: float | None = DEFAULT_SECONDS) -> None:
        """Type pieces into a shell as they come, for `timeout` seconds; None and 0 are no limit."""
        await stream(self.requests, pid, data, timeout)

    async def resize(self, pid: int, size: PtySize) -> None:
        """Change the size of a terminal."""
        await self.requests.resize(pid, int(size.rows), int(size.cols))

    async def kill(self, pid: int) -> bool:
        """End a shell with SIGKILL; return whether it ran."""
        return await self.requests.kill(pid)
