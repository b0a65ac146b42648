"""Takes values out of answers: what a server writes of a secret reaches no cell, in whatever common spelling.

A stream is held back by a window of constant size, and never by what it holds: a cell that could see which of its
guesses is held back a moment longer would learn a value one character at a time.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence

from .codes import SecretCode
from .interfaces import BodyFilter, ResponseHead
from .policy import RefusedConnection
from .secret_finder import DEPTH, Folding, SecretReader, Unreadable
from .secret_value import SecretValue

MIN_WINDOW = 1024
"""Bytes; the windows of short values are all alike."""
WINDOW_TIMES = 36
"""Bytes that a character of a value may take in a stream, once blanks are folded: itself with `MAX_GAP` before it, or
six, as in `\\u0041`, twice over. What takes more is refused, where it is cut."""
STEP_BYTES = 64 << 10
"""How much of a stream is looked through at once."""


class Scrubber:
    """Replaces values by what the cell knows them as, or by marks of the same length."""

    def __init__(self, known: Iterable[tuple[SecretValue, bytes]]) -> None:
        """Take each value with its placeholder."""
        pairs = [(value.reveal(), placeholder) for value, placeholder in known]
        self._reader = SecretReader(value for value, _ in pairs)
        self._placeholders = tuple((SecretValue(value), placeholder) for value, placeholder in pairs)
        # The mark is in no value, and no gap: beside other text, marks must not make a value.
        there = frozenset(b"".join(value for value, _ in pairs))
        self._mark = next((bytes((mark,)) for mark in b"*#^!~+xX0" if mark not in there), b"*")
        longest = self._reader.longest * WINDOW_TIMES
        self.window = max(MIN_WINDOW, 1 << (longest - 1).bit_length()) if longest else 0
        """Bytes in which every spelling of every value fits: a power of two, which says little of their lengths."""

    def clean(self, text: bytes) -> bytes:
        """Return a complete text, such as a header, without values. Its length stays. Raises `RefusedConnection`."""
        folding = Folding(text)
        return self._replaced(text, folding.places(self._spans(folding.text)))

    def split(self, text: bytes) -> tuple[bytes, bytes]:
        """Return what can be passed on of the beginning of a text, and what is left: the window, with blanks folded.

        No value that begins before the window ends behind it. Raises `RefusedConnection` where one could. Half a window
        more has to be there, or nothing is passed on.
        """
        folding = Folding(text)
        limit = len(folding.text) - self.window
        if limit <= self.window // 2:
            return b"", text
        found = [one for one in self._spans(folding.text, held=folding.text[limit:]) if one[0] < limit]
        cut = folding.place(max(limit, found[-1][1]) if found else limit)
        return self._replaced(text[:cut], folding.places(found)), text[cut:]

    def _spans(self, text: bytes, held: bytes = b"") -> list[tuple[int, int]]:
        try:
            if not (held and self._reader.is_dense(held)):
                return self._reader.spans(text)
        except Unreadable:
            pass
        raise RefusedConnection(SecretCode.SECRET_ANSWER_DENSE.note(limit=DEPTH))

    def _replaced(self, text: bytes, found: Sequence[tuple[int, int]]) -> bytes:
        if not found:
            return text
        pieces, done = [], 0
        for begin, end in found:
            pieces += [text[done:begin], self._instead(text[begin:end])]
            done = end
        return b"".join([*pieces, text[done:]])

    def _instead(self, found: bytes) -> bytes:
        for value, placeholder in self._placeholders:
            if found == value.reveal() and len(placeholder) == len(found):
                return placeholder
        return self._mark * len(found)


class Scrubbing:
    """The body of one answer, in pieces."""

    def __init__(self, scrubber: Scrubber) -> None:
        self._scrubber = scrubber
        self._held = bytearray()
        self._due = 0
        """Bytes that are held when it is looked at again."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what can be passed on: all but the window, and half of it so that small pieces are cheap.

        Raises `RefusedConnection`.
        """
        half = self._scrubber.window // 2
        for at in range(0, len(data), STEP_BYTES):
            self._held += data[at : at + STEP_BYTES]
            if len(self._held) > max(self._due, 3 * half):
                ready, left = self._scrubber.split(bytes(self._held))
                self._held = bytearray(left)
                self._due = len(left) + half  # many blanks are held, which are not folded for each byte
                if ready:
                    yield ready

    def finish(self) -> bytes:
        """Return what is left, at the end of the body. Raises `RefusedConnection`."""
        left, self._held = bytes(self._held), bytearray()
        return self._scrubber.clean(left)


MAX_TIMES = 100
"""What unpacks to more times its length is made to fill memory."""
FREE_BYTES = 4 << 20
"""How much may come of however little."""
_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
PACKED = frozenset(("gzip", "x-gzip", "deflate"))
NAMED = frozenset(
    ("br", "zstd", "compress", "x-compress", "dcb", "dcz", "aws-chunked", "aes128gcm", "exi", "bzip2", "xz")
)
"""Codings that a refusal names. The name of any other is the host's words, which may be those that it was sent."""


def coding_of(head: ResponseHead, host: str) -> str | None:
    """Return the one coding of an answer that is undone here, None for none. Raises `RefusedConnection` for another."""
    words = [word.strip().lower() for value in head.values(b"content-encoding") for word in value.split(b",")]
    codings = [word.decode("latin-1") for word in words if word not in {b"", b"identity"}]
    if not codings:
        return None
    if len(codings) > 1 or codings[0] not in PACKED:
        known = [one if one in PACKED | NAMED else "one without a common name" for one in codings[:4]]
        raise RefusedConnection(SecretCode.SECRET_CODING_UNKNOWN.note(host=host, coding=" in ".join(known)))
    return codings[0]


class Unpacking:
    """A body that was packed, for a filter that reads it plainly."""

    def __init__(self, coding: str, inner: BodyFilter, host: str) -> None:
        self._inner = inner
        self._host = host
        self._gzip = coding != "deflate"
        self._unpacker = zlib.decompressobj(_GZIP) if self._gzip else None
        self._begun = b""
        self._taken = self._given = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what the filter lets out, no more of it unpacked than is taken. Raises `RefusedConnection`."""
        self._taken += len(data)
        if self._unpacker is None:
            # Servers mean two things by deflate: with zlib's two bytes before it, and without.
            self._begun += data
            if len(self._begun) < 2:
                return
            data, self._begun = self._begun, b""
            zlibs = data[0] & 15 == zlib.DEFLATED and int.from_bytes(data[:2], "big") % 31 == 0
            self._unpacker = zlib.decompressobj(_ZLIB if zlibs else _RAW)
        for piece in self._unpacked(data, self._unpacker):
            yield from self._inner.feed(piece)

    def finish(self) -> bytes:
        """Return the rest. Raises `RefusedConnection` for a body that ends too early."""
        if self._begun or (self._unpacker is not None and not self._unpacker.eof and self._taken):
            raise self._broken()
        return self._inner.finish()

    def _unpacked(self, data: bytes, unpacker: zlib._Decompress) -> Iterator[bytes]:
        left = False  # more than one step comes of what was taken in already: such a body may end so
        try:
            while data or left:
                if unpacker.eof:
                    if not self._gzip or data[:1] != b"\x1f":
                        break  # what follows the end belongs to nothing
                    unpacker = self._unpacker = zlib.decompressobj(_GZIP)  # gzip may hold several files
                piece = unpacker.decompress(data, STEP_BYTES)
                self._given += len(piece)
                if self._given > FREE_BYTES + MAX_TIMES * self._taken:
                    raise RefusedConnection(SecretCode.SECRET_CODING_EXPANDS.note(host=self._host, limit=MAX_TIMES))
                yield piece
                data = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
                left = len(piece) == STEP_BYTES and not unpacker.eof
        except zlib.error:
            raise self._broken() from None

    def _broken(self) -> RefusedConnection:
        return RefusedConnection(SecretCode.SECRET_CODING_BROKEN.note(host=self._host))
