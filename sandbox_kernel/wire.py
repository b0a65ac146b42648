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

SHELL, CONTROL, STDIN, IOPUB, AGENT = 1, 2, 3, 4, 5
"""Frame kinds: the four channels of a kernel, then commands to and events from the agent itself.

The parts of a channel frame are header, parent header, metadata and content as JSON, then the binary buffers.
The parts of an agent frame are one JSON object with an "op", then raw data.
"""

KINDS = frozenset((SHELL, CONTROL, STDIN, IOPUB, AGENT))
CHANNELS = {"shell": SHELL, "control": CONTROL, "stdin": STDIN, "iopub": IOPUB}

MAX_PARTS = 4096
"""No honest message carries more parts; ipywidgets sends one buffer an array."""

_LARGE = 1 << 20
_SIZE = struct.Struct("!I")
_HEAD = struct.Struct("!BH")


class FrameError(ValueError):
    """The bytes are not a frame of this wire; nothing after them can be read either."""


def encode(kind: int, parts: list[bytes] | tuple[bytes, ...]) -> list[bytes]:
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

    def __init__(self, max_frame: int) -> None:
        self.max_frame = max_frame
        self._buffer = bytearray()
        self._missing = 0
        self._broken: str | None = None

    @property
    def pending(self) -> bytes:
        """The bytes of a frame that has not arrived in full."""
        return bytes(self._buffer)

    def feed(self, data: bytes) -> list[tuple[int, tuple[bytes, ...]]]:
        """Add `data` and return the frames that are now complete, each as (kind, parts)."""
        if self._broken is not None:
            raise FrameError(self._broken)
        try:
            return self._feed(data)
        except FrameError as error:
            self._broken = str(error)
            self._buffer, self._missing = bytearray(), 0
            raise

    def _feed(self, data: bytes) -> list[tuple[int, tuple[bytes, ...]]]:
        if len(data) < self._missing:
            # The middle of a frame: nothing to look at.
            self._missing -= len(data)
            self._buffer += data
            return []
        self._buffer += data
        self._missing = 0
        frames = []
        start = 0
        while True:
            size = self._size(start)
            if size is None:
                break
            end = start + _SIZE.size + size
            if len(self._buffer) < end:
                self._missing = end - len(self._buffer)
                break
            frames.append(self._parse(start + _SIZE.size, end))
            start = end if self._buffer else 0
            if not self._buffer:
                break
        if start == len(self._buffer):
            self._buffer = bytearray()
        elif start:
            del self._buffer[:start]
        return frames

    def _size(self, start: int) -> int | None:
        if len(self._buffer) - start < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self._buffer, start)
        if size < _HEAD.size:
            raise FrameError(f"a frame of {size} bytes is too short to be one")
        if size > self.max_frame:
            raise FrameError(f"a frame of {size} bytes is over the limit of {self.max_frame} bytes")
        return int(size)

    def _parse(self, start: int, end: int) -> tuple[int, tuple[bytes, ...]]:
        kind, count = _HEAD.unpack_from(self._buffer, start)
        if kind not in KINDS:
            raise FrameError(f"no frame kind {kind}")
        if count > MAX_PARTS:
            raise FrameError(f"a frame has {count} parts, at most {MAX_PARTS} are allowed")
        position = start + _HEAD.size
        if position + 4 * count > end:
            raise FrameError("a frame is shorter than its table of parts")
        lengths = struct.unpack_from(f"!{count}I", self._buffer, position)
        position += 4 * count
        if position + sum(lengths) != end:
            raise FrameError("the parts of a frame do not add up to its length")
        parts: list[bytes] = []
        with memoryview(self._buffer) as view:
            for length in lengths[:-1]:
                parts.append(bytes(view[position : position + length]))
                position += length
        if count and lengths[-1] > _LARGE and end == len(self._buffer):
            # The last part of all that is here: the buffer itself becomes the part, which saves copying 50 MB.
            rest, self._buffer = self._buffer, bytearray()
            del rest[:position]
            parts.append(rest)  # type: ignore[arg-type]
        elif count:
            with memoryview(self._buffer) as view:
                parts.append(bytes(view[position:end]))
        return kind, tuple(parts)
