r"""Sounds and films: by their first bytes, of containers that hold what they play.

A browser goes by the content and not by the declared type: a playlist (`#EXTM3U`) in a blob of `video/mp4` has
Chromium load the addresses in it, Safari whatever it calls itself. So this is a list of what may be played.
"""

from __future__ import annotations

import base64
import binascii
import re

_KNOWN = re.compile(
    rb"....(?:ftyp|moov|mdat|free|skip|wide)"  # MP4, QuickTime, M4A
    rb"|\x1a\x45\xdf\xa3"  # WebM
    rb"|OggS|fLaC|RIFF....WAVE"
    rb"|\xff[\xe2-\xfb][^\n#]"  # MP3 and AAC, which are frames and nothing else
    rb"|\x00\x00\x01[\xb3\xba]",  # MPEG
    re.DOTALL,
)
_TAG = re.compile(rb"ID3[\0-\x0f][\0-\x0f]([\0-\xff])([\0-\x7f])([\0-\x7f])([\0-\x7f])([\0-\x7f])", re.DOTALL)
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_HEAD = 64
"""Bytes that tell a container."""


def is_played(data: bytes) -> bool:
    """Return whether bytes begin as a container does. Players look past a tag of MP3, so that is done here, too."""
    if tag := _TAG.match(data):
        flags, *digits = (part[0] for part in tag.groups())
        size = 0
        for digit in digits:
            size = size * 128 + digit
        data = data[10 + size + (10 if flags & 0x10 else 0) :].lstrip(b"\0")
    return _KNOWN.match(data) is not None


def is_played_text(text: str) -> bool:
    """Return whether base64, with any white space in it, is of bytes that begin as a container does."""
    try:
        raw = text.encode("ascii")
        start = raw[: _HEAD * 64].translate(None, b" \t\r\n\f")[:_HEAD]
        if start[:4] == b"SUQz":  # ID3: the sound begins behind it, and it may hold a picture
            start = raw.translate(None, b" \t\r\n\f")
        if start.translate(None, _BASE64):
            return False
        return is_played(base64.b64decode(start[: len(start) // 4 * 4]))
    except (UnicodeEncodeError, binascii.Error):
        return False
