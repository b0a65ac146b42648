"""What takes secrets out of answers, against spellings that are read back; any headers, and any packed bodies."""

from __future__ import annotations

import binascii
import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache

from sandbox_kernel.plugins.network.codes import SecretCode
from sandbox_kernel.plugins.network.interfaces import RequestHead, ResponseHead
from sandbox_kernel.plugins.network.policy import RefusedConnection
from sandbox_kernel.plugins.network.secret_finder import texts
from sandbox_kernel.plugins.network.secret_scrubber import FREE_BYTES, MAX_TIMES, Scrubber, Scrubbing
from sandbox_kernel.plugins.network.secret_value import SecretValue
from sandbox_kernel.plugins.network.secrets import HeldSecret, Substitution
from tests.support.spellings import SPELLINGS

from ..judge import require

HOST = "api.example.test"
VALUES = (b"sk-live-8Jd02kQm3vXz71LpRt5W", b'p/q+r&s<t>"u"%25;x=y', b"90417263548172635", b"ab\\ncd\\u0041ef\\\\gh12")
LETTERS = b"J0V3mzKp9X1RbT5WnHc8Ld2YfGs6Ae"
PLACEHOLDERS = tuple((b"%d" % number + LETTERS)[: len(value)] for number, value in enumerate(VALUES))
NAMES = tuple(sorted(SPELLINGS))
INSERTED = 0xFE
"""Before a byte that says which spelling of the value stands here."""
MAX_INSERTED = 3
"""Spellings in one text: two that touch, and one elsewhere. More are more of the same, and take as much longer."""
RUN = 8
"""Letters: no spelling that is looked for has fewer."""
UNREADABLE = (ValueError, SyntaxError, IndexError, TypeError, AttributeError, binascii.Error, MemoryError)


SCRUBBERS: list[Scrubber] = []


def prepared() -> AbstractContextManager[object]:
    """Make the scrubbers, of the product as it is now."""
    pairs = zip(VALUES, PLACEHOLDERS, strict=True)
    SCRUBBERS[:] = [Scrubber([(SecretValue(value), placeholder)]) for value, placeholder in pairs]
    return nullcontext()


def run(data: bytes) -> None:
    """The first byte says what is tried, the second which value, the third how it is cut."""
    mode, number, step, rest = (*(data[:3] + bytes(3))[:3], data[3:])
    trials: tuple[Callable[[int, int, bytes], None], ...] = (answer, answer, packed, heads)
    trials[mode % len(trials)](number % len(VALUES), step or 1 << 16, rest)


def in_pieces(stream: Scrubbing, text: bytes, step: int) -> bytes:
    pieces = [b"".join(stream.feed(text[at : at + step])) for at in range(0, len(text), step)]
    return b"".join(pieces) + stream.finish()


def answer(number: int, step: int, data: bytes) -> None:
    """Any text, with the value in it in any spelling: neither the text nor its length changes otherwise."""
    value = VALUES[number]
    pieces: list[tuple[bytes, str]] = []
    at = 0
    while at < len(data):
        end = data.find(bytes((INSERTED,)), at)
        end = len(data) if end < 0 else end
        pieces.append((data[at:end], ""))
        if end + 1 < len(data) and len(pieces) <= 4 * (MAX_INSERTED - 1):
            name = NAMES[data[end + 1] % len(NAMES)]
            pieces += [(b"\n//\n", ""), (SPELLINGS[name].write(value), name), (b"\n//\n", "")]
        at = end + 2
    text = b"".join(piece for piece, _ in pieces)
    try:
        found = in_pieces(Scrubbing(SCRUBBERS[number]), text, step)
    except RefusedConnection as error:
        require(error.code is SecretCode.SECRET_ANSWER_DENSE and len(text) > SCRUBBERS[number].window, text)
        return
    require(len(found) == len(text), (len(found), len(text)))
    require(value.lower() not in found.lower(), found)
    at = 0
    for piece, name in pieces:
        if name:
            require(not is_value(name, found[at : at + len(piece)], value), (name, found[at : at + len(piece)]))
        elif len(pieces) == 1 and found != text:
            require(holds_some(text, value), (found, text))
        at += len(piece)


def holds_some(text: bytes, value: bytes) -> bool:
    """Return whether something of a value stands in a text, or in what a cell may read it for.

    That is what is looked at: marks and entities between the letters of a value are left out there, and it is found.
    """
    return any(run in letters(read) for read in texts(text, RUN) for run in forms(value))


def letters(text: bytes) -> bytes:
    """Return the letters and digits of a text alone, in small letters."""
    return bytes(letter for letter in text.lower() if chr(letter).isascii() and chr(letter).isalnum())


@cache
def forms(value: bytes) -> frozenset[bytes]:
    """Return the runs of letters that a text holds where something of it may be taken out, as `letters` has it.

    Runs and no whole spellings: the ends of base64 hold bits of the neighbours, and are no part of what is found.
    """
    written = {letters(one.write(value)) for one in SPELLINGS.values()} | {letters(value), letters(value[::-1])}
    read = {value, *read_back(value)}
    # What looks like a mark of HTML may be left out by a server, and anything stand in its place.
    found = written | {letters(text) for one in read for text in (one, re.sub(rb"<[^>]*>", b"", one))}
    return frozenset(run for form in found if len(form) >= RUN - 1 for run in runs(form))


def runs(text: bytes) -> Iterator[bytes]:
    """Yield all runs of letters; the whole of a text that has fewer."""
    return (text[at : at + RUN] for at in range(max(1, len(text) - RUN + 1)))


def read_back(value: bytes) -> Iterator[bytes]:
    """Yield what a value is to a server that takes it for a spelling itself, as of percent signs, and says it so."""
    for one in SPELLINGS.values():
        for text in (value, b'"' + value + b'"'):
            with suppress(*UNREADABLE):
                if isinstance(read := one.read(text), bytes) and len(read) > len(value) // 2 and read.isascii():
                    yield read


def is_value(name: str, written: bytes, value: bytes) -> bool:
    """Return whether a cell reads the value in what is left of a spelling."""
    try:
        return SPELLINGS[name].read(written).lower() == value.lower()
    except UNREADABLE:
        return False


def packed(number: int, step: int, data: bytes) -> None:
    """A body that says that it is packed, and may be: bounded, and refused if it is not what it says."""
    coding = (b"gzip", b"deflate")[step % 2]
    exchange = Substitution(HOST, (), SCRUBBERS[number])
    exchange.request(RequestHead("GET", "https", HOST, 443, b"/", ()))
    exchange.response(ResponseHead(200, b"", ((b"Content-Encoding", coding),)))
    body = exchange.body()
    given = 0
    try:
        for at in range(0, len(data), step):
            given += sum(map(len, body.feed(data[at : at + step])))
        given += len(body.finish())
    except RefusedConnection:
        pass
    else:
        require(not data or plain(data, coding) is not None, data)
    require(given <= FREE_BYTES + MAX_TIMES * len(data) + (64 << 10), given)


def plain(data: bytes, coding: bytes) -> bytes | None:
    """Return what the library makes of a packed body as a whole, None if that is nothing."""
    for bits in (zlib.MAX_WBITS + 16,) if coding == b"gzip" else (zlib.MAX_WBITS, -zlib.MAX_WBITS):
        unpacker = zlib.decompressobj(bits)
        try:
            text = unpacker.decompress(data, 1 << 24)
        except zlib.error:
            continue
        if unpacker.eof:
            return text
    return None


def heads(number: int, step: int, data: bytes) -> None:
    """A request and an answer of any words: the value goes to the host alone."""
    value, mine = VALUES[number], PLACEHOLDERS[number]
    header = (b"X-Key", b"k ", b"") if step % 2 else None
    held = HeldSecret("API_KEY", SecretValue(value), mine, frozenset([(HOST, 443)]), header)
    exchange = Substitution(HOST, [held], SCRUBBERS[number])
    words = data.replace(bytes((INSERTED,)), mine).split(b"\n")
    headers = tuple((word[: step % 8] or b"X", word[step % 8 :]) for word in words)
    head = exchange.request(RequestHead("GET", "https", HOST, 443, b"/" + words[0], headers))
    require(head.path.startswith(b"/"), head)
    places = (head.path, *(text for _, text in head.headers))
    if header is None:
        require(not any(mine in text for text in places), head)
    elif value not in data:
        elsewhere = [text for name, text in head.headers if name.lower() != b"x-key"]
        require(not any(value in text for text in (head.path, *elsewhere)), head)
    echo = ResponseHead(200, value, tuple((value + name, b"<" + text + value) for name, text in head.headers))
    try:
        cleaned = exchange.response(echo)
    except RefusedConnection:
        return
    require(value.lower() not in repr_of(cleaned).lower(), cleaned)


def repr_of(head: ResponseHead) -> bytes:
    return b"\n".join([head.reason, *(name + b": " + text for name, text in head.headers)])


def seeds() -> Iterator[bytes]:
    for number in range(len(VALUES)):
        for name in range(len(NAMES)):
            yield (
                bytes([0, number, 7 * (name % 5), 60, INSERTED, name]) + b" & %25 \\u00 text" + bytes([INSERTED, name])
            )
        yield bytes([0, number, 1]) + VALUES[number][:-1] + b"." * 120
    text = b"<" + VALUES[0] + b"> and more " * 20
    yield bytes([2, 0, 2]) + gzip.compress(text)
    yield bytes([2, 0, 2]) + gzip.compress(text) + gzip.compress(text)
    yield bytes([2, 0, 3]) + zlib.compress(text)
    yield bytes([2, 0, 2]) + gzip.compress(text)[:-4]
    for step in range(8):
        yield bytes([3, step % 4, step, INSERTED]) + b"a?k=\nAuthorization: Basic c29tZQ==\nx: " + bytes([INSERTED, 10])
