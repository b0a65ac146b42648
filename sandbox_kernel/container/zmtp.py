"""The protocol between ZeroMQ's sockets (ZMTP 3.0, without encryption), as the agent speaks it to its kernel.

A connection is a file in the agent's loop: there is no library to load, and no thread that each message goes through.
Cells can take the place of the kernel at the other end. Whatever comes, the agent does not wait for it, and what it
holds of it has a bound. What is not ZMTP ends a connection, and then another is tried.
Runs inside the container, where the host ships its source: standard library only, and Python 3.9 and later.
"""

from __future__ import annotations

import _socket  # what `socket` is made of, which takes longer to load
import collections
import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

READ = 1 << 16
"""Bytes that are read at once, and from which on a frame is read into memory of its own."""
AT_FIRST = 1 << 20
"""Bytes that a frame gets before as many have come: how long it says it is may be a lie."""
LONGEST, LONGEST_COMMAND = 1 << 40, 4096
"""Bytes of a frame, and of a command: who claims more is no kernel."""
MAX_PARTS = 5000
"""Parts that are kept of a message; the host takes fewer."""
MAX_WAITING = 100_000
"""Messages that wait for a kernel which takes none."""
AHEAD = 12 << 20
"""Bytes of messages that are read ahead, so that they are here if the kernel dies."""
FOR_A_PART = 64
"""Bytes that a part needs beside its own."""

MORE, LONG, COMMAND = 1, 2, 4
MECHANISM = b"NULL".ljust(20, b"\0")
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\0" + MECHANISM + bytes(32)
READY = b"\x05READY"
EVERYTHING = b"\0\x01\x01"
"""A message that subscribes to whatever there is."""
DEALER, SUB = b"DEALER", b"SUB"


class Broken(ValueError):
    """What came is not ZMTP."""


class ZmtpDecoder:
    """Turns what comes after the handshake, cut anywhere, into messages: their parts, and how many bytes they had.

    Of a message of more than `most` bytes, the rest is counted and not kept, nor is a part after `MAX_PARTS`.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = b""
        self._parts: list[Any] = []
        self._size = 0
        self._more = False
        self._skipping = 0
        self._frame: bytearray | None = None
        self._length = self._filled = 0

    def receive(self, file: int) -> list[tuple[list[Any], int]]:
        """Read once, and return the messages that are complete now.

        Raises `Broken`, EOFError at the end, and OSError. With BlockingIOError, nothing has changed.
        """
        if self._frame is None:
            data = os.read(file, READ)
            if not data:
                raise EOFError
            return self.feed(data)
        if self._filled == len(self._frame):
            begun, self._frame = self._frame, bytearray(self._length)
            self._frame[: len(begun)] = begun
        with memoryview(self._frame) as frame, frame[self._filled :] as room:
            count = os.readv(file, [room])
        if not count:
            raise EOFError
        self._filled += count
        messages: list[tuple[list[Any], int]] = []
        if self._filled == self._length:
            self._parts.append(memoryview(self._frame))
            self._frame = None
            self._end(messages)
        return messages

    def feed(self, data: bytes) -> list[tuple[list[Any], int]]:
        """Add `data` and return the messages that are complete now; not while a frame is read in place."""
        messages: list[tuple[list[Any], int]] = []
        if self._rest:
            data = self._rest + data
        at, end = min(self._skipping, len(data)), len(data)
        if self._skipping:
            self._skipping -= at
            if not self._skipping:
                self._end(messages)
        while end - at > 1:
            flags = data[at]
            if flags & LONG:
                start = at + 9
                if start > end:
                    break
                length = int.from_bytes(data[at + 1 : start], "big")
            else:
                start, length = at + 2, data[at + 1]
            if flags >= COMMAND:
                if flags & ~LONG != COMMAND or length > LONGEST_COMMAND:
                    raise Broken
                if start + length > end:
                    break
                at = start + length
                continue
            if length > LONGEST:
                raise Broken
            stop = start + length
            if stop > end and length < READ:
                break
            self._size += length
            self._more = bool(flags & MORE)
            if self._size > self._most or len(self._parts) >= MAX_PARTS:
                at = min(stop, end)
                self._skipping = stop - at
                if self._skipping:
                    break
            elif stop > end:
                self._length, self._filled = length, end - start
                self._frame = bytearray(min(length, AT_FIRST))
                self._frame[: self._filled] = data[start:]
                at = end
                break
            else:
                self._parts.append(data[start:stop])
                at = stop
            self._end(messages)
        self._rest = data[at:]
        return messages

    def _end(self, messages: list[tuple[list[Any], int]]) -> None:
        """End a frame, and with the last one its message."""
        if not self._more:
            messages.append((self._parts, self._size))
            self._parts, self._size = [], 0


class Channel:
    """One of a kernel's sockets, one for each channel: its address and its messages."""

    def __init__(self, address: Any, kind: bytes, identity: bytes, most: int, poller: Any) -> None:
        """`address` is a file's path, or a host and a port. `kind` is DEALER or SUB.

        Of a message from there, `most` bytes are kept.
        """
        self.address = address
        self.file = -1
        self.ahead = 0
        """Bytes that what came and was not taken yet needs, about."""
        self._came: collections.deque[tuple[list[Any], int]] = collections.deque()
        self._kind = kind
        self._most = most
        self._poller = poller
        self._polled = 0
        body = READY
        for name, value in ((b"Socket-Type", kind), (b"Identity", identity)):
            body += bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value
        self._ready = bytes((COMMAND, len(body))) + body
        self._waiting: collections.deque[Sequence[Any]] = collections.deque()
        self._begin()

    def _begin(self) -> None:
        self._decoder = ZmtpDecoder(self._most)
        self._said = b""
        self._greeted = self._shaken = self._open = False
        self._out: list[memoryview] = []
        self._sending = False

    # --- the connection ---

    def connect(self) -> bool:
        """Try to connect if that is not done yet; return whether it is."""
        if self.file < 0:
            try:
                family = _socket.AF_UNIX if isinstance(self.address, str) else _socket.AF_INET
                end = _socket.socket(family, _socket.SOCK_STREAM)
            except OSError:
                return False  # the system has no room for it, which a cell may have taken
            try:
                end.setblocking(False)
                end.connect(self.address)
            except BlockingIOError:
                if family == _socket.AF_UNIX:  # the kernel has more waiting than it takes
                    end.close()
                    return False
            except OSError:
                end.close()
                return False
            self.file = end.detach()
            self._begin()
            self._out.append(memoryview(GREETING))
            self.flush()
        return True

    def close(self) -> None:
        """Let go of the connection; what waits for the kernel waits for the next."""
        if self.file >= 0:
            if self._polled:
                self._poller.unregister(self.file)
            os.close(self.file)
            self.file, self._polled = -1, 0

    def _poll(self) -> None:
        """Ask for what can be acted on; for nothing at all where that is nothing, for an end would be told again."""
        mask = (select.POLLIN if self.ahead < AHEAD else 0) | (select.POLLOUT if self._out else 0)
        if mask != self._polled and self.file >= 0:
            if mask:
                self._poller.register(self.file, mask)  # or changes what is asked for
            else:
                self._poller.unregister(self.file)
            self._polled = mask

    # --- to the kernel ---

    def send(self, parts: Sequence[bytes]) -> bool:
        """Send a message now, or when that can be; return False, and do nothing, if too many wait."""
        if len(self._waiting) >= MAX_WAITING:
            return False
        self._waiting.append(encode(parts))
        self.flush()
        return True

    def flush(self) -> None:
        """Write what can be written. A closed reader is reported after all earlier messages were read."""
        while self._next():
            try:
                count = os.writev(self.file, self._out[:64])
            except BlockingIOError:
                break
            except OSError:
                self._out, self._open = [], False
                break
            while self._out and count >= len(self._out[0]):
                count -= len(self._out.pop(0))
            if count:
                self._out[0] = self._out[0][count:]
        self._poll()

    def _next(self) -> bool:
        """Have something to write; return whether there is something. A message waits until all of it is written."""
        if not self._out and self._open:
            if self._sending:
                self._waiting.popleft()
            self._sending = bool(self._waiting)
            if self._sending:
                self._out = [memoryview(piece) for piece in self._waiting[0]]
        return bool(self._out)

    # --- from the kernel ---

    def receive(self) -> bool:
        """Read once; return whether something came. The end closes the connection."""
        try:
            messages = self._decoder.receive(self.file) if self._shaken else self._shake_hands()
        except BlockingIOError:
            return False
        except (Broken, EOFError, OSError):
            self.close()
            return False
        for message in messages:
            self._came.append(message)
            self.ahead += message[1] + FOR_A_PART * (len(message[0]) + 2)
        self._poll()
        return True

    def _shake_hands(self) -> list[tuple[list[Any], int]]:
        """Read once of the greeting and the command that come first, and answer each; what follows is messages."""
        data = os.read(self.file, READ)
        if not data:
            raise EOFError
        said = self._said + data
        if not self._greeted and len(said) >= len(GREETING):
            if said[0] != GREETING[0] or not said[9] & 1 or said[10] < GREETING[10] or said[12:32] != MECHANISM:
                raise Broken
            self._greeted, said = True, said[len(GREETING) :]
            self._out.append(memoryview(self._ready))
        if self._greeted and len(said) > 1:
            start = 9 if said[0] & LONG else 2
            stop = start + int.from_bytes(said[1:start], "big")
            if said[0] & ~LONG != COMMAND or (len(said) >= start and stop - start > LONGEST_COMMAND):
                raise Broken
            if len(said) >= max(start, stop):
                if not said.startswith(READY, start):
                    raise Broken
                self._shaken = self._open = True
                if self._kind == SUB:
                    self._out.append(memoryview(EVERYTHING))
                said, data = b"", said[stop:]
        self._said = said
        self.flush()
        return self._decoder.feed(data) if self._shaken else []

    def take(self) -> tuple[list[Any], int] | None:
        """Return the next message as its parts and how many bytes it had, or None."""
        if not self._came:
            return None
        message = self._came.popleft()
        self.ahead -= message[1] + FOR_A_PART * (len(message[0]) + 2)
        if not self._polled & select.POLLIN:
            self._poll()
        return message


def encode(parts: Sequence[bytes]) -> list[bytes]:
    """Return a message as what to write one after another; large parts are not copied."""
    pieces: list[bytes] = []
    small: list[bytes] = []
    for left, part in zip(range(len(parts) - 1, -1, -1), parts):  # noqa: B905 (Python 3.9 has no strict)
        more, length = MORE if left else 0, len(part)
        small.append(bytes((more, length)) if length < 256 else bytes((more | LONG,)) + length.to_bytes(8, "big"))
        if length < READ:
            small.append(part)
        else:
            pieces += [b"".join(small), part]
            small = []
    return [*pieces, b"".join(small)] if small else pieces
