"""What this plugin adds: the settings `datasets` and `volumes`, the record of reads, and the command `volumes`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...core.model import Settings
from ..api import Command, Diagnosis, Plugin, SessionHandle, SessionService
from .codes import DataCode

if TYPE_CHECKING:
    from ...engines.attachment import Attachments


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


def attachments() -> Attachments:
    """Return what engines ask about data."""
    from . import attached

    return attached


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `volumes`."""
    from . import volume_command

    volume_command.add_options(parser)


def volumes(options: argparse.Namespace) -> int:
    """List, make, remove, export and import volumes: folders of sandboxes that outlive sessions.

    An archive is written and unpacked by a sandbox; this command moves its bytes. A volume that is in use is not
    removed.
    """
    from . import volume_command

    return volume_command.run(options)


PLUGIN = Plugin(
    name="data",
    page="docs/large-data.md",
    codes={"Data": DataCode},
    service=service,
    no_snapshot=no_snapshot,
    diagnose=diagnose,
    attachments=attachments,
    commands=(
        Command(
            name="volumes",
            run=volumes,
            add_options=add_options,
            settings=False,
            group="Checking and maintaining",
            examples={
                "sandbox-kernel volumes ls": "names, sizes, and who uses them",
                "sandbox-kernel volumes create models --size 20G": "reserve room for one",
                "sandbox-kernel volumes export models models.tar": "an archive of its files",
                "sandbox-kernel volumes import copy models.tar --size 20G": "a new volume from an archive",
                "sandbox-kernel volumes rm models --yes": "remove it with its content",
            },
        ),
    ),
)
