"""A file of what was tried in a sandbox: one line of JSON for each kind of it, as the sandbox says.

It has an end: who tries a million different things fills no disk. It is not sealed; the audit has the same events.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime

from ...core.events import CallTried
from ...files.host_paths import open_log
from ..api import SessionHandle

BEGINS = b'{"time": "'
MAX_BYTES = 64 << 20
"""Of one session."""


class CallTrace:
    """The open file; several sessions may write into one."""

    def __init__(self, path: str) -> None:
        """Open it for appending. Raises OSError, and `FileRefused` for one that is something else."""
        self._file = open_log(path, BEGINS)
        self._left = MAX_BYTES

    def write(self, event: CallTried, session: SessionHandle) -> None:
        """Add a line, with the cells that run now. Raises OSError."""
        if self._file < 0 or self._left <= 0:
            return
        cells = [cell.id for cell in session.running_cells() if cell.sent]
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": time, "session": session.id, "cells": cells, **event.line()}).encode() + b"\n"
        self._left -= len(line)
        if self._left <= 0:
            line = json.dumps({"time": time, "session": session.id, "more": "is not written"}).encode() + b"\n"
        os.write(self._file, line)

    def close(self) -> None:
        """Write nothing more. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
