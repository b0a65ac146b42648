"""The way out of one session, made before its sandbox is: what goes inside, and the service that is behind it.

A sandbox keeps the placeholders and the authority that it was started with, so a process that takes it over makes its
way out of what the one before knew. Imports the parts of the gateway; the secrets, if there are any.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.codes import EndCode, Note
from ..core.errors import ConfigurationError, NetworkDenied
from ..core.model import Inside, Settings, format_bytes
from ..policy.network import NetworkPolicy, Rule
from ..session.streams import Reporter, Service, ServiceContext
from . import installing
from .answers import is_denial
from .egress import Egress
from .environment import inside
from .installing import Installing
from .limits import EgressLimits, Traffic
from .operator_proxy import Proxies
from .switch import Switch
from .tool_calls import ToolCalls
from .tools import Tools

if TYPE_CHECKING:
    from .secrets import Secrets

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
MAX_READ = 4 << 20
MAX_CERTIFICATES = 48 << 10
"""Bytes: they are shipped with the agent, in an argument of 128 KiB at most."""
CELLS_A_SESSION = 10
"""How many cells may use all that one may."""
Heard = Callable[[str, NetworkDenied], None]
"""Called with the id of a cell and what it was denied."""


class WayOut:
    """See the module. `inside` is for the spec of the session's sandboxes, and `service` for the session."""

    def __init__(
        self,
        settings: Settings,
        kept: Mapping[str, Any] | None = None,
        *,
        heard: Heard | None = None,
        tools: Tools | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """`kept` is the `state` of the process before, whose sandbox goes on; `tools` are those of its caller.

        Raises `ConfigurationError` if a secret cannot be read, or a setting of the host's own way out is wrong.
        """
        self._policy = NetworkPolicy(settings.network)
        self._heard = heard
        self._egress: Egress | None = None
        limits = settings.limits
        self._limits = EgressLimits(
            connections=limits.network_connections,
            cell_bytes=limits.network_bytes,
            session_bytes=CELLS_A_SESSION * limits.network_bytes,
            silent_seconds=limits.network_timeout,
        )
        self._proxies = Proxies(settings.network_proxy, environment) if settings.network_proxy is not None else None
        certificates = _certificates(settings.network_certificates)
        self._secrets: Secrets | None = None
        if settings.secrets:
            from .secrets import Secrets

            self._secrets = Secrets.load(
                settings.secrets,
                environment=environment,
                certificates=settings.network_certificates,
                state=kept,
            )
            certificates += self._secrets.certificates
        placeholders = self._secrets.environment() if self._secrets is not None else {}
        self._has_network = settings.has_way_out
        self.inside = Inside(environment={}, trust=None)
        if self._has_network:
            self.inside = inside(map(Rule.parse, settings.network), placeholders, certificates)
        self._installing = Installing(settings) if settings.packages else None
        self._tools = tools or None
        if self._installing is not None:
            pip = self._installing.tool()
            self._tools = Tools([pip]) if self._tools is None else self._tools.with_more(pip)
        if self._tools is not None:
            lines = (self._tools.line, *([installing.line()] if self._installing is not None else []))
            self.inside = replace(self.inside, lines=lines)

    def service(self, context: ServiceContext) -> Service:
        """Return what serves the connections of the session."""
        egress = self._served(context) if self._has_network else None
        if self._installing is not None:
            self._installing.ask, self._installing.record = context.ask, context.record
        if self._tools is None and egress is not None:
            return egress
        return Switch(ToolCalls(self._tools or Tools([]), context), egress, self._limits.silent_seconds)

    def _served(self, reporter: Reporter) -> Egress:
        heard = reporter if self._heard is None else _Listener(reporter, self._heard)
        self._egress = Egress(self._policy, heard, limits=self._limits, proxies=self._proxies, insight=self._secrets)
        return self._egress

    @property
    def traffic(self) -> Traffic:
        """What went through until now."""
        return Traffic() if self._egress is None else self._egress.traffic

    def state(self) -> dict[str, Any]:
        """Return what the process has to know that takes over the sandbox: no value of a secret."""
        return {} if self._secrets is None else self._secrets.state()


class _Listener:
    """The reporter of a session, of which the caller also hears what was denied."""

    def __init__(self, reporter: Reporter, heard: Heard) -> None:
        self._reporter = reporter
        self._heard = heard
        self.tell = reporter.tell

    def note(self, note: Note, **fields: object) -> None:
        self._reporter.note(note, **fields)
        if is_denial(note.code):
            host, port = fields.get("host"), fields.get("port")
            denied = NetworkDenied(
                note, host if isinstance(host, str) else None, port if isinstance(port, int) else None
            )
            self._heard(str(fields.get("cell")), denied)


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
