"""The guarded way out: what a rule is, which requests it allows, and where a name may lead."""

from __future__ import annotations

import pytest

from sandbox_kernel.core.codes import NetworkCode
from sandbox_kernel.policy.network import BadRule, NetworkPolicy, Refused, Rule, Target, split

C = NetworkCode

# --- how a rule is written -------------------------------------------------------------------------------------------

RULES = {
    "a host": ("api.example.test", "api.example.test"),
    "a host in large letters with a final dot and spaces around": (" API.example.test. ", "api.example.test"),
    "a host and a port": ("api.example.test:8443", "api.example.test:8443"),
    "all names below a host": ("*.example.test", "*.example.test"),
    "all names below a host at a port": ("*.Example.test:8443", "*.example.test:8443"),
    "a method": ("GET api.example.test", "GET api.example.test"),
    "a method, more space, and a port": ("POST   api.example.test:8080", "POST api.example.test:8080"),
    "a method below a host": ("GET *.example.test", "GET *.example.test"),
    "an address": ("127.0.0.1", "127.0.0.1"),
    "an address and a port": ("127.0.0.1:8080", "127.0.0.1:8080"),
    "an IPv6 address": ("[2001:DB8::7]", "[2001:db8::7]"),
    "an IPv6 address and a port": ("[2001:db8:0:0::7]:8080", "[2001:db8::7]:8080"),
    "an international name": ("m\u00fcnchen.example.test:8080", "xn--mnchen-3ya.example.test:8080"),
    "a name of a private network": ("db.corp.internal", "db.corp.internal"),
    "the name of a metadata service, if somebody means it": ("metadata.google.internal", "metadata.google.internal"),
}


@pytest.mark.parametrize("sentence", RULES)
def test_a_rule_has_one_form(sentence: str) -> None:
    text, form = RULES[sentence]
    rule = Rule.parse(text)
    assert rule.text == form
    assert Rule.parse(form) == rule


BAD: dict[str, tuple[object, str]] = {
    "nothing": ("", "such as api.example.org"),
    "spaces": ("   ", "such as api.example.org"),
    "no text": (7, "such as api.example.org"),
    "every host": ("*", "write those that are needed"),
    "every host at a port": ("*:443", "write *.example.org"),
    "a top-level domain": ("*.com", "write *.example.org"),
    "a top-level domain with a final dot": ("*.com.", "write *.example.org"),
    "a registry of a country": ("*.co.uk", "write *.example.co.uk"),
    "the root": ("*.", "write *.example.org"),
    "a star in the middle": ("api.*.example.test", "write *.example.org"),
    "a star within a label": ("api*.example.test", "write *.example.org"),
    "two stars": ("*.*.example.test", "write *.example.org"),
    "a star before a host without a dot": ("*example.test", "write *.example.org"),
    "a dot in front": (".example.test", "write *.example.test"),
    "a scheme": ("https://api.example.test/v1", "write the host alone: api.example.test"),
    "a scheme, a user and a port": ("https://u:pass@api.example.test:8443/v1", "host alone: api.example.test:8443"),
    "a path": ("api.example.test/v1", "write api.example.test"),
    "a query": ("api.example.test?x", "write api.example.test"),
    "a user": ("user:pass@api.example.test", "write the host alone: api.example.test"),
    "two hosts": ("a.example.test,b.example.test", "one rule for each host"),
    "a network": ("10.0.0.0/8", "write each address"),
    "a network of IPv6": ("fd00::/8", "write each address"),
    "an address below which there is nothing": ("*.127.0.0.1", "write 127.0.0.1"),
    "IPv6 without brackets": ("2001:db8::7", "write [2001:db8::7]"),
    "IPv6 with a zone": ("[fe80::1%eth0]", "percent sign"),
    "an IPv4 address in IPv6": ("[::ffff:127.0.0.1]", "four decimal numbers"),
    "a short address": ("127.1", "four decimal numbers"),
    "an address in one number": ("2130706433:80", "four decimal numbers"),
    "localhost": ("localhost:8000", "127.0.0.1"),
    "localhost with a final dot": ("localhost.:8000", "127.0.0.1"),
    "below localhost": ("*.localhost.localdomain", "127.0.0.1"),
    "one label": ("intranet", "whole name"),
    "a name of the local network": ("printer.local", "domain name system"),
    "port 0": ("api.example.test:0", "1 to 65535"),
    "port 65536": ("api.example.test:65536", "1 to 65535"),
    "a port with zeros": ("api.example.test:080", "1 to 65535"),
    "a port with a sign": ("api.example.test:+80", "1 to 65535"),
    "a port of other digits": ("api.example.test:\u0668\u0660", "1 to 65535"),
    "no port behind the colon": ("api.example.test:", "1 to 65535"),
    "every port": ("api.example.test:*", "wildcard"),
    "ports from to": ("api.example.test:80-90", "1 to 65535"),
    "a method in small letters": ("get api.example.test", "one of GET, HEAD"),
    "a tunnel's method": ("CONNECT api.example.test", "write the host alone"),
    "a method that no rule knows": ("TRACE api.example.test", "one of GET, HEAD"),
    "a space within a host": ("api.example.test x", "space"),
    "a line break": ("api.example.test\nevil.test", "line break"),
    "a NUL": ("api.example.test\0", "NUL"),
    "a comment": ("api.example.test # ours", "has a path"),
    "a label that is too long": ("a" * 64 + ".test", "longer than 63"),
    "a name that is too long": ("a." * 127 + "test", "253"),
    "a line that is too long": ("a" * 1000, "300"),
}


@pytest.mark.parametrize("sentence", BAD)
def test_what_is_no_rule_is_told_what_to_write(sentence: str) -> None:
    text, told = BAD[sentence]
    with pytest.raises(BadRule) as caught:
        Rule.parse(text)  # type: ignore[arg-type]
    assert told in str(caught.value)
    assert "pass" not in str(caught.value)
    assert str(caught.value).isprintable()
    assert str(caught.value).isascii()


def test_rules_are_a_list_of_bounded_length() -> None:
    with pytest.raises(BadRule, match="rules are a list"):
        NetworkPolicy("api.example.test")
    with pytest.raises(BadRule, match="at most 1000"):
        NetworkPolicy(["api.example.test"] * 1001)


# --- what the rules allow --------------------------------------------------------------------------------------------


def decide(rules: list[str], authority: str, method: str | None = None) -> Refused | Rule:
    policy = NetworkPolicy(rules)
    try:
        return policy.allow(policy.authority(authority.encode(), default_port=None), method)
    except Refused as refused:
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


@pytest.mark.parametrize("sentence", ALLOWED)
def test_what_a_rule_says_is_allowed(sentence: str) -> None:
    rules, authority, method = ALLOWED[sentence]
    found = decide(rules, authority, method)
    assert isinstance(found, Rule), found
    assert found.text in [Rule.parse(rule).text for rule in rules]


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
    "a metadata service below a wildcard": (["*.google.internal"], "metadata.google.internal:80", "GET",
                                            C.METADATA_SERVICE, None),
    "a metadata service by its address": ([], "169.254.169.254:80", "GET", C.METADATA_SERVICE, None),
}  # fmt: skip


@pytest.mark.parametrize("sentence", DENIED)
def test_what_no_rule_says_is_refused_and_the_rule_is_named(sentence: str) -> None:
    rules, authority, method, code, rule = DENIED[sentence]
    found = decide(rules, authority, method)
    assert isinstance(found, Refused), found
    assert (found.code, found.rule) == (code, rule)
    assert rule is None or rule in str(found)


@pytest.mark.parametrize("sentence", [one for one in DENIED if DENIED[one][4]])
def test_the_rule_that_is_named_allows_it(sentence: str) -> None:
    rules, authority, method, _, rule = DENIED[sentence]
    assert isinstance(decide([*rules, str(rule)], authority, method), Rule)


# --- ports and authorities -------------------------------------------------------------------------------------------

PORTS: dict[str, bytes] = {
    "0": b"a.example.test:0",
    "65536": b"a.example.test:65536",
    "a sign": b"a.example.test:+80",
    "a space": b"a.example.test: 80",
    "a space behind": b"a.example.test:80 ",
    "a zero in front": b"a.example.test:080",
    "an underscore, which int takes": b"a.example.test:8_0",
    "a line feed": b"a.example.test:80\n",
    "nothing": b"a.example.test:",
    "a name": b"a.example.test:http",
    "a very long number": b"a.example.test:" + b"9" * 100,
    "hex": b"a.example.test:0x50",
}


@pytest.mark.parametrize("sentence", PORTS)
def test_a_port_is_a_plain_number(sentence: str) -> None:
    with pytest.raises(Refused) as caught:
        split(PORTS[sentence])
    assert caught.value.code is C.PORT_IMPROPER


@pytest.mark.parametrize("port", [0, -1, 65536, 10**100, True])
def test_a_port_that_is_a_number_already_has_the_same_bounds(port: int) -> None:
    with pytest.raises(Refused) as caught:
        NetworkPolicy([]).target("a.example.test", port, default_port=None)
    assert caught.value.code is C.PORT_IMPROPER


def test_a_tunnel_names_its_port_and_a_request_need_not() -> None:
    policy = NetworkPolicy([])
    with pytest.raises(Refused) as caught:
        policy.authority(b"a.example.test", default_port=None)
    assert caught.value.code is C.PORT_MISSING
    assert policy.authority(b"a.example.test", default_port=80) == Target("a.example.test", 80)
    assert policy.authority(b"[2001:db8::7]", default_port=80).authority == "[2001:db8::7]:80"
    assert policy.authority(b"[2001:db8::7]:8", default_port=None).authority == "[2001:db8::7]:8"


@pytest.mark.parametrize("authority", [b"::1:80", b"a:b:80", b"[::1]x:80", b"x[::1]:80", b"u:p@a.example.test:80"])
def test_an_authority_with_several_colons_is_refused(authority: bytes) -> None:
    with pytest.raises(Refused):
        NetworkPolicy([]).authority(authority, default_port=80)
