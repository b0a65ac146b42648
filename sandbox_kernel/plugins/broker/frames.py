"""A stream of the wire cut into frames without reading them: small ones whole, large ones as they come.

Who keeps a pipe for somebody else has to know where a frame ends, and holds none that is large.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from ...container import wire
from .client import packets

_NOTE = b"{" + packets.KEEP
_HEAD = struct.Struct("!IB")
MIN_BYTES = 3
"""Bytes that a frame announces at least: its kind, and how many parts it has."""
WHOLE = 64 << 10
"""Bytes of a frame of the sandbox's that is held until it is complete."""
OWNERS_WHOLE = 8 << 20
"""The same of an owner's: what an honest one sends is less, so it is passed on whole or not at all."""
FRAME_RESERVE = 2 << 20
SLICE = 32 << 10
"""Bytes that are cut before others have their turn: they may be thousands of frames."""


class Piece(NamedTuple):
    """A whole frame, or a part of a large one."""

    data: bytes
    kind: int
    size: int
    """Of the whole frame, in bytes."""
    first: bool
    last: bool

    @property
    def whole(self) -> bool:
        return self.first and self.last


class Frames:
    """Cuts one direction of a pipe."""

    def __init__(self, max_frame: int, whole: int) -> None:
        """A frame of up to `whole` bytes comes in one piece; one over `max_frame` is none."""
        self._max, self._whole = max_frame, whole
        self._begun = bytearray()
        self._kind = self._size = self._left = 0

    @property
    def cut(self) -> bool:
        """Whether the last piece was one of a large frame, and not its last."""
        return self._left > 0

    def feed(self, data: bytes) -> list[Piece]:
        """Return the pieces that `data` completes. Raises `wire.FrameError` for what begins no frame."""
        pieces: list[Piece] = []
        view = memoryview(data)
        while view:
            if self._left:
                part = view[: self._left]
                self._left -= len(part)
                pieces.append(Piece(bytes(part), self._kind, self._size, first=False, last=not self._left))
                view = view[len(part) :]
                if not self._left:
                    self._size = 0
                continue
            needed = (self._size or _HEAD.size) - len(self._begun)
            self._begun += view[:needed]
            view = view[needed:]
            if len(self._begun) < (self._size or _HEAD.size):
                break
            if not self._size:
                self._announced()
                if self._size <= self._whole:
                    continue
                self._left = self._size - len(self._begun)
            pieces.append(Piece(bytes(self._begun), self._kind, self._size, first=True, last=not self._left))
            self._begun.clear()
            self._size = self._size if self._left else 0
        return pieces

    def _announced(self) -> None:
        size, kind = _HEAD.unpack(self._begun)
        if not MIN_BYTES <= size <= self._max or kind not in wire.KINDS:
            raise wire.FrameError(f"no frame of kind {kind} has {size} bytes")
        self._kind, self._size = kind, size + 4


async def cut(frames: Frames, receive: Callable[[], Awaitable[bytes]]) -> AsyncIterator[Piece]:
    """Cut what is received, until its end. Raises `wire.FrameError`, and what `receive` raises."""
    while data := await receive():
        for start in range(0, len(data), SLICE):
            for piece in frames.feed(data[start : start + SLICE]):
                yield piece
            await asyncio.sleep(0)


def parts(piece: Piece) -> tuple[bytes, ...]:
    """Return the parts of a whole frame. Raises `wire.FrameError`."""
    [(_, found)] = wire.Decoder(piece.size).feed(piece.data)
    return found


def is_note(piece: Piece) -> bool:
    """Return whether a frame is an owner's note: one part alone, which begins as a note does, and data never can."""
    return piece.kind == wire.AGENT and piece.whole and piece.data[5:7] == b"\0\1" and piece.data[11:].startswith(_NOTE)


def op_of(piece: Piece) -> str | None:
    """Return which event of the agent's a whole frame is; what cannot be read is the owner's to judge."""
    try:
        return str(json.loads(parts(piece)[0])["op"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
