"""The receipt of a run: what the report knows, as a statement that the key of the record signs."""

from __future__ import annotations

from typing import Any

from ...core.model import Settings
from .. import index
from ..api import Sign
from .report import OutputFile, Report


class ReceiptFile:
    """Where the receipt of a run is written, and the key that signs it, once the settings have named one."""

    def __init__(self, file: OutputFile) -> None:
        self.file = file
        self._sign: Sign | None = None

    def sign_by(self, settings: Settings) -> None:
        """Take the key that the settings name. Raises `ConfigurationError` if it cannot sign here."""
        sign = index.signer("--receipt").sign
        assert sign is not None  # noqa: S101 (for the type: the index names none else)
        self._sign = sign(settings)

    def write(self, report: Report) -> bool:
        """Write the receipt; return whether there was anything to sign. Raises `SandboxError`."""
        if self._sign is None:  # nothing was run: the settings could not work
            return False
        self.file.write(self._sign(_subjects(report), _predicate(report)))
        return True


def _subjects(report: Report) -> list[tuple[str, str]]:
    """Return what the run has made, by its path in the output folder."""
    found = [(f"files/{row['path']}", row["sha256"]) for row in report.files]
    if report.notebook is not None and report.notebook_sha256 is not None:
        found.insert(0, (report.notebook.rpartition("/")[2], report.notebook_sha256))
    return found


def _predicate(report: Report) -> dict[str, Any]:
    """Return what is said of the run: all of its report but places of this machine, and what its sandbox showed."""
    said = report.to_json()
    for name in ("schema", "notebook", "output"):
        del said[name]
    said["source"] = {**said["source"], "name": str(said["source"].get("name")).rpartition("/")[2]}
    cells = [{name: value for name, value in cell.items() if name != "outputs"} for cell in said.pop("cells")]
    return {**said, "cells": cells, "attested": report.attested, "audit": report.audit}
