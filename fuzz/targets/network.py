"""The decision about the network, judged by how others read the same bytes.

Nothing passes that one of them takes for another host, for another port or for an address, and what is dialled is
public or was named.

An input is a rule, an authority, what is said later, and addresses, with 0xff between them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address

from sandbox_kernel.plugins.network.policy import (
    Address,
    BadRule,
    HostRule,
    NetworkPolicy,
    RefusedConnection,
    Target,
    canonical,
)
from tests.support.policy import readers
from tests.support.policy.network import BAD, PORTS, REFUSED, RULES, SAME

from ..judge import Unsafe, require

FORM = re.compile(
    r"(?=.{3,253}\Z)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\Z"
)
FIXED = ("api.example.test", "*.example.org", "GET data.example.test", "10.0.0.7", "[fd00::7]:8080")
OWN = IPv4Address("93.184.215.14")
METADATA = (b"\xa9\xfe\xa9\xfe", b"\xa8\x3f\x81\x10", b"\x64\x64\x64\xc8")
MAX_BYTES = 20_000

_usual: NetworkPolicy


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """Read the rules that are there whatever the input says: once for a million cases."""
    global _usual  # noqa: PLW0603
    _usual = NetworkPolicy(FIXED)
    yield


def run(data: bytes) -> None:
    rule, authority, later, raw = (*data.split(b"\xff", 3), b"", b"", b"", b"")[:4]
    policy = _policy(rule)
    _name(rule.decode("utf-8", "surrogateescape"))
    _name(authority)
    try:
        target = policy.authority(authority, default_port=80)
    except RefusedConnection as refused:
        _proper(refused)
        require(refused.rule is None, refused)
        return
    _read_alike(authority, target)
    method = "GET" if len(later) % 2 else None
    allowed = _allow(policy, target, method)
    _dial(policy, target, list(_addresses(raw)))
    _say(policy, target, later)
    if allowed is not None:
        _covers(allowed, target, method)


def _policy(raw: bytes) -> NetworkPolicy:
    text = raw.decode("utf-8", "surrogateescape")
    try:
        rule = HostRule.parse(text)
    except BadRule as bad:
        require(str(bad).isprintable() and str(bad).isascii() and len(str(bad)) < 3000, str(bad))
        return _usual
    require(HostRule.parse(rule.text) == rule, (text, rule))
    require(rule.host != "" and "*" not in rule.host, rule)
    if rule.address is None:
        require(not readers.taken_for_an_address(rule.host), rule)
    return NetworkPolicy((*FIXED, text))


def _proper(refused: RefusedConnection) -> None:
    text = str(refused)
    require(text.isprintable() and text.isascii() and len(text) < 2000, text)


def _name(raw: bytes | str) -> None:
    """What has a canonical form has one, and nobody reads that as something else."""
    try:
        host, address = canonical(raw)
    except RefusedConnection as refused:
        _proper(refused)
        return
    require(canonical(host) == (host, address), (raw, host))
    require(canonical(host.upper()) == (host, address), (raw, host))
    if isinstance(raw, bytes):
        plain = raw.decode("ascii").lower()
        require(host == plain.removesuffix(".") or address is not None, (raw, host))
    if address is None:
        require(FORM.match(host), host)
        taken = readers.taken_for_an_address(host)
        require(not taken, (host, taken))
        require(readers.same_letters(host), host)
        require(not host.endswith((".localhost", ".local")), host)
    else:
        require(ip_address(host) == address and str(address) == host, (host, address))


def _read_alike(authority: bytes, target: Target) -> None:
    """Whoever reads the same bytes reads the same host and port, or refuses them."""
    for who, parts in readers.readings(authority).items():
        if parts is None:
            continue
        host, port = parts
        if target.address is not None:
            require(ip_address(host) == target.address, (authority, who, host))
        else:
            require(host == target.host, (authority, who, host))
        require((80 if port is None else port) == target.port, (authority, who, port))


def _allow(policy: NetworkPolicy, target: Target, method: str | None) -> HostRule | None:
    try:
        return policy.allow(target, method)
    except RefusedConnection as refused:
        _proper(refused)
        if refused.rule is not None:
            again = NetworkPolicy([*(rule.text for rule in policy.rules), refused.rule]).allow(target, method)
            require(again.text == refused.rule, (refused.rule, again))
        return None


def _covers(rule: HostRule, target: Target, method: str | None) -> None:
    """The rule says so, read again from its text."""
    words = rule.text.split(" ")
    require(len(words) == 1 or words[0] == method or (words[0], method) == ("GET", "HEAD"), (rule, method))
    place = re.fullmatch(r"(\*\.)?(\[.*\]|[^:]*)(?::(\d+))?", words[-1])
    if place is None:
        raise Unsafe(rule)
    host = place[2].strip("[]")
    below = target.host.endswith("." + host) and target.address is None
    require(below if place[1] else target.host == host, (rule, target))
    require(target.port == int(place[3]) if place[3] else target.port in (80, 443), (rule, target))


def _addresses(raw: bytes) -> Iterator[Address]:
    """Read addresses: a byte for the kind, and the bytes of it."""
    while raw:
        size = 16 if raw[0] % 2 else 4
        head, raw = raw[1 : 1 + size], raw[1 + size :]
        if len(head) == size:
            yield IPv6Address(head) if size == 16 else IPv4Address(head)


def _dial(policy: NetworkPolicy, target: Target, addresses: list[Address]) -> None:
    try:
        dialled = policy.check(target, addresses, lambda one: one == OWN)
    except RefusedConnection as refused:
        _proper(refused)
        if refused.rule is not None:
            HostRule.parse(refused.rule)
        return
    require(dialled, target)
    if target.address is not None:
        require(dialled == (target.address,), (target, dialled))
    else:
        require(list(dialled) == list(dict.fromkeys(addresses[:64])), (addresses, dialled))
    named = {rule.address for rule in policy.rules if rule.address is not None}
    for one in dialled:
        require(one in named or (readers.harmless(one) and one != OWN), one)
        require(one in named or one.packed not in METADATA, one)


def _say(policy: NetworkPolicy, target: Target, later: bytes) -> None:
    """What a client says later is the same host, or is refused."""
    try:
        policy.check_host_header(target, later)
    except RefusedConnection as refused:
        _proper(refused)
    else:
        _read_alike(later if b":" in later.rpartition(b"]")[2] else b"%b:%d" % (later, target.port), target)
    name = later.decode("utf-8", "surrogateescape")
    try:
        policy.check_server_name(target, name)
    except RefusedConnection as refused:
        _proper(refused)
    else:
        require(later.lower() == target.host.encode() and target.address is None, (target, later))


def seeds() -> Iterator[bytes]:
    def raw(text: bytes | str) -> bytes:
        return (text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)[:MAX_BYTES].replace(
            b"\xff", b""
        )

    some = b"\0" + OWN.packed + b"\0\x0a\0\0\7" + b"\0\xa8\x3f\x81\x10" + b"\1" + IPv6Address("::ffff:127.0.0.1").packed
    for host, _ in (*SAME.values(), *REFUSED.values()):
        for port in (b"", b":443", b":080"):
            name = raw(host)
            yield b"\xff".join((name, name + port, name + port, some))
    for rule, _ in (*RULES.values(), *BAD.values()):
        if isinstance(rule, str):
            name = raw(rule.partition(" ")[2] or rule).replace(b"*", b"a")
            yield b"\xff".join((raw(rule), name, name, some))
    for port in PORTS.values():
        yield b"\xff".join((b"", port, port, b""))
    for address in ("8.8.8.8", "127.0.0.1", "10.0.0.7", "::1", "64:ff9b::7f00:1", "2002:7f00:1::1", "2606:2800:21f::1",
                    "2001:0:808:808::80ff:fffe", "2606:2800:21f::5efe:7f00:1",
                    "168.63.129.16", "fd00:ec2::254", "ff02::1"):  # fmt: skip
        packed = ip_address(address).packed
        one = bytes([len(packed) == 16]) + packed
        yield b"\xff".join((address.encode(), b"api.example.test:443", b"api.example.test", one))
        yield b"\xff".join((f"[{address}]".encode(), f"[{address}]:80".encode(), b"", one))
