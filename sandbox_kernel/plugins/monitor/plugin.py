"""What this plugin adds: a part of sessions that notices what code does while it runs."""

from __future__ import annotations

from ...core.model import Settings
from ..api import Plugin, SessionHandle, SessionService
from .codes import MonitorCode


def service(settings: Settings, session: SessionHandle) -> SessionService:
    """Return the monitor of one session."""
    from .monitor import Monitor

    return Monitor(settings, session)


PLUGIN = Plugin(name="monitor", page="docs/monitor.md", codes={"Behaviour": MonitorCode}, service=service)
