"""The guarded way out, with hosts that nobody thought of: judged by how others read them, and by `idna`."""

from __future__ import annotations

import string
import time
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.plugins.network.policy import (
    Address,
    AddressKind,
    BadRule,
    HostRule,
    NetworkPolicy,
    RefusedConnection,
    canonical,
    kind_of,
)
from tests.support.policy import readers
from tests.support.policy.network import REFUSED, SAME

pytestmark = pytest.mark.slow

KNOWN = [*(text for text, _ in SAME.values()), *(text for text, _ in REFUSED.values())]
PIECES = st.sampled_from(
    [
        "api", "example", "test", "localhost", "local", "xn--", "mnchen-3ya", "127", "0", "1", "0x7f", "0177", "256",
        "00", "017700000001", "2130706433", "[", "]", "::", "ffff:", ":", "%", "%2e", "%00", "@", "/", "\\", "-", "--",
        "_", ".", "..", "*.", "\uff0e", "\u3002", "\uff11", "\u2460", "\u0430", "\u00df", "\u00ad", "\u200d", "\u212a",
        "\u0130", " ", "\0", "\r\n",
    ]
)  # fmt: skip
TEXTS = st.one_of(
    st.lists(PIECES, max_size=8).map("".join),
    st.lists(PIECES, max_size=8).map(".".join),
    st.text(string.printable, max_size=40),
    st.text(max_size=20),
    st.sampled_from([text for text in KNOWN if isinstance(text, str)]),
)
RAW = st.one_of(TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass")), st.binary(max_size=40))
LABELS = st.from_regex(r"[a-z0-9_]([a-z0-9_-]{0,20}[a-z0-9_])?", fullmatch=True).filter(lambda text: text[:4] != "xn--")
TOPS = st.from_regex(r"[a-z]{2,9}", fullmatch=True).filter(lambda text: text not in readers.NO_TOPS)
NAMES = st.tuples(st.lists(LABELS, min_size=1, max_size=4), TOPS).map(lambda parts: ".".join((*parts[0], parts[1])))
FOURS = st.integers(0, 2**32 - 1).map(IPv4Address)
SIXES = st.integers(0, 2**128 - 1).map(IPv6Address) | st.integers(2**125, 2**126 - 1).map(IPv6Address)


def form(raw: bytes | str) -> tuple[str, Address | None] | None:
    try:
        return canonical(raw)
    except RefusedConnection as refused:
        told = str(refused)
    assert told.isascii()
    assert told.isprintable()
    return None


@given(TEXTS | RAW)
def test_the_form_of_a_form_is_itself_and_nobody_reads_it_as_something_else(raw: bytes | str) -> None:
    found = form(raw)
    if found is None:
        return
    host, address = found
    assert form(host) == form(host.encode()) == form(host.upper()) == found
    if address is None:
        assert readers.taken_for_an_address(host) == []
        assert readers.same_letters(host)
    else:
        assert ip_address(host) == address


@given(NAMES)
def test_an_ordinary_name_is_its_own_form(name: str) -> None:
    assert form(name) == form(name + ".") == form(name.title()) == (name, None)


@given(RAW)
def test_whoever_reads_the_same_bytes_reads_the_same_host_and_port(raw: bytes) -> None:
    try:
        target = NetworkPolicy([]).authority(raw, default_port=80)
    except RefusedConnection:
        return
    for parts in filter(None, readers.readings(raw).values()):
        host = ip_address(parts[0]) if target.address else parts[0]
        assert (host, parts[1] or 80) == (target.address or target.host, target.port)


@given(FOURS, st.sampled_from(["hex", "octal", "number", "zeros", "short", "mixed", "dot", "wide", "mapped"]))
def test_an_address_in_another_spelling_passes_as_nothing(four: IPv4Address, way: str) -> None:
    """Each of these is read as the same address by the C library, or by a browser."""
    number, parts = int(four), str(four).split(".")
    spelled = {
        "hex": hex(number),
        "octal": f"0{number:o}",
        "number": f"{number:010}",
        "zeros": ".".join(f"{int(part):04}" for part in parts),
        "short": f"{parts[0]}.{parts[1]}.{number & 0xFFFF}",
        "mixed": f"{hex(int(parts[0]))}.{parts[1]}.{parts[2]}.{parts[3]}",
        "dot": f"{four}.",
        "wide": str(four).translate({ord(digit): 0xFF10 + int(digit) for digit in "0123456789"}),
        "mapped": f"[::ffff:{four}]",
    }[way]
    assert form(spelled) is None
    with pytest.raises(BadRule):
        HostRule.parse(spelled)


@given(FOURS | SIXES)
def test_what_is_called_public_is_so_to_others(address: Address) -> None:
    if kind_of(address) is AddressKind.PUBLIC:
        assert readers.harmless(address)


@given(NAMES, NAMES, st.integers(1, 65535))
def test_a_refused_host_does_not_pass_in_another_spelling(allowed: str, name: str, port: int) -> None:
    policy = NetworkPolicy([allowed, f"*.{allowed}"])
    passes = name == allowed or name.endswith("." + allowed)
    for spelled in (name, name.upper(), name + ".", name.translate({ord("."): "\u3002", ord("a"): "\uff41"})):
        target = policy.target(spelled, port, default_port=None)
        if passes and port in (80, 443):
            assert policy.allow(target, None)
        else:
            with pytest.raises(RefusedConnection):
                policy.allow(target, None)


@given(TEXTS)
def test_a_rule_is_itself_again_or_none(text: str) -> None:
    try:
        rule = HostRule.parse(text)
    except BadRule as bad:
        told = str(bad)
    else:
        assert HostRule.parse(rule.text) == rule
        return
    assert told.isascii()
    assert told.isprintable()


COSTLY = {
    "letters of another script in every label": b"xn--80ak6aa92e." * 15 + b"test",
    "labels of one letter": b"a." * 126 + b"a",
    "one long label in punycode": b"xn--" + b"a" * 59 + b".test",
    "digits in punycode": (b"xn--" + b"9" * 59 + b".") * 3 + b"test",
    "colons": b"[" + b":" * 250 + b"]",
    "what has no end": b"a." * 1_000_000,
}


def milliseconds(work: Callable[[], object]) -> float:
    """Return the least time of the processor that some work takes, of several attempts."""
    taken = []
    for _ in range(20):
        begun = time.thread_time_ns()
        work()
        taken.append(time.thread_time_ns() - begun)
    return min(taken) / 1e6


@pytest.mark.parametrize("sentence", COSTLY)
def test_no_host_costs_much(sentence: str) -> None:
    """About 1 ms at most: what a connection costs in any case."""
    assert milliseconds(lambda: form(COSTLY[sentence])) < 20


def test_a_decision_costs_nothing_that_is_noticed() -> None:
    """About 0.02 ms with two addresses, of which most is taking them for what they are."""
    policy = NetworkPolicy([f"h{number}.example.net" for number in range(900)] + ["*.example.org"])
    addresses = [ip_address("93.184.215.14"), ip_address("2606:2800:21f::1")]

    def decide() -> None:
        target = policy.authority(b"a.b.Example.org:443", default_port=None)
        policy.allow(target, None)
        policy.check(target, addresses, lambda address: False)
        policy.check_server_name(target, "a.b.example.org")

    assert milliseconds(decide) < 0.5
