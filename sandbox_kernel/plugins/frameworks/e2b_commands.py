"""The commands of a sandbox with E2B's arguments."""

from __future__ import annotations

from typing import Any

from ..commands import blocking_commands as blocking
from ..commands import blocking_commands_base as blocking_base
from ..commands import commands
from .e2b_arguments import hosted

RUN = (
    "cmd", "background", "envs", "user", "cwd", "on_stdout", "on_stderr", "stdin", "timeout", "request_timeout",
)  # fmt: skip
CONNECT = ("pid", "timeout", "request_timeout", "on_stdout", "on_stderr")
SHELL = ("user", "cwd", "envs", "timeout", "request_timeout")
PID, DATA = ("pid", "request_timeout"), ("pid", "data", "request_timeout")


class AsyncCommandHandle(commands.AsyncCommandHandle):
    """See `sandbox_kernel.plugins.commands.commands.AsyncCommandHandle`."""

    send_stdin = hosted(commands.AsyncCommandHandle.send_stdin, "data", "request_timeout")
    close_stdin = hosted(commands.AsyncCommandHandle.close_stdin, "request_timeout")


class AsyncHostedCommands(commands.AsyncCommands):
    """See `sandbox_kernel.plugins.commands.commands.AsyncCommands`."""

    _handle = AsyncCommandHandle
    run: Any = hosted(commands.AsyncCommands.run, *RUN)
    connect: Any = hosted(commands.AsyncCommands.connect, *CONNECT)
    list = hosted(commands.AsyncCommands.list, "request_timeout")
    kill = hosted(commands.AsyncCommands.kill, *PID)
    send_stdin = hosted(commands.AsyncCommands.send_stdin, *DATA)
    stream_input = hosted(commands.AsyncCommands.stream_input, "pid", "data")
    close_stdin = hosted(commands.AsyncCommands.close_stdin, *PID)


class AsyncHostedPty(commands.AsyncPty):
    """See `sandbox_kernel.plugins.commands.commands.AsyncPty`."""

    _handle = AsyncCommandHandle
    create: Any = hosted(commands.AsyncPty.create, "size", "on_data", *SHELL)
    connect: Any = hosted(commands.AsyncPty.connect, "pid", "on_data", "timeout", "request_timeout")
    send_stdin = hosted(commands.AsyncPty.send_stdin, *DATA)
    stream_input = hosted(commands.AsyncPty.stream_input, "pid", "data")
    resize = hosted(commands.AsyncPty.resize, "pid", "size", "request_timeout")
    kill = hosted(commands.AsyncPty.kill, *PID)


class CommandHandle(blocking_base.CommandHandle):
    """See `sandbox_kernel.plugins.commands.blocking_commands_base.CommandHandle`."""

    send_stdin = hosted(blocking_base.CommandHandle.send_stdin, "data", "request_timeout")
    close_stdin = hosted(blocking_base.CommandHandle.close_stdin, "request_timeout")


class HostedCommands(blocking.Commands):
    """See `sandbox_kernel.plugins.commands.blocking_commands.Commands`."""

    _handle = CommandHandle
    run: Any = hosted(blocking.Commands.run, *RUN)
    connect: Any = hosted(blocking.Commands.connect, *CONNECT[:3])
    list = hosted(blocking.Commands.list, "request_timeout")
    kill = hosted(blocking.Commands.kill, *PID)
    send_stdin = hosted(blocking.Commands.send_stdin, *DATA)
    stream_input = hosted(blocking.Commands.stream_input, "pid", "data")
    close_stdin = hosted(blocking.Commands.close_stdin, *PID)


class HostedPty(blocking.Pty):
    """See `sandbox_kernel.plugins.commands.blocking_commands.Pty`."""

    _handle = CommandHandle
    create: Any = hosted(blocking.Pty.create, "size", *SHELL)
    connect: Any = hosted(blocking.Pty.connect, "pid", "timeout", "request_timeout")
    send_stdin = hosted(blocking.Pty.send_stdin, *DATA)
    stream_input = hosted(blocking.Pty.stream_input, "pid", "data")
    resize = hosted(blocking.Pty.resize, "pid", "size", "request_timeout")
    kill = hosted(blocking.Pty.kill, *PID)
