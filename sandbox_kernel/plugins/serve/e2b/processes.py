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
from ....sdk.commands import AsyncCommandHandle, PtySize
from ....sdk.values import UsualSeconds
from .. import home
from ..codes import ServeCode
from ..requests import Body, Refusal, improper
from ..streams import Piece, Put
from ..tenants import Lease
from .rpc import RpcCall, bytes_of, streamed, taken, unary

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


async def _follow(handle: AsyncCommandHandle, heard: Heard, put: Put, lease: Lease) -> None:
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


def _inner(body: Body, name: str) -> Body:
    found = body.fields.get(name) or {}
    if not isinstance(found, dict):
        raise improper(name, "is an object")
    return Body(found)


async def start(asked: RpcCall, put: Put) -> None:
    """Start a command, or a shell with a terminal, and follow it."""
    asked.body.refuse("tag")
    config = _inner(asked.body, "process")
    cmd, args = config.text("cmd") or "", config.text_list("args")
    heard, cwd = Heard(put), config.text("cwd")
    more: dict[str, Any] = {
        "envs": {**home.working_folder(cwd), **config.texts("envs")} or None,
        "cwd": cwd,
        "timeout": None if asked.seconds is None else UsualSeconds(asked.seconds),
    }
    sandbox = asked.lease.sandbox
    await home.settle(asked.lease)  # commands have the variables of the sandbox's own kernel
    if asked.body.fields.get("pty"):
        if cmd not in SHELLS or args not in _TERMINALS:
            raise Refusal(400, ServeCode.NOT_OFFERED, "This server offers a terminal for bash alone")
        handle = await sandbox.pty.create(_size(asked), heard.on("pty"), **more)
        asked.lease.terminals.add(handle.pid)
    else:
        line = args[-1] if cmd in SHELLS and args[:-1] in _LINES else shlex.join([cmd, *args])
        handle = await sandbox.commands.run(
            line,
            background=True,
            on_stdout=heard.on("stdout"),
            on_stderr=heard.on("stderr"),
            stdin=asked.body.fields.get("stdin") is not False,
            retain_output=False,
            **more,
        )
        asked.lease.terminals.discard(handle.pid)  # of one that ended while nobody followed it
    await _follow(handle, heard, put, asked.lease)


def _size(asked: RpcCall) -> PtySize:
    size = _inner(_inner(asked.body, "pty"), "size").fields
    rows, cols = size.get("rows"), size.get("cols")
    if type(rows) is not int or type(cols) is not int or not (0 < rows < 10_000 and 0 < cols < 10_000):
        raise improper("size", "is rows and cols, each 1 to 9999")
    return PtySize(rows, cols)


def _pid(body: Body) -> int:
    pid = _inner(body, "process").fields.get("pid")
    if type(pid) is not int:
        raise improper("process", "is named by its pid")
    return pid


async def connect(asked: RpcCall, put: Put) -> None:
    """Follow a command from now on."""
    pid, heard = _pid(asked.body), Heard(put)
    sandbox = asked.lease.sandbox
    handle = await (
        sandbox.pty.connect(pid, heard.on("pty"), timeout=None)
        if pid in asked.lease.terminals
        else sandbox.commands.connect(
            pid, timeout=None, on_stdout=heard.on("stdout"), on_stderr=heard.on("stderr"), retain_output=False
        )
    )
    await _follow(handle, heard, put, asked.lease)


async def every(asked: RpcCall) -> Piece:
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


def _input(found: Body) -> bytes:
    given = _inner(found, "input").fields
    return bytes_of(given.get("stdin") or given.get("pty"))


async def send_input(asked: RpcCall) -> Piece:
    """Write to a command, or type into a shell."""
    await asked.lease.sandbox.commands.send_stdin(_pid(asked.body), _input(asked.body))
    return {}


async def stream_input(asked: RpcCall, pieces: AsyncIterator[Piece]) -> None:
    """Write to a command as pieces come; the first says to which."""
    pid = _pid(_inner(asked.body, "start"))
    async for piece in pieces:
        if piece.get("data"):
            await asked.lease.sandbox.commands.send_stdin(pid, _input(_inner(Body(piece), "data")))


async def close_stdin(asked: RpcCall) -> Piece:
    """End what a command reads."""
    await asked.lease.sandbox.commands.close_stdin(_pid(asked.body))
    return {}


async def send_signal(asked: RpcCall) -> Piece:
    """End a command at once; no other signal is offered."""
    if asked.body.fields.get("signal") not in ("SIGNAL_SIGKILL", 9):  # a client may send what no set takes
        raise Refusal(501, ServeCode.NOT_OFFERED, "This server offers SIGKILL alone")
    if not await asked.lease.sandbox.commands.kill(_pid(asked.body)):
        raise Refusal(404, EndCode.COMMAND_GONE)
    return {}


async def update(asked: RpcCall) -> Piece:
    """Change the size of a terminal."""
    await asked.lease.sandbox.pty.resize(_pid(asked.body), _size(asked))
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
