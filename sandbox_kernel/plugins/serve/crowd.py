"""A bound on what peers may begin: above it, the owner of the most entries loses its oldest one.

No peer is locked out by others: a newcomer takes the place of one that a larger owner has held for longest.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Crowd(Generic[T]):
    """Members, the oldest first, each of an owner."""

    def __init__(self, most: int, most_of_owner: int, drop: Callable[[T], object]) -> None:
        """`drop` ends a member, which is none any more then."""
        self._most, self._most_of_owner, self._drop = most, most_of_owner, drop
        self._members: dict[T, Hashable] = {}
        self._of: Counter[Hashable] = Counter()

    def __len__(self) -> int:
        return len(self._members)

    def add(self, member: T, owner: Hashable) -> None:
        """Note a member as the youngest, and drop one if there are too many."""
        self.discard(member)
        if self._of[owner] >= self._most_of_owner:
            self._drop_oldest(owner)
        elif len(self._members) >= self._most:
            largest = max(self._of.values())
            own = self._of[owner] + 1 > largest
            self._drop_oldest(owner if own else next(one for one in self._members.values() if self._of[one] == largest))
        self._members[member] = owner
        self._of[owner] += 1

    def discard(self, member: T) -> None:
        if member in self._members:
            owner = self._members.pop(member)
            self._of[owner] -= 1
            if not self._of[owner]:
                del self._of[owner]

    def _drop_oldest(self, owner: Hashable) -> None:
        member = next(one for one, whose in self._members.items() if whose == owner)
        self.discard(member)
        self._drop(member)


def network_of(peer: str) -> str:
    """Return whose connection it is: an address, or the 64 bits of an IPv6 address that one machine has to itself."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.IPv6Network((address, 64), strict=False))
    return str(address)
