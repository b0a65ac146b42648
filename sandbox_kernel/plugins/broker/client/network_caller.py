"""Who a caller is that comes over the network, beside those whom the system knows by a number. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class NetworkCaller:
    """A name, and what vouches for it: the same name in a token and in a certificate is two callers."""

    way: Literal["token", "certificate"]
    name: str
    groups: frozenset[str] = field(default=frozenset(), compare=False)
    """What the cluster says that its token's owner belongs to; another answer later is no other caller."""


User = int | NetworkCaller
"""Whom a broker counts, limits and hides from others: a user id of its machine, or a caller of the network."""
