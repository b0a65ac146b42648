"""The way out of a sandbox's cells, and the tools of its caller, if there are any; nothing of it is imported otherwise.

It does not hold the sandbox, which people may drop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.codes import UsageCode
from ..core.errors import ConfigurationError, NetworkDenied
from ..core.model import Inside, Settings
from ..session.streams import works_for
from .values import NetworkDenial, NetworkUsage

if TYPE_CHECKING:
    from ..gateway.opening import WayOut
    from ..gateway.tools import Tools
    from ..session.streams import ServiceFactory
    from .cell import Cell


class Network:
    """See the module."""

    def __init__(self, settings: Settings, cells: dict[str, Cell], tools: Tools | None = None) -> None:
        """Raises `ConfigurationError`, also for a secret that cannot be read."""
        self._cells = cells
        self._way_out: WayOut | None = None
        self.inside: Inside | None = None
        self.service: ServiceFactory | None = None
        self.tools = tools.names if tools else ()
        if settings.is_served or tools:
            from ..gateway.opening import WayOut

            self._way_out = WayOut(settings, heard=self._heard, tools=tools)
            self.inside, self.service = self._way_out.inside, self._way_out.service

    def check_outside(self, session: str) -> None:
        """Raise `ConfigurationError` in a tool that works for a cell of that session: nothing else of it can run."""
        if works_for.get() == session:
            raise ConfigurationError(UsageCode.SANDBOX_IN_TOOL)

    @property
    def usage(self) -> NetworkUsage:
        if self._way_out is None:
            return NetworkUsage()
        traffic = self._way_out.traffic
        return NetworkUsage(
            connections=traffic.connections,
            refused=dict(traffic.refused),
            received_bytes=traffic.bytes_in,
            sent_bytes=traffic.bytes_out,
        )

    def _heard(self, cell: str, denied: NetworkDenied) -> None:
        if (found := self._cells.get(cell)) is not None:
            code, reason = denied.code.code, denied.message
            found.hear(NetworkDenial(code=code, reason=reason, host=denied.host, port=denied.port))
