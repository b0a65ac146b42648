"""The byte pipe between host and container: length-prefixed frames, without any I/O.

Both ends use this module: the host imports it, and its source is shipped into the container with the agent. It must
therefore import nothing but the standard library, and run on every Python that ipykernel runs on.

A frame is a kind and a tuple of byte strings (its parts):

    u32  number of bytes that follow
    u8   kind
    u16  number of parts
    u32  length of each part
    ...  the parts

All numbers are big-endian. The decoder checks a length before it waits for, or makes room for, what the length
promises: a frame that claims 4 GiB is refused after its first four bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

SHELL, CONTROL, STDIN, IOPUB, AGENT, STREAM, NESTED = 1, 2, 3, 4, 5, 6, 7
"""Frame kinds: the four channels of a kernel, commands to and events from the agent itself, connections of the cells,
and the pipes of further agents.

The parts of a channel frame are header, parent header, metadata and content as JSON, then the binary buffers.
The parts of an agent frame are one JSON object with an "op", then raw data. Those of a stream's and of
a further agent's pipe are in `flow`.
"""

KINDS = frozenset((SHELL, CONTROL, STDIN, IOPUB, AGENT, STREAM, NESTED))
CHANNELS = {"shell": SHELL, "control": CONTROL, "stdin": STDIN, "iopub": IOPUB}

MAX_PARTS = 4096
"""No honest message carries more parts; ipywidgets sends one buffer an array."""

_LARGE = 1 << 20
_SIZE = struct.Struct("!I")
_HEAD = struct.Struct("!BH")


class FrameError(ValueError):
    """The bytes are not a frame of this wire; nothing after them can be read either."""


def encode(kind: int, parts: Sequence[bytes]) -> list[bytes]:
    """Return a frame as a list of byte strings to write one after another (large parts are not copied)."""
    if kind not in KINDS:
        raise FrameError(f"no frame kind {kind}")
    if len(parts) > MAX_PARTS:
        raise FrameError(f"a frame has {len(parts)} parts, at most {MAX_PARTS} are allowed")
    lengths = struct.pack(f"!{len(parts)}I", *map(len, parts))
    size = _HEAD.size + len(lengths) + sum(map(len, parts))
    if size > 0xFFFFFFFF:
        raise FrameError(f"a frame of {size} bytes does not fit its 32-bit length")
    return [_SIZE.pack(size) + _HEAD.pack(kind, len(parts)) + lengths, *parts]


class Decoder:
    """Turns a stream of bytes, cut anywhere, into frames.

    It holds at most `max_frame` bytes plus the piece fed last. After a `FrameError` the stream is lost: feeding more
    raises the same error again.
    """

    def __init__(self, max_frame: int, moved: int | None = None) -> None:
        """A last part of more than `moved` bytes is not copied where that can be; 1 MiB by default."""
        self.max_frame = max_frame
        self._moved = _LARGE if moved is None else moved
        self._head = b""
        self._frame = bytearray()
        self._filled = 0
        self._size = 0
        self._broken: str | None = None

    @property
    def pending(self) -> bytes:
        """The bytes of a frame that has not arrived in full."""
        return self._head + self._frame[: self._filled]

    @property
    def missing(self) -> int:
        """How many bytes must come before `feed` can return a frame; 1 while that is not known."""
        return max(1, self._size - self._filled)

    def feed(self, data: bytes | memoryview) -> list[tuple[int, tuple[bytes, ...]]]:
        """Add `data` and return the frames that are now complete, each as (kind, parts)."""
        if self._broken is not None:
            raise FrameError(self._broken)
        try:
            return self._feed(memoryview(data))
        except FrameError as error:
            self._broken = str(error)
            self._begin()
            raise

    def receive(
        self, read: Callable[[list[memoryview]], int], spare: memoryview
    ) -> tuple[int, list[tuple[int, tuple[bytes, ...]]]]:
        """Have `read` fill the rest of the frame that has begun, and then `spare`; both are let go of before the end.

        Returns how many bytes it said that it read, and the frames that are complete now, as `feed` does. What it
        raises leaves everything as it was.
        """
        if self._broken is not None:
            raise FrameError(self._broken)
        if not self._size:
            count = read([spare])
            return count, self.feed(spare[:count])
        self._make_room()
        with memoryview(self._frame) as room, room[self._filled :] as rest:
            count = read([rest, spare])
            filled = min(count, len(rest))
        self._filled += filled
        try:
            frames = [self._complete()] if self._filled == self._size else []
        except FrameError as error:
            self._broken = str(error)
            raise
        return count, frames + self.feed(spare[: count - filled]) if count > filled else frames

    def _feed(self, view: memoryview) -> list[tuple[int, tuple[bytes, ...]]]:
        frames = []
        while view:
            if not self._size:
                missing = _SIZE.size - len(self._head)
                self._head += view[:missing]
                if len(self._head) < _SIZE.size:
                    break
                self._size = size = self._announced()
                view = view[missing:]
                if len(view) >= size:
                    frames.append(_parse(view[:size], self._moved))
                    view = view[size:]
                    self._begin()
                    continue
                self._frame = bytearray(min(size, _LARGE))
            self._make_room()
            piece = view[: len(self._frame) - self._filled]
            view = view[len(piece) :]
            with memoryview(self._frame) as room:
                room[self._filled : self._filled + len(piece)] = piece
            self._filled += len(piece)
            if self._filled == self._size:
                frames.append(self._complete())
        return frames

    def _make_room(self) -> None:
        """Take all the room of a frame that is no mere promise: to grow with what comes costs twice as much."""
        if self._filled == len(self._frame):
            begun, self._frame = self._frame, bytearray(self._size)
            self._frame[: len(begun)] = begun

    def _complete(self) -> tuple[int, tuple[bytes, ...]]:
        frame = self._frame
        self._begin()
        return _parse(memoryview(frame), self._moved, frame)

    def _begin(self) -> None:
        self._head, self._frame, self._filled, self._size = b"", bytearray(), 0, 0

    def _announced(self) -> int:
        (size,) = _SIZE.unpack(self._head)
        if size < _HEAD.size:
            raise FrameError(f"a frame of {size} bytes is too short to be one")
        if size > self.max_frame:
            raise FrameError(f"a frame of {size} bytes is over the limit of {self.max_frame} bytes")
        return int(size)


def _parse(frame: memoryview, moved: int, buffer: bytearray | None = None) -> tuple[int, tuple[bytes, ...]]:
    """Return the kind and the parts of a whole frame, and release it; `buffer` is what it shows, if that is ours."""
    kind, count = _HEAD.unpack_from(frame)
    if kind not in KINDS:
        raise FrameError(f"no frame kind {kind}")
    if count > MAX_PARTS:
        raise FrameError(f"a frame has {count} parts, at most {MAX_PARTS} are allowed")
    position = _HEAD.size + 4 * count
    if position > len(frame):
        raise FrameError("a frame is shorter than its table of parts")
    lengths = struct.unpack_from(f"!{count}I", frame, _HEAD.size)
    if position + sum(lengths) != len(frame):
        raise FrameError("the parts of a frame do not add up to its length")
    # The buffer of a large frame becomes its last part, which saves copying 50 MB.
    last = buffer if lengths[-1:] > (moved,) else None
    parts: list[bytes] = []
    with frame:
        for length in lengths if last is None else lengths[:-1]:
            parts.append(bytes(frame[position : position + length]))
            position += length
    if last is not None:
        del last[:position]
        parts.append(last)  # type: ignore[arg-type]
    return kind, tuple(parts)
