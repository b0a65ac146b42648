"""The framing on scripted bytes: whole frames come out of any cut, and lies are refused before they cost anything."""

from __future__ import annotations

import io
import struct
import tracemalloc
from itertools import cycle, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.container import wire
from tests.support.cases import each

LIMIT = 1 << 16

frames = st.lists(st.tuples(st.sampled_from(sorted(wire.KINDS)), st.lists(st.binary(max_size=300), max_size=8)))


def raw(size: int, kind: int, lengths: list[int], body: bytes) -> bytes:
    """Return a frame that claims whatever it is told to."""
    return struct.pack(f"!IBH{len(lengths)}I", size, kind, len(lengths), *lengths) + body


@given(frames, st.lists(st.integers(min_value=0, max_value=5000)))
def test_frames_come_out_as_they_went_in_wherever_the_stream_is_cut(
    sent: list[tuple[int, list[bytes]]], cuts: list[int]
) -> None:
    stream = b"".join(b"".join(wire.encode(kind, parts)) for kind, parts in sent)
    decoder = wire.Decoder(LIMIT)
    received = []
    for start, end in pairwise([0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]):
        received += decoder.feed(stream[start:end])
    assert received == [(kind, tuple(parts)) for kind, parts in sent]
    assert decoder.pending == b""


@pytest.mark.parametrize("step", [100_000, 1 << 20, 10 << 20])
@pytest.mark.parametrize("size", [(1 << 20), (1 << 20) + 1, 3 << 20])
def test_a_large_frame_is_not_copied_and_what_follows_it_is_whole(size: int, step: int) -> None:
    sent = [(wire.SHELL, (b"before",)), (wire.IOPUB, (b"head", bytes(size))), (wire.SHELL, (b"after", b""))]
    stream = b"".join(b"".join(wire.encode(kind, parts)) for kind, parts in sent)
    decoder, received, position = wire.Decoder(8 << 20), [], 0
    while position < len(stream):
        assert 1 <= decoder.missing <= len(stream) - position
        received += decoder.feed(stream[position : position + step])
        position += step
    assert received == sent
    assert decoder.pending == b""
    assert decoder.missing == 1


@given(frames, st.lists(st.integers(min_value=1, max_value=700), min_size=1), st.integers(min_value=1, max_value=400))
def test_frames_that_are_read_in_place_are_those_that_were_sent(
    sent: list[tuple[int, list[bytes]]], cuts: list[int], spare: int
) -> None:
    stream = io.BytesIO(b"".join(b"".join(wire.encode(kind, parts)) for kind, parts in sent))
    size, position = len(stream.getvalue()), 0
    decoder, received, turns = wire.Decoder(LIMIT, 20), [], cycle(cuts)

    def read(rooms: list[memoryview]) -> int:
        some = io.BytesIO(stream.read(min(next(turns), sum(map(len, rooms)))))
        return sum(some.readinto(room) for room in rooms)

    while position < size:
        count, found = decoder.receive(read, memoryview(bytearray(spare)))
        received += found
        position += count
    assert received == [(kind, tuple(parts)) for kind, parts in sent]
    assert decoder.pending == b""


def test_a_read_that_fails_or_finds_the_end_leaves_the_frame_as_it_was() -> None:
    stream, spare = b"".join(wire.encode(wire.STREAM, [b"head", bytes(range(200))])), memoryview(bytearray(10))

    def nothing(rooms: list[memoryview]) -> int:
        raise BlockingIOError

    decoder = wire.Decoder(LIMIT, 20)
    for begun in (stream[:3], stream[3:100]):
        assert decoder.feed(begun) == []
        with pytest.raises(BlockingIOError):
            decoder.receive(nothing, spare)
        assert decoder.receive(lambda rooms: 0, spare) == (0, [])
    assert decoder.pending == stream[:100]
    ((_, parts),) = decoder.feed(stream[100:])
    assert parts == (b"head", bytes(range(200)))


def test_a_lie_that_is_read_in_place_breaks_the_stream_for_good() -> None:
    decoder, lie = wire.Decoder(LIMIT), raw(15, wire.STREAM, [9, 9], b"abcd")
    assert decoder.feed(lie[:9]) == []

    def read(rooms: list[memoryview]) -> int:
        rooms[0][:] = lie[9:]
        return len(lie) - 9

    for _ in range(2):
        with pytest.raises(wire.FrameError, match="do not add up"):
            decoder.receive(read, memoryview(bytearray(10)))


@given(st.binary(max_size=2000), st.integers(min_value=1, max_value=2000))
def test_any_bytes_are_frames_or_an_error_and_the_cut_does_not_matter(data: bytes, step: int) -> None:
    def outcome(step: int) -> tuple[list[tuple[int, tuple[bytes, ...]]], str]:
        decoder, found = wire.Decoder(LIMIT), []
        try:
            for start in range(0, len(data), step):
                found += decoder.feed(data[start : start + step])
        except wire.FrameError as error:
            return found, str(error)
        return found, f"{len(decoder.pending)} bytes wait"

    # Frames that came in the same piece as the first broken one are lost with it.
    assert outcome(step)[1] == outcome(1)[1]
    assert outcome(1)[0][: len(outcome(step)[0])] == outcome(step)[0]


@pytest.mark.parametrize("size", [LIMIT + 1, 1 << 31, 0xFFFFFFFF])
def test_a_length_over_the_limit_is_refused_after_its_four_bytes(size: int) -> None:
    decoder = wire.Decoder(LIMIT)
    assert decoder.feed(struct.pack("!I", size)[:3]) == []
    with pytest.raises(wire.FrameError, match=f"{size} bytes is over the limit of {LIMIT}"):
        decoder.feed(struct.pack("!I", size)[3:])


def test_the_largest_frame_that_is_allowed_passes() -> None:
    part = bytes(LIMIT - 3 - 4)
    (frame,) = wire.Decoder(LIMIT).feed(b"".join(wire.encode(wire.IOPUB, [part])))
    assert frame == (wire.IOPUB, (part,))


@each(
    ("data", "why"),
    [
        (raw(0, 1, [], b""), "too short"),
        (raw(2, 1, [], b""), "too short"),
        (raw(3, 0, [], b""), "no frame kind 0"),
        (raw(3, 8, [], b""), "no frame kind 8"),
        (raw(3, 255, [], b""), "no frame kind 255"),
        (struct.pack("!IBH", 3, 1, 1), "shorter than its table"),
        (struct.pack("!IBH", 3, 1, wire.MAX_PARTS), "shorter than its table"),
        (struct.pack("!IBH", 3, 1, wire.MAX_PARTS + 1), f"at most {wire.MAX_PARTS}"),
        (raw(8, 1, [2], b"x"), "do not add up"),
        (raw(8, 1, [0], b"x"), "do not add up"),
        (raw(12, 1, [0xFFFFFFFF, 2], b"x"), "do not add up"),
        (raw(11, 1, [0xFFFFFFFF, 1], b""), "do not add up"),
    ],
)
def test_a_frame_that_lies_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(wire.FrameError, match=why):
        wire.Decoder(LIMIT).feed(data)


def test_after_an_error_nothing_is_read_any_more() -> None:
    decoder = wire.Decoder(LIMIT)
    with pytest.raises(wire.FrameError) as first:
        decoder.feed(b"\xff" * 100)
    with pytest.raises(wire.FrameError) as second:
        decoder.feed(b"".join(wire.encode(wire.IOPUB, [b"honest"])))
    assert str(first.value) == str(second.value)
    assert decoder.pending == b""


def test_a_frame_that_never_ends_holds_no_more_than_the_limit() -> None:
    """The size stands at the beginning, so what comes after the frame belongs to the next one and is checked too."""
    decoder = wire.Decoder(LIMIT)
    missing = LIMIT - 7
    decoder.feed(struct.pack("!IBHI", LIMIT, wire.IOPUB, 1, missing))
    while missing > 1000:
        assert decoder.feed(bytes(1000)) == []
        missing -= 1000
        assert len(decoder.pending) <= LIMIT + 4
    with pytest.raises(wire.FrameError, match="too short"):
        decoder.feed(bytes(missing + 4))
    assert decoder.pending == b""


def test_a_promise_takes_no_room() -> None:
    tracemalloc.start()
    try:
        decoder = wire.Decoder(100 << 20)
        decoder.feed(struct.pack("!I", 100 << 20) + b"\5")
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
        assert decoder.missing == (100 << 20) - 1
        for _ in range(100):
            decoder.feed(bytes(1 << 14))
        assert tracemalloc.get_traced_memory()[1] > 100 << 20  # else this would show nothing
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", [0, 8, 256, -1])
def test_no_frame_of_an_unknown_kind_is_made(kind: int) -> None:
    with pytest.raises(wire.FrameError):
        wire.encode(kind, [b""])


def test_no_frame_with_too_many_parts_is_made() -> None:
    assert wire.encode(wire.IOPUB, [b""] * wire.MAX_PARTS)
    with pytest.raises(wire.FrameError, match="parts"):
        wire.encode(wire.IOPUB, [b""] * (wire.MAX_PARTS + 1))


def test_no_frame_over_four_gigabytes_is_made() -> None:
    part = bytes(16 << 20)
    with pytest.raises(wire.FrameError, match="32-bit"):
        wire.encode(wire.IOPUB, [part] * 256)


def test_large_parts_are_not_copied() -> None:
    part = bytes(1 << 20)
    assert wire.encode(wire.IOPUB, [part])[1] is part
