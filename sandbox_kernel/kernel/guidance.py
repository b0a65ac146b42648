"""What a person at a notebook can do about a wall of the sandbox, and whether a file lies beside the notebook.

Imports the words of hints; what looks at the disk is loaded with the first question.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from ..session.hints import Audience

if TYPE_CHECKING:
    from ..files.notebook_files import Beside

NOTEBOOK = Audience(
    bring=(
        'In JupyterLab\'s file browser, choose "Bring into the Sandbox" in the menu of the file. In other front ends, '
        "use a kernel with an upload folder, such as the one that `sandbox-kernel setup` installs."
    ),
    bring_by_folder=(
        'Put a copy into the folder `{uploads}` beside the notebook (make it if there is none), or choose "Bring into '
        'the Sandbox" in the menu of the file in JupyterLab; then run the cell again.'
    ),
)


def lies_beside(paths: Sequence[str]) -> str | None:
    """Return the first of some relative paths that lies in the folder of the notebook; for another thread."""
    return _beside(os.getpid())(paths)


@lru_cache(maxsize=1)
def _beside(pid: int) -> Beside:
    """Return the folder of one process: a copy of it has another one, and has closed the file that this one has."""
    from ..files.notebook_files import Beside

    return Beside()
