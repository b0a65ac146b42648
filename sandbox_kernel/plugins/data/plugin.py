"""What this plugin adds: the settings `datasets` and `volumes`, and the record of reads where there is an audit."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.model import Settings
from ..api import Diagnosis, Plugin, SessionHandle, SessionService
from .codes import DataCode


def service(settings: Settings, session: SessionHandle) -> SessionService:
    """Return the record of what is read of datasets; it does nothing without an audit."""
    if not settings.get("datasets", ()) or settings.get("audit", None) is None:
        return SessionService()
    from .reads import ReadRecord

    return ReadRecord(session)


def no_snapshot(settings: Settings) -> str | None:
    """Say why a session with data has no snapshot: who begins from it would have what its maker was given."""
    return "it has datasets or volumes"


def diagnose(settings: Settings, environment: Mapping[str, str]) -> Diagnosis:
    """Return what a session of these settings would miss."""
    from .diagnosis import diagnosis

    return diagnosis(settings)


PLUGIN = Plugin(
    name="data",
    page="docs/large-data.md",
    codes={"Data": DataCode},
    service=service,
    no_snapshot=no_snapshot,
    diagnose=diagnose,
)
