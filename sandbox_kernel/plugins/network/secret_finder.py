"""One reader of codings: finds values in a text however it is written, also in codings that lie in each other.

A text is read in every coding that is in it; what comes of that is looked through, and read again. Nothing is listed of
how a value could look: escapes are undone wherever they stand, and digits of base64, base32 and hexadecimal are read
at each alignment, whatever stands between them. So two codings, one over the other, need no more than each by itself.
What is found is traced back to the bytes that it was read from; of digits, the whole run.

A stream is read in windows, and no spelling is longer than one: blanks in a row are folded first, and a window of which
any coding leaves less than a value is dense. It may be the inside of a spelling, so it is not passed on.
"""

from __future__ import annotations

import binascii
import bisect
import functools
import math
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html.entities import html5
from typing import NamedTuple

from .secret_value import MIN_BITS, bits

DEPTH = 4
"""How many codings may lie in each other: three, of which one may be two by itself, as JSON within a JWT is."""
MAX_TIMES = 128
"""Bytes that are read for each byte of a text: the bound of the processor's time. Honest texts take up to 60."""
FREE_BYTES = 192 << 10
"""What may be read besides: a short text that is a mixture of all codings takes 150 bytes for each of its own."""
BYTES_OF_ONE = 256
"""What any text counts, however short it is: it takes as long to read."""
SHORTEST = 8
"""Bytes of what is looked for: less stands in too many texts by chance."""
LONGEST_HALF = 8
"""Characters of a value that half an escape before it may take for its own."""
FOLDED = 16
"""How many blanks count of those in a row, up to `MOST_BLANKS`: an indentation makes no spelling longer."""
MOST_BLANKS = 1024
MAX_GAP = 32
"""Bytes between two characters of a spelling, once blanks are folded. One with more is not found, or refused."""
MAX_ODD = 16
"""... of which so many are letters that take several bytes, or NUL."""
MAX_SIGNS = 40
"""Blanks and signs in a row with which a text is looked at as one spelling; more of them stand in tables and rules."""
MAX_TAGS = 4
"""Tags in a row that may stand between two characters of a spelling; more of them are the empty cells of a table."""
OF_TABLES = rb"t[dhr]|tbody|thead|tfoot|table|col|li|[uod]l|d[dt]|div|span|br|hr|option"
"""Names of such tags, and not any name: a name may be a digit of a value, `<A> <B>`, or two of them."""
EDGE = 12
"""Bytes of half an escape at an edge of a text."""
HALF_BYTES = 2
"""Bytes of half a digit, or of half another coding, at an edge of a run of digits."""

MAX_AT_ONCE = 32
"""Bytes of text in a row that noise has none of."""

GAPS = bytes({*range(0x21), *b"\"'()[]{}<>|,;:._-\\", *range(0x7F, 0x100)})
"""What stands between the characters of a list, of lines, of a dump or a text in UTF-16."""
_BLANKS = re.compile(rb"[ \t-\r]{%d,%d}" % (FOLDED + 1, MOST_BLANKS))
_APART = re.compile(
    rb"[%s]{%d}|[\0\x80-\xff]{%d}|(?:</?(?:%s) ?/?>\s*){%d}"
    % (re.escape(bytes(char for char in GAPS if char < 0x7F)), MAX_SIGNS + 1, MAX_ODD + 1, OF_TABLES, MAX_TAGS + 1),
    re.IGNORECASE,
)
"""What is between no two characters of one spelling."""
_NO_TEXT = re.compile(
    rb"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f\xc0\xc1\xf5-\xff]|(?<=[\0-\x7f])[\x80-\xbf]|[\xc2-\xf4](?=[\0-\x7f])"
)
"""Control characters, and what is no UTF-8."""
_LETTER = re.compile(rb"\xef(?:\xbc[\x81-\xbf]|\xbd[\x80-\x9e])")
_LOWER = bytes(range(256)).lower()
_TEXTUAL = bytes(char in b"\0\t\n\r" or 0x20 <= char < 0x7F for char in range(256))
_WIDE = bytes(char or number in b"\xc2\xe2\xe3\xef" or 0x80 <= number < 0xC0 for number, char in enumerate(_TEXTUAL))
"""With the letters of full width, and those of no width at all, that take three bytes for each."""
_UTF8 = bytes(char or 0x80 <= number < 0xC0 or 0xC2 <= number < 0xF5 for number, char in enumerate(_TEXTUAL))
"""With whatever letters stand between those of a value, each with one or more bytes besides its first."""
Places = tuple[Sequence[int], Sequence[int]]
"""For each byte that was read: where its writing begins, and where it ends."""
Spans = set[tuple[int, int]]
Halved = tuple[bytes, bytes, bytes]
"""A value in three parts: what an escape before it takes of it, the rest, and what it begins an escape with."""


class Unreadable(Exception):
    """A text holds so many codings, one over the other, that it is not read to its end."""


class ReadText(NamedTuple):
    """What a text reads as, or a part of it."""

    text: bytes
    places: Callable[[bool], Places]
    """Finds them, once they are asked for; of digits, those of the whole run if told so."""
    is_escaped: bool

    def is_text(self, least: int) -> bool:
        """Return whether a value, between halves of escapes or whole, or another coding can be in this."""
        halved, between = b"\1" * max(1, least - LONGEST_HALF), b"\1" * (3 * least)
        return not self.is_escaped or halved in self.text.translate(_TEXTUAL) or between in self.text.translate(_UTF8)


def _textual(text: bytes, least: int) -> Iterator[tuple[int, int]]:
    """Yield the parts that are text of some length: in anything else is no value, and no other coding."""
    for table, run in ((_TEXTUAL, least), (_WIDE, 3 * least)):
        there = text.translate(table)
        begin = there.find(b"\1" * run)
        while begin >= 0:
            end = there.find(b"\0", begin) % (len(there) + 1)
            if end - begin - text.count(0, begin, end) >= least:
                yield begin, end
            begin = there.find(b"\1" * run, end)


@dataclass(frozen=True, slots=True)
class Escapes:
    """Whatever is written in place of a character: how it is recognised, and what it means."""

    sign: bytes
    """Without this, there is none."""
    pattern: re.Pattern[bytes]
    read: Callable[[re.Match[bytes]], bytes]
    worth: re.Pattern[bytes] | None = None
    """What is in each text that is written so, and seldom in others."""
    part: re.Pattern[bytes] | None = None
    """How a part of it is recognised that is too short to be read for a value."""

    def of(self, text: bytes, least: int) -> Iterator[ReadText]:
        if self.sign in text and (self.worth is None or self.worth.search(text)):
            read = self.pattern.sub(self.read, text)
            if read != text:
                yield ReadText(read, lambda outermost: self._places(text), is_escaped=True)

    def across(self, text: bytes) -> Iterator[bytes]:
        """Yield what all of a text reads as that is cut anywhere: without half an escape at its edges."""
        pattern = self.part or self.pattern
        spans = [match.span() for match in pattern.finditer(text)]
        if spans and self.sign in text and (self.worth is None or self.worth.search(text)):
            begin, end = spans[0][0], spans[-1][1]
            cut = text[begin if begin <= EDGE else 0 : end if len(text) - end <= EDGE else len(text)]
            yield pattern.sub(self.read, cut)

    def _places(self, text: bytes) -> Places:
        begins: list[int] = []
        ends: list[int] = []
        at = 0
        for match in self.pattern.finditer(text):
            begin, end = match.span()
            size = len(self.read(match))
            begins += [*range(at, begin), *[begin] * size]
            ends += [*range(at + 1, begin + 1), *[end] * size]
            at = end
        return [*begins, *range(at, len(text))], [*ends, *range(at + 1, len(text) + 1)]


def _may_be_text(number: int, bits: int, least: int) -> bool:
    """Return whether there can be a run of text in so many bits, at any of the alignments, which are tried at once.

    A byte of text is below 128, and above 31 or below 16.
    """
    mask = (1 << bits) - 1
    there = (number | (number << 3) & ((number << 1 | number << 2) ^ mask << 3)) & mask ^ mask
    run = 1
    while there and run < least:
        step = min(run, least - run)
        there &= there >> 8 * step
        run += step
    return there != 0


class Digits:
    """What is written in digits of a few bits, in whatever lines and groups."""

    def __init__(self, size: int, alphabet: bytes, meaning: bytes, number: Callable[[bytes], int]) -> None:
        """`size` are the bits of a digit, `meaning` the same digits as `number` takes them."""
        self._size = size
        self._table = bytes.maketrans(alphabet, meaning)
        self._others = bytes(set(range(256)) - set(alphabet))
        self._digit = re.compile(b"[" + re.escape(alphabet) + b"]")
        self._run = re.compile(self._digit.pattern + b"+")
        self._apart = re.compile(b"[^" + re.escape(alphabet) + b"]{%d}" % (MAX_GAP + 1))
        self._number = number

    def of(self, text: bytes, least: int) -> Iterator[ReadText]:
        digits = text.translate(self._table, self._others)
        bits = len(digits) * self._size
        if bits < 8 * least or not _may_be_text(number := self._number(digits), bits, min(least, MAX_AT_ONCE)):
            return
        spots = functools.cache(
            lambda pattern: [span for match in pattern.finditer(text) for span in [match.span()] for _ in match[0]]
        )
        for shift in range(0, 8, math.gcd(8, self._size)):
            read = (number >> shift).to_bytes((bits - shift + 7) // 8, "big")
            for begin, end in _textual(read, least):
                at = range(8 * begin - (shift - bits) % 8, 8 * end - (shift - bits) % 8, 8)
                yield ReadText(read[begin:end], functools.partial(self._places, spots, at), is_escaped=False)

    def across(self, text: bytes) -> Iterator[bytes]:
        """Yield what all of a text reads as that is cut anywhere."""
        if self._apart.search(text) is None:
            digits = len(text.translate(None, self._others)) * self._size // 8
            least = max(SHORTEST, digits // 5)  # a fifth of it are characters, if they take four bytes each
            whole = digits - 2 * HALF_BYTES
            yield from (read.text for read in self.of(text, least) if len(read.text) >= whole)

    def _places(
        self, spots: Callable[[re.Pattern[bytes]], list[tuple[int, int]]], at: range, outermost: bool
    ) -> Places:
        found = spots(self._run if outermost else self._digit)
        return [found[max(0, bit) // self._size][0] for bit in at], [found[(bit + 7) // self._size][1] for bit in at]


def _character(digits: bytes | None, base: int = 16) -> bytes:
    number = int(digits or b"0", base)
    return chr(number).encode("utf-8", "surrogatepass") if number < 0x110000 else b"?"


_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"f": b"\f", b"b": b"\b", b"v": b"\v", b"\n": b""}


def _backslash(match: re.Match[bytes]) -> bytes:
    if match["char"]:
        return _LETTERS.get(match["char"], match["char"])
    return _character(match["octal"], 8) if match["octal"] else _character(match[match.lastindex or 0])


def _entity(match: re.Match[bytes]) -> bytes:
    if match.lastindex is None:
        return b" "
    if (name := match[3]) is not None:
        return html5.get(name.decode(), "&" + name.decode()).encode()
    return _character(match[match.lastindex], 10 if match[1] else 16)


def _byte(match: re.Match[bytes]) -> bytes:
    return bytes.fromhex((match[1] or b"").decode()) if match.lastindex != 2 else _character(match[2])


def _wide(match: re.Match[bytes]) -> bytes:
    return bytes(((ord(match[1].decode()) - 0xFEE0) & 0x7F,)) if match[1] else b""


def _base64(digits: bytes) -> int:
    missing = -len(digits) % 4
    return int.from_bytes(binascii.a2b_base64(digits + b"A" * missing), "big") >> 6 * missing


def _list(first: bytes, number: bytes, meanings: Mapping[bytes, int]) -> Escapes:
    """Return how lists of numbers are read. A pattern that begins with a sign, and with no group, is quick."""
    between = rb"""["'\s,;:|/()<>{}\[\]]+"""
    pattern = first + rb"(?:" + between + number + b"){%d,}"
    split = re.compile(rb"\w+").findall
    return Escapes(
        b"",
        re.compile(pattern % (SHORTEST - 1)),
        lambda match: bytes([meanings.get(one, 0x3F) for one in split(match[0].lower())]),
        part=re.compile(pattern % 1),
    )


_ALPHABET = string.ascii_letters.swapcase().encode()
_FULL_WIDTH = rb"(\xef(?:\xbc[\x81-\xbf]|\xbd[\x80-\x9e])|\xe3\x80\x80)"
_NO_WIDTH = rb"(?:\xe2\x80[\x8b-\x8f]|\xe2\x81\xa0|\xef\xbb\xbf|\xc2\xad)"
_DECIMAL = {form % number: number for number in range(256) for form in (b"%d", b"%02d", b"%03d")}
_HEXADECIMAL = {form % number: number for number in range(256) for form in (b"0x%x", b"0x%02x")}

READINGS: tuple[Escapes | Digits, ...] = (
    Escapes(b"%", re.compile(rb"%(?:([0-9A-Fa-f]{2})|[uU]([0-9A-Fa-f]{4}))"), _byte),
    Escapes(
        b"\\",
        re.compile(
            rb"\\(?:u([0-9A-Fa-f]{4})|[ux]\{([0-9A-Fa-f]{1,6})\}|x([0-9A-Fa-f]{2})|U([0-9A-Fa-f]{8})"
            rb"|(?P<octal>[0-7]{1,3})|(?P<char>[\s\S]))"
        ),
        _backslash,
    ),
    Escapes(
        b"",
        re.compile(
            rb"&(?:#([0-9]{1,8});?|#[xX]([0-9A-Fa-f]{1,8});?|([A-Za-z][A-Za-z0-9]{1,31};|amp|lt|gt|quot))"
            rb"|</?[A-Za-z][A-Za-z0-9]{0,5} ?/?>"
        ),
        _entity,
    ),
    Escapes(
        b"=",
        re.compile(rb"=(?:([0-9A-Fa-f]{2})|[ \t]{0,8}\r?\n)"),
        _byte,
        # Signs are escaped one by one, letters only where all are.
        re.compile(rb"=(?:[2-7][0-9A-Fa-f]=|0[0AD]|2[0-9A-F]|3[A-Fa-f]|[46]0|[57][B-Fb-f]|[ \t]{0,8}\r?\n)"),
    ),
    Escapes(
        b"",
        re.compile(rb"\0+|%s|%s" % (_FULL_WIDTH, _NO_WIDTH)),
        _wide,
        re.compile(rb"[\0\xc2\xe2\xe3\xef](?:[ -~]\0|\x80\x80|\xad|\x80[\x8b-\x8f]|\x81\xa0|[\xbb-\xbd][\x80-\xbf])"),
    ),
    # Of 875 at the end of a list, 87 is the number: no byte is 875, and a digit may stand behind a list.
    _list(rb"[0-9](?<![0-9.].)[0-9]{0,2}", b"(?:1[0-9]{2}|2[0-4][0-9]|25[0-5]|0?[0-9]{1,2})", _DECIMAL),
    _list(b"0[xX][0-9A-Fa-f]{1,2}", b"0[xX][0-9A-Fa-f]{1,2}", _HEXADECIMAL),
    # What stands between the numbers, and between the texts, of two lines of a dump.
    *(
        Escapes(b"\n0", re.compile(pattern), lambda match: b"")
        for pattern in (
            rb"  \|?[^\n]{1,16}\|?\r?\n0[0-9A-Fa-f]{3,7}:? {1,2}",
            rb"\n0[0-9A-Fa-f]{3,7}:? {1,2}(?:[0-9A-Fa-f]{2,4} {1,2}){1,16} {0,40}\|?",
        )
    ),
    Digits(6, _ALPHABET + b"0123456789+/-_", _ALPHABET + b"0123456789+/+/", _base64),
    Digits(5, _ALPHABET + b"234567", b"0123456789abcdefghijklmnop" * 2 + b"qrstuv", functools.partial(int, base=32)),
    Digits(4, b"0123456789abcdefABCDEF", b"0123456789abcdefabcdef", functools.partial(int, base=16)),
)


def texts(text: bytes, least: int) -> Iterator[bytes]:
    """Yield what a text reads as, itself first, in parts of some length. Raises `Unreadable`."""
    yield from _layers(
        text, lambda one: (read.text for way in READINGS for read in way.of(one, least) if read.is_text(least))
    )


def _across(text: bytes) -> Iterator[bytes]:
    """Yield what all of a text reads as that one spelling may fill, itself first. Raises `Unreadable`."""

    def above(one: bytes) -> Iterator[bytes]:
        if _may_be_one(one):
            yield from (read for way in READINGS for read in way.across(Folding(one).text))

    yield from filter(_may_be_one, _layers(text, above))


def _may_be_one(text: bytes) -> bool:
    """Return whether a text may be part of one spelling: but for its edges text, with little between characters."""
    inner = text[2 * HALF_BYTES : -2 * HALF_BYTES]
    return _NO_TEXT.search(inner) is None and _APART.search(_LETTER.sub(b"a", Folding(inner).text)) is None


def _layers(text: bytes, above: Callable[[bytes], Iterable[bytes]]) -> Iterator[bytes]:
    layer = {text: None}
    seen = {text}
    work = Work(text)
    for _ in range(DEPTH + 1):
        yield from layer
        below, layer = layer, {}
        for one in below:
            work.spend(one)
            for read in above(one):
                if read not in seen:
                    seen.add(read)
                    layer[read] = None


class Folding:
    """A text with few blanks in a row, and where its bytes stood."""

    def __init__(self, text: bytes) -> None:
        pieces, done, length = [], 0, 0
        self._at, self._gone = [0], [0]
        for match in _BLANKS.finditer(text):
            pieces.append(text[done : match.start() + FOLDED // 2])
            length += len(pieces[-1])
            done = match.end() - FOLDED // 2
            self._at.append(length)
            self._gone.append(done - length)
        self.text = b"".join([*pieces, text[done:]]) if pieces else text

    def place(self, at: int) -> int:
        """Return where a byte of the folded text stands."""
        return at + self._gone[bisect.bisect_right(self._at, at) - 1]

    def places(self, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(self.place(begin), self.place(end - 1) + 1) for begin, end in spans]


class Work:
    """What it takes to read a text: so much for each byte of it, and no more."""

    def __init__(self, text: bytes) -> None:
        self._left = MAX_TIMES * len(text) + FREE_BYTES

    def spend(self, text: bytes) -> None:
        self._left -= len(text) + BYTES_OF_ONE
        if self._left < 0:
            raise Unreadable


class SecretReader:
    """Finds some values. Its repr shows none of them."""

    def __init__(self, values: Iterable[bytes]) -> None:
        forms = [form for value in values for form in _forms(value)]
        self._values = list(dict.fromkeys([*forms, *(Folding(form).text for form in forms)]))
        self._bare = list(dict.fromkeys(bare for form in self._values if _is_hard(bare := form.translate(None, GAPS))))
        self._ways = [(form[LONGEST_HALF:-LONGEST_HALF], [*_halved(form)]) for form in self._values]
        self._least = min(map(len, self._values + self._bare), default=0)
        self.longest = max(map(len, self._values), default=0)

    def spans(self, text: bytes) -> list[tuple[int, int]]:
        """Return where a text holds a value, as begins and ends in order, those that touch joined.

        Raises `Unreadable`.
        """
        joined: list[tuple[int, int]] = []
        for begin, end in sorted(self._found(text, DEPTH, {}, Work(text)) if self._values else ()):
            if joined and begin < joined[-1][1]:
                joined[-1] = joined[-1][0], max(end, joined[-1][1])
            else:
                joined.append((begin, end))
        return joined

    def is_dense(self, text: bytes) -> bool:
        """Return whether a text is so short once it is read that a value may begin before it and end behind it.

        What stands between characters does not count, and neither does half an escape at an edge. Raises `Unreadable`.
        """
        bound = self.longest + 2 * HALF_BYTES
        for read in _across(text):
            characters = len(read.translate(None, GAPS))
            if (0 < characters < self.longest) if read is text else (characters < bound):
                return True
        return False

    def _found(self, text: bytes, depth: int, known: dict[tuple[bytes, int], Spans], work: Work) -> Spans:
        """Return where a text holds a value, in some more codings. What stands at two places is read once."""
        if (text, depth) in known:
            return known[text, depth]
        lower = text.lower()
        found = known[text, depth] = set(self._as_it_is(text, lower))
        if depth:
            work.spend(text)
            for read in (read for reading in READINGS for read in reading.of(text, self._least)):
                if not read.is_text(self._least):
                    continue
                within = self._found(read.text, depth - 1, known, work)
                halved = self._halved(lower, read.text.lower()) if read.is_escaped else []
                if within or halved:
                    begins, ends = read.places(depth == DEPTH)
                    found.update((begins[begin], ends[end - 1]) for begin, end in within)
                for at, (before, rest, after) in halved:
                    begin, end = begins[at], ends[at + len(rest) - 1]
                    if lower[max(0, begin - len(before)) : begin] == before and lower.startswith(after, end):
                        found.add((begin - len(before), end + len(after)))
        return found

    def _as_it_is(self, text: bytes, lower: bytes) -> Iterator[tuple[int, int]]:
        for value in self._values:
            yield from ((at, at + len(value)) for at in _all_of(value, lower))
        bare = text.translate(_LOWER, GAPS)
        if any(value in bare for value in self._bare):
            kept = [at for at, char in enumerate(text) if char not in GAPS]
            for value in self._bare:
                yield from ((kept[at], kept[at + len(value) - 1] + 1) for at in _all_of(value, bare))

    def _halved(self, text: bytes, read: bytes) -> list[tuple[int, Halved]]:
        """Return where the rest of a value is read that may stand between halves of escapes, which took its ends."""
        ways = (way for core, ways in self._ways if core in read for way in ways if way[0] in text and way[1] in read)
        return [(at, way) for way in ways for at in _all_of(way[1], read)]


def _all_of(wanted: bytes, text: bytes) -> Iterator[int]:
    at = text.find(wanted)
    while at >= 0:
        yield at
        at = text.find(wanted, at + len(wanted))


def _is_hard(text: bytes) -> bool:
    """Return whether a text is looked for: what could be guessed is not, as a cell would see that it is taken out."""
    return len(text) >= SHORTEST and bits(text.lower()) >= MIN_BITS


def _halved(value: bytes) -> Iterator[Halved]:
    """Yield a value between halves of escapes, as of a cell's own words: they are read together with its ends.

    These stand as they are; what begins an escape at its own end is one of its signs.
    """
    for end in (0, *(size for size in range(1, LONGEST_HALF) if value[-size] in b"%&=\\")):
        for begin in range(LONGEST_HALF + 1):
            if begin + end and (rest := value[begin : len(value) - end]):
                yield value[:begin], rest, value[len(value) - end :]


def _forms(value: bytes) -> Iterator[bytes]:
    """Yield a value in small letters, and as it reads once unescaped or backwards."""
    read = [read.text for reading in READINGS[:4] for read in reading.of(value, 1)]
    for form in (value, value.replace(b" ", b"+"), *filter(_is_hard, read)):
        yield form.lower()
        yield form[::-1].lower()
