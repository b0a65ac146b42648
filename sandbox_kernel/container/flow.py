"""The frames of streams, and what one end knows of one stream: pure, the same for host and agent.

A stream is one TCP connection of a cell's. Both ends check what comes by these rules, and give each other credit: bytes
that may still be sent. An end that breaks a rule sends garbage. Nothing but the standard library and `wire`, and every
Python that ipykernel runs on: it is shipped into the container where there is a listener.

The first part of a frame says what it is, the second one of a DATA frame holds the bytes:

    u8   what it is, one of those below
    u32  number of the stream; 0 for TAKEN and ALLOW
    u32  an amount: of credit, of bytes or of streams; 0 for the others

There are three credits, each with a bound that no sum may pass. That of a stream is given back as its bytes are used,
that of the pipe as they are read off it, so that little is on its way before a message. And the host says how many
streams may be opened.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from . import wire

OPEN, DATA, CREDIT, END, RESET, TAKEN, ALLOW = range(1, 8)
"""OPEN: from the agent, with the next number. END: no more data comes. RESET: it is over both ways; it is answered with
RESET unless one was sent before. TAKEN: bytes of all streams that were read. ALLOW: from the host, streams to open."""

CHUNK = 256 << 10
"""Bytes of a DATA frame, at most; a message waits for one of them to be written."""
WINDOW = 512 << 10
"""Bytes of one stream that one end holds for a reader who does not read."""
PIPE_WINDOW = 1 << 20
"""Bytes of all streams that are on their way in the pipe, in one direction: a message waits for these at most."""
PIPE_STEP = 64 << 10
"""Bytes of these that are said to be read at once, at least: little, so that little needs to be on its way."""
MIN_COST = 256
"""What a DATA frame counts for the pipe, at least: the work of a small one is that of a large one."""
MAX_STREAMS = 128
"""Streams at once."""
LATE = 5
"""Frames that may still come of a stream that is over: credit for a window, a quarter at a time, and a RESET."""

_HEAD = struct.Struct("!BII")
_BOUNDS = {CREDIT: WINDOW, TAKEN: PIPE_WINDOW, ALLOW: MAX_STREAMS}


def frame(op: int, number: int, amount: int = 0) -> list[bytes]:
    """Return the parts of a frame without data."""
    return [_HEAD.pack(op, number, amount)]


def data_frame(number: int, data: bytes) -> list[bytes]:
    """Return the parts of a DATA frame."""
    return [_HEAD.pack(DATA, number, 0), data]


def cost(data: bytes) -> int:
    """Return the credit of the pipe that a DATA frame takes."""
    return max(len(data), MIN_COST)


def parse(parts: Sequence[bytes]) -> tuple[int, int, int, bytes]:
    """Return what a frame is, its number, its amount and its data. Raises `FrameError` for what no end sends."""
    if not 1 <= len(parts) <= 2 or len(parts[0]) != _HEAD.size:
        raise wire.FrameError("a frame of a stream has no proper head")
    op, number, amount = _HEAD.unpack(parts[0])
    if not OPEN <= op <= ALLOW:
        raise wire.FrameError("a frame of a stream is of no kind: %d" % op)
    if (number == 0) != (op >= TAKEN):
        raise wire.FrameError("a frame has the number of no stream")
    if not (1 <= amount <= _BOUNDS[op] if op in _BOUNDS else amount == 0):
        raise wire.FrameError("a frame of a stream has the amount %d" % amount)
    if (len(parts) == 2) != (op == DATA):
        raise wire.FrameError("a frame of a stream has data, or has none, where that cannot be")
    data = parts[1] if op == DATA else b""
    if op == DATA and not 1 <= len(data) <= CHUNK:
        raise wire.FrameError("a frame of a stream holds %d bytes" % len(data))
    return op, number, amount, data


class Credit:
    """What may be sent and what may come, of one stream or of the pipe."""

    __slots__ = ("may_come", "may_send", "most", "step", "unsaid")

    def __init__(self, most: int, step: int = 0) -> None:
        self.most = self.may_send = self.may_come = most
        self.step = step or most >> 2
        """Bytes that are given back at once, at least."""
        self.unsaid = 0
        """Bytes that came and need no room any more, which the other end does not know yet."""

    def spend(self, size: int) -> None:
        """Note what is sent; it is no more than `may_send`."""
        self.may_send -= size

    def came(self, size: int) -> None:
        if size > self.may_come:
            raise wire.FrameError("a stream sends more than it may")
        self.may_come -= size

    def given(self, amount: int) -> None:
        """Note what the other end gives back."""
        if self.may_send + amount > self.most:
            raise wire.FrameError("a stream is given more credit than there is")
        self.may_send += amount

    def release(self, size: int) -> int:
        """Note that bytes need no room any more; return what to give back now: `step` at least, or 0."""
        self.unsaid += size
        if self.unsaid < self.step:
            return 0
        amount, self.unsaid = self.unsaid, 0
        self.may_come += amount
        return amount


class Flow:
    """One stream at one end: what was sent, and what came."""

    __slots__ = ("credit", "end_came", "ended", "number", "reset_came", "was_reset")

    def __init__(self, number: int) -> None:
        self.number = number
        self.credit = Credit(WINDOW)
        self.ended = self.was_reset = self.end_came = self.reset_came = False

    @property
    def over(self) -> bool:
        """Whether neither end sends anything more: its number means nothing from here on."""
        return self.reset_came or (self.ended and self.end_came)

    def end(self) -> None:
        """Note that an END is sent."""
        self.ended = True

    def reset(self) -> None:
        """Note that a RESET is sent."""
        self.was_reset = True

    def take(self, op: int, amount: int, size: int) -> None:
        """Note a frame of this stream. Raises `FrameError` for one that cannot come now."""
        if op == DATA:
            if self.end_came:
                raise wire.FrameError("a stream sends data after its end")
            self.credit.came(size)
        elif op == CREDIT:
            self.credit.given(amount)
        elif op == END:
            if self.end_came:
                raise wire.FrameError("a stream ends twice")
            self.end_came = True
        elif op == RESET:
            self.reset_came = True
        else:
            raise wire.FrameError("a stream is opened twice")

    def release(self, size: int) -> int:
        """Note that bytes which came were used; return the credit to give for them now, or 0."""
        return 0 if self.end_came or self.was_reset or self.reset_came else self.credit.release(size)


class Late:
    """Frames of streams that are over: a few may cross the last word, and no more."""

    __slots__ = ("allowed",)

    def __init__(self) -> None:
        self.allowed = 0

    def over(self) -> None:
        """Note that a stream is over."""
        self.allowed += LATE

    def take(self, op: int) -> None:
        """Note a frame for a number that means nothing any more. Raises `FrameError` for one that cannot come."""
        self.allowed -= 1
        if op not in (CREDIT, RESET) or self.allowed < 0:
            raise wire.FrameError("a stream that is over goes on")
