"""Whether a file that a cell asked for lies beside the notebook: a yes, for the person in front of it.

No file is opened and no link followed. A cell must not get to hear the answer: `session/requests/machine.py` sees
to that.

Public: plugins may import it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from ..core.errors import FileRefused
from .file_rules import check_name
from .path_walk import PathWalk

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Beside:
    """The folder that this process was started in, which is the notebook's, or another one."""

    def __init__(self, folder: str = ".") -> None:
        self._folder = folder
        self._handle: int | None = None

    def __call__(self, paths: Sequence[str]) -> str | None:
        """Return the first of some relative paths that is a regular file or a folder; for another thread."""
        try:
            if self._handle is None:
                self._handle = os.open(self._folder, _FOLDER)
            return next((path for path in paths if self._is_there(path)), None)
        except OSError:
            return None

    def _is_there(self, path: str) -> bool:
        try:
            *folders, name = str(check_name(path)).split("/")
            with PathWalk.beneath(self._handle or 0) as way:
                way.go(folders)
                mode = os.stat(name, dir_fd=way.end, follow_symlinks=False).st_mode
        except (OSError, FileRefused, ValueError):
            return False
        return stat.S_ISREG(mode) or stat.S_ISDIR(mode)

    def close(self) -> None:
        """Idempotent."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)
