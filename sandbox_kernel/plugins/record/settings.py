"""The settings of the record: the file of the audit, its key, and what is written there.

Imports the key and the chain when there is a file to look at: a start without an audit does not wait for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...config.forms import Form, choice, log_file, refuse, size, written_path
from ...config.setting import rows, setting
from ...core.errors import ConfigurationError, FileRefused
from ...core.model import KIB, MIB, Settings


def _audit_file(name: str, raw: object) -> str | None:
    """A file in a folder that exists: a new one, or an audit of this user's."""
    written = written_path(name, raw)
    if written is None:
        return None
    from .hash_chain import FIRST_BYTES  # most kernels have none

    return log_file(name, written, FIRST_BYTES)


def _key_file(name: str, raw: object) -> str | None:
    """The key of the audit: one of this user's that nobody else can read, or a file that is not there yet."""
    written = written_path(name, raw)
    if written is None:
        return None
    if not written.startswith("/"):
        raise refuse(name, raw, f"{name} is not an absolute path: a notebook's folder is no place for a key")
    from .keys import check_key

    try:
        return str(check_key(written))
    except OSError as error:
        raise refuse(name, written, f"{name} cannot be used: {error.strerror}") from None
    except FileRefused as error:
        message = f"{name} cannot be used: {error.message}"
        raise ConfigurationError(error.code, message, value=error.value or repr(written), setting=name) from None


def check(settings: Settings) -> None:
    """Refuse an audit and a key that cells could reach."""
    record = settings.of(RecordSettings)
    if record.audit and settings.downloads and Path(record.audit).is_relative_to(settings.downloads):
        raise refuse("audit", record.audit, "audit lies in the downloads folder, where a cell could overwrite it")
    for place in (settings.uploads, settings.downloads):
        if record.audit_key and place and Path(record.audit_key).is_relative_to(place):
            raise refuse("audit_key", record.audit_key, "audit_key lies in a folder of files of cells")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSettings:
    """The file of the audit, and what is written there."""

    audit: str | None = setting(
        None,
        Form(_audit_file, "a file in a folder that exists", "FILE", from_notebook=True),
        "A host file that receives one line of JSON for each cell and for each refusal. The lines form a chain: "
        "`sandbox-kernel audit verify` finds lines that were changed or removed.",
        scope="process",
    )
    audit_key: str | None = setting(
        None,
        Form(_key_file, "an absolute path in a folder that exists", "FILE"),
        "The key that seals the audit and signs receipts. It is created if it does not exist. It is refused if "
        "anybody but its owner can read it. Store it where those who can write to the audit cannot read it.",
        "~/.local/share/sandbox-kernel/audit.key",
        scope="process",
    )
    """None is the user's own."""
    audit_size: int = setting(
        64 * MIB,
        size(64 * KIB),
        "Size of one audit file. A full file is renamed to FILE.1, FILE.2 and so on, and a new one is started. "
        "Files are never deleted.",
        scope="process",
    )
    audit_source: Literal["hash", "text"] = setting(
        "hash",
        choice("hash", "text"),
        "What the audit records of the code. hash: its SHA-256. text: the code as well, up to 25,000 characters "
        "for each cell.",
        scope="process",
    )


GROUP = "Names and records"
SETTINGS = rows(RecordSettings)
