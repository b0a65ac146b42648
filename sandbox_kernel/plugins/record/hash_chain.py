"""How a line of the audit is sealed: its number, what it makes of all lines before it, and a code that needs the key.

    {"time":...,"session":...,"event":..., ... ,"n":17,"chain":"64 hex digits","mac":"32 hex digits"}

`chain` is the SHA-256 of the chain before it and of the line up to and with its number: anybody can compute it, so that
one signature over one of them binds all lines before. `mac` is an HMAC-SHA256 over both, of which 128
bits are kept (RFC 4868 does so): without the key none can be made. Pure.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

VERSION = 1
FIRST_BYTES = b'{"time":"'
"""Of every line, and so of every audit: a file that begins with anything else is not appended to."""
MAX_LINE = 4096
"""Bytes of one line, seal and newline included."""
MAX_BODY = MAX_LINE - 160
"""Bytes of a line before it is sealed."""
MAX_LINES = 10**18

HEADER, BEGIN, END, ANCHOR, GAP = "audit", "begin", "end", "anchor", "gap"
OWN_EVENTS = frozenset((HEADER, BEGIN, END, ANCHOR, GAP))
"""Events that the record writes of itself; nobody else's bear these names."""


class Gap(StrEnum):
    """What a line `gap` says of the file before it."""

    TORN = "torn"
    """The bytes before it are a line that was broken off; its length and its hash are said."""
    CUT = "cut"
    ALTERED = "altered"
    LOST = "lost"
    SET_ASIDE = "set-aside"


_DOMAIN = b"sandbox_kernel audit line v1\0"
_ANCHOR = b"sandbox_kernel audit anchor v1\0"
_SEAL = re.compile(rb',"n":([1-9][0-9]{0,17}),"chain":"([0-9a-f]{64})","mac":"([0-9a-f]{32})"\}')
_SEAL_BYTES = 160


class Head(NamedTuple):
    n: int
    chain: bytes

    def __str__(self) -> str:
        return f"{self.n}:{self.chain.hex()}"

    @classmethod
    def parse(cls, text: str) -> Head | None:
        """Return what `str` made, None for anything else."""
        number, colon, chain = text.strip().partition(":")
        if not colon or not re.fullmatch("[0-9]{1,18}", number) or not re.fullmatch("[0-9a-f]{64}", chain):
            return None
        return cls(int(number), bytes.fromhex(chain))


NOTHING = Head(0, bytes(32))
"""Before the first line."""


def seal(head: Head, body: bytes, mac_key: bytes) -> tuple[bytes, Head]:
    """Return a line for the file, newline included, and the head that it makes. `body` is an object in JSON."""
    n = head.n + 1
    said = b'%b,"n":%d' % (body[:-1], n)
    chain = link(head.chain, said)
    line = b'%b,"chain":"%b","mac":"%b"}\n' % (said, chain.hex().encode(), mac(mac_key, chain, said).hex().encode())
    return line, Head(n, chain)


def link(before: bytes, said: bytes) -> bytes:
    return hashlib.sha256(_DOMAIN + before + said).digest()


def mac(key: bytes, chain: bytes, said: bytes) -> bytes:
    return hmac.digest(key, chain + said, "sha256")[:16]


def anchored(head: Head) -> bytes:
    """Return what the signature of an anchor is made over: everything up to the line before it."""
    return b"%b%d %b" % (_ANCHOR, head.n, head.chain)


@dataclass(frozen=True, slots=True)
class Sealed:
    """One line that has a seal; whether it holds is another question."""

    said: bytes
    """What the seal is over."""
    head: Head
    mac: bytes

    def is_by(self, key: bytes) -> bool:
        """Return whether whoever has the key wrote this line, in this wording and with this number."""
        return hmac.compare_digest(self.mac, mac(key, self.head.chain, self.said))

    def follows(self, head: Head) -> bool:
        return self.head.n == head.n + 1 and self.head.chain == link(head.chain, self.said)

    def fields(self) -> dict[str, Any]:
        """Return what the line says; {} for what is no object in JSON."""
        try:
            found = json.loads(self.said + b"}")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def parse(line: bytes) -> Sealed | None:
    """Return a line without its newline as what it claims to be; None for what has no seal, or is too long."""
    if len(line) >= MAX_LINE or not line.startswith(FIRST_BYTES):
        return None
    at = line.rfind(b',"n":', max(0, len(line) - _SEAL_BYTES))
    match = _SEAL.fullmatch(line, at) if at > 0 else None
    if match is None:
        return None
    said = line[: match.end(1)]
    return Sealed(said, Head(int(match[1]), bytes.fromhex(match[2].decode())), bytes.fromhex(match[3].decode()))
