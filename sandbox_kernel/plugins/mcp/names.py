"""Which Host and Origin a request may carry: both are parsed to values, and values are compared. Standard library only.

A page of another site can make a browser send requests to loopback, and can point its own name there. What it cannot
do is choose the two headers. A comparison of their texts is not enough: `localhost:8808.evil.test` begins as it should.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_AUTHORITY = re.compile(
    r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?))(?::([0-9]{1,5}))?"
)
_ORIGIN = re.compile(r"https?://([^/?#\\@\s]+)")


class Authority(NamedTuple):
    """A host and a port, None if none is said."""

    host: str
    """In small letters; an IPv6 address in its short form, without brackets."""
    port: int | None


def authority(text: str) -> Authority | None:
    """Return what `text` says, if it is a host with or without a port and nothing else: no user, no path, no space."""
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        return None
    address, name, digits = found.groups()
    if digits is not None and (not 1 <= int(digits) <= 65535 or digits[0] == "0"):
        return None
    port = int(digits) if digits is not None else None
    if address is None:
        return Authority(name.lower(), port)
    try:
        return Authority(ipaddress.IPv6Address(address).compressed, port)
    except ValueError:
        return None


def origin(text: str) -> Authority | None:
    """Return host and port of an Origin with the scheme http or https, None for anything else."""
    found = _ORIGIN.fullmatch(text)
    return authority(found[1]) if found is not None else None


class Names:
    """The names under which a server is reached: those of loopback, and those that its operator gave."""

    def __init__(self, given: Iterable[Authority] = ()) -> None:
        self._known = frozenset((*(Authority(name, None) for name in LOOPBACK), *given))

    def host(self, values: Sequence[str]) -> bool:
        """Return whether these values of the header Host are one, and name this server."""
        return len(values) == 1 and self._knows(authority(values[0]))

    def origin(self, values: Sequence[str]) -> bool:
        """Return whether these values of the header Origin are none, as from a program, or one of this server's."""
        return not values or (len(values) == 1 and self._knows(origin(values[0])))

    def _knows(self, found: Authority | None) -> bool:
        """A name that was given without a port goes with every port: tunnels and proxies have their own."""
        return found is not None and (found in self._known or found._replace(port=None) in self._known)
