"""The secrets of one session: placeholders for its cells, and an `Insight` into the connections to their hosts.

A secret grants no connection: what the rules of the network do not allow never comes here. Values are read when this is
made, and are in this process's memory alone. Imports the other modules of secrets.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import secrets
import ssl
import string
from collections.abc import Iterable, Mapping
from contextlib import suppress

from ...core.codes import EndCode
from ...core.errors import ConfigurationError
from . import tls
from .authority import Authority
from .codes import SecretCode
from .exchange import Duplex, Exchange, RequestHead
from .policy import BadRule, Refused, Rule
from .scrub import Scrubber
from .substitution import Held, Substitution
from .value import Source, read

_PREFIXES = (
    *("sk-ant-api03-", "sk-ant-", "sk-or-v1-", "sk-proj-", "sk-svcacct-", "sk-", "sk_live_", "sk_test_", "rk_live_"),
    *("rk_test_", "pk_live_", "pk_test_", "whsec_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"),
    *("xoxb-", "xoxp-", "xapp-", "hf_", "npm_", "pypi-", "dop_v1_", "AIza", "SG.", "r8_", "gsk_", "tvly-", "lin_api_"),
)
"""Public beginnings by which services tell their keys from others; client libraries look for them."""
_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_DIGITS, _LOWER, _UPPER = string.digits, string.ascii_lowercase, string.ascii_uppercase
_ALPHABETS = (
    *(_DIGITS, _DIGITS + "abcdef", _DIGITS + "ABCDEF", _DIGITS + _LOWER, _DIGITS + _UPPER),
    _DIGITS + _UPPER + _LOWER,
)
"""From the narrowest on. The first that the value is from is the placeholder's; the last one is for all others."""
_MIN_RANDOM = 8


def like(value: bytes) -> str:
    """Return a new placeholder for a value."""
    if _UUID.fullmatch(value):
        digits = _chosen(_DIGITS + ("ABCDEF" if value != value.lower() else "abcdef"), 32)
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    text = value.decode("ascii")
    prefix = max((one for one in _PREFIXES if text.startswith(one)), key=len, default="")
    if len(text) - len(prefix) < _MIN_RANDOM:
        prefix = ""
    rest = text[len(prefix) :]
    alphabet = next((one for one in _ALPHABETS if set(rest) <= set(one)), _ALPHABETS[-1])
    return prefix + _chosen(alphabet, len(rest))


def _chosen(alphabet: str, count: int) -> str:
    return "".join(secrets.choice(alphabet) for _ in range(count))


HTTPS = 443
"""Where a secret goes whose host is written without a port."""
SECONDS = 15.0
"""How long TLS with either side may take to begin."""


class Secrets:
    """What a session knows of its secrets. Its repr names them and says nothing else."""

    def __init__(self, held: Iterable[Held], authority: Authority, verifying: ssl.SSLContext) -> None:
        self._held = tuple(held)
        self._authority = authority
        self._verifying = verifying
        self._scrubber = Scrubber((one.value, one.placeholder) for one in self._held)
        self.hosts = frozenset(host for one in self._held for host in one.hosts)
        """Names and ports to which TLS ends here."""

    @classmethod
    def load(
        cls,
        sources: Iterable[Source],
        *,
        environment: Mapping[str, str] = os.environ,
        certificates: str | None = None,
        state: Mapping[str, object] | None = None,
    ) -> Secrets:
        """Read all values. `certificates` is a file of authorities besides those that this machine trusts.

        `state` is what another process said of the sandbox that is taken over. Raises `ConfigurationError`.
        """
        sources = tuple(sources)
        keep_out_of_cores()
        known = _Known(state or {})
        held = [_hold(source, environment, known) for source in sources]
        _check_headers(held)
        names = {host for one in held for host, _ in one.hosts}
        authority = Authority(names, key=known.text("key"), certificate=known.text("certificate"))
        try:
            verifying = tls.towards_hosts(certificates)
        except OSError as error:
            what = f"the file of certificates cannot be used: {error.strerror or 'it holds none'}"
            raise ConfigurationError(
                EndCode.WRONG_SETTING, what, value=certificates, setting="network_certificates"
            ) from None
        return cls(held, authority, verifying)

    def __repr__(self) -> str:
        return f"<Secrets {', '.join(one.name for one in self._held)}>"

    # --- for the sandbox ---

    def environment(self) -> dict[str, str]:
        """Return the variables of the cells: placeholders by the names of their secrets."""
        return {one.name: one.placeholder.decode() for one in self._held}

    @property
    def certificates(self) -> str:
        """What the sandbox has to trust besides, in PEM."""
        return self._authority.certificate

    def state(self) -> dict[str, object]:
        """Return what a process needs that takes over the sandbox: no value, but the authority's key."""
        return {
            "placeholders": self.environment(),
            "certificate": self._authority.certificate,
            "key": self._authority.key(),
        }

    # --- an `Insight` ---

    def looks_into(self, host: str, port: int) -> bool:
        """Return whether TLS to this host ends here."""
        return (host, port) in self.hosts

    async def towards_cell(self, tunnel: Duplex, host: str, port: int) -> Duplex:
        """Return the inside of the cell's TLS connection. Raises `Refused`, and what the tunnel raises."""
        inside = tls.Inside(tunnel, tls.as_host(self._authority.context(host), host), server=True)
        try:
            async with asyncio.timeout(SECONDS):
                await inside.shake_hands()
        except ssl.SSLError as error:
            raise Refused(SecretCode.SECRET_CELL_TLS.note(host=host, why=tls.reason(error))) from None
        except TimeoutError:
            raise Refused(SecretCode.SECRET_TLS_SLOW.note(who="the cell", limit=f"{SECONDS:g}")) from None
        return inside

    async def towards_host(self, connection: Duplex, host: str, port: int) -> Duplex:
        """Return the inside of a TLS connection to the host itself. Raises `Refused`."""
        inside = tls.Inside(connection, self._verifying, server=False, host=host)
        try:
            async with asyncio.timeout(SECONDS):
                await inside.shake_hands()
        except ssl.SSLError as error:
            raise Refused(SecretCode.SECRET_HOST_TLS.note(host=host, why=tls.reason(error))) from None
        except TimeoutError:
            raise Refused(SecretCode.SECRET_TLS_SLOW.note(who=host, limit=f"{SECONDS:g}")) from None
        except OSError:
            raise Refused(SecretCode.SECRET_HOST_TLS.note(host=host, why="the connection broke")) from None
        return inside

    def exchange(self, head: RequestHead) -> Exchange | None:
        """Return who looks at a request; None for a host of no secret. Plain HTTP to the host of one is refused."""
        if head.scheme == "https":
            mine = [one for one in self._held if (head.host, head.port) in one.hosts]
        else:
            mine = [one for one in self._held if any(head.host == host for host, _ in one.hosts)]
        return Substitution(head.host, mine, self._scrubber) if mine else None


class _Known:
    """What was said by the process before, as far as it is of any use."""

    def __init__(self, state: Mapping[str, object]) -> None:
        self._state = state
        found = state.get("placeholders")
        self.placeholders = found if isinstance(found, Mapping) else {}

    def text(self, name: str) -> str | None:
        found = self._state.get(name)
        return found if isinstance(found, str) else None


def hosts_of(source: Source) -> frozenset[tuple[str, int]]:
    """Return where a value goes. Raises `ConfigurationError` for what is no single host with a name."""
    found = set()
    for text in source.hosts:
        try:
            rule = Rule.parse(text)
        except BadRule as error:
            raise _wrong(source, f"has a host that is none: {error.why}") from None
        if rule.wildcard:
            what = "is for a wildcard, and of the hosts below it one may be somebody else's; name each of them"
            raise _wrong(source, what)
        if rule.address is not None:
            raise _wrong(source, "is for an address; name the host that its certificate names")
        if rule.method is not None:
            raise _wrong(source, "is for a method; a host is named without")
        found.add((rule.host, HTTPS if rule.port is None else rule.port))
    if not found:
        raise _wrong(source, "is for no host")
    return frozenset(found)


def _hold(source: Source, environment: Mapping[str, str], known: _Known) -> Held:
    hosts = hosts_of(source)
    value = read(source, environment)
    header = None
    if source.header is not None:
        name, _, form = source.header.partition(":")
        before, _, behind = form.strip().partition("{}")
        header = name.strip().encode(), before.encode(), behind.encode()
    before_this = known.placeholders.get(source.name)
    stands = before_this if isinstance(before_this, str) else like(value.reveal())
    return Held(source.name, value, stands.encode(), hosts, header)


def _check_headers(held: Iterable[Held]) -> None:
    """Refuse two secrets that set the same header at one host: no request could have both."""
    taken: set[tuple[str, int, bytes]] = set()
    for one in held:
        places = {(*host, one.header[0].lower()) for host in one.hosts} if one.header is not None else set()
        if places & taken:
            what = f"secrets.{one.name} sets a header that another secret sets for the same host"
            raise ConfigurationError(EndCode.WRONG_SETTING, what, setting="secrets")
        taken |= places


def _wrong(source: Source, what: str) -> ConfigurationError:
    return ConfigurationError(EndCode.WRONG_SETTING, f"secrets.{source.name} {what}", setting="secrets")


def keep_out_of_cores() -> None:
    """Let this process leave no core file: its memory holds values from now on."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
