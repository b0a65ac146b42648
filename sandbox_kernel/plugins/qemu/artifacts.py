"""Where QEMU is, and what was built for a root so that a machine can start from it (`build_format`)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from pathlib import Path
from typing import NamedTuple

from ...core.codes import EndCode
from ...core.errors import EngineError, EngineUnavailable
from ...core.remedies import of_system
from ..bubblewrap.interface import Root
from .build_format import DESCRIPTION, FILES, FOLDER, FORMAT, guest_digest

PROGRAM = "qemu-system-x86_64"
PROGRAMS = "/usr/local/bin:/usr/bin:/bin"
"""Where it is looked for, whatever PATH says."""
SHARES = ("/usr/share/qemu", "/usr/share/seabios", "/usr/lib/x86_64-linux-gnu/qemu")
"""Its firmware, as far as it is there."""
LARGEST_BYTES = 1 << 20
BUILD = "sandbox-kernel build --engine qemu"
"""What builds it; a tag of its own is named there as the root was."""


class MachineParts(NamedTuple):
    """What a machine starts from, all checked."""

    folder: str
    contents: str
    kernel: str
    """The version of its kernel."""
    identity: str
    """A digest of all of its files, as they were built."""


def qemu_program() -> str | None:
    return shutil.which(PROGRAM, path=PROGRAMS)


def install() -> str:
    """Return how QEMU is installed, with its firmware."""
    return of_system("qemu-system-x86")


def needed() -> str:
    """Return the path of QEMU. Raises `EngineUnavailable`."""
    program = qemu_program()
    if program is None:
        raise EngineUnavailable(
            EndCode.ENGINE_NOT_FOUND,
            f"there is no {PROGRAM} here: {install()}",
            setting="engine",
        )
    return program


def find(root: Root) -> MachineParts:
    """Return what was built for a root. Raises `EngineError` where nothing was, or nothing that fits."""
    folder = Path(root.folder, FOLDER)
    try:
        for each in (folder, folder / DESCRIPTION, *(folder / name for name in FILES)):
            status = each.lstat()
            if stat.S_ISLNK(status.st_mode):
                raise PermissionError(f"{each} is a link")
            if status.st_uid not in {0, os.geteuid()} or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise PermissionError(f"others may write to {each}")
        description = json.loads((folder / DESCRIPTION).read_bytes()[:LARGEST_BYTES])
        if description["format"] != FORMAT or description["guest"] != guest_digest():
            raise ValueError("it is of another version of sandbox_kernel")
        if description["contents"] != root.contents:
            raise ValueError("the root was built again since")
        digests = [str(description["files"][name]) for name in FILES]
        identity = hashlib.sha256("\n".join(digests).encode()).hexdigest()
        return MachineParts(str(folder), root.contents, str(description["kernel"])[:100], identity)
    except (OSError, LookupError, TypeError, ValueError) as error:
        why = str(error) or repr(error)
        raise EngineError(
            EndCode.IMAGE_NOT_BUILT,
            f"there is no machine for the root {root.name!r} ({why}): build it with: `{BUILD}`",
            setting="image",
        ) from error
