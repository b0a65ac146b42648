"""The network of one session, made before its sandbox is: what goes inside, and what serves its connections then.

A sandbox keeps the placeholders and the authority that it was started with, so a process that takes it over makes its
network of what the one before knew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.codes import EndCode
from ...core.errors import ConfigurationError
from ...core.model import SERVICE_PORT, Inside, Settings, format_bytes
from ...core.package_files import PACKAGE
from ...engines.shipping import module_line
from ...sdk.values import NetworkUsage
from ..api import SessionHandle
from .connection_reporter import Heard, SessionReporter
from .egress import Egress
from .operator_proxy import Proxies
from .policy import HostRule, NetworkPolicy
from .settings import NetworkSettings
from .traffic_limits import EgressLimits, Traffic

if TYPE_CHECKING:
    from .secrets import Secrets

PROXY = f"http://127.0.0.1:{SERVICE_PORT}"
"""Where the agent listens, in the sandbox's own loopback."""
BUNDLE = "/tmp/.sandbox-certificates.pem"  # noqa: S108 (a path inside the container, on its own tmpfs)

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "WS_PROXY", "WSS_PROXY")
"""The last two are what aiohttp reads for a web socket."""
_OWN = ("localhost", "127.0.0.1", "::1")
"""What a cell serves for itself does not go through the host."""
_BUNDLES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "AWS_CA_BUNDLE",
)
"""Each is read by somebody who reads none of the others."""
_MANNERS = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "GIT_TERMINAL_PROMPT": "0"}
"""pip and git ask nothing, and pip looks for no newer version of itself."""
_NO_METADATA = {"AWS_EC2_METADATA_DISABLED": "true", "NO_GCE_CHECK": "true"}
"""For boto3 and google-auth, which ask for a machine's credentials where code has none: a violation nobody meant."""
_METADATA = ("169.254.169.254", "metadata.google.internal")


def inside(rules: Iterable[HostRule], placeholders: Mapping[str, str], certificates: str = "") -> Inside:
    """Return what a sandbox has inside that may reach what `rules` say; `placeholders` are the secrets of its cells."""
    named = {rule.host for rule in rules}
    own = ",".join(one for one in _OWN if one not in named)  # which is this machine's by its rule, then
    variables = dict.fromkeys(_PROXIES, PROXY) | {"NO_PROXY": own}
    variables |= {name.lower(): value for name, value in variables.items()}
    variables |= dict.fromkeys(_BUNDLES, BUNDLE) | _MANNERS
    if named.isdisjoint(_METADATA):
        variables |= _NO_METADATA
    source = (PACKAGE / "plugins" / "network" / "inside" / "sandbox_certificates.py").read_text(encoding="utf-8")
    line = module_line(f"{source}\nprepare({BUNDLE!r}, {certificates!r})\n", "_sandbox_certificates")
    return Inside(environment={**placeholders, **variables}, lines=(line,))


_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
MAX_READ = 4 << 20
MAX_CERTIFICATES = 48 << 10
"""Bytes: a request to a broker has them, and has 192 KiB at most."""
CELLS_A_SESSION = 10
"""How many cells may use all that one may."""


class Network:
    """A `Preparation`."""

    def __init__(
        self,
        settings: Settings,
        state: Mapping[str, Any] | None = None,
        *,
        heard: Heard | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """Read the secrets and the certificates.

        Args:
            settings: Of the session.
            state: The `state` of the process before, whose sandbox goes on.
            heard: Hears of each connection that was denied.
            environment: Where secrets and proxies are looked for.

        Raises:
            ConfigurationError: A secret cannot be read, or a setting of the host's own network is wrong.
        """
        network = settings.of(NetworkSettings)
        self._policy = NetworkPolicy(network.network)
        self._heard = heard
        self._egress: Egress | None = None
        limits = settings.limits
        self._limits = EgressLimits(
            connections=limits.network_connections,
            cell_bytes=limits.network_bytes,
            session_bytes=CELLS_A_SESSION * limits.network_bytes,
            silent_seconds=limits.network_timeout,
        )
        self._proxies = Proxies(network.network_proxy, environment) if network.network_proxy is not None else None
        certificates = _certificates(network.network_certificates)
        self._secrets: Secrets | None = None
        if network.secrets:
            from .secrets import Secrets

            self._secrets = Secrets.load(
                network.secrets,
                environment=environment,
                certificates=network.network_certificates,
                state=state or None,
            )
            certificates += self._secrets.certificates
        placeholders = self._secrets.environment() if self._secrets is not None else {}
        self.inside = inside(map(HostRule.parse, network.network), placeholders, certificates)

    def service(self, session: SessionHandle) -> Egress:
        reporter = SessionReporter(session, self._heard)
        self._egress = Egress(self._policy, reporter, limits=self._limits, proxies=self._proxies, insight=self._secrets)
        return self._egress

    @property
    def traffic(self) -> Traffic:
        """What went through until now."""
        return Traffic() if self._egress is None else self._egress.traffic

    @property
    def usage(self) -> NetworkUsage:
        """The same, for the caller of the SDK."""
        traffic = self.traffic
        return NetworkUsage(
            connections=traffic.connections,
            refused=dict(traffic.refused),
            received_bytes=traffic.bytes_in,
            sent_bytes=traffic.bytes_out,
        )

    def state(self) -> dict[str, Any]:
        """Return what the process has to know that takes over the sandbox: no value of a secret."""
        return {} if self._secrets is None else self._secrets.state()


def _certificates(path: str | None) -> str:
    """Return the authorities that the operator names, in PEM, and nothing else of the file.

    Raises `ConfigurationError`.
    """
    if path is None:
        return ""
    try:
        with Path(path).open("rb") as file:
            found = _CERTIFICATE.findall(file.read(MAX_READ).decode("latin-1"))
    except OSError as error:
        what = f"the file of certificates cannot be read: {error.strerror}"
        raise ConfigurationError(EndCode.WRONG_SETTING, what, value=path, setting="network_certificates") from None
    text = "".join(f"{one}\n" for one in found)
    if not 0 < len(text) <= MAX_CERTIFICATES:
        what, limit = "the file of certificates holds none in PEM, or too many", format_bytes(MAX_CERTIFICATES)
        raise ConfigurationError(EndCode.WRONG_SETTING, what, limit=limit, value=path, setting="network_certificates")
    return text
