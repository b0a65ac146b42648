"""The wire decoder against a second one that was written for reading, not for speed."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from unittest.mock import patch

from sandbox_kernel.container import wire

from ..judge import require

LIMIT = 4096
Frame = tuple[int, tuple[bytes, ...]]


def prepared() -> AbstractContextManager[object]:
    """The shortcut for large parts is to be taken by small inputs too."""
    return patch.object(wire, "_LARGE", 48)


def run(data: bytes) -> None:
    """The first byte says how the rest is cut. It is fed, and read into a second decoder by the decoder itself."""
    step, stream = (data[0] if data else 0) or 1 << 16, data[1:]
    expected, broken, rest = reference(stream)
    decoder = wire.Decoder(LIMIT)
    received: list[Frame] = []
    failed = False
    for start in range(0, len(stream), step):
        try:
            received += [(kind, tuple(map(bytes, parts))) for kind, parts in decoder.feed(stream[start : start + step])]
        except wire.FrameError as error:
            failed = True
            require(len(str(error)) < 200, error)
            break
        require(sys.getsizeof(decoder._frame) <= LIMIT + 1000, "more room than a frame may take")  # noqa: SLF001 (what it takes is asked)
        wanted = frame_size(decoder.pending)
        require(decoder.missing == max(1, wanted - len(decoder.pending)), (decoder.missing, wanted, decoder.pending))
    require(failed == broken, (failed, broken))
    if failed:
        # Frames that came in the same piece as the first broken one are lost with it.
        require(received == expected[: len(received)], received)
        require(decoder.pending == b"", decoder.pending)
        try:
            decoder.feed(b"".join(wire.encode(wire.IOPUB, [b"honest"])))
        except wire.FrameError:
            return
        require(False, "a broken stream was read on")
    require(received == expected, (received, expected))
    require(read_into(stream, step) == received, "what is read in place is something else")
    require(decoder.pending == rest, (decoder.pending, rest))
    require(len(rest) <= LIMIT + 4, "too much is kept")
    again = b"".join(b"".join(wire.encode(kind, parts)) for kind, parts in received)
    require(again + rest == stream, "what was decoded encodes to something else")


def read_into(stream: bytes, step: int) -> list[Frame]:
    """Return the frames of a stream that a decoder reads by itself, with little room beside its own."""
    decoder, left, received = wire.Decoder(LIMIT, step % 40), memoryview(stream), []
    spare = memoryview(bytearray(1 + step % 97))

    def read(rooms: list[memoryview]) -> int:
        nonlocal left
        asked = left[:step]
        count = 0
        for room in rooms:
            piece = asked[count : count + len(room)]
            room[: len(piece)] = piece
            count += len(piece)
        left = left[count:]
        return count

    while left:
        count, frames = decoder.receive(read, spare)
        require(count > 0, "nothing is read where there is something")
        require(sys.getsizeof(decoder._frame) <= LIMIT + 1000, "more room than a frame may take")  # noqa: SLF001 (what it takes is asked)
        received += [(kind, tuple(map(bytes, parts))) for kind, parts in frames]
    return received


def frame_size(begun: bytes) -> int:
    """Return how long a frame is that begins so, with its length; 0 if that is not known."""
    return 4 + int.from_bytes(begun[:4], "big") if len(begun) >= 4 else 0


def reference(stream: bytes) -> tuple[list[Frame], bool, bytes]:
    """Return the frames of a stream, whether it is broken after them, and what is left."""
    frames: list[Frame] = []
    while len(stream) >= 4:
        size = int.from_bytes(stream[:4], "big")
        if not 3 <= size <= LIMIT:
            return frames, True, b""
        if len(stream) < 4 + size:
            break
        body, stream = stream[4 : 4 + size], stream[4 + size :]
        kind, count, table = body[0], int.from_bytes(body[1:3], "big"), body[3:]
        if kind not in (1, 2, 3, 4, 5, 6) or count > 4096 or len(table) < 4 * count:
            return frames, True, b""
        lengths = [int.from_bytes(table[4 * n : 4 * n + 4], "big") for n in range(count)]
        rest = table[4 * count :]
        if sum(lengths) != len(rest):
            return frames, True, b""
        parts = []
        for length in lengths:
            parts.append(rest[:length])
            rest = rest[length:]
        frames.append((kind, tuple(parts)))
    return frames, False, stream


def seeds() -> Iterator[bytes]:
    honest = b"".join(wire.encode(wire.IOPUB, [b"{}"] * 4)) + b"".join(
        wire.encode(wire.AGENT, [b'{"op":"ping"}', b"x"])
    )
    large = b"".join(wire.encode(wire.SHELL, [b"a", bytes(100)]))
    for step in (0, 1, 3, 7, 200):
        yield bytes([step]) + honest + large + honest[:5]
    yield b"\0" + b"".join(wire.encode(wire.CONTROL, [])) * 3
    yield b"\0" + b"".join(wire.encode(wire.STDIN, [b""] * 20))
    for size, kind, count, lengths in (
        (0xFFFFFFFF, 1, 0, []),
        (LIMIT + 1, 1, 0, []),
        (2, 1, 0, []),
        (3, 9, 0, []),
        (3, 1, 4097, []),
        (11, 1, 2, [0xFFFFFFFF, 1]),
        (8, 4, 1, [2]),
    ):
        yield b"\0" + struct.pack(f"!IBH{len(lengths)}I", size, kind, count, *lengths) + b"x"
