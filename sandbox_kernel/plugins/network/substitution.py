"""One exchange with the host of secrets: values go into the request where placeholders stand, and out of the answer.

A value goes into the address and the headers of a request, or into its own header alone if it has one; never into a
body. The host may answer with whatever it was sent; the answer is asked for whole and unpacked, so that it can be
looked through. Imports the scrubber.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from .codes import SecretCode
from .exchange import BodyFilter, Headers, RequestHead, ResponseHead
from .policy import Refused
from .proxy_head import canonical
from .scrub import Scrubber, Scrubbing
from .unpacking import Unpacking, coding_of
from .value import Value

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
