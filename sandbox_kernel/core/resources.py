"""Where this package lies, and what it brings along besides code.

Every place that asks "which files are this kernel's own" starts here, so that the answer is the whole package wherever
the asking module may lie in it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import ConfigurationError
from .usage_codes import UsageCode

if TYPE_CHECKING:
    import subprocess

PACKAGE = Path(__file__).resolve().parent.parent
"""The folder of the whole package."""


def brought(name: str) -> Path:
    """Return the folder `name` (`images`, `kernelspec`): within an installed package, or beside it in a checkout.

    Raises `ConfigurationError` where it is missing.
    """
    for folder in (PACKAGE / "resources" / name, PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise ConfigurationError(
        UsageCode.INSTALLATION_UNFIT, f"this installation lacks its folder {name!r}; install sandbox-kernel again"
    )


_FOR_HELPERS = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


def environment_of_helpers() -> dict[str, str]:
    """Return the variables that a small process of ours needs; one of the others may be a secret."""
    return {name: os.environ[name] for name in _FOR_HELPERS if name in os.environ}


def start_helper(
    script: str, *arguments: str, stdin: int | None = None, files: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a script of ours, which imports the standard library only, as a process that outlives this one.

    It reads `stdin`, a pipe unless a file is given, and gets `files` under their numbers. Raises OSError.
    """
    import subprocess  # a start of a kernel may need none

    process = subprocess.Popen(
        [sys.executable, "-I", "-S", script, *arguments],
        stdin=subprocess.PIPE if stdin is None else stdin,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=environment_of_helpers(),
        pass_fds=files,
        start_new_session=True,  # what kills this process's group, as a front end may, is to leave it alone
    )
    process.returncode = 0  # it outlives this process; nobody here waits for it
    return process
