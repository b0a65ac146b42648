"""Where the server listens: on loopback as it comes, elsewhere with TLS and a token file only."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from ...core.codes import EndCode, UsageCode
from ...core.errors import ConfigurationError
from .codes import ServeCode
from .domain import DomainNames
from .web_server import HostPort, authority


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Where the server listens, and under which names it is reached."""

    host: str = "127.0.0.1"
    port: int = 8809
    names: tuple[str, ...] = ()
    """Host names besides those of loopback that requests may carry."""
    tls: bool = False
    token_file: bool = False
    """Whether the operator says who may use the server."""
    domain: str | None = None
    """Below which clients find sandboxes by names."""
    remote: bool | None = None
    """Of `mcp --http`, which has no TLS of its own: whether an address is meant that is not of loopback."""

    def listen(self) -> socket.socket:
        """Return the socket to serve on. Raises `ConfigurationError`."""
        try:
            family, kind, _, _, address = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
        except (OSError, UnicodeError) as error:
            raise ConfigurationError(
                UsageCode.ADDRESS_UNUSABLE, f"there is no address {self.host!r}: {error}", setting="host"
            ) from None
        if not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
            self.check_remote()
        self.known()
        listener = socket.socket(family, kind)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Connections inherit it. asyncio sets it for sockets that name their protocol alone, and without it an
            # answer of two pieces waits 40 ms for the client's word on the first.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            listener.bind(address)
            listener.listen(128)
        except OSError as error:
            listener.close()
            raise ConfigurationError(
                UsageCode.ADDRESS_UNUSABLE,
                f"port {self.port} of {self.host} cannot be used: {error.strerror}",
                setting="port",
            ) from None
        return listener

    def known(self) -> DomainNames:
        """Return which Host and Origin a request may carry: a page of another site has neither.

        Raises `ConfigurationError` for a name that no request could carry.
        """
        return DomainNames(self._parsed(), self.domain)

    def check_remote(self) -> None:
        """Raise `ConfigurationError` without TLS, tokens and a name."""
        needed = {
            "--tls-cert and --tls-key": self.tls,
            "--token-file": self.token_file,
            "--allowed-host or --domain": bool(self.names or self.domain),
        }
        if self.remote is not None:
            proxied = "--allow-remote, with a proxy that has TLS before it (the token is sent as it is)"
            needed = {proxied: self.remote, "--allowed-host": bool(self.names)}
        if missing := [option for option, there in needed.items() if not there]:
            raise ConfigurationError(
                ServeCode.SERVE_EXPOSED,
                f"{self.host} can be reached from other machines: that needs {', and '.join(missing)}",
                setting="host",
            )

    def _parsed(self) -> Iterator[HostPort]:
        for name in self.names:
            found = authority(name)
            if found is None:
                raise ConfigurationError(
                    EndCode.WRONG_SETTING,
                    "a name is what stands in a request's Host: box.example.com, box.example.com:8443 or [::1]",
                    value=repr(name),
                    setting="allowed-host",
                )
            yield found
