"""The first word of TLS: which server a client names, before anything is encrypted. Bytes in, values out; no I/O.

A hello may come in several records and any pieces, and is read whole within bounds. What could be read in two ways is
refused, and so is a name that stands in an encrypted hello within: nobody but the server could say where that leads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .codes import NetworkCode
from .policy import RefusedConnection

HANDSHAKE, CHANGE_CIPHER_SPEC, ALERT, APPLICATION_DATA = 22, 20, 21, 23
MAX_HELLO = 48 << 10
"""Bytes of a hello; one with keys of today's kinds and a ticket has 2 KiB."""
MAX_RECORD = 1 << 14
MAX_RECORDS = 64
"""Records over which a hello is spread."""
MAX_SKIPPED = 1 << 20
"""Bytes of early data that lie before a second hello; the server throws them away."""

_SERVER_NAME = 0
_ENCRYPTED_HELLO = frozenset((*range(0xFE08, 0xFE0E), 0xFFCE))
"""As it is now, and its drafts."""
_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"""What stands in the place of a server's random number if it asks for another hello."""

ALERT_ACCESS_DENIED = bytes((ALERT, 3, 3, 0, 2, 2, 49))
"""What a client is told whose hello is refused."""


@dataclass(frozen=True, slots=True)
class ClientHello:
    server_name: str | None
    """As it is written, by latin-1; None if there is none."""
    hides: bool
    """Whether another one is encrypted within."""


class HelloReader:
    """Takes a client's first bytes until the hello is complete."""

    def __init__(self, *, second: bool = False) -> None:
        """`second`: after a server that asked for another one; what lies before that is passed on."""
        self._second = second
        self._data = bytearray()
        self._at = 0
        """Where the next record begins."""
        self._message = bytearray()
        self._records = 0
        self._skipped = 0

    def feed(self, data: bytes) -> ClientHello | None:
        """Return the hello once it is complete. Raises Refused as soon as it is none."""
        self._data += data
        while self._at < len(self._data):
            kind = self._data[self._at]
            if kind != HANDSHAKE and not self._may_skip(kind):
                raise RefusedConnection(NetworkCode.NOT_TLS.note())
            if len(self._data) - self._at < 5:
                return None
            major, minor = self._data[self._at + 1], self._data[self._at + 2]
            length = int.from_bytes(self._data[self._at + 3 : self._at + 5], "big")
            if major != 3 or minor > 4:
                raise RefusedConnection(NetworkCode.NOT_TLS.note())
            most = MAX_RECORD if kind == HANDSHAKE else MAX_RECORD + 256
            if not 0 < length <= most:
                raise _improper("has a record of an impossible length")
            if len(self._data) - self._at < 5 + length:
                return None
            record = bytes(self._data[self._at + 5 : self._at + 5 + length])
            self._at += 5 + length
            if kind != HANDSHAKE:
                self._skipped += 5 + length
                if self._skipped > MAX_SKIPPED:
                    raise _improper("comes too late")
            elif (hello := self._add(record)) is not None:
                return hello
        return None

    @property
    def taken(self) -> bytes:
        return bytes(self._data[: self._at])

    @property
    def rest(self) -> bytes:
        return bytes(self._data[self._at :])

    def _may_skip(self, kind: int) -> bool:
        return self._second and not self._message and kind in {CHANGE_CIPHER_SPEC, APPLICATION_DATA}

    def _add(self, record: bytes) -> ClientHello | None:
        self._message += record
        self._records += 1
        if self._message[0] != 1:
            raise RefusedConnection(NetworkCode.NOT_TLS.note())
        if self._records > MAX_RECORDS:
            raise _improper("is spread over too many records")
        if len(self._message) < 4:
            return None
        length = 4 + int.from_bytes(self._message[1:4], "big")
        if length > MAX_HELLO:
            raise _improper("is too large")
        if len(self._message) < length:
            return None
        if len(self._message) > length:
            raise _improper("has something behind it in its record")
        return parse(bytes(self._message[4:]))


def parse(body: bytes) -> ClientHello:
    """Parse a client hello; `body` is all of it but its first four bytes. Raises Refused."""
    reader = _Bytes(body)
    reader.take(2 + 32)
    if len(reader.vector(1)) > 32:
        raise _improper("is not as TLS has it")
    reader.vector(2)
    reader.vector(1)
    if reader.is_empty:
        return ClientHello(None, hides=False)
    extensions = dict[int, bytes]()
    for kind, content in _extensions(reader.vector(2)):
        if kind in extensions:
            raise _improper("says something twice")
        extensions[kind] = content
    if not reader.is_empty:
        raise _improper("is not as TLS has it")
    name = _server_name(extensions[_SERVER_NAME]) if _SERVER_NAME in extensions else None
    return ClientHello(name, hides=not _ENCRYPTED_HELLO.isdisjoint(extensions))


def _extensions(content: bytes) -> Iterator[tuple[int, bytes]]:
    reader = _Bytes(content)
    while not reader.is_empty:
        kind = int.from_bytes(reader.take(2), "big")
        yield kind, reader.vector(2)


def _server_name(content: bytes) -> str:
    """Return the one name that the extension has."""
    outer = _Bytes(content)
    names = _Bytes(outer.vector(2))
    if names.take(1) != b"\0":
        raise _improper("names a server of an unknown kind")
    name = names.vector(2)
    if not name or not names.is_empty or not outer.is_empty:
        raise _improper("does not name one server")
    return name.decode("latin-1")


class _Bytes:
    """Takes pieces off the front. Raises Refused where there is not enough."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_empty(self) -> bool:
        return self._at == len(self._data)

    def take(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise _improper("is not as TLS has it")
        piece = self._data[self._at : self._at + count]
        self._at += count
        return piece

    def vector(self, width: int) -> bytes:
        """Take a piece with its length in front, of `width` bytes."""
        return self.take(int.from_bytes(self.take(width), "big"))


def asks_again(first: bytes) -> bool | None:
    """Return whether a server's first bytes ask for another hello; None if there are too few to tell."""
    said = len(first)
    while first[:1] == bytes((ALERT,)):  # a mere warning, such as that of a name that is not known, may come before it
        if len(first) < 7:
            return None
        if first[3:5] != b"\0\2" or said > MAX_RECORD:
            return True  # no alert that anybody sends
        if first[5] != 1 or first[6] == 0:
            return False  # an end
        first = first[7:]
    if first[:1] != bytes((HANDSHAKE,)) and first:
        return False
    if len(first) < 6:
        return None
    if first[5] != 2:
        return False
    if int.from_bytes(first[3:5], "big") < 38:
        return True  # cut where nobody cuts it: a second hello is looked for, and nothing else goes on
    return None if len(first) < 43 else first[11:43] == _RETRY


def _improper(what: str) -> RefusedConnection:
    return RefusedConnection(NetworkCode.HELLO_IMPROPER.note(what=what))
