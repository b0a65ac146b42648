"""Addresses by what lies behind them: what is not public is dialled only with a rule for it. Imports nothing of ours.

The tables are ours, from the special-purpose registries of IANA: what `ipaddress` calls global differs from one Python
to the next, and has held relays to IPv4 and the link to a cloud's host. What both call public is public.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_network

Address = IPv4Address | IPv6Address


class AddressKind(StrEnum):
    """What lies behind an address, in words for people."""

    PUBLIC = "a public address"
    UNSPECIFIED = "an address of no host, which systems take for their own"
    LOOPBACK = "an address of the machine itself"
    PRIVATE = "an address of a private network"
    SHARED = "an address within a provider's network"
    LINK_LOCAL = "an address of the local link"
    MULTICAST = "an address of many hosts"
    DOCUMENTATION = "an address for documents and measurements"
    RESERVED = "a reserved address"
    TRANSITION = "an address that leads to another one"
    METADATA = "a metadata service"
    OWN = "an address of this machine"


METADATA = frozenset(
    map(
        IPv4Address,
        (
            "169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.169.253", "169.254.169.123", "169.254.42.42",
            "169.254.0.23", "168.63.129.16", "100.100.100.200", "100.96.0.96", "192.0.0.192",
        ),
    )
) | frozenset(
    map(
        IPv6Address,
        ("fd00:ec2::254", "fd00:ec2::253", "fd00:ec2::123", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe",
         "fd00:42::42", "fe80::a9fe:a9fe"),
    )
)  # fmt: skip
"""Where clouds hand out what a machine is and may do. One of them, 168.63.129.16, lies among public addresses."""

_V4 = {
    "0.0.0.0/8": AddressKind.UNSPECIFIED,
    "10.0.0.0/8": AddressKind.PRIVATE,
    "100.64.0.0/10": AddressKind.SHARED,
    "127.0.0.0/8": AddressKind.LOOPBACK,
    "169.254.0.0/16": AddressKind.LINK_LOCAL,
    "172.16.0.0/12": AddressKind.PRIVATE,
    "192.0.0.0/24": AddressKind.RESERVED,
    "192.0.2.0/24": AddressKind.DOCUMENTATION,
    "192.88.99.0/24": AddressKind.TRANSITION,
    "192.168.0.0/16": AddressKind.PRIVATE,
    "198.18.0.0/15": AddressKind.DOCUMENTATION,
    "198.51.100.0/24": AddressKind.DOCUMENTATION,
    "203.0.113.0/24": AddressKind.DOCUMENTATION,
    "224.0.0.0/4": AddressKind.MULTICAST,
    "240.0.0.0/4": AddressKind.RESERVED,
}
_V6 = {
    "::/128": AddressKind.UNSPECIFIED,
    "::1/128": AddressKind.LOOPBACK,
    "2001::/32": AddressKind.TRANSITION,
    "2001::/23": AddressKind.RESERVED,
    "2001:db8::/32": AddressKind.DOCUMENTATION,
    "2002::/16": AddressKind.TRANSITION,
    "3fff::/20": AddressKind.DOCUMENTATION,
    "fc00::/7": AddressKind.PRIVATE,
    "fe80::/10": AddressKind.LINK_LOCAL,
    "fec0::/10": AddressKind.PRIVATE,
    "ff00::/8": AddressKind.MULTICAST,
}
"""The first that holds an address counts. What is not in 2000::/3 is not given to anybody."""


def _table(blocks: dict[str, AddressKind]) -> tuple[tuple[int, int, AddressKind], ...]:
    networks = [(ip_network(text), kind) for text, kind in blocks.items()]
    return tuple((int(one.network_address), int(one.broadcast_address), kind) for one, kind in networks)


_SAYS_LITTLE = (AddressKind.PUBLIC, AddressKind.UNSPECIFIED)
"""What is found where an IPv6 address may hold an IPv4 address, and holds none."""
_BLOCKS_4, _BLOCKS_6 = _table(_V4), _table(_V6)


def kind_of(address: Address) -> AddressKind:
    """Return what lies behind an address. For one that leads to an IPv4 address, that counts if it is not public."""
    if address in METADATA:
        return AddressKind.METADATA
    number = int(address)
    if isinstance(address, IPv4Address):
        kind = next((kind for low, high, kind in _BLOCKS_4 if low <= number <= high), AddressKind.PUBLIC)
    elif getattr(address, "scope_id", None) is not None:
        return AddressKind.LINK_LOCAL
    else:
        inner = [kind_of(IPv4Address(one)) for one in _embedded(number)]
        if AddressKind.METADATA in inner:
            return AddressKind.METADATA
        if inner:
            return next((kind for kind in inner if kind not in _SAYS_LITTLE), AddressKind.TRANSITION)
        unassigned = AddressKind.PUBLIC if number >> 125 == 1 else AddressKind.RESERVED
        kind = next((kind for low, high, kind in _BLOCKS_6 if low <= number <= high), unassigned)
    if kind is AddressKind.PUBLIC and (not address.is_global or address.is_multicast):
        return AddressKind.RESERVED
    return kind


def _embedded(number: int) -> Iterator[int]:
    last = number & 0xFFFFFFFF
    head = number >> 32
    if head in (0, 0xFFFF, 0xFFFF0000) and number > 1:  # compatible, mapped, translated
        yield last
    if head == 0x0064FF9B << 64:  # NAT64
        yield last
    if number >> 80 == 0x0064FF9B0001:  # NAT64 of a network's own: after 48, 56, 64 or 96 bits, and around an octet
        yield last
        yield (number >> 64 & 0xFFFF) << 16 | (number >> 40 & 0xFFFF)
        yield (number >> 64 & 0xFF) << 24 | (number >> 32 & 0xFFFFFF)
        yield number >> 24 & 0xFFFFFFFF
    if number >> 112 == 0x2002:  # 6to4
        yield number >> 80 & 0xFFFFFFFF
    if number >> 96 == 0x20010000:  # Teredo: its server, and the client with all bits turned
        yield number >> 64 & 0xFFFFFFFF
        yield last ^ 0xFFFFFFFF
    if number >> 32 & 0xFDFFFFFF == 0x5EFE:  # ISATAP
        yield last
