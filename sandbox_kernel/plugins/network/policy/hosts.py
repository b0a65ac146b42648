"""Hosts as they are written: each has one canonical form, or is refused. Imports codes and addresses.

Rules, requests and Host headers all go through here. Nothing is repaired: a spelling that one program reads as a name
and another as an address, or as another name, is refused, and so cannot pass as something else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from ....core.codes import Code, Note
from ..codes import NetworkCode
from .addresses import Address, AddressKind, kind_of

MAX_SHOWN = 80
"""Characters of a host's name that a text repeats."""


class RefusedConnection(Exception):
    """A connection or a request may not leave; `note` says why.

    `rule` is the line of the setting `network` that would allow it, None where no rule would.
    """

    def __init__(self, note: Note, rule: str | None = None) -> None:
        super().__init__(note.text)
        self.note = note
        self.rule = rule

    @property
    def code(self) -> Code:
        return self.note.code


def shown(raw: bytes | str) -> str:
    """Return what a cell wrote as a text may repeat it: bounded, printable ASCII, in quotes."""
    text = raw.decode("latin-1") if isinstance(raw, bytes) else raw
    cut = text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."
    return ascii(cut)


MAX_NAME = 253
MAX_LABEL = 63
MAX_AUTHORITY = MAX_NAME + len(".:65535")

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?")
"""Underscores are no part of a host's name by the book, but buckets and services have them, and no parser gives them a
sense. A hyphen in front could be taken for an option, and one at the end has no use."""
_ODD = re.compile(r"[^a-z0-9._:\[\]-]")
_IPV4 = re.compile(r"(?:(?:0|[1-9][0-9]{0,2})\.){3}(?:0|[1-9][0-9]{0,2})")
_TOP = re.compile(r"[a-z][a-z0-9-]*")
"""Every top-level domain begins with a letter. What begins with a digit there is the last part of an IPv4 address to
somebody: in hex, in octal, or as far as its digits go."""
_PORT = re.compile(rb"[1-9][0-9]{0,4}")

_CALLED = {"\0": "a NUL", "\r": "a line break", "\n": "a line break", "\t": "a tab", " ": "a space",
           "%": "a percent sign", "@": "a user's name", "/": "a slash", "\\": "a backslash"}  # fmt: skip

INSIDE = frozenset(("localhost", "localhost.localdomain", "localhost4.localdomain4", "localhost6.localdomain6"))
SPECIAL = frozenset(("local", "onion", "alt", "invalid"))
"""Last labels that no domain name system answers for: `local` is answered by whoever is in the local network."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a connection is to go, in canonical form."""

    host: str
    """A name in ASCII and small letters without a final dot, or an address: IPv6 is short and has no brackets.

    A resolver has to be asked for exactly this name, and must append no search domain of the machine's.
    """
    port: int
    address: Address | None = None
    """The address if the host is one: nothing is resolved then."""

    @property
    def authority(self) -> str:
        """Host and port as they stand in a request."""
        return f"{bracketed(self.host)}:{self.port}"


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def canonical(raw: bytes | str) -> tuple[str, Address | None]:
    """Return the one form of a host, and its address if it is one. Raises Refused for what has none.

    Bytes are what a client sent, and have to be ASCII. Text may be an international name, as a person writes it.
    """
    text = raw.decode("latin-1") if isinstance(raw, bytes) else raw
    if not text:
        raise RefusedConnection(NetworkCode.HOST_EMPTY.note())
    if len(text) > MAX_NAME + 1:
        raise RefusedConnection(NetworkCode.HOST_TOO_LONG.note())
    if text.isascii():
        return _plain(text.lower(), raw)
    if isinstance(raw, bytes):
        raise RefusedConnection(NetworkCode.HOST_CHARACTER.note(host=shown(raw), what="a byte that is not ASCII"))
    import idna

    try:  # UTS 46 without its transitional rules, and IDNA 2008
        remapped = idna.uts46_remap(text, std3_rules=False, transitional=False)
        labels = [label if label.isascii() else idna.alabel(label).decode() for label in remapped.split(".")]
    except ValueError:
        raise RefusedConnection(NetworkCode.HOST_IDNA.note(host=shown(text))) from None
    host, address = _plain(".".join(labels), raw)
    if address is not None:
        raise RefusedConnection(NetworkCode.HOST_ADDRESS.note(host=shown(raw)))
    return host, None


def _plain(text: str, raw: bytes | str) -> tuple[str, Address | None]:
    """Return the form of a host in ASCII and small letters."""
    if odd := _ODD.search(text):
        what = _CALLED.get(odd[0], "a character that no host has")
        raise RefusedConnection(NetworkCode.HOST_CHARACTER.note(host=shown(raw), what=what))
    if ":" in text or "[" in text or "]" in text:
        inside = text[1:-1] if text.startswith("[") and text.endswith("]") else text
        try:
            six = IPv6Address(inside)
        except ValueError:
            raise RefusedConnection(NetworkCode.HOST_ADDRESS.note(host=shown(raw))) from None
        if int(six) >> 32 in (0, 0xFFFF) and int(six) > 1:  # an IPv4 address in disguise
            raise RefusedConnection(NetworkCode.HOST_ADDRESS.note(host=shown(raw)))
        return _of_a_host(str(six), six, raw)
    if _IPV4.fullmatch(text) and max(map(int, text.split("."))) <= 255:
        return _of_a_host(text, IPv4Address(text), raw)
    name = text.removesuffix(".")
    labels = name.split(".")
    if labels[-1][:1].isdigit():
        raise RefusedConnection(NetworkCode.HOST_ADDRESS.note(host=shown(raw)))
    if len(name) > MAX_NAME:
        raise RefusedConnection(NetworkCode.HOST_TOO_LONG.note())
    for label in labels:
        if why := _fault(label):
            raise RefusedConnection(NetworkCode.HOST_LABEL.note(host=shown(raw), why=why))
        if label.startswith("xn--"):
            _check_international(label, raw)
    if labels[-1] == "localhost" or name in INSIDE:
        raise RefusedConnection(NetworkCode.HOST_INSIDE.note(host=shown(name)))
    if len(labels) == 1:
        raise RefusedConnection(NetworkCode.HOST_ONE_LABEL.note(host=shown(raw)))
    if not _TOP.fullmatch(labels[-1]):
        raise RefusedConnection(NetworkCode.HOST_LABEL.note(host=shown(raw), why="is no top-level domain"))
    if labels[-1] in SPECIAL:
        raise RefusedConnection(NetworkCode.HOST_SPECIAL.note(host=shown(name), suffix=labels[-1]))
    return name, None


def _of_a_host(text: str, address: Address, raw: bytes | str) -> tuple[str, Address]:
    """Refuse an address of no host, or of many: some read 0.0.0.0 as all hosts, and systems as themselves."""
    kind = kind_of(address)
    if kind is AddressKind.UNSPECIFIED:
        raise RefusedConnection(NetworkCode.HOST_INSIDE.note(host=shown(text)))
    if kind is AddressKind.MULTICAST:
        raise RefusedConnection(NetworkCode.HOST_ADDRESS.note(host=shown(raw)))
    return text, address


def _fault(label: str) -> str | None:
    """Return what is wrong with a label, None if nothing is."""
    if not label:
        return "is empty"
    if len(label) > MAX_LABEL:
        return "is longer than 63 characters"
    if not _LABEL.fullmatch(label):
        return "begins or ends with a hyphen"
    return None


def _check_international(label: str, raw: bytes | str) -> None:
    """Refuse a label with `xn--` unless it stands for letters that stand for it, and for nothing else."""
    import idna

    try:
        letters = idna.ulabel(label)
        same = not letters.isascii() and idna.uts46_remap(letters, std3_rules=False, transitional=False) == letters
        same = same and idna.alabel(letters).decode() == label
    except ValueError:
        same = False
    if not same:
        raise RefusedConnection(NetworkCode.HOST_IDNA.note(host=shown(raw)))


def split(authority: bytes) -> tuple[bytes, int | None]:
    """Return the host and the port of `host`, `host:port` or `[address]:port`. Raises Refused for an improper port.

    The host is as it was written: `canonical` looks at it.
    """
    if len(authority) > MAX_AUTHORITY:
        raise RefusedConnection(NetworkCode.HOST_TOO_LONG.note())
    host, colon, digits = authority.rpartition(b":")
    if not colon or (authority.startswith(b"[") and authority.endswith(b"]")):
        return authority, None
    if b":" in host and not (host.startswith(b"[") and host.endswith(b"]")):
        raise RefusedConnection(NetworkCode.HOST_ADDRESS.note(host=shown(authority)))
    return host, port_of(digits, host)


def port_of(digits: bytes, host: bytes | str) -> int:
    """Return the port that a request or a rule names. Raises Refused unless it is a plain number from 1 to 65535."""
    if not _PORT.fullmatch(digits) or int(digits) > 65535:
        raise RefusedConnection(NetworkCode.PORT_IMPROPER.note(host=shown(host)))
    return int(digits)
