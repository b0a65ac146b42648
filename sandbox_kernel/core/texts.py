"""JSON that is mostly long texts, parsed without a copy of the whole: the host holds it twice, and not three times.

The parser works on a copy of what it is given. So a text near the limit of a message would be there three times for a
moment: as it came, in the copy, and parsed. Imports codes and errors only.
"""

from __future__ import annotations

import secrets
from typing import Any

import orjson

from .errors import ProtocolError
from .message_codes import MessageCode

PIECE, LOOK = 1 << 18, 1 << 12
"""Bytes of a long text that are parsed at a time, and bytes of a string that is not one."""
MAX_STRINGS = 1000
"""Strings among which long texts are looked for."""


def parse(data: bytes) -> Any:
    """Parse JSON. Raises `ProtocolError` for what is none."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ProtocolError(MessageCode.NOT_JSON.note(why=error)) from None


def take(parts: list[bytes], place: int, max_bytes: int, factor: int) -> Any:
    """Parse one of `parts` within `factor` times `max_bytes` of memory; what is mostly long texts is taken out of them.

    A copy is spared where it would not leave one of those times free. Long texts of ASCII are then parsed piece by
    piece, and put where a name that nobody can know stands for them. Raises `ProtocolError` for what is no JSON, and
    for a long text that is a key, or the first of two values of one key.
    """
    data = parts[place]
    if factor * len(data) <= (factor - 1) * max_bytes or not data.isascii() or (b"\\" in data and b"\\u" in data):
        return parse(data)
    rest, found = _without_texts(data)
    if not found:
        return parse(data)
    parts[place] = data = b""
    result = [parse(rest)]
    waiting: list[Any] = [result]
    while waiting:
        inside = waiting.pop()
        for where, value in inside.items() if isinstance(inside, dict) else enumerate(inside):
            if isinstance(value, (dict, list)):
                waiting.append(value)
            elif isinstance(value, str) and value in found:
                inside[where] = "".join(found.pop(value))
    if found:
        raise ProtocolError(MessageCode.KEY_IMPROPER)
    return result[0]


def _without_texts(data: bytes) -> tuple[bytes, dict[str, list[str]]]:
    """Return JSON with names in place of its long texts, and the pieces of those by name.

    Nothing, if a quarter or more is anything else: all the rest is copied.
    """
    rest, found = bytearray(), dict[str, list[str]]()
    copied = end = 0
    for _ in range(MAX_STRINGS):
        if (begin := data.find(b'"', end)) < 0:
            break
        end, pieces = _text(data, begin + 1)
        if pieces:
            name = secrets.token_hex(16)
            found[name] = pieces
            rest += data[copied:begin] + f'"{name}"'.encode()
            copied = end
    if not found or 4 * (len(rest) + len(data) - copied) > len(data):
        return b"", {}
    return bytes(rest + data[copied:]), found


def _text(data: bytes, start: int) -> tuple[int, list[str]]:
    """Return where a string whose inside begins at `start` ends, and its pieces; none of a short one."""
    pieces: list[str] = []
    size = LOOK
    while start < len(data):
        piece = data[start : start + size]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece += data[start + size : start + size + 1]  # the character that is escaped
        end = piece.find(b'"')
        if end >= 0 and b"\\" in piece:
            end = piece.replace(b"\\\\", b"..").replace(b'\\"', b"..").find(b'"')
        if end >= 0 and not pieces:
            return start + end + 1, []
        pieces.append(parse(b'"%b"' % (piece if end < 0 else piece[:end])))
        if end >= 0:
            return start + end + 1, pieces
        start += len(piece)
        size = PIECE
    raise ProtocolError(MessageCode.NOT_JSON.note(why="a text has no end"))
