"""Where this package lies, and what it brings along besides code.

Every place that asks "which files are this kernel's own" starts here, so that the answer is the whole package wherever
the asking module may lie in it.
"""

from __future__ import annotations

import os
from pathlib import Path

from .errors import ConfigurationError
from .usage_codes import UsageCode

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
