"""What a piece of JSON will cost in memory, found before it is parsed: the parser never meets what would not fit.

The figures are those of CPython and orjson, rounded up: a value of three bytes can become a hundred in memory, and a
text with a single emoji in it four times what it was.
"""

from __future__ import annotations

from typing import Any

SMALL = 1 << 16
"""Bytes that are parsed without a look: at the very worst they become 2 MiB."""
PIECE = 1 << 20
"""Bytes looked at in one step: a piece is copied, and other threads get their turn after it."""
STRINGS = 1 << 16
"""Bytes looked at in one step where there are many strings: such a piece is cut at each quotation mark."""
FEW = 64
"""Strings up to which it is quicker to go from one quotation mark to the next."""
ROOM = 36
"""Which part of a limit is for what else the host holds just then: 8 MiB with the default settings."""

_VALUE = 96
"""Bytes of a list, an object or a string beside its characters: head, place, and the parser's own note of it."""
_PLACE = 64
"""Bytes that a comma or a colon announces: a number and its place, or an entry of an object."""
_WIDE = bytes(range(0xF0, 0x100))
"""With what UTF-8 begins a character beyond the first 65,536; JSON can also escape it, as two that begin with d."""


def heavy(data: bytes | bytearray, limit: int) -> str | None:
    """Return why `data` may not be parsed within `limit` bytes, itself and what is made of it included; None if it may.

    What is counted: the bytes twice, as the parser works on a copy; each character at the width of the widest there
    is; and what its structure comes to twice, as a filter may have to write it again. A text that is not ASCII
    is there as bytes once more when it is written, since those are kept with it. What is not a few texts of ASCII,
    which are parsed without a copy of the whole, leaves room for the pipe and the parser.
    """
    return None if len(data) <= SMALL else weigh(data, limit)[0]


def weigh(data: bytes | bytearray, limit: int) -> tuple[str | None, int]:
    """Return what `heavy` does of whatever size, and what `kept` does if there is no reason: one look for both."""
    width = _width(data)
    room = limit // ROOM
    left = limit - ((2 if width == 1 else 3) + width) * len(data)
    if left < (room if width > 1 else 0):
        return "its text would need too much memory", 0
    structure = _structure(data, left // 2)
    if width > 1 or structure > FEW * _VALUE:
        left -= room
    return "it has too many values" if 2 * structure > left else None, width * len(data) + structure


def kept(data: bytes | bytearray) -> int:
    """Return what is made of `data` may cost in bytes, for as long as it is kept."""
    return _width(data) * len(data) + _structure(data, 1 << 62)


def crowded(data: bytes | bytearray, limit: int) -> bool:
    """Return whether the lists, objects, strings and numbers of `data` cost more, beside their characters."""
    return len(data) > SMALL and _structure(data, limit) > limit


def is_deep(value: Any, most: int) -> bool:
    """Return whether JSON nests deeper than so many levels; looked at level by level."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(most):
        inside = (item for one in level for item in (one.values() if isinstance(one, dict) else one))
        if not (level := [item for item in inside if isinstance(item, (dict, list))]):
            return False
    return True


def _width(data: bytes | bytearray) -> int:
    """Return how many bytes a character may take: Python gives each of a string what its widest one needs."""
    escaped = b"\\" in data and b"\\u" in data
    if data.isascii() and not escaped:
        return 1
    if escaped and (b"\\ud" in data or b"\\uD" in data):
        return 4
    if data.isascii():
        return 2
    pieces = (data[start : start + PIECE] for start in range(0, len(data), PIECE))
    return 4 if any(len(piece.translate(None, _WIDE)) < len(piece) for piece in pieces) else 2


def _structure(data: bytes | bytearray, limit: int) -> int:
    """Return what the lists, objects, strings and numbers of `data` cost in bytes, or any number above `limit`.

    Brackets and commas within strings are text. Where the JSON is broken the count may be wrong, behind the place
    where the parser stops.
    """
    cost = position = 0
    for _ in range(FEW):
        begin = data.find(b'"', position)
        cost += _outside(data, position, len(data) if begin < 0 else begin, limit - cost)
        if begin < 0 or cost > limit:
            return cost
        end = _end_of_string(data, begin)
        if end is None:
            position = begin
            break
        cost += _VALUE
        position = end
    return cost + _piece_by_piece(data, position, limit - cost)


def _outside(data: bytes | bytearray, start: int, end: int, limit: int) -> int:
    cost = 0
    while start < end and cost <= limit:
        piece = data[start : min(end, start + PIECE)]
        cost += _cost(piece)
        start += PIECE
    return cost


def _end_of_string(data: bytes | bytearray, begin: int) -> int | None:
    """Return the position behind the string that begins at `begin`, None if there are too many escapes in the way."""
    end = begin
    for _ in range(FEW):
        end = data.find(b'"', end + 1)
        if end < 0:
            return len(data)
        before = data[max(begin + 1, end - FEW) : end]
        slashes = len(before) - len(before.rstrip(b"\\"))
        if slashes == FEW:
            return None
        if slashes % 2 == 0:
            return end + 1
    return None


def _piece_by_piece(data: bytes | bytearray, position: int, limit: int) -> int:
    """Count from a position outside of any string."""
    cost = 0
    inside = False
    while position < len(data) and cost <= limit:
        piece = data[position : position + STRINGS]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece += data[position + STRINGS : position + STRINGS + 1]  # the character that is escaped
        position += len(piece)
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        cost += _cost(b"".join(parts[inside::2])) + len(parts) // 2 * _VALUE
        inside ^= len(parts) % 2 == 0
    return cost


def _cost(outside: bytes | bytearray) -> int:
    """Return what a piece without strings costs."""
    values = len(outside) - len(outside.translate(None, b"[{"))
    places = len(outside) - len(outside.translate(None, b",:"))
    return values * _VALUE + places * _PLACE
