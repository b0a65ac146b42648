"""E2B's wire in a sandbox: commands and shells, started, followed, written to and ended.

A command goes on when its client goes, until its time is up: the client can connect to it again.
"""

from __future__ import annotations

import asyncio
import base64
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from ....core.codes import EndCode
from ....core.errors import CommandExitException
from ....sdk.values import PtySize, UsualSeconds
from .. import home
from ..codes import ServeCode
from ..requests import Refusal
from ..streams import Piece, Put
from ..tenants import Lease
from .bodies import EmptyRequest, OfProcess, PtyRequest, SendInput, SendSignal, Start, StreamData, StreamStart, Update
from .rpc import RpcCall, streamed, taken, unary

KEEP_ALIVE: Piece = {"event": {"keepalive": {}}}
SHELLS = ("/bin/bash", "bash")
_LINES = (["-l", "-c"], ["-c"])
"""How clients have a shell run a line."""
_TERMINALS: tuple[list[str], ...] = ([], ["-i"], ["-l"], ["-i", "-l"])


class Heard:
    """What a command says, on its way to the client."""

    def __init__(self, put: Put) -> None:
        self._put = put
        self._started = asyncio.Event()

    async def begin(self, pid: int) -> None:
        """Say that it has started; what it says comes after that."""
        await self._put({"event": {"start": {"pid": pid}}})
        self._started.set()

    def on(self, stream: str) -> Callable[[Any], Awaitable[None]]:
        async def hear(said: str | bytes) -> None:
            await self._started.wait()
            content = said.encode() if isinstance(said, str) else said
            await self._put({"event": {"data": {stream: base64.b64encode(content).decode()}}})

        return hear


async def _follow(handle: Any, heard: Heard, put: Put, lease: Lease) -> None:
    """Follow a command to its end, or until the client goes."""
    try:
        await heard.begin(handle.pid)
        try:
            code = (await handle.wait()).exit_code
        except CommandExitException as error:
            code = error.exit_code
        lease.terminals.discard(handle.pid)  # which may be a command's from now on
    finally:
        await handle.disconnect()
    end: Piece = {"exitCode": code, "exited": True, "status": f"exit status {code}"}
    await put({"event": {"end": end if code == 0 else {**end, "error": f"exit status {code}"}}})


async def start(asked: RpcCall[Start], put: Put) -> None:
    """Start a command, or a shell with a terminal, and follow it."""
    config, pty, heard = asked.body.process, asked.body.pty, Heard(put)
    cmd, args, cwd = config.cmd, config.args, config.cwd or None
    more: dict[str, Any] = {
        "envs": {**home.working_folder(cwd), **config.envs} or None,
        "cwd": cwd,
        "timeout": None if asked.seconds is None else UsualSeconds(asked.seconds),
    }
    sandbox = asked.lease.sandbox
    await home.settle(asked.lease)  # commands have the variables of the sandbox's own kernel
    if pty is not None:
        if cmd not in SHELLS or args not in _TERMINALS:
            raise Refusal(400, ServeCode.NOT_OFFERED, "This server offers a terminal for bash alone")
        handle = await sandbox.pty.create(_size(pty), heard.on("pty"), **more)
        asked.lease.terminals.add(handle.pid)
    else:
        line = args[-1] if cmd in SHELLS and args[:-1] in _LINES else shlex.join([cmd, *args])
        handle = await sandbox.commands.run(
            line,
            background=True,
            on_stdout=heard.on("stdout"),
            on_stderr=heard.on("stderr"),
            stdin=asked.body.stdin,
            retain_output=False,
            **more,
        )
        asked.lease.terminals.discard(handle.pid)  # of one that ended while nobody followed it
    await _follow(handle, heard, put, asked.lease)


def _size(pty: PtyRequest) -> PtySize:
    return PtySize(pty.size.rows, pty.size.cols)


async def connect(asked: RpcCall[OfProcess], put: Put) -> None:
    """Follow a command from now on."""
    pid, heard = asked.body.process.pid, Heard(put)
    sandbox = asked.lease.sandbox
    handle = await (
        sandbox.pty.connect(pid, heard.on("pty"), timeout=None)
        if pid in asked.lease.terminals
        else sandbox.commands.connect(
            pid, timeout=None, on_stdout=heard.on("stdout"), on_stderr=heard.on("stderr"), retain_output=False
        )
    )
    await _follow(handle, heard, put, asked.lease)


async def every(asked: RpcCall[EmptyRequest]) -> Piece:
    """List the commands that run."""
    return {
        "processes": [
            {
                "pid": one.pid,
                "config": {
                    "cmd": one.cmd,
                    "args": list(one.args),
                    "envs": {name: value for name, value in one.envs.items() if name != "PWD"},
                    **({} if one.cwd is None else {"cwd": one.cwd}),
                },
            }
            for one in await asked.lease.sandbox.commands.list()
        ]
    }


async def send_input(asked: RpcCall[SendInput]) -> Piece:
    """Write to a command, or type into a shell."""
    given = asked.body.input
    await asked.lease.sandbox.commands.send_stdin(asked.body.process.pid, given.stdin or given.pty)
    return {}


async def stream_input(asked: RpcCall[StreamStart], pieces: AsyncIterator[Piece]) -> None:
    """Write to a command as pieces come; the first says to which."""
    pid = asked.body.start.process.pid
    async for piece in pieces:
        if (data := StreamData.of(piece).data) is not None:
            await asked.lease.sandbox.commands.send_stdin(pid, data.input.stdin or data.input.pty)


async def close_stdin(asked: RpcCall[OfProcess]) -> Piece:
    """End what a command reads."""
    await asked.lease.sandbox.commands.close_stdin(asked.body.process.pid)
    return {}


async def send_signal(asked: RpcCall[SendSignal]) -> Piece:
    """End a command at once; no other signal is offered."""
    if asked.body.signal not in ("SIGNAL_SIGKILL", 9):  # a client may send what no set takes
        raise Refusal(501, ServeCode.NOT_OFFERED, "This server offers SIGKILL alone")
    if not await asked.lease.sandbox.commands.kill(asked.body.process.pid):
        raise Refusal(404, EndCode.COMMAND_GONE)
    return {}


async def update(asked: RpcCall[Update]) -> Piece:
    """Change the size of a terminal."""
    await asked.lease.sandbox.pty.resize(asked.body.process.pid, _size(asked.body.pty))
    return {}


_SERVICE = "/process.Process"
ROUTES = (
    ("POST", f"{_SERVICE}/Start", streamed(start, KEEP_ALIVE)),
    ("POST", f"{_SERVICE}/Connect", streamed(connect, KEEP_ALIVE)),
    ("POST", f"{_SERVICE}/List", unary(every)),
    ("POST", f"{_SERVICE}/SendInput", unary(send_input)),
    ("POST", f"{_SERVICE}/StreamInput", taken(stream_input)),
    ("POST", f"{_SERVICE}/CloseStdin", unary(close_stdin)),
    ("POST", f"{_SERVICE}/SendSignal", unary(send_signal)),
    ("POST", f"{_SERVICE}/Update", unary(update)),
)
"""Each with what the access token of a sandbox opens, on the port of E2B's agent."""
