"""Where this package lies, and what it brings along besides code. Imports nothing of the package.

Every place that asks "which files are this kernel's own" starts here, so that the answer is the whole package wherever
the asking module may lie in it.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
"""The folder of the whole package."""


def brought(name: str) -> Path:
    """Return the folder `name` (`images`, `kernelspec`): within an installed package, or beside it in a checkout."""
    packed = PACKAGE / "resources" / name
    return packed if packed.is_dir() else PACKAGE.parent / name
