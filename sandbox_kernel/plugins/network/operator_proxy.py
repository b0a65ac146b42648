"""The proxy through which the host itself has to go, if its operator says so: from a setting, never by itself.

Nothing of a cell's comes here: not its variables, and not its headers.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

from ...core.codes import EndCode
from ...core.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class OperatorProxy:
    """Where it listens, and what it is told of who asks."""

    host: str
    port: int
    authorization: bytes | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str) -> OperatorProxy:
        """Return the proxy at `http://[user:password@]host:port`. Raises ConfigurationError, without the password."""
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host, port = parts.hostname, parts.port or 80
            user = unquote(parts.username or ""), unquote(parts.password or "")
        except ValueError:
            host, port, user, parts = None, 0, ("", ""), urlsplit("")
        if parts.scheme != "http" or not host or parts.path not in {"", "/"} or parts.query or parts.fragment:
            raise ConfigurationError(
                EndCode.WRONG_SETTING, "the host's proxy is not at http://HOST:PORT", setting="network_proxy"
            )
        credentials = f"{user[0]}:{user[1]}".encode()
        if min(credentials) < 32:
            raise ConfigurationError(
                EndCode.WRONG_SETTING, "the host's proxy has an improper user or password", setting="network_proxy"
            )
        authorization = b"Basic " + base64.b64encode(credentials) if credentials != b":" else None
        return cls(host, port, authorization)


class Proxies:
    """Which proxy is for which host."""

    def __init__(self, setting: str, environment: Mapping[str, str]) -> None:
        """`setting` is the address of a proxy, or `environment` for what the given variables say.

        Raises ConfigurationError.
        """
        self._bypass: dict[str, str] | None = None
        if setting != "environment":
            self._proxy: OperatorProxy | None = OperatorProxy.parse(setting)
            return
        named = {name.lower(): value for name, value in environment.items() if value}
        url = named.get("https_proxy") or named.get("all_proxy")
        self._proxy = OperatorProxy.parse(url) if url else None
        self._bypass = {"no": named.get("no_proxy", "")}

    def for_host(self, host: str) -> OperatorProxy | None:
        """Return the proxy through which `host` is reached; None if it is dialled directly."""
        if self._bypass is not None and proxy_bypass_environment(host, self._bypass):
            return None
        return self._proxy
