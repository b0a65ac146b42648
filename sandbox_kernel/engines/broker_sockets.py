"""Where a broker listens, so that "auto" sees whether one may be there without loading anything of it.

The operator's is in a folder that root made; the user's own in one of this user's that is closed to others. Each
installation of this package has an own one. Whether to believe it is another question, of the plugin that asks it.
"""

from __future__ import annotations

import os
import shlex
import stat

from ..core.home_folder import home_folder
from ..core.package_files import installation
from ..core.remedies import own_as_root

OPERATORS = "/run/sandbox-kernel/broker.sock"
STAMP_DIGITS = 8
FILE = "broker-{}.sock"
"""Of the user's own: with the beginning of the installation's stamp."""


def own() -> str:
    """Return where this user's own broker of this installation listens."""
    return f"{own_folder()}/{FILE.format(installation()[:STAMP_DIGITS])}"


def own_folder() -> str:
    """Return the folder of this user's own brokers."""
    uid = os.geteuid()
    runtime = f"/run/user/{uid}"
    if _closed(runtime, uid):
        return f"{runtime}/sandbox-kernel"
    return f"{home_folder() or '/nonexistent'}/.local/state/sandbox-kernel"


def starting(path: str) -> str:
    """Return the command that starts a broker which listens there, and goes on as long as it serves."""
    if path == OPERATORS:
        return own_as_root("broker --for-all")
    return f"sandbox-kernel broker --socket {shlex.quote(path)}"


def operators_is_there() -> bool:
    """Return whether there may be an operator's, without asking it."""
    return os.path.lexists(OPERATORS)


def own_is_there() -> bool:
    """Return whether there may be one of this user's own, without asking it."""
    return os.path.lexists(own())


def _closed(path: str, uid: int) -> bool:
    try:
        status = os.stat(path)  # noqa: PTH116 (as above)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == uid and not status.st_mode & 0o022
