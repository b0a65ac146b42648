"""One command of a sandbox, followed from the host: what it said since, and its end.

All that comes back is hostile. It is checked, counted against `output_limit`, and its text is such as may be printed.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import json
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import Any, NamedTuple

from ...core.answer_allowance import AnswerAllowance
from ...core.codes import EndCode, Note, Survived
from ...core.errors import (
    AnswerError,
    CellTimeout,
    CommandError,
    CommandExitException,
    KernelDied,
    OutOfMemory,
    OutputLimit,
    ReplyLost,
    SandboxDied,
    SandboxError,
    wrong_argument,
)
from ...core.model import PYTHON_KERNEL, format_bytes
from ...core.package_files import PACKAGE
from ...files.file_rules import printable
from ...policy.safe_text import PrintedStream
from ...sdk import environment_variables
from ...sdk.execution import Execution
from ...sdk.output_text import OutputMessage
from ...sdk.values import CommandResult, ProcessInfo, UsualSeconds, seconds, seconds_within
from ..api import SandboxHandle
from .codes import CommandCode

MAX_PROCESSES = 1 << 22
"""Linux has no more of them (PID_MAX_LIMIT)."""
Streamed = Iterable[str | bytes] | AsyncIterable[str | bytes]


MODULE = "_sandbox_commands"
"""The name of `inside/shell_commands.py` in the kernel."""
REQUEST_SECONDS = 60.0
"""Most seconds of an internal cell; an honest sandbox needs milliseconds."""
FIRST_WAIT, LONGEST_WAIT = 0.05, 0.5
"""Seconds a cell waits for news of a command; a cell of the caller's waits as long."""
INPUT_BYTES = 256 << 10
BUFFER_BYTES = 4 << 20
"""What the sandbox keeps of a command until it is fetched."""
NOT_RUN = 126
"""The exit code of a command that the screen did not let through, as a shell has it."""
DEFAULT_SECONDS = UsualSeconds(60.0)
_ENDS: Mapping[str, type[SandboxError]] = {
    one.__name__: one for one in (CellTimeout, KernelDied, OutOfMemory, OutputLimit, ReplyLost, SandboxDied)
}
_STREAMS = {1: "stdout", 2: "stderr", 3: "pty"}


async def stream(requests: CommandRequests, pid: int, data: Streamed, timeout: float | None) -> None:
    """Write pieces to the stdin of a command as they come.

    Raises `CellTimeout` after `timeout` seconds; None and 0 are no limit.
    """
    limit = limit_of(timeout)
    try:
        async with asyncio.timeout(limit):
            if isinstance(data, AsyncIterable):
                async for piece in data:
                    await requests.send(pid, piece)
            else:
                for piece in pieces(data):
                    await requests.send(pid, piece)
    except TimeoutError:
        raise late(limit or 0) from None


def limit_of(timeout: float | None) -> float | None:
    """Return a limit in seconds, None for none. Raises `ConfigurationError`."""
    return seconds(timeout) if timeout else None


def pieces(data: object) -> Iterable[str | bytes]:
    """Return what is to be sent, piece by piece. Raises `ConfigurationError` for what is one piece, or none."""
    if isinstance(data, (str, bytes, bytearray, memoryview)) or not isinstance(data, Iterable):
        why = "data must be pieces of text or bytes, such as a list or a generator"
        raise wrong_argument("data", why)
    return data


def late(limit: float) -> CellTimeout:
    """Return the error for input that took too long."""
    return CellTimeout(
        CommandCode.COMMAND_TIMEOUT, "the input of the command took too long", limit=f"{limit:g} s", setting="timeout"
    )


class Said(NamedTuple):
    """A piece of what a command said."""

    stream: str
    """`stdout`, `stderr` or `pty`."""
    text: OutputMessage


class CommandRequests:
    """Asks the commands of one sandbox."""

    def __init__(self, sandbox: SandboxHandle) -> None:
        self.settings = sandbox.settings
        self._sandbox = sandbox
        self._asking: set[asyncio.Task[dict[str, Any]]] = set()

    async def ask_to_its_end(self, op: str, **fields: Any) -> dict[str, Any]:
        """Ask one question, which a caller that is cancelled does not interrupt.

        A poll is over by itself in a moment. To interrupt it would be a risk to the kernel on a slow machine, and with
        it to the caller's variables.
        """
        asking = asyncio.create_task(self.ask(op, **fields))
        self._asking.add(asking)
        asking.add_done_callback(self._asked)
        return await asyncio.shield(asking)

    def _asked(self, asking: asyncio.Task[dict[str, Any]]) -> None:
        self._asking.discard(asking)
        if not asking.cancelled():
            asking.exception()  # a waiting caller gets it; a cancelled one needs none

    async def ask(self, op: str, reads: str = "", **fields: Any) -> dict[str, Any]:
        """Ask one question. Raises `CommandError` for an answer that is none, and what ended the cell that asked."""
        code = f"__import__('sys').modules[{MODULE!r}].answer({json.dumps({'op': op, **fields})!r})"
        execution = await self._run(code, reads)
        error = execution.error
        if error is not None and not error.from_sandbox and error.name == "KeyError":
            execution = await self._run(_install() + code, reads)
            error = execution.error
        if error is not None and error.from_sandbox and error.name == "ScreenBlocked":
            raise CommandExitException(exit_code=NOT_RUN, stdout="", stderr="", error=str(error))
        if error is not None and error.from_sandbox:
            raise _ENDS.get(error.name, CommandError)(EndCode.COMMAND_GONE, error.value, kept=error.kept)
        if error is not None:
            raise CommandError(CommandCode.COMMAND_UNANSWERED)
        try:
            return AnswerAllowance(self.settings.limits).last_line(execution.logs.stdout)
        except AnswerError as wrong:
            note = Note(wrong.code, wrong.message)
            raise CommandError(note, limit=wrong.limit, value=wrong.value, setting=wrong.setting) from None

    async def _run(self, code: str, reads: str) -> Execution:
        """Run a cell of Python, in a context if the sandbox's own kernel takes another language."""
        context = None
        if self.settings.kernel != PYTHON_KERNEL:
            context = await self._sandbox.part("contexts").session(None, "python")
        execution: Execution = await self._sandbox.run_own(code, reads=reads, timeout=REQUEST_SECONDS, context=context)
        return execution

    async def start(
        self,
        cmd: str,
        *,
        cwd: str | None,
        envs: Mapping[str, str] | None,
        timeout: float | None,
        stdin: bool = False,
        size: tuple[int, int] | None = None,
    ) -> int:
        """Start a command and return its process. Raises `CommandError`, `ConfigurationError`."""
        if not isinstance(cmd, str):
            raise wrong_argument("cmd", f"cmd must be text for a shell, not {type(cmd).__name__}")
        if cwd is not None and not isinstance(cwd, str):
            raise wrong_argument("cwd", f"cwd must be text, not {type(cwd).__name__}")
        longest = self.settings.limits.cell_timeout
        limit = seconds_within(timeout, self.settings.limits) if timeout else longest
        fields = {"cmd": cmd, "cwd": cwd, "env": environment_variables.checked(envs), "stdin": stdin, "seconds": limit}
        if size is not None:
            fields |= {"rows": size[0], "cols": size[1]}
        match await self.ask("start", f"%%bash\n{cmd}", limit=BUFFER_BYTES, **fields):
            case {"pid": said} if (pid := _process(said)) is not None:
                return pid
            case {"not_started": True, "reason": str(reason)}:
                raise CommandError(CommandCode.COMMAND_NOT_STARTED.note(why=printable(reason[:200])))
        raise CommandError(CommandCode.COMMAND_UNANSWERED)

    async def newest(self, pid: int) -> int:
        """Return the number of what a command said last. Raises `CommandError`."""
        match await self.ask("poll", pid=_number("pid", pid), after=-1, wait=0.0):
            case {"last": int(number)} if type(number) is int:
                return number
        raise CommandError(EndCode.COMMAND_GONE)

    async def kill(self, pid: int) -> bool:
        return (await self.ask("kill", pid=_number("pid", pid))).get("killed") is True

    async def send(self, pid: int, data: str | bytes, *, end: bool = False) -> None:
        """Write to the stdin of a command, and close it with `end`. Raises `CommandError`."""
        content = data.encode() if isinstance(data, str) else bytes(data)
        parts = [content[at : at + INPUT_BYTES] for at in range(0, len(content), INPUT_BYTES)] or [b""]
        for number, part in enumerate(parts, 1):
            text, last = base64.b64encode(part).decode(), end and number == len(parts)
            _done(await self.ask("stdin", pid=_number("pid", pid), data=text, end=last))

    async def resize(self, pid: int, rows: int, cols: int) -> None:
        _done(await self.ask("resize", pid=_number("pid", pid), rows=rows, cols=cols))

    async def list(self) -> list[dict[str, Any]]:
        """Return what runs, as the sandbox says."""
        match await self.ask("list"):
            case {"commands": [*rows]}:
                return [row for row in rows[:1000] if isinstance(row, dict) and _process(row.get("pid"))]
        raise CommandError(CommandCode.COMMAND_UNANSWERED)


class Following:
    """What one caller hears of one command."""

    def __init__(
        self, requests: CommandRequests, pid: int, *, after: int, timeout: float | None, retain: bool = True
    ) -> None:
        self.requests = requests
        self.pid = pid
        self.exit_code: int | None = None
        self.error: str | None = None
        self._after = after
        self._wait = FIRST_WAIT
        self._timeout = timeout
        self._retain = retain
        self._kept: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._bytes = 0
        self._screen = PrintedStream()
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in _STREAMS.values()}

    @property
    def ended(self) -> bool:
        return self.exit_code is not None

    def text(self, stream: str) -> str | None:
        """The output of a stream that was fetched until now; None if it is not kept."""
        return "".join(self._kept[stream]) if self._retain else None

    async def step(self) -> list[Said]:
        """Wait a little for what it says; `ended` afterwards says whether that was all.

        Raises `CellTimeout`, `OutputLimit` and `CommandError`; the command is not there any more then.
        """
        reply = await self.requests.ask_to_its_end("poll", pid=self.pid, after=self._after, wait=self._wait)
        self._wait = min(self._wait * 1.5, LONGEST_WAIT)
        match reply:
            case {"pieces": [*pieces]}:
                said = [one for piece in pieces for one in self._piece(piece)]
            case {"gone": True}:
                raise CommandError(EndCode.COMMAND_GONE)
            case _:
                raise CommandError(CommandCode.COMMAND_UNANSWERED)
        if reply.get("running") is not True:
            said += self._end(reply)
        if said:
            self._wait = FIRST_WAIT
        if self._bytes > self.requests.settings.limits.output_limit:
            await self.requests.kill(self.pid)
            raise OutputLimit(
                EndCode.OUTPUT_TOO_LARGE.note(who="command"),
                limit=format_bytes(self.requests.settings.limits.output_limit),
                setting="output_limit",
                kept=Survived.VARIABLES_AND_FILES,
            )
        return said

    def result(self) -> CommandResult:
        """Return how it ended. Raises `CommandExitException` unless the exit code is 0."""
        code = self.exit_code if self.exit_code is not None else -1
        if code != 0:
            raise CommandExitException(code, self.text("stdout"), self.text("stderr"), self.error)
        return CommandResult(self.text("stdout"), self.text("stderr"), code)

    def _piece(self, piece: object) -> list[Said]:
        match piece:
            case [int(number), int(stream), str(data)] if (
                type(number) is int and stream in _STREAMS and number > self._after
            ):
                try:
                    content = base64.b64decode(data, validate=True)
                except ValueError:
                    raise CommandError(CommandCode.COMMAND_UNANSWERED) from None
                self._after = number
                self._bytes += len(content)
                return self._said(_STREAMS[stream], content)
        raise CommandError(CommandCode.COMMAND_UNANSWERED)

    def _said(self, stream: str, content: bytes, *, final: bool = False) -> list[Said]:
        text = self._decoders[stream].decode(content, final)
        # NUL parts what programs print for programs (find -print0, grep -Z), and shows as nothing.
        parts = [text] if stream == "pty" else text.split("\0")
        name = "stderr" if stream == "stderr" else "stdout"
        shown = "\0".join(self._screen.feed(name, part) if part else "" for part in parts)
        if not shown:
            return []
        if self._retain and stream != "pty":
            self._kept[stream].append(shown)
        return [Said(stream, OutputMessage.of(shown, error=stream == "stderr"))]

    def _end(self, reply: dict[str, Any]) -> list[Said]:
        code = reply.get("returncode")
        if type(code) is not int or not 0 <= code <= 255:
            raise CommandError(CommandCode.COMMAND_UNANSWERED)
        if reply.get("timed_out") is True:
            limit = min(self._timeout or float("inf"), self.requests.settings.limits.cell_timeout)
            setting = "timeout" if self._timeout == limit else "cell_timeout"
            raise CellTimeout(
                CommandCode.COMMAND_TIMEOUT, limit=f"{limit:g} s", setting=setting, kept=Survived.VARIABLES_AND_FILES
            )
        self.exit_code = code
        return [one for name in _STREAMS.values() for one in self._said(name, b"", final=True)]


def process_info(row: Mapping[str, Any]) -> ProcessInfo:
    """Return a command that runs, as a row of the sandbox's says."""
    cmd, cwd, env = row.get("cmd"), row.get("cwd"), row.get("env")
    return ProcessInfo(
        pid=int(row["pid"]),
        cmd="/bin/bash",
        args=("-c", printable(cmd[:10_000])) if isinstance(cmd, str) else (),
        envs={
            printable(str(name)[:1000]): printable(str(value)[:10_000])
            for name, value in list(env.items() if isinstance(env, dict) else ())[:1000]
        },
        cwd=printable(cwd[:1000]) if isinstance(cwd, str) else None,
    )


def _install() -> str:
    """Return a line that brings the module, unless another request of the same moment was first."""
    source = (PACKAGE / "plugins" / "commands" / "inside" / "shell_commands.py").read_text(encoding="utf-8")
    return (
        f'exec("import sys, types; module = types.ModuleType({MODULE!r}); "\n'
        f"\"exec(compile(given, {MODULE!r}, 'exec'), module.__dict__); sys.modules[{MODULE!r}] = module\", "
        f"{{'given': {source!r}}}) if {MODULE!r} not in __import__('sys').modules else None\n"
    )


def _process(value: object) -> int | None:
    """Return the number of a process; None for what can be none, true and what no wire could say among it."""
    return value if type(value) is int and 0 < value <= MAX_PROCESSES else None


def _done(reply: dict[str, Any]) -> None:
    match reply:
        case {"done": True}:
            return
        case {"not_started": True, "reason": str(reason)}:
            raise CommandError(EndCode.COMMAND_GONE, printable(reason[:200]))
    raise CommandError(EndCode.COMMAND_GONE)


def _number(name: str, value: object) -> int:
    if type(value) is not int:
        raise wrong_argument(name, f"{name} must be a whole number, not {type(value).__name__}")
    return value
