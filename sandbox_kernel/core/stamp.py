"""What tells one installation of this package from another, and from itself before a change."""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256


def stamp(package: str) -> str:
    """Return 64 hexadecimal digits of where the package lies, and of its sources and recipes of images as they are.

    Of each file its name, size and time count: two checkouts of the same version have two stamps, and so has one before
    and after an update. `package` is its folder. Raises OSError.
    """
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
