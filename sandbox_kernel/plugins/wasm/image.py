"""What every guest begins from: a folder of this user's, or of the machine's, made once by `build`, and how it is read.

    ~/.local/share/sandbox-kernel/wasm/    (of the user's home in the system's table: no variable has a say)
    /usr/local/share/sandbox-kernel/wasm/

In it lie `image.json`, `module.cwasm` (machine code for one version of wasmtime), `memory` (of a guest in which
IPython, pandas and pyplot are imported), `lib` and `site` (Python's own modules, and wheels), and `empty`, a folder to
mount on.
Only this process's user, or root, may be able to write to any of it. Standard library.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import NamedTuple

from ...core.codes import EndCode
from ...core.errors import EngineError, ImageMissing
from ...core.home_folder import home_folder
from ...engines.image_names import BY_NAME

FORMAT = 1
DESCRIPTION, MODULE, MEMORY, LIB, SITE, EMPTY = "image.json", "module.cwasm", "memory", "lib", "site", "empty"
CHARTS = f"{LIB}/mpl-data"
COMMAND = "sandbox-kernel build --engine wasm"
PATHS = {
    LIB: "/usr/local/lib",
    CHARTS: "/usr/local/lib/python315.zip/matplotlib/mpl-data",
    SITE: "/opt/site",
}
"""What a guest reads of it, and where; the order counts, for a guest's memory knows its folders by their numbers."""


class Image(NamedTuple):
    """An image, checked."""

    folder: str
    contents: str
    """A digest of all that went into it: what the attestation and receipts call the image."""
    wasmtime: str
    """The version that its machine code is for."""
    machine: str
    memory_bytes: int
    bits: tuple[tuple[int, int], ...]
    """Where an interrupt is noted (`machine.Bits`)."""
    made: str
    size_bytes: int
    metered: bool = False
    """Whether its machine code counts fuel."""


def places() -> list[str]:
    """Return where it may lie, the user's own first."""
    home = home_folder()
    return [
        f"{place}/sandbox-kernel/wasm" for place in (*((f"{home}/.local/share",) if home else ()), "/usr/local/share")
    ]


def find(name: str) -> Image:
    """Return the image; all names of this project's images mean the same one.

    Raises `ImageMissing`, and `EngineError` for one that is damaged or that others could have written to.
    """
    folder = next((one for one in places() if Path(one, DESCRIPTION).is_file()), None)
    if name not in BY_NAME or folder is None:
        words = f"the engine wasm has no image {name}. It has one, for Python alone. To make it: `{COMMAND}`"
        raise ImageMissing(EndCode.IMAGE_MISSING, words, value=name, setting="image")
    for each in ("", DESCRIPTION, MODULE, MEMORY):
        status = os.stat(f"{folder}/{each}")  # noqa: PTH116
        if status.st_uid not in {0, os.geteuid()} or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            words = f"others than this user could have changed {folder}/{each}. Remove it, and run `{COMMAND}`"
            raise EngineError(EndCode.ENGINE_NOT_SET_UP, words, setting="engine")
    try:
        said = json.loads(Path(folder, DESCRIPTION).read_bytes())
        if said["format"] != FORMAT:
            raise ValueError(f"its format is {said['format']}")
        return Image(
            folder,
            str(said["contents"]),
            str(said["wasmtime"]),
            str(said["machine"]),
            int(said["memory_bytes"]),
            tuple((int(place), int(bits)) for place, bits in said["bits"]),
            str(said["made"]),
            int(said["size_bytes"]),
            said.get("metered") is True,
        )
    except (LookupError, TypeError, ValueError) as error:
        words = f"{folder} is no image that this version can start from ({error}). Run `{COMMAND} --force`"
        raise EngineError(EndCode.ENGINE_NOT_SET_UP, words, setting="engine") from error
