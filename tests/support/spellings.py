"""Ways in which a server may write a value, written for reading: none of it asks the product how it looks for one."""

from __future__ import annotations

import base64
import html
import json
import quopri
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


def _between(sign: str) -> Spelling:
    return Spelling(lambda value: sign.join(value.decode()).encode(), lambda text: text.replace(sign.encode(), b""))


def _apart(sign: bytes, write: Callable[[bytes], bytes] = bytes) -> Callable[[bytes], bytes]:
    return lambda value: sign.join(write(value[at : at + 1]) for at in range(len(value)))


def _every_second(text: bytes) -> bytes:
    return text[::2]


def _dump(value: bytes, hidden: str = r"(?!)") -> bytes:
    """Return what xxd writes; points stand for what is hidden."""
    lines = []
    for at in range(0, len(value), 16):
        part = value[at : at + 16]
        lines.append(f"{at:08x}: {part.hex(' ', -2):<39}  {re.sub(hidden, '.', part.decode())}\n")
    return "".join(lines).encode()


def _dump_in_columns(value: bytes) -> bytes:
    """Return what hexdump -C writes."""
    lines = []
    for at in range(0, len(value), 16):
        part = value[at : at + 16]
        numbers = f"{part[:8].hex(' '):<23}  {part[8:].hex(' '):<23}"
        lines.append(f"{at:08x}  {numbers}  |{part.decode()}|\n")
    return "".join(lines).encode()


def _numbers_of_dump(text: bytes) -> bytes:
    """Return what the middle column of either dump says."""
    return bytes.fromhex(
        "".join(line[10:59].split("  |")[0][: 49 if "|" in line else 39] for line in text.decode().splitlines())
    )


def _texts_of_dump(text: bytes) -> bytes:
    """Return what the last column of xxd says."""
    return b"".join(line[51:] for line in text.splitlines())


def _texts_of_columns(text: bytes) -> bytes:
    """Return what the last column of hexdump -C says."""
    return b"".join(line[61:-1] for line in text.splitlines())


def _full(value: bytes) -> bytes:
    return "".join(chr(char + 0xFEE0) if char > 0x20 else "\u3000" for char in value).encode()


def _narrow(text: bytes) -> bytes:
    return "".join(chr(ord(char) - 0xFEE0) if char != "\u3000" else " " for char in text.decode()).encode()


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
    "backwards": Spelling(lambda value: value[::-1], lambda text: text[::-1]),
    "base32": Spelling(base64.b32encode, base64.b32decode),
    "base32 behind two bytes": Spelling(
        lambda value: base64.b32encode(b"us" + value + b"er"), lambda text: base64.b32decode(text)[2:-2]
    ),
    "base32 in small letters behind four bytes": Spelling(
        lambda value: base64.b32encode(b"user" + value).lower(), lambda text: base64.b32decode(text.upper())[4:]
    ),
    "base32 behind one byte": Spelling(
        lambda value: base64.b32encode(b"u" + value + b"r"), lambda text: base64.b32decode(text)[1:-1]
    ),
    "base32 behind three bytes": Spelling(
        lambda value: base64.b32encode(b"use" + value + b"r"), lambda text: base64.b32decode(text)[3:-1]
    ),
    "quoted-printable": Spelling(quopri.encodestring, quopri.decodestring),
    "quoted-printable all": Spelling(_each("={:02X}"), quopri.decodestring),
    "quoted-printable in lines": Spelling(
        lambda value: b"=\n".join(value[at : at + 3].replace(b"=", b"=3D") for at in range(0, len(value), 3)),
        quopri.decodestring,
    ),
    "a list of characters": Spelling(
        lambda value: json.dumps(list(value.decode())).encode(), lambda text: "".join(json.loads(text)).encode()
    ),
    "a list of characters in lines": Spelling(
        lambda value: json.dumps(list(value.decode()), indent=2).encode(),
        lambda text: "".join(json.loads(text)).encode(),
    ),
    "a list of bytes in hexadecimal": Spelling(
        lambda value: json.dumps([f"{char:02x}" for char in value]).encode(),
        lambda text: bytes.fromhex("".join(json.loads(text))),
    ),
    "a list of Python": Spelling(
        lambda value: repr(list(value.decode())).encode(), lambda text: "".join(literal_eval(text.decode())).encode()
    ),
    "spaces between": Spelling(_apart(b" "), _every_second),
    "points between": Spelling(_apart(b"."), _every_second),
    "each on a line": Spelling(_apart(b"\n"), _every_second),
    "characters of no width between": _between("\u200b"),
    "characters of no width between in JSON": Spelling(
        lambda value: _dumped("\u200d".join(value.decode()).encode()),
        lambda text: _json(text).replace("\u200d".encode(), b""),
    ),
    "soft hyphens of HTML between": Spelling(
        _apart(b"&shy;", _html), lambda text: _unhtml(text).replace("\xad".encode(), b"")
    ),
    "tags between": Spelling(_apart(b"<wbr>", _html), lambda text: _unhtml(text.replace(b"<wbr>", b""))),
    "each in tags": Spelling(
        _apart(b"", lambda char: b"<b>%b</b>" % _html(char)), lambda text: _unhtml(re.sub(b"</?b>", b"", text))
    ),
    "a dump of xxd": Spelling(_dump, _numbers_of_dump),
    "a dump of xxd in JSON": Spelling(
        lambda value: _dumped(_dump(b"." * 7 + value, hidden=r"\W")), lambda text: _numbers_of_dump(_json(text))[7:]
    ),
    "the text of a dump of xxd": Spelling(lambda value: _dump(b"-" * 9 + value), lambda text: _texts_of_dump(text)[9:]),
    "a dump of hexdump": Spelling(
        lambda value: _dump_in_columns(b"-" * 5 + value), lambda text: _numbers_of_dump(text)[5:]
    ),
    "the text of a dump of hexdump": Spelling(
        lambda value: _dump_in_columns(b"-" * 3 + value), lambda text: _texts_of_columns(text)[3:]
    ),
    "in full width": Spelling(_full, _narrow),
    "in full width in JSON": Spelling(lambda value: _dumped(_full(value)), lambda text: _narrow(_json(text))),
}
