"""How a value may be written by a server that means no harm: the spellings that are looked for in its answers.

A text is looked at in several views: as it stands, with percent signs, backslashes, entities and their like read for
what they mean, and without what stands between characters. In each view a value is looked for plainly and backwards,
ignoring case, in hexadecimal, and in base32 and base64 at each of their alignments. What is found in a view is traced
back to the bytes that it was read from. Imports how hard a value is to guess.
"""

from __future__ import annotations

import base64
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from html.entities import html5
from itertools import accumulate

from .value import LEAST_BITS, bits

DEPTH = 2
"""How many readings may lie in each other, such as an entity within a JSON text."""
LONGEST = 16
"""Bytes that one character of a value may take in all spellings together, for the window of a stream."""

_PERCENT = re.compile(rb"%(?:25)*([0-9A-Fa-f]{2})")
_BACKSLASH = re.compile(
    rb"\\+(?:u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,6})\}|x([0-9A-Fa-f]{2})|U([0-9A-Fa-f]{8})|([nrtfbv])|)", re.DOTALL
)
_ENTITY = re.compile(rb"&(?:amp;){0,3}(?:#([0-9]{1,8})|#[xX]([0-9A-Fa-f]{1,8})|([A-Za-z][A-Za-z0-9]{1,31}));?")
_QUOTED_PRINTABLE = re.compile(rb"=(?:([0-9A-Fa-f]{2})|[ \t]{0,8}\r?\n)")
_FULL_WIDTH = re.compile(rb"\xef(?:\xbc[\x81-\xbf]|\xbd[\x80-\x9e])")
_BEHIND_NUMBERS = re.compile(rb"  \|?[^\n]{1,16}\|?\r?\n0[0-9A-Fa-f]{3,7}:? {1,2}")
"""What stands between the numbers of two lines of a dump: the first line's text, and where the second one begins."""
_BEHIND_TEXT = re.compile(rb"\n0[0-9A-Fa-f]{3,7}:? {1,2}(?:[0-9A-Fa-f]{2,4} {1,2}){1,16} {0,40}\|?")
"""What stands between the texts of two lines of a dump."""
_GAPS = bytes({*range(0x21), *b"\"'()[]{}<>|,;:._-\\", *range(0x7F, 0x100)})
"""What stands between the characters of a text in UTF-16, of base64 in lines, of a dump or a list, and around them.

Signs of base64 and of the other spellings are none, nor is the first of the marks that stand for a value.
"""
_TAG = re.compile(rb"</?[A-Za-z][A-Za-z0-9]{0,5} ?/?>")
"""Such as <wbr>: shorter than any value, so that none is lost with it."""
_GAP = re.compile(_TAG.pattern + b"|[" + re.escape(_GAPS.replace(b"<", b"")) + b"]+|<")
_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
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
class _Reading:
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


_READINGS = (
    _Reading(_PERCENT, _percent, b"%"),
    _Reading(
        _BACKSLASH,
        _backslash,
        b"\\",
        # A run is looked at from its beginning only: from each of its bytes, that would be as many steps as its square.
        ((re.compile(rb"(?<!\\)\\++(?![uxUnrtfbv])"), b""), (re.compile(rb"(?<!\\)\\++n"), b"\n")),
    ),
    _Reading(_ENTITY, _entity, b"&"),
    _Reading(
        _QUOTED_PRINTABLE,
        _quoted_printable,
        b"=",
        worth=re.compile(rb"=(?:3[Dd]|[0-9A-Fa-f]{2}=[0-9A-Fa-f]{2}|(?<=[ -~][ -~]=)[ \t]{0,8}\r?\n[ -~])"),
    ),
    _Reading(_FULL_WIDTH, _full_width, b"\xef", worth=re.compile(b"(?:" + _FULL_WIDTH.pattern + b"){2}")),
    _Reading(_BEHIND_NUMBERS, _nothing, b"\n0"),
    _Reading(_BEHIND_TEXT, _nothing, b"\n0"),
)
_GAPLESS = _Reading(_GAP, _nothing, b"")


class View:
    """A text, as it stands or as it reads; knows from where in the text beneath each byte was read."""

    def __init__(self, text: bytes, beneath: View | None = None, reading: _Reading = _GAPLESS) -> None:
        self.text = text
        self._beneath = beneath
        self._reading = reading
        self._edits: tuple[list[int], list[int], list[tuple[int, int]]] | None = None

    def under(self, reading: _Reading) -> View | None:
        """Return this text in a reading; None if that changes nothing."""
        if reading.sign not in self.text or (reading.worth is not None and not reading.worth.search(self.text)):
            return None
        text = reading.of(self.text)
        return None if text == self.text else View(text, self, reading)

    def without_gaps(self) -> View | None:
        text = _TAG.sub(b"", self.text) if b">" in self.text else self.text
        text = text.translate(None, _GAPS)
        return None if len(text) == len(self.text) else View(text, self)

    def together(self, at: int) -> bool:
        """Return whether byte `at` belongs to the one before it: between them is a new line or the like, no more."""
        if self._beneath is None or self._reading is not _GAPLESS:
            return True
        begin, end = self._below(at - 1, last=True), self._below(at, last=False)
        return end - begin <= MOST_BETWEEN and not set(self._beneath.text[begin:end]) & set(b'"<>')

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Return which bytes of the text that stands at the bottom were read as these."""
        if self._beneath is None:
            return start, end
        return self._beneath.origin(self._below(start, last=False), self._below(end - 1, last=True) + 1)

    def _below(self, at: int, *, last: bool) -> int:
        """Return the first, or the last, byte beneath that byte `at` was read from."""
        begins, sizes, spans = self._edits = self._edits or self._edited()
        number = bisect_right(begins, at) - 1
        if number < 0:
            return at
        first, beyond = spans[number]
        behind = at - begins[number]
        if behind < sizes[number]:
            return beyond - 1 if last else first
        if not (behind or last or self._reading is _GAPLESS):
            return first  # a backslash that has no byte of its own goes with what it stands before
        return beyond + behind - sizes[number]

    def _edited(self) -> tuple[list[int], list[int], list[tuple[int, int]]]:
        """Return where the escapes begin in this text, how long they are in it, and where they stand beneath."""
        matches = [] if self._beneath is None else list(self._reading.pattern.finditer(self._beneath.text))
        spans = list(map(re.Match[bytes].span, matches))
        none = self._reading is _GAPLESS
        sizes = [0] * len(matches) if none else [len(self._reading.read(match)) for match in matches]
        shifts = accumulate(
            (beyond - first - size for (first, beyond), size in zip(spans, sizes, strict=True)), initial=0
        )
        return [first - shift for (first, _), shift in zip(spans, shifts, strict=False)], sizes, spans


def views(text: bytes) -> Iterator[View]:
    """Yield a text in all its readings, itself first."""
    layer = [View(text)]
    seen = {text}
    for depth in range(DEPTH + 1):
        for view in layer:
            yield view
            gapless = view.without_gaps()
            if gapless is not None:
                yield gapless
        if depth == DEPTH:
            return
        above = [found for view in layer for reading in _READINGS if (found := view.under(reading)) is not None]
        layer = []
        for view in above:
            if view.text not in seen:
                seen.add(view.text)
                layer.append(view)


@dataclass(frozen=True, slots=True, repr=False)
class Needle:
    """One spelling of a value, to be looked for as it is. Holds the value: it has no repr that shows it."""

    text: bytes
    any_case: bool
    wider: tuple[int, int] = (0, 0)
    """How many characters before and after hold a part of the value as well."""

    def __repr__(self) -> str:
        return "<a spelling of a secret>"


def needles(value: bytes) -> tuple[Needle, ...]:
    """Return all spellings of a value."""
    found: dict[bytes, Needle] = {}
    # A value that holds escapes itself is read with the text around it; what looks like a tag in it may be none.
    plains = {view.text: None for view in views(value)} | {value.translate(None, _GAPS): None}
    for plain in plains:
        if plain != value and (len(plain) < SHORTEST or bits(plain.lower()) < LEAST_BITS):
            continue  # what could be guessed is not looked for: a cell would see that it is taken out
        for text in _listed(plain):
            found.setdefault(b"i" + text.lower(), Needle(text.lower(), any_case=True))
        for shift in range(5):
            text, wider = _aligned32(plain, shift)
            found.setdefault(b"i" + text, Needle(text, any_case=True, wider=wider))
        for text, wider in _packed(plain):
            found.setdefault(b"c" + text, Needle(text, any_case=False, wider=wider))
    return tuple(found.values())


WIDER = 3
"""Characters of base64 of base64 that hold two of the inner one."""
MOST_BETWEEN = 8
"""Bytes that may stand between two characters of base64 of which one is cut off."""
SHORTEST = 8
"""Bytes of a spelling that is still looked for: shorter ones stand in too many texts by chance."""


def _wide(value: bytes) -> bytes:
    """Return what UTF-16 of both orders has of a text."""
    return value.decode("latin-1").encode("utf-16-le")[:-1]


def _listed(value: bytes) -> Iterator[bytes]:
    """Yield a value and how it is written byte by byte, without what stands between them."""
    yield value
    yield value[::-1]
    yield value.hex().encode()
    yield _wide(value).hex().encode()
    yield "".join(map(str, value)).encode()
    yield "".join(f"0x{byte:02x}" for byte in value).encode()
    yield "".join(f"{byte:03o}" for byte in value).encode()
    for shift in range(3):
        yield from (text.hex().encode() for text, _ in _aligned(value, shift))


def _packed(value: bytes) -> Iterator[tuple[bytes, tuple[int, int]]]:
    """Yield what base64 has of a value, and of what else stands for it: such as base64, of which a cell sends some."""
    for shift in range(3):
        yield from _aligned(value, shift)
        for inner in (value.hex().encode(), value.hex().upper().encode(), _wide(value)):
            yield from _aligned(inner, shift)
        for inner, _ in (*_aligned(value, 0), *_aligned(value, 1), *_aligned(value, 2)):
            for text, _ in _aligned(inner, shift):
                yield text, (WIDER, WIDER)


def _aligned(value: bytes, shift: int) -> Iterator[tuple[bytes, tuple[int, int]]]:
    """Yield what base64 always holds of a value with `shift` bytes before it (modulo 3), with both alphabets.

    The characters at its ends depend on the neighbours too.
    """
    first = -(-8 * shift // 6)
    beyond = 8 * (shift + len(value)) // 6
    wider = (1 if shift else 0, 1 if (shift + len(value)) % 3 else 0)
    text = base64.b64encode(bytes(shift) + value)[first:beyond]
    yield text, wider
    yield text.translate(bytes.maketrans(b"+/", b"-_")), wider
    # Gaps are left out of a text before it is looked at, and these are two.
    yield text.translate(None, b"+/"), wider


def _aligned32(value: bytes, shift: int) -> tuple[bytes, tuple[int, int]]:
    """Return what base32 always holds of a value with `shift` bytes before it (modulo 5), in small letters."""
    first = -(-8 * shift // 5)
    beyond = 8 * (shift + len(value)) // 5
    wider = (1 if shift else 0, 1 if (shift + len(value)) % 5 else 0)
    return base64.b32encode(bytes(shift) + value)[first:beyond].lower(), wider


class Wanted:
    """Spellings that are looked for together."""

    def __init__(self, needles: Iterable[Needle]) -> None:
        found = tuple(needles)
        self._kinds = [(kind, [one for one in found if one.any_case is kind]) for kind in (True, False)]
        self._texts = [[one.text for one in alike] for _, alike in self._kinds]

    def within(self, view: View) -> Iterator[tuple[Needle, bytes, int]]:
        """Yield which of them a view holds, the text in which it was found, and where it is for the first time."""
        for (any_case, alike), texts in zip(self._kinds, self._texts, strict=True):
            where = view.text.lower() if any_case else view.text
            places = list(map(where.find, texts))  # nearly always there is none, and nothing else is quicker to say so
            if max(places, default=-1) >= 0:
                yield from ((one, where, at) for one, at in zip(alike, places, strict=True) if at >= 0)


def spans(text: bytes, wanted: Wanted) -> list[tuple[int, int]]:
    """Return where `text` holds one of the spellings, as begins and ends in order, those that touch joined."""
    found: list[tuple[int, int]] = []
    for view in views(text):
        for needle, where, first in wanted.within(view):
            at = first
            while at >= 0:
                begin, end = at, at + len(needle.text)
                before, after = needle.wider
                while before and begin and where[begin - 1] in _BASE64 and view.together(begin):
                    begin, before = begin - 1, before - 1
                while after and end < len(where) and where[end] in _BASE64 and view.together(end):
                    end, after = end + 1, after - 1
                found.append(view.origin(begin, end))
                at = where.find(needle.text, at + len(needle.text))
    return _joined(sorted(set(found)))


def _joined(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for begin, end in found:
        if joined and begin < joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    return joined
