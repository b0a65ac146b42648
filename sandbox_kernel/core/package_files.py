"""Where this package lies, and what it brings along besides code.

Every place that asks "which files are this kernel's own" starts here, so that the answer is the whole package wherever
the asking module may lie in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .codes import UsageCode
from .errors import ConfigurationError


def stamp(package: str) -> str:
    """Return 64 hexadecimal digits of where the package lies, and of its sources and recipes of images as they are.

    Of each file its name, size and time count: two checkouts of the same version have two stamps, and so has one before
    and after an update. `package` is its folder. Raises OSError.
    """
    from hashlib import sha256

    place = os.stat(package)  # noqa: PTH116 (there are hundreds of files)
    lines = [f"{place.st_dev} {place.st_ino}", *_files(package, ".py")]
    for images in (f"{package}/resources/images", f"{package.rpartition('/')[0]}/images"):
        try:
            lines += _files(images, "")
        except OSError:
            continue  # an installed package brings them, a checkout has them beside it
        break
    return sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def _files(folder: str, suffix: str) -> Iterator[str]:
    with os.scandir(folder) as found:
        for entry in sorted(found, key=lambda one: one.name):
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _files(entry.path, suffix)
            elif entry.name.endswith(suffix):
                status = entry.stat()
                yield f"{folder.rpartition('/')[2]}/{entry.name} {status.st_size} {status.st_mtime_ns}"


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


@cache
def installation() -> str:
    """Return the stamp of this installation of the package, as it was when this process first asked."""
    return stamp(str(PACKAGE))
