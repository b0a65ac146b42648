"""Where the server listens: on loopback as it comes, elsewhere with TLS and a token file only."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.errors import ConfigurationError
from ..mcp import web_server
from .codes import ServeCode
from .domain import DomainNames


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress(web_server.ListenAddress):
    """See the module."""

    tls: bool = False
    token_file: bool = False
    """Whether the operator says who may use the server."""
    domain: str | None = None
    """Below which clients find sandboxes by names."""

    def known(self) -> DomainNames:
        """Return the names of the server. Raises `ConfigurationError` for one that no request could carry."""
        return DomainNames(self._parsed(), self.domain)

    def check_remote(self) -> None:
        """Raise `ConfigurationError` without TLS, tokens and a name."""
        missing = [
            option
            for option, there in (
                ("--tls-cert and --tls-key", self.tls),
                ("--token-file", self.token_file),
                ("--allowed-host or --domain", bool(self.names or self.domain)),
            )
            if not there
        ]
        if missing:
            raise ConfigurationError(
                ServeCode.SERVE_EXPOSED,
                f"{self.host} can be reached from other machines: that needs {', and '.join(missing)}",
                setting="host",
            )
