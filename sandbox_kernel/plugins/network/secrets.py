"""The secrets of one session: placeholders for its cells, and a `TlsInterceptor` for the connections to their hosts.

A secret grants no connection: what the rules of the network do not allow never comes here. Values are read when this is
made, and are in this process's memory alone. A value goes into the address and the headers of a request, or into its
own header alone if it has one; never into a body. The host may answer with whatever it was sent, so the answer is asked
for whole and unpacked, and values are taken out of it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import re
import resource
import secrets
import ssl
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from urllib.parse import quote

from ...core.codes import EndCode
from ...core.errors import ConfigurationError
from . import tls
from .codes import SecretCode
from .interfaces import BodyFilter, Duplex, Exchange, Headers, RequestHead, ResponseHead
from .policy import BadRule, HostRule, RefusedConnection
from .request_head import canonical
from .secret_scrubber import Scrubber, Scrubbing, Unpacking, coding_of
from .secret_value import SecretValue, read
from .settings import SecretSource
from .tls import CertificateAuthority

ECHOING = frozenset(("TRACE", "TRACK", "DEBUG"))
"""Methods whose answer is the request."""
IN_PARTS = frozenset((206, 226))
LEFT_OUT = frozenset(
    (
        b"range", b"if-range", b"request-range", b"a-im", b"accept-encoding", b"want-digest", b"want-content-digest",
        b"want-repr-digest",
    )
)  # fmt: skip
"""What asks for a part of something, or for it in another form. A host may always answer as if it were not there."""
DIGESTS = frozenset((b"content-md5", b"digest", b"content-digest", b"repr-digest"))
"""Of a body as it was before values were taken out: a cell could try its guesses against one on its own."""
BODILESS = frozenset((204, 304))

_BASIC = re.compile(rb"(basic) +([A-Za-z0-9+/]+={0,2})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HeldSecret:
    name: str
    value: SecretValue
    placeholder: bytes
    hosts: frozenset[tuple[str, int]]
    """Canonical names with ports: where the value goes, and nowhere else."""
    header: tuple[bytes, bytes, bytes] | None = None
    """A header that requests get: its name, and what stands before and behind the value, which goes nowhere else."""


class _Places:
    """Some placeholders, with what stands in their places."""

    def __init__(self, held: Iterable[HeldSecret]) -> None:
        self._values = {one.placeholder: one.value for one in held}
        self._pattern = re.compile(b"|".join(map(re.escape, self._values)) or b"(?!)")

    def filled(self, text: bytes, write: Callable[[bytes], bytes] = bytes) -> bytes:
        return self._pattern.sub(lambda match: write(self._values[match[0]].reveal()), text)


class Substitution:
    """An `Exchange` with a host of secrets."""

    def __init__(self, host: str, held: Sequence[HeldSecret], scrubber: Scrubber) -> None:
        """`held` are the secrets of this host; `scrubber` knows those of all hosts."""
        self._host = host
        self._held = held
        self._scrubber = scrubber
        self._anywhere = _Places(one for one in held if one.header is None)
        names = {one.header[0].lower() for one in held if one.header is not None}
        self._in_header = {
            name: _Places(one for one in held if one.header is None or one.header[0].lower() == name) for name in names
        }
        self._method = ""
        self._coding: str | None = None

    def request(self, head: RequestHead) -> RequestHead:
        """Return the request with the values in it. Raises `RefusedConnection`."""
        if head.scheme != "https":
            raise RefusedConnection(SecretCode.SECRET_NEEDS_TLS.note(host=self._host))
        self._method = head.method.upper()
        if self._method in ECHOING:
            raise RefusedConnection(SecretCode.SECRET_METHOD.note(host=self._host, method=self._method))
        path = self._anywhere.filled(head.path, lambda value: quote(value, safe="").encode())
        kept = [(name, self._filled(name, value)) for name, value in head.headers if canonical(name) not in LEFT_OUT]
        return replace(head, path=path, headers=(*kept, *self._added(head), (b"Accept-Encoding", b"identity")))

    def _filled(self, name: bytes, value: bytes) -> bytes:
        places = self._in_header.get(name.lower(), self._anywhere)
        if (basic := _BASIC.fullmatch(value)) is not None:
            try:
                plain = base64.b64decode(basic[2])
            except binascii.Error:
                return value
            filled = places.filled(plain)
            return value if filled == plain else basic[1] + b" " + base64.b64encode(filled)
        return places.filled(value)

    def _added(self, head: RequestHead) -> Headers:
        there = {name.lower() for name, _ in head.headers}
        return tuple(
            (name, before + one.value.reveal() + behind)
            for one in self._held
            if one.header is not None
            for name, before, behind in (one.header,)
            if name.lower() not in there
        )

    def response(self, head: ResponseHead) -> ResponseHead:
        """Return the head of the answer without values. Raises `RefusedConnection`."""
        if head.status in IN_PARTS:
            raise RefusedConnection(SecretCode.SECRET_ANSWER_IN_PARTS.note(host=self._host, status=head.status))
        headers = tuple(one for one in head.headers if one[0].lower() not in DIGESTS)
        if self._method != "HEAD" and head.status not in BODILESS:
            self._coding = coding_of(head, self._host)
            if self._coding is not None:
                headers = tuple(one for one in headers if one[0].lower() != b"content-encoding")
        clean = self._scrubber.clean
        return replace(
            head, reason=clean(head.reason), headers=tuple((clean(name), clean(value)) for name, value in headers)
        )

    def body(self) -> BodyFilter:
        """Return what takes the values out of the body."""
        plain = Scrubbing(self._scrubber)
        return plain if self._coding is None else Unpacking(self._coding, plain, self._host)


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

    def __init__(self, held: Iterable[HeldSecret], authority: CertificateAuthority, verifying: ssl.SSLContext) -> None:
        self._held = tuple(held)
        self._authority = authority
        self._verifying = verifying
        self._scrubber = Scrubber((one.value, one.placeholder) for one in self._held)
        self.hosts = frozenset(host for one in self._held for host in one.hosts)
        """Names and ports to which TLS ends here."""

    @classmethod
    def load(
        cls,
        sources: Iterable[SecretSource],
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
        state = state or {}
        held = [_hold(source, environment, state.get("placeholders")) for source in sources]
        _check_headers(held)
        names = {host for one in held for host, _ in one.hosts}
        key, certificate = (str(state[name]) if name in state else None for name in ("key", "certificate"))
        authority = CertificateAuthority(names, key=key, certificate=certificate)
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

    # --- a `TlsInterceptor` ---

    def looks_into(self, host: str, port: int) -> bool:
        """Return whether TLS to this host ends here."""
        return (host, port) in self.hosts

    async def towards_cell(self, tunnel: Duplex, host: str, port: int) -> Duplex:
        """Return the inside of the cell's TLS connection. Raises `RefusedConnection`, and what the tunnel raises."""
        inside = tls.TlsInside(tunnel, tls.as_host(self._authority.context(host), host), server=True)
        try:
            async with asyncio.timeout(SECONDS):
                await inside.shake_hands()
        except ssl.SSLError as error:
            raise RefusedConnection(SecretCode.SECRET_CELL_TLS.note(host=host, why=tls.reason(error))) from None
        except TimeoutError:
            raise RefusedConnection(SecretCode.SECRET_TLS_SLOW.note(who="the cell", limit=f"{SECONDS:g}")) from None
        return inside

    async def towards_host(self, connection: Duplex, host: str, port: int) -> Duplex:
        """Return the inside of a TLS connection to the host itself. Raises `RefusedConnection`."""
        inside = tls.TlsInside(connection, self._verifying, server=False, host=host)
        try:
            async with asyncio.timeout(SECONDS):
                await inside.shake_hands()
        except ssl.SSLError as error:
            raise RefusedConnection(SecretCode.SECRET_HOST_TLS.note(host=host, why=tls.reason(error))) from None
        except TimeoutError:
            raise RefusedConnection(SecretCode.SECRET_TLS_SLOW.note(who=host, limit=f"{SECONDS:g}")) from None
        except OSError:
            raise RefusedConnection(SecretCode.SECRET_HOST_TLS.note(host=host, why="the connection broke")) from None
        return inside

    def exchange(self, head: RequestHead) -> Exchange | None:
        """Return who looks at a request; None for a host of no secret. Plain HTTP to the host of one is refused."""
        if head.scheme == "https":
            mine = [one for one in self._held if (head.host, head.port) in one.hosts]
        else:
            mine = [one for one in self._held if any(head.host == host for host, _ in one.hosts)]
        return Substitution(head.host, mine, self._scrubber) if mine else None


def hosts_of(source: SecretSource) -> frozenset[tuple[str, int]]:
    """Return where a value goes. Raises `ConfigurationError` for what is no single host with a name."""
    found = set()
    for text in source.hosts:
        try:
            rule = HostRule.parse(text)
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


def _hold(source: SecretSource, environment: Mapping[str, str], placeholders: object) -> HeldSecret:
    """Return a secret with its value. `placeholders` are those of the sandbox that is taken over, if there is one."""
    hosts = hosts_of(source)
    value = read(source, environment)
    header = None
    if source.header is not None:
        name, _, form = source.header.partition(":")
        before, _, behind = form.strip().partition("{}")
        header = name.strip().encode(), before.encode(), behind.encode()
    known = placeholders.get(source.name) if isinstance(placeholders, Mapping) else None
    placeholder = known if isinstance(known, str) else like(value.reveal())
    return HeldSecret(source.name, value, placeholder.encode(), hosts, header)


def _check_headers(held: Iterable[HeldSecret]) -> None:
    """Refuse two secrets that set the same header at one host: no request could have both."""
    taken: set[tuple[str, int, bytes]] = set()
    for one in held:
        places = {(*host, one.header[0].lower()) for host in one.hosts} if one.header is not None else set()
        if places & taken:
            what = f"secrets.{one.name} sets a header that another secret sets for the same host"
            raise ConfigurationError(EndCode.WRONG_SETTING, what, setting="secrets")
        taken |= places


def _wrong(source: SecretSource, what: str) -> ConfigurationError:
    return ConfigurationError(EndCode.WRONG_SETTING, f"secrets.{source.name} {what}", setting="secrets")


def keep_out_of_cores() -> None:
    """Let this process leave no core file: its memory holds values from now on."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
