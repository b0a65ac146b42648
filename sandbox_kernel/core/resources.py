"""Where this package lies, and what it brings along besides code.

Every place that asks "which files are this kernel's own" starts here, so that the answer is the whole package wherever
the asking module may lie in it.
"""

from __future__ import annotations

from pathlib import Path

from .errors import ConfigurationError

PACKAGE = Path(__file__).resolve().parent.parent
"""The folder of the whole package."""


def brought(name: str) -> Path:
    """Return the folder `name` (`images`, `kernelspec`): within an installed package, or beside it in a checkout.

    Raises `ConfigurationError` where it is missing.
    """
    for folder in (PACKAGE / "resources" / name, PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise ConfigurationError(f"this installation lacks its folder {name!r}; install sandbox-kernel again")
