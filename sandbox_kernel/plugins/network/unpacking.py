"""Bodies in gzip and deflate, unpacked in bounded memory, so that they can be looked through. Imports the codes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from .codes import SecretCode
from .exchange import BodyFilter, ResponseHead
from .policy import Refused

MAX_TIMES = 100
"""What unpacks to more times its length is made to fill memory."""
FREE_BYTES = 4 << 20
"""How much may come of however little."""
STEP_BYTES = 64 << 10

_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
PACKED = frozenset(("gzip", "x-gzip", "deflate"))
NAMED = frozenset(
    ("br", "zstd", "compress", "x-compress", "dcb", "dcz", "aws-chunked", "aes128gcm", "exi", "bzip2", "xz")
)
"""Codings that a refusal names. The name of any other is the host's words, which may be those that it was sent."""


def coding_of(head: ResponseHead, host: str) -> str | None:
    """Return the one coding of an answer that is undone here, None for no coding. Raises `Refused` for any other."""
    words = [word.strip().lower() for value in head.values(b"content-encoding") for word in value.split(b",")]
    codings = [word.decode("latin-1") for word in words if word not in {b"", b"identity"}]
    if not codings:
        return None
    if len(codings) > 1 or codings[0] not in PACKED:
        known = [one if one in PACKED | NAMED else "one without a common name" for one in codings[:4]]
        raise Refused(SecretCode.SECRET_CODING_UNKNOWN.note(host=host, coding=" in ".join(known)))
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
        """Yield what the filter lets out, no more of it unpacked than is taken. Raises `Refused`."""
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
        """Return the rest. Raises `Refused` for a body that ends too early."""
        if self._begun or (self._unpacker is not None and not self._unpacker.eof and self._taken):
            raise self._broken()
        return self._inner.finish()

    def _unpacked(self, data: bytes, unpacker: zlib._Decompress) -> Iterator[bytes]:
        try:
            while data:
                if unpacker.eof:
                    if not self._gzip or data[:1] != b"\x1f":
                        break  # what follows the end belongs to nothing
                    unpacker = self._unpacker = zlib.decompressobj(_GZIP)  # gzip may hold several files
                piece = unpacker.decompress(data, STEP_BYTES)
                self._given += len(piece)
                if self._given > FREE_BYTES + MAX_TIMES * self._taken:
                    raise Refused(SecretCode.SECRET_CODING_EXPANDS.note(host=self._host, limit=MAX_TIMES))
                yield piece
                data = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
        except zlib.error:
            raise self._broken() from None

    def _broken(self) -> Refused:
        return Refused(SecretCode.SECRET_CODING_BROKEN.note(host=self._host))
