"""One line of the setting `network`: what it says, and how to write what was meant. Imports hosts and addresses.

host            the ports 80 and 443 of a host, for every method and for TLS
host:port       one port of it
*.host          every name below it, at any depth, and not the name itself
GET host        plain HTTP with this method alone; GET allows HEAD
10.0.0.7, [2001:db8::7]:8080    an address, which nothing else allows if it is not a public one
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..codes import NetworkCode
from .addresses import Address, AddressKind, kind_of
from .hosts import MAX_SHOWN, RefusedConnection, Target, bracketed, canonical, port_of, shown, split

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
class HostRule:
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
    def parse(cls, text: str) -> HostRule:
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
        except RefusedConnection as refused:
            raise BadRule(text, f"{refused.note.text}. {refused.code.remedy}") from None
        if wildcard:
            # There is no list of all suffixes below which anybody can have a name: it would be old within a month.
            # Whether to trust all who have a page at some hoster is up to the author of the rule.
            if address is not None:
                raise BadRule(text, f"an address has nothing below it; write {bracketed(name)}")
            labels = name.split(".")
            if len(labels) == 2 and len(labels[1]) == 2 and labels[0] in _REGISTRY:
                raise BadRule(text, f"anybody can have a name below {name}; write *.example.{name}")
        rule = rule_text(name, port, method=method, wildcard=wildcard)
        return cls(rule, name, wildcard, port, method, address)

    def names(self, host: str) -> bool:
        """Return whether the rule is about a host, whatever its port."""
        return host.endswith("." + self.host) if self.wildcard else host == self.host

    def opens(self, port: int) -> bool:
        return port in USUAL_PORTS if self.port is None else port == self.port

    def lets(self, method: str | None) -> bool:
        """Return whether the rule allows a method; None is a connection that is not inspected."""
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


def _quoted(text: object) -> str:
    """Return a line as an error may repeat it: bounded, in ASCII, and without a password."""
    if isinstance(text, str):
        text = re.sub(r"[^/]*@", "...@", text[:MAX_TEXT])
        text = text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."
    return ascii(text)[: 10 * MAX_SHOWN]


MAX_RULES = 1000
MAX_ADDRESSES = 64
"""Addresses of one name that are looked at; those behind them are never dialled."""

METADATA_NAMES = frozenset(
    (
        "metadata.google.internal", "metadata.goog", "metadata.azure.internal", "metadata.azure.com",
        "metadata.packet.net", "metadata.platformequinix.com", "metadata.tencentyun.com", "metadata.oraclecloud.com",
        "metadata.service.consul", "instance-data.ec2.internal", "rancher-metadata.rancher.internal",
    )
)  # fmt: skip
"""Names of what hands out a machine's credentials. Only a rule for the very name allows one."""


class NetworkPolicy:
    """What the setting `network` allows. Without rules that is nothing."""

    def __init__(self, rules: Sequence[str]) -> None:
        """Read the rules. Raises BadRule, a ValueError, for the first line that is none."""
        if isinstance(rules, str):
            raise BadRule(rules, "rules are a list; write it in brackets")
        if len(rules) > MAX_RULES:
            raise BadRule(f"{len(rules)} rules", f"at most {MAX_RULES} are read")
        self.rules = tuple(dict.fromkeys(HostRule.parse(text) for text in rules))
        self._exact: dict[str, list[HostRule]] = {}
        self._below: dict[str, list[HostRule]] = {}
        for rule in self.rules:
            (self._below if rule.wildcard else self._exact).setdefault(rule.host, []).append(rule)

    def target(self, host: bytes | str, port: int | None, *, default_port: int | None) -> Target:
        """Return the canonical form of where a request wants to go. Raises Refused for what has none.

        A tunnel has to name its port: `default_port` is None there.
        """
        name, address = canonical(host)
        port = default_port if port is None else port
        if port is None:
            raise RefusedConnection(NetworkCode.PORT_MISSING.note(host=shown(name)))
        return Target(name, port_of(str(port).encode(errors="replace"), name), address)

    def authority(self, raw: bytes, *, default_port: int | None) -> Target:
        """Return the same for `host`, `host:port` or `[address]:port`, as a request has it."""
        host, port = split(raw)
        return self.target(host, port, default_port=default_port)

    def allow(self, target: Target, method: str | None) -> HostRule:
        """Return the first rule that allows a request. Raises Refused with the rule that would.

        `method` is that of a plain HTTP request, None for a tunnel.
        """
        about = self._about(target)
        at_port = [rule for rule in about if rule.opens(target.port)]
        for rule in at_port:
            if rule.lets(method):
                return rule
        host = target.host
        if at_port:
            what = "connections that nobody looks into" if method is None else f"the method {shown(method)}"
            wanted = rule_for(target, method if method in METHODS else None)
            raise RefusedConnection(NetworkCode.METHOD_NOT_ALLOWED.note(host=host, method=what, rule=wanted), wanted)
        if about:
            wanted = rule_text(host, target.port)
            raise RefusedConnection(NetworkCode.PORT_NOT_ALLOWED.note(host=host, port=target.port, rule=wanted), wanted)
        wanted, kind = rule_for(target), AddressKind.PUBLIC if target.address is None else kind_of(target.address)
        if host in METADATA_NAMES or kind is AddressKind.METADATA:
            raise RefusedConnection(NetworkCode.METADATA_SERVICE.note(host=host))
        if kind is not AddressKind.PUBLIC:
            raise RefusedConnection(NetworkCode.ADDRESS_NOT_NAMED.note(host=host, what=kind.value, rule=wanted), wanted)
        raise RefusedConnection(NetworkCode.HOST_NOT_ALLOWED.note(host=host, rule=wanted), wanted)

    def within(self, text: str) -> tuple[HostRule, ...]:
        """Return what the rules allow of a host, or of all names below one (`*.host`); nothing if none reaches it.

        They keep their ports and methods. Raises BadRule for a line that is none.
        """
        wanted = HostRule.parse(text)
        if wanted.method is not None:
            return ()
        if wanted.wildcard:
            above = [rule for rule in self.rules if rule.wildcard and f".{wanted.host}".endswith(f".{rule.host}")]
            below = [rule for rule in self.rules if rule.host.endswith(f".{wanted.host}")] if above else []
        else:
            above, below = self._about(Target(wanted.host, USUAL_PORTS[0], wanted.address)), []
        cut = [replace(rule, host=wanted.host, wildcard=wanted.wildcard) for rule in above]
        lines = [
            rule_text(rule.host, wanted.port or rule.port, method=rule.method, wildcard=rule.wildcard)
            for rule in (*cut, *below)
            if wanted.port is None or rule.opens(wanted.port)
        ]
        return tuple(map(HostRule.parse, dict.fromkeys(lines)))

    def check(
        self, target: Target, addresses: Sequence[Address], own: Callable[[Address], bool]
    ) -> tuple[Address, ...]:
        """Return the addresses that may be dialled, in their order. Raises Refused unless all of them may.

        `addresses` are those of the name, resolved once; for a target that is an address, that one is looked at.
        One that is not public, or is `own`, needs a rule for that very address and port; a name that leads to one needs
        both rules. A rule with a method does not count for a name, whose own rule says what is asked of it.
        """
        literal = target.address
        looked_at = tuple(dict.fromkeys(addresses[:MAX_ADDRESSES])) if literal is None else (literal,)
        if not looked_at:
            raise RefusedConnection(NetworkCode.NO_ADDRESS.note(host=target.host))
        for address in looked_at:
            kind = kind_of(address)
            if kind is AddressKind.PUBLIC and own(address):
                kind = AddressKind.OWN
            if kind is AddressKind.PUBLIC or self._named(target, address):
                continue
            if kind is AddressKind.METADATA:
                raise RefusedConnection(NetworkCode.METADATA_SERVICE.note(host=target.host))
            if not _can_be_named(address):
                raise RefusedConnection(
                    NetworkCode.ADDRESS_DISGUISED.note(host=target.host, address=address, what=kind.value)
                )
            wanted = rule_for(Target(str(address), target.port, address))
            raise RefusedConnection(
                NetworkCode.ADDRESS_NOT_PUBLIC.note(host=target.host, address=address, what=kind.value, rule=wanted),
                wanted,
            )
        return looked_at

    def check_server_name(self, target: Target, server_name: str | None) -> None:
        """Raise Refused unless TLS names the server that the tunnel was opened to.

        For an address it names none, as the standard has it. Letters may be large; all else is compared as it is.
        """
        if server_name is None:
            if target.address is None:
                raise RefusedConnection(NetworkCode.SERVER_NAME_MISSING.note(host=target.host))
        elif not server_name.isascii() or target.address is not None or server_name.lower() != target.host:
            raise RefusedConnection(NetworkCode.SERVER_NAME_OTHER.note(host=target.host))

    def check_host_header(self, target: Target, header: bytes) -> None:
        """Raise Refused unless the Host header of a request is the host and the port of its target."""
        try:
            host, port = split(header)
            name, address = canonical(host)
        except RefusedConnection:
            raise RefusedConnection(NetworkCode.HOST_HEADER_OTHER.note(host=target.host)) from None
        same = target.port in USUAL_PORTS if port is None else port == target.port
        if not same or (name, address) != (target.host, target.address):
            raise RefusedConnection(NetworkCode.HOST_HEADER_OTHER.note(host=target.host))

    def _about(self, target: Target) -> list[HostRule]:
        """Return the rules about a host, whatever its port: first those for its very name."""
        found = list(self._exact.get(target.host, ()))
        if target.address is None and target.host not in METADATA_NAMES and self._below:
            rest = target.host
            while "." in rest:
                rest = rest.partition(".")[2]
                found += self._below.get(rest, ())
        return found

    def _named(self, target: Target, address: Address) -> bool:
        """Return whether a rule is about this very address, at the target's port."""
        for rule in self._exact.get(str(address), ()):
            if rule.opens(target.port) and (rule.method is None or target.address == address):
                return True
        return False


def _can_be_named(address: Address) -> bool:
    """Return whether a rule can be about an address: not with a zone, nor an IPv4 address in the form of IPv6."""
    try:
        return canonical(str(address)) == (str(address), address)
    except RefusedConnection:
        return False
