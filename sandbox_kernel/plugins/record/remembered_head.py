"""A second memory of an audit's last line, beside the key: who can cut the file off need not be able to reach this one.

It is written after each line and never before it, so it is at most as far as the file.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from ...files.host_paths import open_folder, require_regular
from .hash_chain import Head

FOLDER = "audit-heads"
_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BYTES = 100


def name_of(audit: Path) -> str:
    return hashlib.sha256(os.fsencode(audit)).hexdigest()[:32]


class RememberedHead:
    """That of one audit. Raises OSError and `FileRefused` when it is opened, and nothing later."""

    def __init__(self, key: Path, audit: Path) -> None:
        place = key.parent / FOLDER
        with suppress(FileExistsError):
            place.mkdir(0o700)
        with open_folder(place) as folder:
            self.fd = os.open(name_of(audit), _OPEN, 0o600, dir_fd=folder.handle)
        try:
            require_regular(os.fstat(self.fd))
        except BaseException:
            os.close(self.fd)
            raise

    def read(self) -> Head | None:
        try:
            return Head.parse(os.pread(self.fd, _BYTES, 0).decode("ascii", "replace"))
        except OSError:
            return None

    def write(self, head: Head) -> None:
        # Of one length, so that it is replaced as a whole.
        with suppress(OSError):
            os.pwrite(self.fd, f"{head.n:018d}:{head.chain.hex()}\n".encode(), 0)

    def close(self) -> None:
        os.close(self.fd)


def remembered(key: Path, audit: Path) -> Head | None:
    """Return the last line that is remembered of an audit, None if there is none. Makes nothing."""
    try:
        text = (key.parent / FOLDER / name_of(audit)).read_bytes()[:_BYTES]
    except OSError:
        return None
    return Head.parse(text.decode("ascii", "replace"))
