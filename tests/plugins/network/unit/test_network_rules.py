"""The guarded way out: what a rule is, which requests it allows, and where a name may lead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox_kernel.plugins.network.codes import NetworkCode
from sandbox_kernel.plugins.network.policy import BadRule, HostRule, NetworkPolicy, RefusedConnection, Target, split
from sandbox_kernel.plugins.network.settings import NetworkSettings, SecretSource
from tests.support.cases import each
from tests.support.policy.network import BAD, PORTS, RULES

C = NetworkCode

# --- how a rule is written -------------------------------------------------------------------------------------------


@each("sentence", RULES)
def test_a_rule_has_one_form(sentence: str) -> None:
    text, form = RULES[sentence]
    rule = HostRule.parse(text)
    assert rule.text == form
    assert HostRule.parse(form) == rule


@each("sentence", BAD)
def test_what_is_no_rule_is_told_what_to_write(sentence: str) -> None:
    text, told = BAD[sentence]
    with pytest.raises(BadRule) as caught:
        HostRule.parse(text)  # type: ignore[arg-type]
    assert told in str(caught.value)
    assert "pass" not in str(caught.value)
    assert str(caught.value).isprintable()
    assert str(caught.value).isascii()


def test_rules_are_a_list_of_bounded_length() -> None:
    with pytest.raises(BadRule, match="rules are a list"):
        NetworkPolicy("api.example.test")
    with pytest.raises(BadRule, match="at most 1000"):
        NetworkPolicy(["api.example.test"] * 1001)


# --- what is left of rules for some hosts ---

OPERATOR = [
    "api.example.test",
    "db.example.test:8443",
    "*.wide.test",
    "a.wide.test:8443",
    "GET *.read.test",
    "*.google.internal",
    "10.0.0.7:8080",
]
WITHIN: dict[str, list[str]] = {
    "api.example.test": ["api.example.test"],
    "API.example.test.": ["api.example.test"],
    "api.example.test:443": ["api.example.test:443"],
    "db.example.test": ["db.example.test:8443"],
    "b.wide.test": ["b.wide.test"],
    "a.wide.test": ["a.wide.test:8443", "a.wide.test"],
    "*.wide.test": ["*.wide.test", "a.wide.test:8443"],
    "*.b.wide.test": ["*.b.wide.test"],
    "x.read.test": ["GET x.read.test"],
    "10.0.0.7": ["10.0.0.7:8080"],
    "a.google.internal": ["a.google.internal"],
    # Nothing of these is reached, or not all of it.
    "other.test": [],
    "wide.test": [],
    "*.example.test": [],
    "api.example.test:22": [],
    "GET api.example.test": [],
    "10.0.0.8": [],
    "a.b.10.0.0.7.test": [],
    "metadata.google.internal": [],  # a wildcard does not reach it, and a rule for its very name would
}


@pytest.mark.parametrize("host", WITHIN)
def test_what_is_left_of_rules_for_a_host_is_no_wider(host: str) -> None:
    policy = NetworkPolicy(OPERATOR)
    left = policy.within(host)
    assert sorted(rule.text for rule in left) == sorted(WITHIN[host])
    ports = (22, 80, 443, 8080, 8443)
    names = ("api.example.test", "db.example.test", "wide.test", "a.wide.test", "x.b.wide.test", "x.read.test")
    for name in (*names, "10.0.0.7", "10.0.0.8", "metadata.google.internal", "a.google.internal"):
        for port in ports:
            for method in (None, "GET", "POST"):
                if isinstance(decide([rule.text for rule in left], f"{name}:{port}", method), HostRule):
                    assert isinstance(decide(OPERATOR, f"{name}:{port}", method), HostRule)


def test_settings_are_narrowed_with_the_secrets_for_what_is_left() -> None:
    secret = SecretSource(name="KEY", kind="env", place="K", hosts=("a.wide.test", "b.wide.test"))
    other = SecretSource(name="OTHER", kind="env", place="O", hosts=("api.example.test",))
    settings = NetworkSettings(network=tuple(OPERATOR), secrets=(secret, other), network_proxy="environment")
    found = settings.narrowed(["b.wide.test"])
    assert found == NetworkSettings(
        network=("b.wide.test",), secrets=(replace(secret, hosts=("b.wide.test",)),), network_proxy="environment"
    )
    for hosts in (["b.wide.test", "other.test"], ["*.test"], ["0.0.0.0/0"], ["b.wide.test"] * 201):
        with pytest.raises(LookupError) as caught:
            settings.narrowed(hosts)
        assert caught.value.args == (hosts[-1],)


# --- what the rules allow --------------------------------------------------------------------------------------------


def decide(rules: list[str], authority: str, method: str | None = None) -> RefusedConnection | HostRule:
    policy = NetworkPolicy(rules)
    try:
        return policy.allow(policy.authority(authority.encode(), default_port=None), method)
    except RefusedConnection as refused:
        return refused


ALLOWED: dict[str, tuple[list[str], str, str | None]] = {
    "a host at port 443": (["api.example.test"], "api.example.test:443", None),
    "a host at port 80": (["api.example.test"], "api.example.test:80", "POST"),
    "a host as it is written elsewhere": (["api.example.test"], "API.EXAMPLE.TEST.:443", None),
    "the port of a rule": (["api.example.test:8443"], "api.example.test:8443", None),
    "a name below": (["*.example.test"], "api.example.test:443", None),
    "a name far below": (["*.example.test"], "a.b.c.example.test:443", None),
    "the second rule for a host": (["api.example.test:1", "api.example.test:2"], "api.example.test:2", None),
    "a rule for the host beside one for its names": (
        ["*.example.test:1", "a.example.test"],
        "a.example.test:443",
        None,
    ),
    "the method of a rule": (["GET api.example.test"], "api.example.test:80", "GET"),
    "HEAD where GET is allowed": (["GET api.example.test"], "api.example.test:80", "HEAD"),
    "another method by another rule": (["GET a.example.test", "POST a.example.test"], "a.example.test:80", "POST"),
    "an address": (["10.1.2.3:8080"], "10.1.2.3:8080", None),
    "an IPv6 address in another spelling": (["[2001:db8::7]"], "[2001:DB8:0::0007]:443", None),
    "a metadata service by its very name": (["metadata.google.internal"], "metadata.google.internal:80", "GET"),
}


@each("sentence", ALLOWED)
def test_what_a_rule_says_is_allowed(sentence: str) -> None:
    rules, authority, method = ALLOWED[sentence]
    found = decide(rules, authority, method)
    assert isinstance(found, HostRule), found
    assert found.text in [HostRule.parse(rule).text for rule in rules]


DENIED: dict[str, tuple[list[str], str, str | None, NetworkCode, str | None]] = {
    "an empty list is nothing": ([], "api.example.test:443", None, C.HOST_NOT_ALLOWED, "api.example.test"),
    "another host": (["a.example.test"], "b.example.test:443", None, C.HOST_NOT_ALLOWED, "b.example.test"),
    "a name below a host": (["example.test"], "a.example.test:443", None, C.HOST_NOT_ALLOWED, "a.example.test"),
    "a name that begins like it": (["a.example.test"], "a.example.test.evil.test:443", None, C.HOST_NOT_ALLOWED,
                                   "a.example.test.evil.test"),
    "a name that ends like it": (["*.example.test"], "evilexample.test:443", None, C.HOST_NOT_ALLOWED,
                                 "evilexample.test"),
    "the name above its wildcard": (["*.example.test"], "example.test:443", None, C.HOST_NOT_ALLOWED, "example.test"),
    "another port than the usual ones": (["a.example.test"], "a.example.test:22", None, C.PORT_NOT_ALLOWED,
                                         "a.example.test:22"),
    "a usual port where another is named": (["a.example.test:8443"], "a.example.test:443", None, C.PORT_NOT_ALLOWED,
                                            "a.example.test:443"),
    "a host at an unusual port": ([], "a.example.test:8080", "GET", C.HOST_NOT_ALLOWED, "a.example.test:8080"),
    "another method": (["GET a.example.test"], "a.example.test:80", "POST", C.METHOD_NOT_ALLOWED,
                       "POST a.example.test"),
    "a method in other letters": (["GET a.example.test"], "a.example.test:80", "get", C.METHOD_NOT_ALLOWED,
                                  "a.example.test"),
    "GET where HEAD is allowed": (["HEAD a.example.test"], "a.example.test:80", "GET", C.METHOD_NOT_ALLOWED,
                                  "GET a.example.test"),
    "a tunnel where a method is allowed": (["GET a.example.test"], "a.example.test:443", None, C.METHOD_NOT_ALLOWED,
                                           "a.example.test"),
    "an address that a name does not cover": (["*.example.test"], "93.184.215.14:443", None, C.HOST_NOT_ALLOWED,
                                              "93.184.215.14"),
    "an IPv6 address": ([], "[2606:2800::1]:8080", None, C.HOST_NOT_ALLOWED, "[2606:2800::1]:8080"),
    "an address of this machine": ([], "127.0.0.1:8000", None, C.ADDRESS_NOT_NAMED, "127.0.0.1:8000"),
    "a private address below nothing": (["*.example.test"], "[fd00::7]:443", None, C.ADDRESS_NOT_NAMED, "[fd00::7]"),
    "a metadata service below a wildcard": (["*.google.internal"], "metadata.google.internal:80", "GET",
                                            C.METADATA_SERVICE, None),
    "a metadata service by its address": ([], "169.254.169.254:80", "GET", C.METADATA_SERVICE, None),
}  # fmt: skip


@each("sentence", DENIED)
def test_what_no_rule_says_is_refused_and_the_rule_is_named(sentence: str) -> None:
    rules, authority, method, code, rule = DENIED[sentence]
    found = decide(rules, authority, method)
    assert isinstance(found, RefusedConnection), found
    assert (found.code, found.rule) == (code, rule)
    assert rule is None or rule in str(found)


@each("sentence", [one for one in DENIED if DENIED[one][4]])
def test_the_rule_that_is_named_allows_it(sentence: str) -> None:
    rules, authority, method, _, rule = DENIED[sentence]
    assert isinstance(decide([*rules, str(rule)], authority, method), HostRule)


# --- ports and authorities -------------------------------------------------------------------------------------------


@each("sentence", PORTS)
def test_a_port_is_a_plain_number(sentence: str) -> None:
    with pytest.raises(RefusedConnection) as caught:
        split(PORTS[sentence])
    assert caught.value.code is C.PORT_IMPROPER


@pytest.mark.parametrize("port", [0, -1, 65536, 10**100, True])
def test_a_port_that_is_a_number_already_has_the_same_bounds(port: int) -> None:
    with pytest.raises(RefusedConnection) as caught:
        NetworkPolicy([]).target("a.example.test", port, default_port=None)
    assert caught.value.code is C.PORT_IMPROPER


def test_a_tunnel_names_its_port_and_a_request_need_not() -> None:
    policy = NetworkPolicy([])
    with pytest.raises(RefusedConnection) as caught:
        policy.authority(b"a.example.test", default_port=None)
    assert caught.value.code is C.PORT_MISSING
    assert policy.authority(b"a.example.test", default_port=80) == Target("a.example.test", 80)
    assert policy.authority(b"[2001:db8::7]", default_port=80).authority == "[2001:db8::7]:80"
    assert policy.authority(b"[2001:db8::7]:8", default_port=None).authority == "[2001:db8::7]:8"


@pytest.mark.parametrize("authority", [b"::1:80", b"a:b:80", b"[::1]x:80", b"x[::1]:80", b"u:p@a.example.test:80"])
def test_an_authority_with_several_colons_is_refused(authority: bytes) -> None:
    with pytest.raises(RefusedConnection):
        NetworkPolicy([]).authority(authority, default_port=80)
