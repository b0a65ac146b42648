"""A domain of the operator, below which clients find the server, and each sandbox of it, by names.

`api.<domain>` is the server, and `<port>-<sandbox>.<domain>` a port of a sandbox. No other name below the domain is the
server's, so that a page whose name was given our address (DNS rebinding) is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from ...core.codes import EndCode
from ...core.errors import ConfigurationError
from .codes import ServeCode
from .requests import error
from .web_server import HostPort, Names, authority, header_values, refuse

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"(?=.{{1,180}}\Z)(?:{_LABEL}\.)+(?!\d+\Z){_LABEL}")
_SANDBOX = re.compile(r"([1-9][0-9]{0,4})-([a-z0-9][a-z0-9-]{0,55})")


class Named(NamedTuple):
    """What a name says: a port of a sandbox, as E2B's headers have it."""

    port: str
    identity: str


def checked(domain: str) -> str:
    """Return a domain in small letters. Raises `ConfigurationError` for what clients could not use."""
    if not _DOMAIN.fullmatch(domain.lower()):
        words = "a domain has two labels or more and no port, as sandbox.localhost or sandboxes.example.org"
        raise ConfigurationError(EndCode.WRONG_SETTING, words, value=repr(domain), setting="domain")
    return domain.lower()


class DomainNames(Names):
    """The names of a server, with those below its domain."""

    def __init__(self, given: Iterable[HostPort] = (), domain: str | None = None) -> None:
        own = () if domain is None else (HostPort(domain, None), HostPort(f"api.{domain}", None))
        super().__init__((*given, *own))
        self._domain = domain

    def host(self, values: Sequence[str]) -> bool:
        return super().host(values) or self.sandbox(values) is not None

    def sandbox(self, values: Sequence[str]) -> Named | None:
        """Return the sandbox that these values of the header Host name, None for every other name."""
        found = authority(values[0]) if len(values) == 1 else None
        label, _, rest = found.host.partition(".") if found is not None else ("", "", "")
        match = _SANDBOX.fullmatch(label)
        return Named(*match.groups()) if match is not None and rest == self._domain else None


class SandboxHosts:
    """Sends what comes for the name of a sandbox to the routes that sandboxes have, and to nothing else."""

    def __init__(self, app: ASGIApp, known: Names, inside: ASGIApp) -> None:
        self._app, self._inside = app, inside
        self._known = known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        known = self._known
        named = known.sandbox(header_values(scope, b"host")) if isinstance(known, DomainNames) else None
        if named is None:
            await self._app(scope, receive, send)
            return
        said = ((b"e2b-sandbox-id", named.identity), (b"e2b-sandbox-port", named.port))
        if any(value != own for name, own in said for value in header_values(scope, name)):
            words = "The headers name another sandbox, or another port of it, than the host does"
            await refuse(error(400, ServeCode.REQUEST_IMPROPER, words), scope, receive, send)
            return
        headers = [*scope["headers"], *((name, own.encode()) for name, own in said if not header_values(scope, name))]
        await self._inside({**scope, "headers": headers}, receive, send)
