"""LibreChat's wire: programs that call the tools of its agent.

A program waits for its results, where LibreChat's own interpreter runs it again from the beginning with those it has.
"""

from __future__ import annotations

import asyncio
import keyword
import re
from collections.abc import Sequence
from typing import Any

from ..codes import ServeCode
from ..requests import Refusal, can_be_said, improper
from .cells import Ran
from .files import new_id

CALL_SECONDS = 300.0
"""How long a program waits for the result of a tool."""
GATHER_SECONDS = 0.03
"""After a call, for those that a program makes at the same time."""
MAX_PROGRAMS = 16
"""Of one tenant."""
MAX_TOOLS = 256
MAX_NAME = 128

FUNCTION = "call_tool"
"""What a sandbox has of the host."""
_BASH_WORDS = re.compile(
    "if|then|else|elif|fi|case|esac|for|while|until|do|done|in|function|select|time|coproc|declare|typeset|local|"
    "readonly|export|unset"
)
_BASH_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Bridge:
    """What the sandbox of a conversation calls: the tools of the program that runs in it now."""

    def __init__(self) -> None:
        self.program: ToolProgram | None = None

    async def call_tool(self, name: str, arguments: Any) -> Any:
        """Call a tool of the agent that runs this program."""
        if self.program is None:
            raise ToolMissing("there are no tools: this is no program that may call them")
        return await self.program.call(name, arguments)


class ToolMissing(Exception):
    """A tool that the agent did not give to this program."""


class ToolFailed(Exception):
    """What a tool itself said."""


class ToolProgram:
    """One program, from its first request to its result."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)
        self._calls: dict[str, tuple[str, Any]] = {}
        """Those that the client has not been told of."""
        self._results: dict[str, asyncio.Future[Any]] = {}
        self._told: list[str] = []
        self._news = asyncio.Event()
        self._count = 0
        self._task: asyncio.Task[dict[str, Any]]
        self.token = ""

    def start(self, task: asyncio.Task[dict[str, Any]]) -> None:
        """Have it run, in a task that returns what is answered at its end."""
        self._task = task
        task.add_done_callback(lambda _: self._news.set())

    def stop(self) -> None:
        """End it. Idempotent."""
        self._task.cancel()

    async def call(self, name: str, arguments: Any) -> Any:
        """Return what a tool of the client's returns."""
        if name not in self._names:
            raise ToolMissing(f"there is no tool {name[:MAX_NAME]!r}")
        if not can_be_said(arguments):
            raise ToolFailed("the arguments nest too deep")
        self._count += 1
        identity = f"call_{self._count:03}"
        future = asyncio.get_running_loop().create_future()
        self._calls[identity], self._results[identity] = (name, arguments), future
        self._news.set()
        try:
            return await future
        finally:
            self._calls.pop(identity, None)
            self._results.pop(identity, None)

    def give(self, results: object) -> None:
        """Take the results of the calls that the client was told of. Raises `Refusal`."""
        if not isinstance(results, list) or not all(isinstance(one, dict) for one in results):
            raise improper("tool_results", "is a list of objects")
        given = {one.get("call_id"): one for one in results if isinstance(one.get("call_id"), str)}
        for identity in self._told:
            future = self._results.get(identity)
            if future is None or future.done():
                continue
            result = given.get(identity)
            if result is None:
                future.set_exception(ToolFailed("the agent gave no result"))
            elif result.get("is_error"):
                future.set_exception(ToolFailed(str(result.get("error_message") or "the tool failed")))
            else:
                future.set_result(result.get("result"))
        self._told = []

    async def answer(self) -> dict[str, Any]:
        """Return what the client is told next: the calls that wait for it, or the end."""
        while not self._task.done() and not self._calls:
            self._news.clear()
            await self._news.wait()
        seen = -1
        while not self._task.done() and seen != self._count:
            seen = self._count
            await asyncio.sleep(GATHER_SECONDS)
        if self._task.done():
            return await self._task
        self.token = new_id()
        self._told = list(self._calls)
        calls = [{"id": one, "name": name, "input": given} for one, (name, given) in self._calls.items()]
        self._calls.clear()
        return {"status": "tool_call_required", "continuation_token": self.token, "tool_calls": calls}


class TenantPrograms:
    """The programs of one tenant that run, or whose end nobody has asked for yet."""

    def __init__(self) -> None:
        self._programs: dict[str, tuple[ToolProgram, asyncio.TimerHandle]] = {}
        """By their tokens, each with the end of its time."""
        self.running = 0

    def check_room(self) -> None:
        """Raise `Refusal` if there are as many as there may be."""
        if self.running >= MAX_PROGRAMS:
            words = f"You have {self.running} programs that run or wait for tools, which is the limit"
            raise Refusal(429, ServeCode.CALLS_OF_SANDBOX, words)

    async def answer(self, program: ToolProgram) -> dict[str, Any]:
        """Return what is told next of a program, which is found again by its token until that is used or too old."""
        try:
            found = await program.answer()
        except BaseException:
            program.stop()
            raise
        if program.token:
            clock = asyncio.get_running_loop().call_later(CALL_SECONDS + 30, self._forget, program.token)
            self._programs[program.token] = program, clock
        return found

    def take(self, token: object) -> ToolProgram:
        """Return the program of a token, which is used up. Raises `Refusal`."""
        found = self._programs.pop(token, None) if isinstance(token, str) else None
        if found is None:
            raise Refusal(404, ServeCode.PROGRAM_UNKNOWN)
        program, clock = found
        clock.cancel()
        program.token = ""
        return program

    def _forget(self, token: str) -> None:
        found = self._programs.pop(token, None)
        if found is not None:
            found[0].stop()


def python_lines(names: Sequence[str]) -> str:
    """Return a cell that has the tools as functions, by the names that LibreChat tells its model."""
    found = {}
    for name in names:
        known = re.sub(r"[^a-zA-Z0-9_]", "", re.sub(r"[-\s]", "_", name))
        known = f"_{known}" if known[:1].isdigit() else known
        known = f"{known}_tool" if keyword.iskeyword(known) else known
        if known.isidentifier():
            found[known] = name
    return (
        "import asyncio, json\n"
        "def _tools_of_host(names):\n"
        f"    from sandbox_tools import {FUNCTION}\n"
        "    def made(name):\n"
        "        async def tool(**arguments):\n"
        f"            found = await {FUNCTION}(name=name, arguments=arguments)\n"
        "            try:\n"
        "                return json.loads(found) if isinstance(found, str) and found[:1] in ('{', '[') else found\n"
        "            except ValueError:\n"
        "                return found\n"
        "        tool.__name__ = name\n"
        "        return tool\n"
        "    globals().update({known: made(name) for known, name in names.items()})\n"
        f"_tools_of_host({found!r}); del _tools_of_host"
    )


_CLIENT = """
import json, socket, struct, sys
def whole(size):
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            sys.exit("the host broke the connection")
        data += piece
    return data
try:
    given = json.loads(sys.argv[3]) if sys.argv[3:] else {}
except ValueError:
    given = sys.argv[3]
asked = json.dumps({"tool": "call_tool", "arguments": {"name": sys.argv[2], "arguments": given}}).encode()
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.sendall(b"\\0sandbox_tools\\n" + struct.pack("!I", len(asked)) + asked)
answer = json.loads(whole(*struct.unpack("!I", whole(4))))
if "error" in answer:
    sys.exit(answer["error"]["said"])
result = answer["result"]
print(result if isinstance(result, str) else json.dumps(result, separators=(",", ":"), ensure_ascii=False))
"""


def bash_lines(names: Sequence[str]) -> tuple[str, str]:
    """Return Bash that has the tools as functions, and Python before it that says where the host is."""
    lines = []
    for name in names:
        known = re.sub(r"[^a-zA-Z0-9_]", "", re.sub(r"[-\s.]", "_", name))
        known = f"_{known}" if known[:1].isdigit() else known
        known = f"{known}_tool" if _BASH_WORDS.fullmatch(known) else known
        if _BASH_NAME.fullmatch(known):
            quoted = "'" + name.replace("'", "'\\''") + "'"
            lines.append(f'{known}() {{ python3 -c "$SANDBOX_TOOL" "$SANDBOX_TOOL_PORT" {quoted} "$@"; }}')
    before = (
        "    import sandbox_tools\n"
        f"    env['SANDBOX_TOOL'] = {_CLIENT!r}\n"
        "    env['SANDBOX_TOOL_PORT'] = str(sandbox_tools.call_and_wait.__self__.port)\n"
    )
    return "".join(f"{line}\n" for line in lines), before


_ENDS = {"CellTimeout": "Time limit exceeded", "OutOfMemory": "Out of memory"}


def end_of(said: Ran, rest: dict[str, Any]) -> dict[str, Any]:
    """Return what is answered at the end: an error for what was ended from outside, in LibreChat's own words."""
    found = {"stdout": said.stdout, "stderr": said.stderr, **rest}
    if said.error is None:
        return {"status": "completed", **found}
    return {"status": "error", "error": _ENDS.get(said.error, "Execution failed or timed out"), **found}
