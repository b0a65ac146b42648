"""Escapes: percent signs, backslashes, entities and their like, and what each of them is read for.

A value is also found where half an escape stands before it, which a reading takes together with its first characters.
Imports nothing of ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from html.entities import html5

_PERCENT = re.compile(rb"%(?:25)*([0-9A-Fa-f]{2})")
_BACKSLASH = re.compile(
    rb"\\+(?:u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,6})\}|x([0-9A-Fa-f]{2})|U([0-9A-Fa-f]{8})|([nrtfbv])|)", re.DOTALL
)
_ENTITY = re.compile(rb"&(?:amp;){0,3}(?:#([0-9]{1,8})|#[xX]([0-9A-Fa-f]{1,8})|([A-Za-z][A-Za-z0-9]{1,31}));?")
_QUOTED_PRINTABLE = re.compile(rb"=(?:([0-9A-Fa-f]{2})|[ \t]{0,8}\r?\n)")
_PERCENT_ONCE = re.compile(_PERCENT.pattern.replace(rb"(?:25)*", b""))
_BACKSLASH_ONCE = re.compile(_BACKSLASH.pattern.replace(rb"\\+(", rb"\\(", 1).replace(b"|)", rb"|[\\\"'/])"), re.DOTALL)
_ENTITY_ONCE = re.compile(_ENTITY.pattern.replace(b"(?:amp;){0,3}", b""))
"""The same, but for signs that are written as escapes themselves, once for each time that a text was escaped."""
_FULL_WIDTH = re.compile(rb"\xef(?:\xbc[\x81-\xbf]|\xbd[\x80-\x9e])")
_BEHIND_NUMBERS = re.compile(rb"  \|?[^\n]{1,16}\|?\r?\n0[0-9A-Fa-f]{3,7}:? {1,2}")
"""What stands between the numbers of two lines of a dump: the first line's text, and where the second one begins."""
_BEHIND_TEXT = re.compile(rb"\n0[0-9A-Fa-f]{3,7}:? {1,2}(?:[0-9A-Fa-f]{2,4} {1,2}){1,16} {0,40}\|?")
"""What stands between the texts of two lines of a dump."""
GAPS = bytes({*range(0x21), *b"\"'()[]{}<>|,;:._-\\", *range(0x7F, 0x100)})
"""What stands between the characters of a text in UTF-16, of base64 in lines, of a dump or a list, and around them.

Signs of base64 and of the other spellings are none, nor is the first of the marks that stand for a value.
"""
TAG = re.compile(rb"</?[A-Za-z][A-Za-z0-9]{0,5} ?/?>")
"""Such as <wbr>: shorter than any value, so that none is lost with it."""
_GAP = re.compile(TAG.pattern + b"|[" + re.escape(GAPS.replace(b"<", b"")) + b"]+|<")
_CONTROLS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"f": b"\f", b"b": b"\b", b"v": b"\v"}

Read = Callable[[re.Match[bytes]], bytes]


_BYTES = {f"{byte:02x}".encode(): bytes((byte,)) for byte in range(256)}


def _percent(match: re.Match[bytes]) -> bytes:
    return _BYTES[match[1].lower()]


def _quoted_printable(match: re.Match[bytes]) -> bytes:
    return _BYTES[match[1].lower()] if match[1] else b""


def _full_width(match: re.Match[bytes]) -> bytes:
    return bytes((ord(match[0].decode()) - 0xFEE0,))


def _nothing(match: re.Match[bytes]) -> bytes:
    return b""


def _character(number: int) -> bytes:
    return chr(number).encode("utf-8", "surrogatepass") if number < 0x110000 else b"?"


def _backslash(match: re.Match[bytes]) -> bytes:
    digits = match[1] or match[2] or match[3] or match[4]
    if digits:
        return _character(int(digits, 16))
    return _CONTROLS.get(match[5] or b"", b"")


def _backslash_once(match: re.Match[bytes]) -> bytes:
    return _backslash(match) if match.lastindex else match[0][1:]


def _entity(match: re.Match[bytes]) -> bytes:
    if match[1]:
        return _character(int(match[1]))
    if match[2]:
        return _character(int(match[2], 16))
    name = match[3].decode()
    known = html5.get(name + ";") or html5.get(name)
    # What is no name is read as far as it can be: the ampersand before it.
    return known.encode() if known else b"&" + match[0][match.start(3) - match.start() :]


@dataclass(frozen=True, slots=True)
class Reading:
    """One kind of escapes: how it is recognised, what it means, and the byte without which there is none."""

    pattern: re.Pattern[bytes]
    read: Read
    sign: bytes
    quick: tuple[tuple[re.Pattern[bytes], bytes], ...] = ()
    """What may be done first, with the same outcome: a function is called for what is left only."""
    worth: re.Pattern[bytes] | None = None
    """What each value that is written so holds, and other texts seldom do."""

    def of(self, text: bytes) -> bytes:
        for pattern, meaning in self.quick:
            text = pattern.sub(meaning, text)
        return self.pattern.sub(self.read, text)


READINGS = (
    Reading(_PERCENT, _percent, b"%"),
    Reading(
        _BACKSLASH,
        _backslash,
        b"\\",
        # A run is looked at from its beginning only: from each of its bytes, that would be as many steps as its square.
        ((re.compile(rb"(?<!\\)\\++(?![uxUnrtfbv])"), b""), (re.compile(rb"(?<!\\)\\++n"), b"\n")),
    ),
    Reading(_ENTITY, _entity, b"&"),
    Reading(
        _QUOTED_PRINTABLE,
        _quoted_printable,
        b"=",
        worth=re.compile(rb"=(?:3[Dd]|[0-9A-Fa-f]{2}=[0-9A-Fa-f]{2}|(?<=[ -~][ -~]=)[ \t]{0,8}\r?\n[ -~])"),
    ),
    Reading(_PERCENT_ONCE, _percent, b"%25", worth=re.compile(rb"%25[0-9A-Fa-f]")),
    Reading(_BACKSLASH_ONCE, _backslash_once, b"\\\\", worth=re.compile(rb"\\\\[uUxnrtfbv]")),
    Reading(_ENTITY_ONCE, _entity, b"&amp;", worth=re.compile(rb"&amp;[A-Za-z#]")),
    Reading(_FULL_WIDTH, _full_width, b"\xef", worth=re.compile(b"(?:" + _FULL_WIDTH.pattern + b"){2}")),
    Reading(_BEHIND_NUMBERS, _nothing, b"\n0"),
    Reading(_BEHIND_TEXT, _nothing, b"\n0"),
)
GAPLESS = Reading(_GAP, _nothing, b"")


_NAMES: dict[str, list[bytes]] = {}
for _name, _meaning in html5.items():
    if len(_meaning) == 1 and _meaning.isascii():
        _NAMES.setdefault(_meaning, []).append(_name.removesuffix(";").encode())
_HALF = rb"[%\\&=][0-9A-Za-z#{;]{0,32}?"
"""What an escape begins with, up to where a value goes on with it."""


def behind_halves(value: bytes) -> re.Pattern[bytes]:
    """Return what finds a value, its group, behind half an escape that takes its first characters for its own.

    Of these, the first stands as it is. Each of the others may be an escape of any kind.
    """
    first, *others = list(re.sub(r"\\+", r"\\", value.decode("latin-1")))
    return re.compile(_HALF + b"(" + _either(first) + b"".join(map(_spelled, others)) + b")")


def _spelled(char: str) -> bytes:
    # Backslashes are taken together, so that a run of them is not tried in every division.
    ways = [rb"\\{1,64}+" if char == "\\" else rb"\\{0,8}+" + _either(char)]
    for letter in {char.lower(), char.upper()}:
        number = ord(letter)
        digits = _any_case(b"%02x" % number)
        names = b"".join(b"|" + name for name in _NAMES.get(letter, ()))
        ways += [
            rb"%(?:25){0,8}" + digits,
            rb"=" + digits,
            rb"\\{1,8}(?:x|u00|U000000)" + digits,
            rb"\\{1,8}u\{0{0,4}" + digits + rb"\}",
            rb"&(?:amp;){0,3}(?:#0{0,5}%d|#[xX]0{0,6}%s%s);?" % (number, digits, names),
        ]
    return b"(?:" + b"|".join(ways) + b")"


def _either(char: str) -> bytes:
    """Return a character in both cases; a space may be a plus sign, as in the words of a form."""
    alike = {char.lower(), char.upper(), *("+" if char == " " else "")}
    return b"[" + b"".join(re.escape(one).encode() for one in sorted(alike)) + b"]"


def _any_case(digits: bytes) -> bytes:
    """Return digits of a number in base 16, with large letters as well as small ones."""
    return b"".join(b"[%c%c]" % (one, one - 32) if one >= ord("a") else bytes((one,)) for one in digits)
