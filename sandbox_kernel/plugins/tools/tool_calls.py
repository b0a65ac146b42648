"""The calls of a session's tools: read from a connection of a cell's, checked, made within limits, answered.

One connection carries one call at a time. A call is four bytes of length and JSON, and so is its answer; nothing is
unpickled, and nothing that a tool raises or returns goes to the cell but text and JSON. What a cell can make the host
hold is bounded: arguments are read once a call has its turn, of which there are `at_once`.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import json
import struct
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from ...core.call_context import works_for
from ...core.codes import Note
from ...core.events import ToolCalled, ToolRefused
from ...core.model import Inside
from ..api import Cell, Identified, SessionHandle, SessionService, Stream, StreamReset
from .codes import ToolCode
from .tool_types import MismatchError, plain
from .tools import MODULE, Tool, Tools, preamble

READ_SECONDS = 10.0
"""How long the bytes of one call may take to come, and those of an answer to go."""
SMALL = 64 << 10
"""Bytes of a call that are read although it is refused; a larger one ends its connection."""
MAX_TEXT = 2000
"""Characters of what a tool raised."""
LENGTH = struct.Struct("!I")


class CallFailed(Exception):
    """A call has no result; says why. `name` and `text` are of what the tool raised."""

    def __init__(self, note: Note, name: str = "", text: str = "") -> None:
        super().__init__(note.text)
        self.note, self.name, self.text = note, name, text


class CallReader:
    """What comes on a connection, in pieces of its own."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._data = bytearray()
        self.has_read = False
        """Whether the body of the call was read."""

    async def head(self) -> bytes | None:
        """Return the next four bytes, whenever they come; None at the end."""
        while len(self._data) < LENGTH.size:
            if not (piece := await self._stream.receive()):
                return None
            self._data += piece
        return self._take(LENGTH.size)

    async def body(self, size: int) -> bytes:
        """Return the next bytes, which have to come soon."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                while len(self._data) < size:
                    if not (piece := await self._stream.receive()):
                        raise CallFailed(ToolCode.TOOL_CALL_IMPROPER.note(why="it ends in the middle"))
                    self._data += piece
        except TimeoutError:
            raise CallFailed(ToolCode.TOOL_CALL_IMPROPER.note(why=f"it took longer than {READ_SECONDS:g} s")) from None
        self.has_read = True
        return self._take(size)

    async def skip(self, size: int) -> bool:
        """Read what was not read of a small call; return whether nothing of it is left."""
        if not self.has_read and size <= SMALL:
            with contextlib.suppress(CallFailed):
                await self.body(size)
        return self.has_read

    async def gone(self) -> bool:
        """Wait until the other side says something; True if that is its end."""
        if self._data:
            return False
        try:
            piece = await self._stream.receive()
        except StreamReset:
            return True
        self._data += piece
        return not piece

    def _take(self, size: int) -> bytes:
        taken = bytes(self._data[:size])
        del self._data[:size]
        return taken


def read(data: bytes) -> tuple[str, Mapping[str, Any]]:
    try:
        call = orjson.loads(data)
    except ValueError:
        raise CallFailed(ToolCode.TOOL_CALL_IMPROPER.note(why="it is no JSON")) from None
    if not isinstance(call, dict) or call.keys() != {"tool", "arguments"}:
        raise CallFailed(ToolCode.TOOL_CALL_IMPROPER.note(why="it has other parts than a name and arguments"))
    name, arguments = call["tool"], call["arguments"]
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise CallFailed(ToolCode.TOOL_CALL_IMPROPER.note(why="its parts are of other types"))
    return name, arguments


def text_of(error: BaseException) -> str:
    try:
        said = str(error)
    except Exception:
        said = "(its text cannot be had)"
    return said if len(said) <= MAX_TEXT else f"{said[:MAX_TEXT]}..."


ENVELOPE = 256
"""Bytes that a call has beyond what its limit is about."""


class _Call:
    def __init__(self, tool: Tool, cell: str) -> None:
        self.tool, self.cell = tool, cell
        self.given_up: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def give_up(self, why: str) -> None:
        if not self.given_up.done():
            self.given_up.set_result(why)


class OfferedTools:
    """A `Preparation`: the tools of one session."""

    def __init__(self, tools: Tools) -> None:
        self.tools = tools
        self.inside = Inside(environment={}, lines=(tools.line,) if tools else ())

    def service(self, session: SessionHandle) -> SessionService:
        """Return what serves their calls."""
        return ToolCalls(self.tools, session)

    def state(self) -> dict[str, Any]:
        """Return nothing: a caller's functions are in no other process."""
        return {}


class ToolCalls(SessionService):
    """The calls of one session: a `StreamService`, and a `CellObserver`."""

    def __init__(self, tools: Tools, session: SessionHandle, module: str = MODULE) -> None:
        """`module` is what cells import the tools from: another plugin has its own."""
        self.preamble = preamble(module)
        self._tools = tools
        self._session = session
        self._turns: asyncio.Semaphore | None = None
        self._running: dict[str, int] = {}
        """Cells that run, and how often each called."""
        self._calls: set[_Call] = set()
        self._work: set[asyncio.Future[Done]] = set()
        self._told: set[tuple[str, str]] = set()

    # --- a service of a session ---

    async def serve(self, stream: Stream, cell: Cell) -> None:
        """Serve one connection, behind its preamble. Raises StreamReset."""
        reader = CallReader(stream)
        while (head := await self._next(reader, stream)) is not None:
            answer, last = await self._answer(reader, LENGTH.unpack(head)[0])
            try:
                async with asyncio.timeout(READ_SECONDS):
                    await stream.send(LENGTH.pack(len(answer)) + answer)
                    if last:
                        await stream.finish()
            except TimeoutError:
                stream.reset("tool-unread")
                return
            if last:
                return
        await stream.finish()

    @staticmethod
    async def _next(reader: CallReader, stream: Stream) -> bytes | None:
        stream.idle(idle=True)
        head = await reader.head()
        stream.idle(idle=False)
        return head

    def cell_sent(self, cell: Identified) -> None:
        self._running[cell.id] = 0

    def cell_ended(self, cell: Identified) -> None:
        """Give up what a cell's threads still wait for: nobody sees it any more.

        Where other cells run, it may be one of theirs that waits: a call counts for the cell that began last.
        """
        self._running.pop(cell.id, None)
        self._told = {told for told in self._told if told[0] != cell.id}
        other = next(reversed(self._running), None)
        for call in self._calls:
            if call.cell == cell.id and other is not None:
                call.cell = other
            elif call.cell == cell.id:
                call.give_up("its cell ended")

    async def close(self) -> None:
        """End with the session. A tool that blocks its thread ends when it ends: nobody can stop it."""
        for call in self._calls:
            call.give_up("the session ended")
        for task in self._work:
            task.cancel()
        if self._work:
            await asyncio.wait(self._work, timeout=1.0)

    # --- one call ---

    async def _answer(self, reader: CallReader, size: int) -> tuple[bytes, bool]:
        """Return the answer to a call of so many bytes, and whether it is the last one of its connection."""
        began = time.monotonic()
        name, cell = "", next(reversed(self._running), "")
        try:
            if size > self._tools.limit_bytes + ENVELOPE:
                raise CallFailed(ToolCode.TOOL_ARGUMENTS_LARGE.note(limit=self._tools.limit_bytes))
            if cell not in self._running:
                raise CallFailed(ToolCode.TOOL_WITHOUT_CELL.note())
            if self._running[cell] >= self._tools.calls:
                raise CallFailed(ToolCode.TOOL_CALLS.note(limit=self._tools.calls))
            self._running[cell] += 1
            turn = await self._turn()
            try:
                name, arguments = read(await reader.body(size))
                if (tool := self._tools.by_name.get(name)) is None:
                    raise CallFailed(ToolCode.TOOL_UNKNOWN.note())
                checked = _checked(tool, arguments)
            except BaseException:
                turn()
                raise
            value = await self._call(tool, checked, cell, reader, turn)
            answer = self._written(tool, value)
        except CallFailed as failed:
            self._note(failed.note, name, cell, began, (size, 0))
            error = {"code": failed.note.code.code, "said": failed.note.text, "name": failed.name, "text": failed.text}
            spoken = json.dumps({"error": error}).encode()
            return spoken, not await reader.skip(size)  # what is not read would stand in the way of the next call
        finally:
            reader.has_read = False
        self._note(ToolCode.TOOL_CALLED.note(name=name), name, cell, began, (size, len(answer)))
        return answer, False

    async def _turn(self) -> Callable[[], None]:
        """Wait for a turn, and return what gives it back."""
        if self._turns is None:
            self._turns = asyncio.Semaphore(self._tools.at_once)
        limit = self._tools.seconds
        try:
            async with asyncio.timeout(limit):
                await self._turns.acquire()
        except TimeoutError:
            raise CallFailed(ToolCode.TOOLS_BUSY.note(limit=self._tools.at_once, seconds=f"{limit:g}")) from None
        return self._turns.release

    async def _call(
        self, tool: Tool, arguments: Mapping[str, Any], cell: str, reader: CallReader, turn: Callable[[], None]
    ) -> Any:
        """Return what a tool returns. `turn` is given back when it has ended, which may be later than this does."""
        seconds = self._tools.seconds if tool.seconds is None else tool.seconds
        call = _Call(tool, cell)
        self._calls.add(call)
        context = contextvars.copy_context()
        context.run(works_for.set, self._session.id)
        loop = asyncio.get_running_loop()
        task: asyncio.Future[Done]
        if tool.in_thread:
            task = _in_thread(tool, arguments, context, turn)
        else:
            task = loop.create_task(_awaited(tool, arguments), context=context)
            task.add_done_callback(lambda _: turn())
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        gone = loop.create_task(reader.gone())
        if tool.stops_clock:
            self._session.hold_clock(cell, held=True)
        try:
            async with asyncio.timeout(seconds):
                waited: set[asyncio.Future[Any]] = {task, gone, call.given_up}
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                if gone.done() and not gone.result() and not task.done():
                    await asyncio.wait(waited - {gone}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            raise CallFailed(ToolCode.TOOL_TIMEOUT.note(name=tool.name, limit=f"{seconds:g}")) from None
        finally:
            if tool.stops_clock:
                self._session.hold_clock(cell, held=False)
            self._calls.discard(call)
            gone.cancel()
            if not task.done():
                task.cancel()
            await asyncio.wait({gone})  # nobody else may wait for the stream before
        if call.given_up.done():
            raise CallFailed(ToolCode.TOOL_STOPPED.note(name=tool.name, why=call.given_up.result()))
        if not task.done():
            raise CallFailed(ToolCode.TOOL_STOPPED.note(name=tool.name, why="its caller broke the connection"))
        value, error = task.result()
        if error is not None:
            raise CallFailed(ToolCode.TOOL_FAILED.note(name=tool.name, error=f"{error[0]}: {error[1]}"), *error)
        return value

    def _written(self, tool: Tool, value: Any) -> bytes:
        """Return the answer that a result is."""
        limit = self._tools.limit_bytes
        try:
            text = json.dumps(value, allow_nan=False, ensure_ascii=False, default=plain, separators=(",", ":"))
            data = text.encode()
            if len(data) > limit:
                raise CallFailed(ToolCode.TOOL_RESULT_LARGE.note(name=tool.name, limit=limit))
            if tool.result is not None:
                tool.result(json.loads(data), "the result")
        except (TypeError, ValueError, RecursionError) as error:
            raise CallFailed(ToolCode.TOOL_RESULT_WRONG.note(name=tool.name, why=text_of(error))) from None
        return b'{"result":' + data + b"}"

    def _note(self, note: Note, name: str, cell: str, began: float, sizes: tuple[int, int]) -> None:
        called = note.code not in (ToolCode.TOOL_WITHOUT_CELL, ToolCode.TOOL_CALLS, ToolCode.TOOL_ARGUMENTS_LARGE)
        bounded = called and bool(cell)  # lines that no limit of calls bounds have room for some
        event = ToolCalled if bounded else ToolRefused
        self._session.emit(
            event(
                code=note.code,
                reason=note.text,
                tool=name if name in self._tools.by_name else None,
                cell=cell or None,
                seconds=round(time.monotonic() - began, 4),
                bytes_in=sizes[0],
                bytes_out=sizes[1],
            )
        )
        if note.code.severity != "notice" and (cell, note.code.code) not in self._told:
            self._told.add((cell, note.code.code))
            self._session.tell(f"tools: {note.text}")


def _checked(tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return tool.arguments(arguments)
    except (MismatchError, RecursionError) as error:
        raise CallFailed(ToolCode.TOOL_ARGUMENTS_WRONG.note(name=tool.name, why=text_of(error))) from None
    except Exception as error:  # a check of the caller's, such as a model's
        said = f"{type(error).__name__}: {text_of(error)}"
        raise CallFailed(ToolCode.TOOL_ARGUMENTS_WRONG.note(name=tool.name, why=said)) from None


Done = tuple[Any, tuple[str, str] | None]
"""What a tool returned, or the name and the text of what it raised."""


def _failure(error: BaseException) -> Done:
    return None, (type(error).__name__[:100], text_of(error))


async def _awaited(tool: Tool, arguments: Mapping[str, Any]) -> Done:
    try:
        value = tool.work(arguments)
        return (await value if inspect.isawaitable(value) else value), None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return None, ("CancelledError", "")
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # the last two would end the caller's loop
        return _failure(error)


def _in_thread(
    tool: Tool, arguments: Mapping[str, Any], context: contextvars.Context, turn: Callable[[], None]
) -> asyncio.Future[Done]:
    """Run a tool in a thread of its own, which no end of the process waits for."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Done] = loop.create_future()

    def end(result: Done) -> None:
        turn()
        if not done.done():
            done.set_result(result)

    def work() -> None:
        try:
            result: Done = context.run(tool.work, arguments), None
        except BaseException as error:
            result = _failure(error)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(end, result)

    threading.Thread(target=work, name=f"sandbox tool {tool.name}", daemon=True).start()
    return done
