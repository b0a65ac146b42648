"""The rules together: what they say of a target, its addresses, and of what a client says later. Imports this room.

The order of a connection is `target`, `allow`, one resolution, `check`, and the dialling of what `check` returned. For
TLS, `check_server_name` follows before a byte of the cell's goes out; for plain HTTP, `allow` and `check_host_header`
come before each request of a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..codes import NetworkCode
from .addresses import Address, Kind, kind_of
from .hosts import Target, canonical, port_of, split
from .refusal import Refused, shown
from .rules import METHODS, USUAL_PORTS, BadRule, Rule, rule_for, rule_text

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
        self.rules = tuple(dict.fromkeys(Rule.parse(text) for text in rules))
        self._exact: dict[str, list[Rule]] = {}
        self._below: dict[str, list[Rule]] = {}
        for rule in self.rules:
            (self._below if rule.wildcard else self._exact).setdefault(rule.host, []).append(rule)

    def target(self, host: bytes | str, port: int | None, *, default_port: int | None) -> Target:
        """Return the canonical form of where a request wants to go. Raises Refused for what has none.

        A tunnel has to name its port: `default_port` is None there.
        """
        name, address = canonical(host)
        port = default_port if port is None else port
        if port is None:
            raise Refused(NetworkCode.PORT_MISSING.note(host=shown(name)))
        return Target(name, port_of(str(port).encode(errors="replace"), name), address)

    def authority(self, raw: bytes, *, default_port: int | None) -> Target:
        """Return the same for `host`, `host:port` or `[address]:port`, as a request has it."""
        host, port = split(raw)
        return self.target(host, port, default_port=default_port)

    def allow(self, target: Target, method: str | None) -> Rule:
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
            raise Refused(NetworkCode.METHOD_NOT_ALLOWED.note(host=host, method=what, rule=wanted), wanted)
        if about:
            wanted = rule_text(host, target.port)
            raise Refused(NetworkCode.PORT_NOT_ALLOWED.note(host=host, port=target.port, rule=wanted), wanted)
        wanted, kind = rule_for(target), Kind.PUBLIC if target.address is None else kind_of(target.address)
        if host in METADATA_NAMES or kind is Kind.METADATA:
            raise Refused(NetworkCode.METADATA_SERVICE.note(host=host))
        if kind is not Kind.PUBLIC:
            raise Refused(NetworkCode.ADDRESS_NOT_NAMED.note(host=host, what=kind.value, rule=wanted), wanted)
        raise Refused(NetworkCode.HOST_NOT_ALLOWED.note(host=host, rule=wanted), wanted)

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
            raise Refused(NetworkCode.NO_ADDRESS.note(host=target.host))
        for address in looked_at:
            kind = kind_of(address)
            if kind is Kind.PUBLIC and own(address):
                kind = Kind.OWN
            if kind is Kind.PUBLIC or self._named(target, address):
                continue
            if kind is Kind.METADATA:
                raise Refused(NetworkCode.METADATA_SERVICE.note(host=target.host))
            if not _can_be_named(address):
                raise Refused(NetworkCode.ADDRESS_DISGUISED.note(host=target.host, address=address, what=kind.value))
            wanted = rule_for(Target(str(address), target.port, address))
            raise Refused(
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
                raise Refused(NetworkCode.SERVER_NAME_MISSING.note(host=target.host))
        elif not server_name.isascii() or target.address is not None or server_name.lower() != target.host:
            raise Refused(NetworkCode.SERVER_NAME_OTHER.note(host=target.host))

    def check_host_header(self, target: Target, header: bytes) -> None:
        """Raise Refused unless the Host header of a request is the host and the port of its target."""
        try:
            host, port = split(header)
            name, address = canonical(host)
        except Refused:
            raise Refused(NetworkCode.HOST_HEADER_OTHER.note(host=target.host)) from None
        same = target.port in USUAL_PORTS if port is None else port == target.port
        if not same or (name, address) != (target.host, target.address):
            raise Refused(NetworkCode.HOST_HEADER_OTHER.note(host=target.host))

    def _about(self, target: Target) -> list[Rule]:
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
    except Refused:
        return False
