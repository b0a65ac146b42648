"""Ways in which a server may write a value, written for reading: none of it asks the product how it looks for one."""

from __future__ import annotations

import base64
import html
import json
import re
import urllib.parse
from ast import literal_eval
from collections.abc import Callable
from typing import NamedTuple


class Spelling(NamedTuple):
    """How a server may write a value, and how a cell reads it back."""

    write: Callable[[bytes], bytes]
    read: Callable[[bytes], bytes]


def _each(form: str) -> Callable[[bytes], bytes]:
    return lambda value: "".join(form.format(char) for char in value).encode()


def _json(text: bytes, times: int = 1) -> bytes:
    for _ in range(times):
        text = json.loads(text).encode()
    return text


def _quoted(value: bytes) -> bytes:
    return urllib.parse.quote(value, safe="").encode()


def _dumped(value: bytes) -> bytes:
    return json.dumps(value.decode()).encode()


def _html(value: bytes) -> bytes:
    return html.escape(value.decode()).encode()


def _unhtml(text: bytes) -> bytes:
    return html.unescape(text.decode()).encode()


def _numbers(pattern: str, base: int) -> Callable[[bytes], bytes]:
    return lambda text: bytes(int(digits, base) for digits in re.findall(pattern, text.decode()))


def _encoded(name: str) -> Spelling:
    return Spelling(lambda value: value.decode().encode(name), lambda text: text.decode(name).encode())


_UNICODE = _each("\\u{:04x}")
_HEXADECIMAL = r"\\+[ux]\{?([0-9A-Fa-f]+)\}?"

SPELLINGS: dict[str, Spelling] = {
    "plain": Spelling(bytes, bytes),
    "upper case": Spelling(bytes.upper, bytes.lower),
    "lower case": Spelling(bytes.lower, bytes.lower),
    "base64": Spelling(base64.b64encode, base64.b64decode),
    "base64 behind one byte": Spelling(
        lambda value: base64.b64encode(b"u" + value + b"s"), lambda text: base64.b64decode(text)[1:-1]
    ),
    "base64 behind two bytes": Spelling(
        lambda value: base64.b64encode(b"us" + value + b"er"), lambda text: base64.b64decode(text)[2:-2]
    ),
    "base64 of a user and it": Spelling(
        lambda value: base64.b64encode(b"someone:" + value), lambda text: base64.b64decode(text)[8:]
    ),
    "base64 for addresses": Spelling(
        lambda value: base64.urlsafe_b64encode(b"\xfb\xff" + value + b"\xfb\xff"),
        lambda text: base64.urlsafe_b64decode(text)[2:-2],
    ),
    "base64 in lines": Spelling(
        lambda value: base64.encodebytes(bytes(50) + value + bytes(50)), lambda text: base64.decodebytes(text)[50:-50]
    ),
    "base64 in lines within JSON": Spelling(
        lambda value: _dumped(base64.encodebytes(bytes(51) + value)),
        lambda text: base64.decodebytes(_json(text))[51:],
    ),
    "hexadecimal": Spelling(lambda value: value.hex().encode(), lambda text: bytes.fromhex(text.decode())),
    "hexadecimal in upper case": Spelling(
        lambda value: value.hex().upper().encode(), lambda text: bytes.fromhex(text.decode())
    ),
    "hexadecimal with colons": Spelling(
        lambda value: value.hex(":").encode(), lambda text: bytes.fromhex(text.decode().replace(":", ""))
    ),
    "hexadecimal with spaces": Spelling(
        lambda value: value.hex(" ", 2).encode(), lambda text: bytes.fromhex(text.decode())
    ),
    "percent": Spelling(_quoted, urllib.parse.unquote_to_bytes),
    "percent twice": Spelling(
        lambda value: _quoted(_quoted(value)),
        lambda text: urllib.parse.unquote_to_bytes(urllib.parse.unquote_to_bytes(text)),
    ),
    "percent all": Spelling(_each("%{:02x}"), urllib.parse.unquote_to_bytes),
    "JSON": Spelling(_dumped, _json),
    "JSON with slashes": Spelling(lambda value: _dumped(value).replace(b"/", b"\\/"), _json),
    "JSON in JSON": Spelling(lambda value: _dumped(_dumped(value)), lambda text: _json(text, 2)),
    "JSON in JSON in JSON": Spelling(lambda value: _dumped(_dumped(_dumped(value))), lambda text: _json(text, 3)),
    "unicode escapes": Spelling(_UNICODE, _numbers(_HEXADECIMAL, 16)),
    "unicode escapes in upper case": Spelling(_each("\\u{:04X}"), _numbers(_HEXADECIMAL, 16)),
    "unicode escapes of ECMAScript": Spelling(_each("\\u{{{:x}}}"), _numbers(_HEXADECIMAL, 16)),
    "unicode escapes within JSON": Spelling(lambda value: _dumped(_UNICODE(value)), _numbers(_HEXADECIMAL, 16)),
    "escapes of C": Spelling(_each("\\x{:02x}"), _numbers(_HEXADECIMAL, 16)),
    "HTML": Spelling(_html, _unhtml),
    "HTML twice": Spelling(lambda value: _html(_html(value)), lambda text: _unhtml(_unhtml(text))),
    "HTML in JSON": Spelling(lambda value: _dumped(_html(value)), lambda text: _unhtml(_json(text))),
    "numbers of HTML": Spelling(_each("&#{};"), _unhtml),
    "hexadecimal numbers of HTML": Spelling(_each("&#x{:04X};"), _unhtml),
    "numbers of HTML without a semicolon": Spelling(_each("&#{:07}"), _numbers("&#([0-9]{7})", 10)),
    "percent in JSON": Spelling(
        lambda value: _dumped(_quoted(value) + b'"'), lambda text: urllib.parse.unquote_to_bytes(_json(text)[:-1])
    ),
    "UTF-16": Spelling(
        lambda value: value.decode().encode("utf-16-le"), lambda text: text.decode("utf-16-le").encode()
    ),
    "UTF-16 the other way": Spelling(
        lambda value: value.decode().encode("utf-16-be"), lambda text: text.decode("utf-16-be").encode()
    ),
    "UTF-32": Spelling(
        lambda value: value.decode().encode("utf-32-le"), lambda text: text.decode("utf-32-le").encode()
    ),
    "repr": Spelling(lambda value: repr(value).encode(), lambda text: literal_eval(text.decode())),
    "base64 of base64": Spelling(
        lambda value: base64.b64encode(base64.b64encode(b"us:" + value)),
        lambda text: base64.b64decode(base64.b64decode(text))[3:],
    ),
    "base64 of a header with base64": Spelling(
        lambda value: base64.b64encode(b"x: Basic " + base64.b64encode(b"a:" + value + b"b")),
        lambda text: base64.b64decode(base64.b64decode(text)[9:])[2:-1],
    ),
    "base64 of hexadecimal": Spelling(
        lambda value: base64.b64encode(b"=" + value.hex().encode()),
        lambda text: bytes.fromhex(base64.b64decode(text)[1:].decode()),
    ),
    "hexadecimal of base64": Spelling(
        lambda value: base64.b64encode(b":" + value).hex().encode(),
        lambda text: base64.b64decode(bytes.fromhex(text.decode()))[1:],
    ),
    "base64 of UTF-16": Spelling(
        lambda value: base64.b64encode(value.decode().encode("utf-16")),
        lambda text: base64.b64decode(text).decode("utf-16").encode(),
    ),
    "hexadecimal of UTF-16": Spelling(
        lambda value: value.decode().encode("utf-16-be").hex().encode(),
        lambda text: bytes.fromhex(text.decode()).decode("utf-16-be").encode(),
    ),
    "numbers": Spelling(lambda value: json.dumps(list(value)).encode(), lambda text: bytes(json.loads(text))),
    "numbers in lines": Spelling(
        lambda value: json.dumps(list(value), indent=1).encode(), lambda text: bytes(json.loads(text))
    ),
    "numbers of C": Spelling(lambda value: ", ".join(map(hex, value)).encode(), _numbers("0x([0-9a-f]{2})", 16)),
    "octal escapes": Spelling(_each("\\{:03o}"), _numbers(r"\\([0-7]{3})", 8)),
}
