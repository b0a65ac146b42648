"""The table of all codes, of seven parts. Whoever refuses, removes or ends something names a row of it.

Imports the parts. `docs/codes.md` and `sandbox-kernel codes` are made of it.
"""

from __future__ import annotations

from functools import cache

from .code import Code, Note, Severity, Survived
from .end_codes import EndCode
from .file_codes import FileCode
from .hint_codes import HintCode
from .message_codes import MessageCode
from .output_codes import OutputCode
from .snapshot_codes import SnapshotCode
from .usage_codes import UsageCode

__all__ = [
    "TABLE", "Code", "EndCode", "FileCode", "HintCode", "MessageCode", "Note",
    "OutputCode", "Severity", "SnapshotCode", "Survived",
    "UsageCode", "find",
]  # fmt: skip

TABLE: dict[str, type[Code]] = {
    "Outputs": OutputCode,
    "Messages": MessageCode,
    "Files": FileCode,
    "Ends": EndCode,
    "Snapshots": SnapshotCode,
    "Usage": UsageCode,
    "Hints": HintCode,
}
"""The parts, by the titles that people read. Plugins have tables of their own."""


@cache
def find(code: str) -> Code:
    """Return the row of a code. Raises KeyError for what is none."""
    return {one.code: one for part in TABLE.values() for one in part}[code]
