"""Open Terminal's wire: commands that run beside each other, asked for what they said."""

from __future__ import annotations

import asyncio
import re
import secrets
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response

from ....core.codes import UsageCode
from ....core.errors import CommandExitException, SandboxError
from ..codes import ServeCode
from ..requests import Refusal, answer, while_there
from ..tenants import Lease
from .bodies import CommandBody, InputBody, Kill, Status, Waiting
from .user import UserRequest, missing

MAX_PROCESSES = 32
"""Of one user, with those that have ended."""
MAX_SAID = 8 << 20
"""Bytes of memory of what all commands of a user have said: the newest of each."""
PIECE_BYTES = 100
"""Memory of a piece beside its text."""
MAX_PIECES = 20_000
KEEP_SECONDS = 300.0
"""How long a command is known after its end."""
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|([nrt0abfv\\]))")
_PLAIN = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\"}


@dataclass(slots=True, eq=False)
class UserCommand:
    id: str
    command: str
    chat: str
    beside: Mapping[str, Any] = field(default_factory=dict)
    """All commands of its user, which have a bound together."""
    handle: Any = None
    said: deque[tuple[str, str]] = field(default_factory=deque)
    dropped: int = 0
    """Pieces that are not kept any more."""
    size: int = 0
    status: str = "running"
    exit_code: int | None = None
    ended: float | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, stream: str, text: str) -> None:
        """Keep what it says. Where that is too much, the oldest goes of the command that has said most."""
        self.said.append((stream, text))
        self.size += _memory_of(text)
        if len(self.said) > MAX_PIECES:
            self.drop()
        every = {self, *self.beside.values()}
        over = sum(one.size for one in every) - MAX_SAID
        while over > 0 and (most := max(every, key=lambda one: one.size)).said:
            over -= most.drop()

    def drop(self) -> int:
        """Forget the oldest piece; return how many bytes it took."""
        size = _memory_of(self.said.popleft()[1])
        self.size -= size
        self.dropped += 1
        return size

    def end(self, status: str, code: int | None) -> None:
        if self.ended is None:
            self.status, self.exit_code, self.ended = status, code, time.monotonic()
        self.done.set()

    def about(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "command": self.command,
            "status": self.status,
            "exit_code": self.exit_code,
            "log_path": None,
        }

    def answer(self, offset: int, tail: int | None, **more: object) -> Response:
        """Return what it has said from a piece on, and how it is."""
        total = self.dropped + len(self.said)
        pieces = list(self.said)[max(0, offset - self.dropped) :]
        cut = offset < self.dropped
        if tail is not None and len(pieces) > tail:
            pieces, cut = pieces[-tail:], True
        output = [{"type": stream, "data": text} for stream, text in pieces]
        return answer({**self.about(), **more, "output": output, "truncated": cut, "next_offset": total})


def _memory_of(text: str) -> int:
    return PIECE_BYTES + sys.getsizeof(text)


async def start(asked: UserRequest, given: Waiting, body: CommandBody) -> Response:
    """Run a command of bash in a sandbox, which has Python.

    Its answer has an id, by which get_process_status finds the rest of its output.
    """
    folder = asked.path(body.cwd or ".")
    # Commands that ended a while ago are forgotten.
    known, lease = asked.box.processes, asked.box.lease
    over = sorted((one for one in known.values() if one.ended is not None), key=lambda one: one.ended or 0.0)
    now = time.monotonic()
    for one in over:
        if len(known) >= MAX_PROCESSES or now - (one.ended or now) > KEEP_SECONDS:
            del known[one.id]
    if len(known) >= MAX_PROCESSES or lease.calls >= asked.tenants.limits.calls_per_sandbox:
        words = f"{lease.calls} commands and terminals run in the sandbox, which is the limit. End one of them"
        raise Refusal(429, ServeCode.CALLS_OF_SANDBOX, words)
    process = UserCommand(secrets.token_hex(8), body.command, asked.chat, asked.box.processes)
    asked.box.processes[process.id] = process
    try:
        process.handle = await asked.sandbox.commands.run(
            body.command,
            background=True,
            envs=body.env or None,
            cwd=folder,
            on_stdout=lambda text: process.hear("stdout", str(text)),
            on_stderr=lambda text: process.hear("stderr", str(text)),
            stdin=True,
            timeout=None,
            retain_output=False,
        )
    except BaseException:
        del asked.box.processes[process.id]
        raise
    asked.tenants.tasks.start(follow(process, asked.box.lease), "a command of a terminal's user")
    await _waited(asked, process, given.wait)
    return process.answer(0, given.tail, cwd=folder)


async def follow(process: UserCommand, lease: Lease) -> None:
    handle = process.handle
    lease.calls += 1
    try:
        process.end("done", (await handle.wait()).exit_code)
    except CommandExitException as error:
        process.end("done", error.exit_code)
    except SandboxError as error:
        process.hear("stderr", f"{error}\n")
        process.end("killed", None)
    finally:
        lease.calls -= 1
        process.end("killed", None)


async def _waited(asked: UserRequest, process: UserCommand, seconds: float) -> None:
    if seconds:
        await while_there(asked.request, _until(process, seconds))


async def _until(process: UserCommand, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await process.done.wait()
    except TimeoutError:
        return


def _known(asked: UserRequest) -> UserCommand:
    found = asked.box.processes.get(asked.request.path_params["process_id"])
    if not isinstance(found, UserCommand) or found.chat != asked.chat or found.handle is None:
        raise missing("Process")
    return found


async def every(asked: UserRequest) -> Response:
    """List the commands that run, and those that have just ended."""
    return answer([one.about() for one in asked.box.processes.values() if one.chat == asked.chat])


async def status(asked: UserRequest, given: Status) -> Response:
    """Return the output of a command, and whether it runs."""
    process = _known(asked)
    await _waited(asked, process, given.wait)
    return process.answer(given.offset, given.tail)


async def send(asked: UserRequest, body: InputBody) -> Response:
    """Write to the stdin of a command."""
    process = _known(asked)
    if process.status != "running":
        raise Refusal(400, UsageCode.WRONG_ARGUMENT, "Process has already exited")
    await process.handle.send_stdin(unescaped(body.input))
    return answer({"status": "ok"})


def unescaped(text: str) -> str:
    """Return text whose escapes are what they mean: models write them as they read them."""
    found = _ESCAPE.sub(lambda found: _PLAIN.get(found[3]) or chr(int(found[1] or found[2] or "0", 16)), text)
    return found.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")  # two escapes may be one character


async def kill(asked: UserRequest, given: Kill) -> Response:
    """End a command at once."""
    process = _known(asked)
    if process.status == "running":
        process.end("killed", -9)
        await process.handle.kill()
    return answer({"status": "killed"})


ROUTES = (
    ("GET", "/execute", every),
    ("POST", "/execute", start),
    ("GET", "/execute/{process_id}/status", status),
    ("POST", "/execute/{process_id}/input", send),
    ("DELETE", "/execute/{process_id}", kill),
)
