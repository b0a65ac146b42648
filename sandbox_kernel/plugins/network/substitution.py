"""One exchange with the host of secrets: values go into the request where placeholders stand, and out of the answer.

A value goes into the address and the headers of a request, or into its own header alone if it has one; never into a
body. The host may answer with whatever it was sent; the answer is asked for whole and unpacked, so that it can be
looked through. Imports the scrubber.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from .codes import SecretCode
from .exchange import BodyFilter, Headers, RequestHead, ResponseHead
from .policy import Refused
from .proxy_head import canonical
from .scrub import Scrubber, Scrubbing
from .value import Value

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


ECHOING = frozenset(("TRACE", "TRACK", "DEBUG"))
"""Methods whose answer is the request."""
IN_PARTS = frozenset((206, 226))
LEFT_OUT = frozenset(
    (
        b"range", b"if-range", b"request-range", b"a-im", b"accept-encoding", b"want-digest", b"want-content-digest",
        b"want-repr-digest",
    )
)  # fmt: skip
"""What asks for a part of something, or for it in another form. A host may always answer as if it were not there."""
DIGESTS = frozenset((b"content-md5", b"digest", b"content-digest", b"repr-digest"))
"""Of a body as it was before values were taken out: a cell could try its guesses against one on its own."""
BODILESS = frozenset((204, 304))

_BASIC = re.compile(rb"(basic) +([A-Za-z0-9+/]+={0,2})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Held:
    """One secret of a session."""

    name: str
    value: Value
    placeholder: bytes
    hosts: frozenset[tuple[str, int]]
    """Canonical names with ports: where the value goes, and nowhere else."""
    header: tuple[bytes, bytes, bytes] | None = None
    """A header that requests get: its name, and what stands before and behind the value, which goes nowhere else."""


class _Places:
    """Some placeholders, with what stands in their places."""

    def __init__(self, held: Iterable[Held]) -> None:
        self._values = {one.placeholder: one.value for one in held}
        self._pattern = re.compile(b"|".join(map(re.escape, self._values)) or b"(?!)")

    def filled(self, text: bytes, write: Callable[[bytes], bytes] = bytes) -> bytes:
        return self._pattern.sub(lambda match: write(self._values[match[0]].reveal()), text)


class Substitution:
    """An `Exchange` with a host of secrets."""

    def __init__(self, host: str, held: Sequence[Held], scrubber: Scrubber) -> None:
        """`held` are the secrets of this host; `scrubber` knows those of all hosts."""
        self._host = host
        self._held = held
        self._scrubber = scrubber
        self._anywhere = _Places(one for one in held if one.header is None)
        names = {one.header[0].lower() for one in held if one.header is not None}
        self._in_header = {
            name: _Places(one for one in held if one.header is None or one.header[0].lower() == name) for name in names
        }
        self._method = ""
        self._coding: str | None = None

    def request(self, head: RequestHead) -> RequestHead:
        """Return the request with the values in it. Raises `Refused`."""
        if head.scheme != "https":
            raise Refused(SecretCode.SECRET_NEEDS_TLS.note(host=self._host))
        self._method = head.method.upper()
        if self._method in ECHOING:
            raise Refused(SecretCode.SECRET_METHOD.note(host=self._host, method=self._method))
        path = self._anywhere.filled(head.path, lambda value: quote(value, safe="").encode())
        kept = [(name, self._filled(name, value)) for name, value in head.headers if canonical(name) not in LEFT_OUT]
        return replace(head, path=path, headers=(*kept, *self._added(head), (b"Accept-Encoding", b"identity")))

    def _filled(self, name: bytes, value: bytes) -> bytes:
        places = self._in_header.get(name.lower(), self._anywhere)
        if (basic := _BASIC.fullmatch(value)) is not None:
            try:
                plain = base64.b64decode(basic[2])
            except binascii.Error:
                return value
            filled = places.filled(plain)
            return value if filled == plain else basic[1] + b" " + base64.b64encode(filled)
        return places.filled(value)

    def _added(self, head: RequestHead) -> Headers:
        there = {name.lower() for name, _ in head.headers}
        return tuple(
            (name, before + one.value.reveal() + behind)
            for one in self._held
            if one.header is not None
            for name, before, behind in (one.header,)
            if name.lower() not in there
        )

    def response(self, head: ResponseHead) -> ResponseHead:
        """Return the head of the answer without values. Raises `Refused`."""
        if head.status in IN_PARTS:
            raise Refused(SecretCode.SECRET_ANSWER_IN_PARTS.note(host=self._host, status=head.status))
        headers = tuple(one for one in head.headers if one[0].lower() not in DIGESTS)
        if self._method != "HEAD" and head.status not in BODILESS:
            self._coding = coding_of(head, self._host)
            if self._coding is not None:
                headers = tuple(one for one in headers if one[0].lower() != b"content-encoding")
        clean = self._scrubber.clean
        return replace(
            head, reason=clean(head.reason), headers=tuple((clean(name), clean(value)) for name, value in headers)
        )

    def body(self) -> BodyFilter:
        """Return what takes the values out of the body."""
        plain = Scrubbing(self._scrubber)
        return plain if self._coding is None else Unpacking(self._coding, plain, self._host)
