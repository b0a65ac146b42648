"""What this plugin adds: the settings `datasets` and `volumes`."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.model import Settings
from ..api import Diagnosis, Plugin, SessionHandle, SessionService


def service(settings: Settings, session: SessionHandle) -> SessionService:
    """Return its part of a session: there is nothing to do for one."""
    return SessionService()


def no_snapshot(settings: Settings) -> str | None:
    """Say why a session with data has no snapshot: who begins from it would have what its maker was given."""
    return "it has datasets or volumes"


def diagnose(settings: Settings, environment: Mapping[str, str]) -> Diagnosis:
    """Return what a session of these settings would miss."""
    from .diagnosis import diagnosis

    return diagnosis(settings)


PLUGIN = Plugin(name="data", page="docs/large-data.md", service=service, no_snapshot=no_snapshot, diagnose=diagnose)
