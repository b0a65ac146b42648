"""One line of the setting `network`: what it says, and how to write what was meant. Imports hosts and addresses.

host            the ports 80 and 443 of a host, for every method and for TLS
host:port       one port of it
*.host          every name below it, at any depth, and not the name itself
GET host        plain HTTP with this method alone; GET allows HEAD
10.0.0.7, [2001:db8::7]:8080    an address, which nothing else allows if it is not a public one
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .addresses import Address
from .hosts import Target, bracketed, canonical, port_of, split
from .refusal import MAX_SHOWN, Refused

USUAL_PORTS = (80, 443)
"""What a rule without a port means: HTTP and HTTPS. Whoever allows these has not allowed a host's mail or its shell."""
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
MAX_TEXT = 300

_METHOD = re.compile(r"([A-Za-z]+) +(.+)")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)")
_REGISTRY = frozenset(("ac", "co", "com", "edu", "ne", "net", "or", "org"))
"""Second labels below which a country's registry lets everybody have a name, as in co.uk."""


class BadRule(ValueError):
    """A line that is no rule; `why` says what is wrong, and what to write instead."""

    def __init__(self, text: object, why: str) -> None:
        super().__init__(f"{_quoted(text)} is no rule for the network: {why}")
        self.why = why


@dataclass(frozen=True, slots=True)
class Rule:
    """What one line allows."""

    text: str
    """The rule in its canonical form, which `parse` reads as the same rule."""
    host: str
    """A canonical name or address; with `wildcard`, the name above those that are allowed."""
    wildcard: bool = False
    port: int | None = None
    """None: the usual ports."""
    method: str | None = None
    """None: every method, and connections that are not looked into."""
    address: Address | None = None

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Return the rule that a line says. Raises BadRule with the reason."""
        if not isinstance(text, str) or not text.strip():
            raise BadRule(text, "it is empty; write a host, such as api.example.org")
        if len(text) > MAX_TEXT:
            raise BadRule(text, f"it is longer than {MAX_TEXT} characters")
        method, rest = _method(text, text.strip(" "))
        _check_form(text, rest)
        wildcard = rest.startswith("*.")
        try:
            host, port = _host_and_port(rest.removeprefix("*."))
            name, address = canonical(host)
        except Refused as refused:
            raise BadRule(text, f"{refused.note.text}. {refused.code.remedy}") from None
        if wildcard:
            _check_wildcard(text, name, address)
        said = rule_text(name, port, method=method, wildcard=wildcard)
        return cls(said, name, wildcard, port, method, address)

    def names(self, host: str) -> bool:
        """Return whether the rule is about a host, whatever its port."""
        return host.endswith("." + self.host) if self.wildcard else host == self.host

    def opens(self, port: int) -> bool:
        return port in USUAL_PORTS if self.port is None else port == self.port

    def lets(self, method: str | None) -> bool:
        """Return whether the rule allows a method; None is a connection that nobody looks into."""
        return self.method is None or method == self.method or (self.method == "GET" and method == "HEAD")


def rule_text(host: str, port: int | None, *, method: str | None = None, wildcard: bool = False) -> str:
    """Return the line for a canonical host and a port."""
    words = f"{method} " if method else ""
    place = "" if port is None else f":{port}"
    return f"{words}{'*.' if wildcard else ''}{bracketed(host)}{place}"


def rule_for(target: Target, method: str | None = None) -> str:
    """Return the line that allows a target: with its port if it is none of the usual ones."""
    return rule_text(target.host, None if target.port in USUAL_PORTS else target.port, method=method)


def _method(text: str, rest: str) -> tuple[str | None, str]:
    match = _METHOD.fullmatch(rest)
    if match is None:
        return None, rest
    if match[1] == "CONNECT":
        raise BadRule(text, "a tunnel needs no method; write the host alone")
    if match[1] not in METHODS:
        raise BadRule(text, f"{match[1]!r} is no method that a rule knows; it is one of {', '.join(METHODS)}")
    return match[1], match[2]


def _check_form(text: str, rest: str) -> None:
    """Refuse what is more or less than a host, and say what to write instead."""
    if match := _SCHEME.fullmatch(rest):
        host = re.split(r"[/?#]", match[2])[0].rpartition("@")[2]
        raise BadRule(text, f"it has a scheme; write the host alone: {ascii(host)[1:-1]}")
    if "/" in rest and re.fullmatch(r"[0-9a-fA-F.:\[\]]+/[0-9]+", rest):
        raise BadRule(text, "networks are not allowed as a whole; write each address")
    if "@" in rest:
        raise BadRule(text, f"it has a user's name; write the host alone: {ascii(rest.rpartition('@')[2])[1:-1]}")
    if cut := re.search(r"[/?#]", rest):
        raise BadRule(text, f"it has a path, and rules are for hosts; write {ascii(rest[: cut.start()])[1:-1]}")
    if "," in rest or ";" in rest:
        raise BadRule(text, "it holds several; write one rule for each host")
    if rest == "*":
        raise BadRule(text, "nothing allows every host; write those that are needed")
    if "*" in rest.removeprefix("*."):
        raise BadRule(text, "a wildcard stands in front, for whole labels; write *.example.org")
    if re.fullmatch(r"\*\.[^.\u3002\uff0e\uff61]*[.\u3002\uff0e\uff61]?", rest):
        raise BadRule(text, "anybody can have a name below a top-level domain; write *.example.org")
    if rest.startswith("."):
        raise BadRule(text, f"it begins with a dot; for all names below a host, write {ascii('*' + rest)[1:-1]}")
    if rest.count(":") > 1 and not rest.startswith("["):
        raise BadRule(text, "an IPv6 address stands in brackets; write [2001:db8::7] or [2001:db8::7]:8080")


def _host_and_port(rest: str) -> tuple[str, int | None]:
    """Return the two parts of a rule; unlike that of a request, its host may be an international name."""
    if rest.isascii():
        host, port = split(rest.encode())
        return host.decode(), port
    name, colon, digits = rest.partition(":")
    return name, port_of(digits.encode(errors="replace"), name) if colon else None


def _check_wildcard(text: str, name: str, address: Address | None) -> None:
    """Refuse a wildcard over names of everybody.

    There is no list of all such suffixes here: one would be old within a month, and whether to trust all who have a
    page at some hoster is for whoever writes the rule.
    """
    if address is not None:
        raise BadRule(text, f"an address has nothing below it; write {bracketed(name)}")
    labels = name.split(".")
    if len(labels) == 2 and len(labels[1]) == 2 and labels[0] in _REGISTRY:
        raise BadRule(text, f"anybody can have a name below {name}; write *.example.{name}")


def _quoted(text: object) -> str:
    """Return a line as an error may repeat it: bounded, in ASCII, and without a password."""
    if isinstance(text, str):
        text = re.sub(r"[^/]*@", "...@", text[:MAX_TEXT])
        text = text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."
    return ascii(text)[: 10 * MAX_SHOWN]
