"""How a value may be written by a server that means no harm: the spellings that are looked for in its answers.

A text is looked at in several views: as it stands, with percent signs, backslashes, entities and their like read for
what they mean, and without what stands between characters. In each view a value is looked for plainly and backwards,
ignoring case, in hexadecimal, and in base32 and base64 at each of their alignments. What is found in a view is traced
back to the bytes that it was read from.

What stands before a value, or behind it, is often the cell's own words: half an escape there, such as a percent sign,
would be read together with the value's first characters. So texts are also read with each escape undone once and no
more, and the value is looked for behind such a half. Imports how hard a value is to guess.
"""

from __future__ import annotations

import base64
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from .escapes import GAPLESS, GAPS, READINGS, TAG, Reading
from .value import LEAST_BITS, bits

DEPTH = 2
"""How many readings may lie in each other, such as an entity within a JSON text."""
LONGEST = 16
"""Bytes that one character of a value may take in all spellings together, for the window of a stream."""

_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")


class View:
    """A text, as it stands or as it reads; knows from where in the text beneath each byte was read."""

    def __init__(self, text: bytes, beneath: View | None = None, reading: Reading = GAPLESS) -> None:
        self.text = text
        self._beneath = beneath
        self._reading = reading
        self._edits: tuple[list[int], list[int], list[tuple[int, int]]] | None = None

    @property
    def is_gapless(self) -> bool:
        return self._beneath is not None and self._reading is GAPLESS

    def under(self, reading: Reading) -> View | None:
        """Return this text in a reading; None if that changes nothing."""
        if reading.sign not in self.text or (reading.worth is not None and not reading.worth.search(self.text)):
            return None
        text = reading.of(self.text)
        return None if text == self.text else View(text, self, reading)

    def without_gaps(self) -> View | None:
        text = TAG.sub(b"", self.text) if b">" in self.text else self.text
        text = text.translate(None, GAPS)
        return None if len(text) == len(self.text) else View(text, self)

    def together(self, at: int) -> bool:
        """Return whether byte `at` belongs to the one before it: between them is a new line or the like, no more."""
        if self._beneath is None or not self.is_gapless:
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
        if not (behind or last or self._reading is GAPLESS):
            return first  # a backslash that has no byte of its own goes with what it stands before
        return beyond + behind - sizes[number]

    def _edited(self) -> tuple[list[int], list[int], list[tuple[int, int]]]:
        """Return where the escapes begin in this text, how long they are in it, and where they stand beneath."""
        matches = [] if self._beneath is None else list(self._reading.pattern.finditer(self._beneath.text))
        spans = list(map(re.Match[bytes].span, matches))
        none = self._reading is GAPLESS
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
        above = [found for view in layer for reading in READINGS if (found := view.under(reading)) is not None]
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
    plains = {view.text: None for view in views(value)}
    plains |= {value.translate(None, GAPS): None, value.replace(b" ", b"+"): None}
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

    def __init__(self, needles: Iterable[Needle], patterns: Iterable[re.Pattern[bytes]] = ()) -> None:
        """`patterns` find a value as their group, and are for texts that are read with what stands between."""
        found = tuple(needles)
        self._patterns = tuple(patterns)
        self._kinds = [(kind, [one for one in found if one.any_case is kind]) for kind in (True, False)]
        self._texts = [[one.text for one in alike] for _, alike in self._kinds]

    def within(self, view: View) -> Iterator[tuple[Needle, bytes, int]]:
        """Yield which of them a view holds, the text in which it was found, and where it is for the first time."""
        for (any_case, alike), texts in zip(self._kinds, self._texts, strict=True):
            where = view.text.lower() if any_case else view.text
            places = list(map(where.find, texts))  # nearly always there is none, and nothing else is quicker to say so
            if max(places, default=-1) >= 0:
                yield from ((one, where, at) for one, at in zip(alike, places, strict=True) if at >= 0)

    def behind(self, view: View) -> Iterator[tuple[int, int]]:
        """Yield where a view holds what one of the patterns finds."""
        if not view.is_gapless:
            for pattern in self._patterns:
                yield from (match.span(1) for match in pattern.finditer(view.text))


def spans(text: bytes, wanted: Wanted) -> list[tuple[int, int]]:
    """Return where `text` holds one of the spellings, as begins and ends in order, those that touch joined."""
    found: list[tuple[int, int]] = []
    for view in views(text):
        found += [view.origin(begin, end) for begin, end in wanted.behind(view)]
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
