"""Codings as servers write them and as cells read them back, to be put one over the other.

Written for reading: none of it asks the product how it reads one.
"""

from __future__ import annotations

import base64
import html
import json
import quopri
import re
import urllib.parse
from collections.abc import Callable
from typing import NamedTuple

Text = Callable[[bytes], bytes]


Example = tuple[tuple[str, ...], bytes, bytes, bytes]
"""Codings, the innermost first; a value; and what stands before it and behind it, in each of them."""


class Coding(NamedTuple):
    """How a server writes a text, and how a cell reads it back."""

    write: Text
    read: Text


def _each(form: str) -> Text:
    return lambda text: "".join(form.format(char) for char in text).encode()


def _characters(pattern: str, base: int) -> Text:
    return lambda text: re.sub(
        pattern, lambda match: chr(int(match[1], base)), text.decode("latin-1"), flags=re.IGNORECASE
    ).encode("latin-1")


def _padded(text: bytes, group: int) -> bytes:
    return text + b"=" * (-len(text) % group)


def _in_lines(length: int, end: bytes) -> Text:
    def write(text: bytes) -> bytes:
        digits = base64.b64encode(text)
        return end.join(digits[at : at + length] for at in range(0, len(digits), length))

    return write


def _jwt(text: bytes) -> bytes:
    parts = (
        b'{"alg":"HS256","typ":"JWT"}',
        json.dumps({"sub": "me", "key": text.decode("latin-1"), "iat": 1}).encode(),
    )
    return b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts) + b".c2lnbmF0dXJl"


def _of_jwt(text: bytes) -> bytes:
    return json.loads(base64.urlsafe_b64decode(_padded(text.split(b".")[1], 4)))["key"].encode("latin-1")


CODINGS = {
    "percent": Coding(
        lambda text: urllib.parse.quote_from_bytes(text, safe="").encode(), urllib.parse.unquote_to_bytes
    ),
    "percent all": Coding(_each("%{:02X}"), urllib.parse.unquote_to_bytes),
    "JSON": Coding(
        lambda text: json.dumps(text.decode("latin-1")).encode(), lambda text: json.loads(text).encode("latin-1")
    ),
    "\\u": Coding(_each("\\u{:04x}"), _characters(r"\\u([0-9a-f]{4})", 16)),
    "\\u{}": Coding(_each("\\u{{{:X}}}"), _characters(r"\\u\{([0-9a-f]+)\}", 16)),
    "\\x": Coding(_each("\\x{:02x}"), _characters(r"\\x([0-9a-f]{2})", 16)),
    "octal": Coding(_each("\\{:03o}"), _characters(r"\\([0-7]{3})", 8)),
    "HTML": Coding(
        lambda text: html.escape(text.decode("latin-1")).encode("latin-1"),
        lambda text: html.unescape(text.decode("latin-1")).encode("latin-1"),
    ),
    "HTML decimal": Coding(_each("&#{};"), _characters(r"&#([0-9]+);", 10)),
    "HTML hexadecimal": Coding(_each("&#x{:X};"), _characters(r"&#x([0-9a-f]+);", 16)),
    "quoted-printable": Coding(quopri.encodestring, quopri.decodestring),
    "quoted-printable all": Coding(_each("={:02X}"), quopri.decodestring),
    "hexadecimal": Coding(lambda text: text.hex().encode(), lambda text: bytes.fromhex(text.decode())),
    "large hexadecimal": Coding(lambda text: text.hex(" ").upper().encode(), lambda text: bytes.fromhex(text.decode())),
    "base32": Coding(base64.b32encode, lambda text: base64.b32decode(_padded(text, 8))),
    "base64": Coding(base64.b64encode, base64.b64decode),
    "base64 of addresses": Coding(
        lambda text: base64.urlsafe_b64encode(text).rstrip(b"="),
        lambda text: base64.urlsafe_b64decode(_padded(text, 4)),
    ),
    "base64 in lines": Coding(_in_lines(20, b"\n"), base64.b64decode),
    "base64 in lines of a mail": Coding(_in_lines(76, b"\r\n"), base64.b64decode),
    "UTF-16": Coding(
        lambda text: text.decode("latin-1").encode("utf-16-le"), lambda text: text.decode("utf-16-le").encode("latin-1")
    ),
    "a JWT": Coding(_jwt, _of_jwt),
}
UNREADABLE = (ValueError, KeyError, IndexError, TypeError, AttributeError)


def written(names: tuple[str, ...], value: bytes, before: bytes, after: bytes) -> bytes:
    """Return a value in codings, the innermost first, with neighbours in each of them."""
    for name in names:
        value = CODINGS[name].write(before + value + after)
    return value


def is_read(names: tuple[str, ...], text: bytes, value: bytes, before: bytes, after: bytes) -> bool:
    """Return whether a cell reads the value by undoing the codings."""
    try:
        for name in reversed(names):
            text = CODINGS[name].read(text).removeprefix(before).removesuffix(after)
    except UNREADABLE:
        return False
    return value.lower() in text.lower()
