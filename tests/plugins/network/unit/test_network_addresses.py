"""The guarded way out: where a name may lead, and what a client may say later."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest

from sandbox_kernel.plugins.network.codes import NetworkCode
from sandbox_kernel.plugins.network.policy import (
    Address,
    AddressKind,
    NetworkPolicy,
    RefusedConnection,
    Target,
    kind_of,
)
from tests.support.cases import each

C = NetworkCode
PUBLIC, PUBLIC_6 = ip_address("93.184.215.14"), ip_address("2606:2800:21f::1")
NAME = Target("api.example.test", 443)

KINDS = {
    AddressKind.PUBLIC: "8.8.8.8 93.184.215.14 1.0.0.0 126.255.255.255 128.0.0.0 172.15.255.255 172.32.0.0 "
    "100.63.255.255 100.128.0.0 169.253.255.255 169.255.0.0 192.0.1.0 198.17.255.255 198.20.0.0 223.255.255.255 "
    "2606:2800:21f::1 2000::1 2400::1 2a00::1 2003::1",
    AddressKind.UNSPECIFIED: "0.0.0.0 0.0.0.1 0.255.255.255 ::",
    AddressKind.LOOPBACK: "127.0.0.0 127.0.0.1 127.1.2.3 127.255.255.255 ::1",
    AddressKind.PRIVATE: "10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255 fc00::1 "
    "fd00::1 fdff::1 fec0::1",
    AddressKind.SHARED: "100.64.0.0 100.127.255.255 100.100.100.100",
    AddressKind.LINK_LOCAL: "169.254.0.0 169.254.1.1 169.254.255.255 fe80::1 febf::1 fe80::1%eth0 2606:2800:21f::1%1",
    AddressKind.MULTICAST: "224.0.0.1 239.255.255.255 ff02::1 ff0e::1",
    AddressKind.DOCUMENTATION: "192.0.2.1 198.51.100.1 203.0.113.1 198.18.0.1 198.19.255.255 2001:db8::1 3fff::1",
    AddressKind.RESERVED: "240.0.0.1 255.255.255.255 192.0.0.1 192.0.0.170 100::1 4000::1 8000::1 5f00::1 2001:2::1 "
    "2001:20::1 2001:1ff::1 1::1 fe00::1",
    AddressKind.METADATA: "169.254.169.254 169.254.170.2 169.254.170.23 100.100.100.200 192.0.0.192 168.63.129.16 "
    "169.254.42.42 fd00:ec2::254 fd20:ce::254 fe80::a9fe:a9fe",
    AddressKind.TRANSITION: "192.88.99.1 ::8.8.8.8 ::ffff:8.8.8.8 ::ffff:0:8.8.8.8 64:ff9b::8.8.8.8 64:ff9b:1::8.8.8.8 "
    "2002:808:808::1 2001:0:808:808::f7f7:f7f7 2606:2800:21f::5efe:808:808 2606:2800:21f::200:5efe:808:808",
}


@each(("kind", "text"), [(kind, text) for kind, texts in KINDS.items() for text in texts.split()])
def test_an_address_is_of_its_kind(kind: AddressKind, text: str) -> None:
    assert kind_of(ip_address(text)) is kind


def six(head: str, four: str, bits: int) -> IPv6Address:
    """Return the address that begins with `head` and holds an IPv4 address so many bits from its end."""
    return IPv6Address(int(IPv6Address(head)) | int(IPv4Address(four)) << bits)


WAYS: dict[str, Callable[[str], IPv6Address]] = {
    "compatible": lambda four: six("::", four, 0),
    "mapped": lambda four: six("::ffff:0:0", four, 0),
    "translated": lambda four: six("::ffff:0:0:0", four, 0),
    "NAT64": lambda four: six("64:ff9b::", four, 0),
    "NAT64 of a network's own": lambda four: six("64:ff9b:1::", four, 0),
    "NAT64 of a network's own after 64 bits": lambda four: six("64:ff9b:1:7::", four, 24),
    "6to4": lambda four: six("2002::", four, 80),
    "a Teredo server": lambda four: six("2001::f7f7:f7f7", four, 64),
    "a Teredo client": lambda four: six("2001:0:808:808::", str(IPv4Address(int(IPv4Address(four)) ^ 0xFFFFFFFF)), 0),
    "ISATAP": lambda four: six("2606:2800:21f::5efe:0:0", four, 0),
    "ISATAP with the bit for global": lambda four: six("2606:2800:21f::200:5efe:0:0", four, 0),
}
FOURS = {"127.0.0.1": AddressKind.LOOPBACK, "10.0.0.1": AddressKind.PRIVATE, "169.254.169.254": AddressKind.METADATA,
         "168.63.129.16": AddressKind.METADATA, "100.64.0.1": AddressKind.SHARED}  # fmt: skip


@each("way", WAYS)
@each("four", FOURS)
def test_an_address_that_leads_to_another_is_of_that_one_s_kind(way: str, four: str) -> None:
    assert kind_of(WAYS[way](four)) is FOURS[four]


@each("way", WAYS)
def test_an_address_that_leads_to_a_public_one_is_still_not_public(way: str) -> None:
    assert kind_of(WAYS[way]("93.184.215.14")) is AddressKind.TRANSITION


SPECIAL = """0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24
192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 ::/96 ::ffff:0:0/96
64:ff9b::/96 64:ff9b:1::/48 100::/64 2001::/23 2001:db8::/32 2002::/16 3fff::/20 5f00::/16 fc00::/7 fe80::/10 fec0::/10
ff00::/8""".split()  # noqa: SIM905


@each("block", SPECIAL)
def test_no_end_of_a_special_block_is_public(block: str) -> None:
    network = ip_network(block)
    assert kind_of(network.network_address) is not AddressKind.PUBLIC
    assert kind_of(network.broadcast_address) is not AddressKind.PUBLIC


# --- what may be dialled ---------------------------------------------------------------------------------------------


def check(rules: list[str], target: Target, *addresses: str, own: str = "") -> tuple[Address, ...] | RefusedConnection:
    try:
        return NetworkPolicy(rules).check(target, [ip_address(one) for one in addresses], lambda one: str(one) == own)
    except RefusedConnection as refused:
        return refused


DIALLED: dict[str, tuple[list[str], Target, tuple[str, ...]]] = {
    "a public address": ([], NAME, ("93.184.215.14",)),
    "all of them, in their order": ([], NAME, ("2606:2800:21f::1", "93.184.215.14")),
    "a private one that a rule names": (["10.0.0.7"], NAME, ("10.0.0.7",)),
    "a private one that a rule names with the port": (["10.0.0.7:443"], NAME, ("10.0.0.7",)),
    "a private one beside a public one": (["10.0.0.7"], NAME, ("10.0.0.7", "93.184.215.14")),
    "a private one of IPv6": (["[fd00::7]"], NAME, ("fd00::7",)),
    "a metadata service that a rule names": (["169.254.169.254"], NAME, ("169.254.169.254",)),
    "an address of this machine that a rule names": (["198.20.0.7"], NAME, ("198.20.0.7",)),
}


@pytest.mark.parametrize("sentence", DIALLED)
def test_what_is_dialled(sentence: str) -> None:
    rules, target, addresses = DIALLED[sentence]
    assert check(rules, target, *addresses, own="198.20.0.7") == tuple(map(ip_address, addresses))


UNDIALLED: dict[str, tuple[list[str], Target, tuple[str, ...], NetworkCode, str | None]] = {
    "no address": ([], NAME, (), C.NO_ADDRESS, None),
    "loopback": ([], NAME, ("127.0.0.1",), C.ADDRESS_NOT_PUBLIC, "127.0.0.1"),
    "one of several is private": ([], NAME, ("93.184.215.14", "10.0.0.7"), C.ADDRESS_NOT_PUBLIC, "10.0.0.7"),
    "the rule of the name alone": (["api.example.test"], NAME, ("10.0.0.7",), C.ADDRESS_NOT_PUBLIC, "10.0.0.7"),
    "a rule for another address": (["10.0.0.8"], NAME, ("10.0.0.7",), C.ADDRESS_NOT_PUBLIC, "10.0.0.7"),
    "a rule for another port of it": (["10.0.0.7:80"], NAME, ("10.0.0.7",), C.ADDRESS_NOT_PUBLIC, "10.0.0.7"),
    "a port that its rule does not mean": (["10.0.0.7"], Target("a.example.test", 22), ("10.0.0.7",),
                                           C.ADDRESS_NOT_PUBLIC, "10.0.0.7:22"),
    "a rule for one of its methods": (["GET 10.0.0.7"], NAME, ("10.0.0.7",), C.ADDRESS_NOT_PUBLIC, "10.0.0.7"),
    "a named address in IPv6": (["127.0.0.1"], NAME, ("::ffff:127.0.0.1",), C.ADDRESS_DISGUISED, None),
    "a named address by NAT64": (["127.0.0.1"], NAME, ("64:ff9b::127.0.0.1",), C.ADDRESS_NOT_PUBLIC,
                                 "[64:ff9b::7f00:1]"),
    "an address with a zone": (["[fe80::1]"], NAME, ("fe80::1%2",), C.ADDRESS_DISGUISED, None),
    "this machine's own public address": ([], NAME, ("198.20.0.7",), C.ADDRESS_NOT_PUBLIC, "198.20.0.7"),
    "a metadata service": ([], NAME, ("168.63.129.16",), C.METADATA_SERVICE, None),
    "a metadata service in IPv6": ([], NAME, ("::ffff:169.254.169.254",), C.METADATA_SERVICE, None),
}  # fmt: skip


@each("sentence", UNDIALLED)
def test_what_is_not_dialled(sentence: str) -> None:
    rules, target, addresses, code, rule = UNDIALLED[sentence]
    found = check(rules, target, *addresses, own="198.20.0.7")
    assert isinstance(found, RefusedConnection), found
    assert (found.code, found.rule) == (code, rule)
    if rule:
        again = check([*rules, rule], target, *addresses, own="198.20.0.7")
        assert again == tuple(map(ip_address, addresses))


def test_an_address_that_is_asked_for_is_the_one_that_is_dialled() -> None:
    policy = NetworkPolicy(["GET 10.0.0.7:8080"])
    target = policy.authority(b"10.0.0.7:8080", default_port=None)
    assert policy.allow(target, "GET").host == "10.0.0.7"
    assert policy.check(target, [ip_address("10.0.0.8")], lambda one: False) == (ip_address("10.0.0.7"),)


def test_a_name_with_very_many_addresses_is_bounded_and_the_rest_is_not_dialled() -> None:
    many = [ip_address(int(PUBLIC) + number) for number in range(1000)] + [ip_address("127.0.0.1")]
    assert len(NetworkPolicy([]).check(NAME, many, lambda one: False)) == 64


# --- what a client says later ----------------------------------------------------------------------------------------

SIX = Target("2001:db8::7", 443, ip_address("2001:db8::7"))

SERVER_NAMES: dict[str, tuple[Target, str | None, NetworkCode | None]] = {
    "the same name": (NAME, "api.example.test", None),
    "the same in large letters": (NAME, "API.Example.Test", None),
    "no name for an address": (SIX, None, None),
    "no name for a name": (NAME, None, C.SERVER_NAME_MISSING),
    "an empty name": (NAME, "", C.SERVER_NAME_OTHER),
    "another name": (NAME, "evil.test", C.SERVER_NAME_OTHER),
    "a name below": (NAME, "a.api.example.test", C.SERVER_NAME_OTHER),
    "the name above": (NAME, "example.test", C.SERVER_NAME_OTHER),
    "a final dot, which no server name has": (NAME, "api.example.test.", C.SERVER_NAME_OTHER),
    "a NUL behind it": (NAME, "api.example.test\0", C.SERVER_NAME_OTHER),
    "a NUL and another": (NAME, "api.example.test\0.evil.test", C.SERVER_NAME_OTHER),
    "a port": (NAME, "api.example.test:443", C.SERVER_NAME_OTHER),
    "a space": (NAME, " api.example.test", C.SERVER_NAME_OTHER),
    "a letter whose small form is another's": (Target("k.example.test", 443), "\u212a.example.test",
                                               C.SERVER_NAME_OTHER),
    "an ideographic dot": (NAME, "api\u3002example\u3002test", C.SERVER_NAME_OTHER),
    "the letters of a name with xn--": (Target("xn--mnchen-3ya.test", 443), "m\u00fcnchen.test", C.SERVER_NAME_OTHER),
    "a name for an address": (SIX, "api.example.test", C.SERVER_NAME_OTHER),
    "an address as a name": (SIX, "2001:db8::7", C.SERVER_NAME_OTHER),
}  # fmt: skip


@each("sentence", SERVER_NAMES)
def test_tls_names_the_server_of_the_tunnel(sentence: str) -> None:
    target, name, code = SERVER_NAMES[sentence]
    if code is None:
        NetworkPolicy([]).check_server_name(target, name)
        return
    with pytest.raises(RefusedConnection) as caught:
        NetworkPolicy([]).check_server_name(target, name)
    assert caught.value.code is code


PLAIN = Target("api.example.test", 80)
HOST_HEADERS: dict[str, tuple[Target, bytes, bool]] = {
    "the same host": (PLAIN, b"api.example.test", True),
    "in large letters, with a final dot": (PLAIN, b"API.example.test.", True),
    "with the port": (PLAIN, b"api.example.test:80", True),
    "an unusual port": (Target("api.example.test", 8080), b"api.example.test:8080", True),
    "an IPv6 address": (SIX, b"[2001:DB8::7]", True),
    "no port where it is unusual": (Target("api.example.test", 8080), b"api.example.test", False),
    "another port": (PLAIN, b"api.example.test:8080", False),
    "a port with a zero in front": (PLAIN, b"api.example.test:080", False),
    "another host": (PLAIN, b"evil.test", False),
    "nothing": (PLAIN, b"", False),
    "two hosts": (PLAIN, b"api.example.test, evil.test", False),
    "a user's name": (PLAIN, b"evil.test@api.example.test", False),
    "a space in front": (PLAIN, b" api.example.test", False),
    "a line break": (PLAIN, b"api.example.test\r\nX: y", False),
    "a NUL": (PLAIN, b"api.example.test\0", False),
    "a scheme": (PLAIN, b"http://api.example.test", False),
    "an address": (PLAIN, b"93.184.215.14", False),
    "IPv6 without brackets": (SIX, b"2001:db8::7", False),
    "a host without an end": (PLAIN, b"a" * 100_000, False),
}


@each("sentence", HOST_HEADERS)
def test_the_host_header_is_that_of_the_target(sentence: str) -> None:
    target, header, same = HOST_HEADERS[sentence]
    if same:
        NetworkPolicy([]).check_host_header(target, header)
        return
    with pytest.raises(RefusedConnection) as caught:
        NetworkPolicy([]).check_host_header(target, header)
    assert caught.value.code is C.HOST_HEADER_OTHER
