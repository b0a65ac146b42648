"""Which sandboxes this process has."""

from __future__ import annotations

import os

from tests.support.kernels import containers_of


def sessions() -> set[str]:
    """Return the ids of the sandboxes of this process."""
    return {str(row.session) for row in containers_of(os.getpid())}
