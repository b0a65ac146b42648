"""What comes on a connection for tools: calls, read in bounded memory and time, and why one has no result."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Mapping
from typing import Any

import orjson

from ...core.code import Note
from ..api import Stream, StreamReset
from .codes import ToolCode

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


class Reader:
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
    """Return the name and the arguments of a call."""
    try:
        asked = orjson.loads(data)
    except ValueError:
        raise CallFailed(ToolCode.TOOL_CALL_IMPROPER.note(why="it is no JSON")) from None
    if not isinstance(asked, dict) or asked.keys() != {"tool", "arguments"}:
        raise CallFailed(ToolCode.TOOL_CALL_IMPROPER.note(why="it has other parts than a name and arguments"))
    name, arguments = asked["tool"], asked["arguments"]
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise CallFailed(ToolCode.TOOL_CALL_IMPROPER.note(why="its parts are of other types"))
    return name, arguments


def text_of(error: BaseException) -> str:
    try:
        said = str(error)
    except Exception:
        said = "(its text cannot be had)"
    return said if len(said) <= MAX_TEXT else f"{said[:MAX_TEXT]}..."
