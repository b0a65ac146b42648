"""Raster images: their type, and how many pixels their headers claim.

A file of a few kilobytes may claim a hundred million pixels, and a viewer allocates all of them.

Public: plugins may import it.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct

from .allowance import Allowance

MAX_PIXELS = 100_000_000
"""Of one image, and of all images of one output together: 400 MB of a browser's memory."""

PIXELS_OF_AN_ELEMENT = 15_000
"""Pixels that count as an element of a page: seven images of the most pixels fill it."""

MAGIC = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\n\r"
_END = 100
"""Characters in which base64 that is filled up comes to its end: signs, and ends of lines."""
_NO_ENDS = {ord("\n"): None, ord("\r"): None}
_HEAD = 1 << 16
"""Characters of base64 that are decoded first: most headers are in there."""
_NO_SIZE = frozenset((0xC4, 0xC8, 0xCC))
"""Markers between those of JPEG frames that are none."""
_ALONE = frozenset((0x01, *range(0xD0, 0xD9)))


def work(pixels: int) -> int:
    """Return how many elements of a page so many pixels count as."""
    return pixels // PIXELS_OF_AN_ELEMENT


def bears(left: Allowance, text: str) -> bool:
    """Return whether an image in base64 is one, and within what is left of an output; it is charged then."""
    found = pixels(text)
    return found is not None and left.bears(work(found), bytes=4 * found)


def image_type(start: bytes) -> str | None:
    """Return the type of an image by its first bytes, None if it is none that may be shown."""
    return next((name for name, magic in MAGIC.items() if magic.match(start)), None)


def pixels(text: str, kind: str | None = None) -> int | None:
    """Return how many pixels an image in base64 claims, None if it is no image, or not one of the type `kind`.

    It is decoded by others to its end, as by exports of notebooks, which fail at base64 that does not come out even.
    No header that a browser would believe, no pixels: 0.
    """
    try:
        # Piece by piece: an image of 90 MB is not copied twice, as a message may cost three times its size.
        pieces = (text[start : start + _HEAD] for start in range(0, len(text), _HEAD))
        if any(piece.encode("ascii").translate(None, _BASE64) for piece in pieces) or not _is_whole(text):
            return None
        head = text[:_HEAD].encode("ascii").translate(None, b"\r\n")
        data = base64.b64decode(head[: len(head) // 4 * 4])
        found = image_type(data)
        if found is None or (kind and found != kind):
            return None
        size = _size(found, data, whole=len(text) <= _HEAD)
        if size is None and len(text) > _HEAD:
            size = _size(found, base64.b64decode(text))  # ends of lines are passed over
    except (UnicodeEncodeError, binascii.Error):
        return None
    return size[0] * size[1] if size else 0


def _is_whole(text: str) -> bool:
    """Return whether base64, ends of lines aside, comes in fours, and is filled up at its end alone."""
    filled = text.find("=")
    rest = text[filled : filled + _END] if filled >= 0 else ""
    ends_well = filled < 0 or (filled + _END > len(text) and rest.translate(_NO_ENDS) in ("=", "=="))
    return ends_well and (len(text) - text.count("\n") - text.count("\r")) % 4 == 0


def claimed(data: bytes) -> int | None:
    """Return how many pixels the bytes of an image claim, None if they are none of the types here, nor BMP."""
    if data.startswith(b"BM") and len(data) >= 26:
        old = data[14:18] == b"\x0c\0\0\0"
        width, height = struct.unpack("<hh", data[18:22]) if old else struct.unpack("<ii", data[18:26])
        return abs(int(width) * int(height))
    found = image_type(data)
    size = _size(found, data) if found else None
    return (size[0] * size[1] if size else 0) if found else None


def _size(kind: str, data: bytes, *, whole: bool = True) -> tuple[int, int] | None:
    """Return width and height, None if they are not in what there is: the `whole` image, or its beginning."""
    try:
        if kind == "image/png":
            return struct.unpack(">II", data[16:24])
        if kind == "image/gif":
            return _gif(data, whole=whole)
        if kind == "image/webp":
            return _webp(data)
        return _jpeg(data)
    except (struct.error, IndexError):
        return None


def _gif(data: bytes, *, whole: bool) -> tuple[int, int] | None:
    """Return the larger of the screen and its first image: browsers grow the one for the other.

    None if that image is beyond the end of what is not `whole`.
    """
    width, height, flags = struct.unpack("<HHB", data[6:11])
    position = 13 + (3 << ((flags & 7) + 1) if flags & 0x80 else 0)
    while position + 9 < len(data) and data[position] == 0x21:
        position += 2
        while data[position]:
            position += data[position] + 1
        position += 1
    if position + 9 >= len(data) and not whole:
        return None
    if position + 9 < len(data) and data[position] == 0x2C:
        inner = struct.unpack("<HH", data[position + 5 : position + 9])
        width, height = max(width, inner[0]), max(height, inner[1])
    return width, height


def _webp(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", data[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    """Return the size in the first frame, found as decoders find it: what is between segments is skipped."""
    position = 2
    while (position := data.find(b"\xff", position)) >= 0:
        while data[position] == 0xFF:
            position += 1
        marker = data[position]
        position += 1
        if marker == 0 or marker in _ALONE:
            continue
        if 0xC0 <= marker <= 0xCF and marker not in _NO_SIZE:
            height, width = struct.unpack(">HH", data[position + 3 : position + 7])
            return width, height
        position += int(struct.unpack(">H", data[position : position + 2])[0])
    return None
