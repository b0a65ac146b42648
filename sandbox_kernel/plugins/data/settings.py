"""How datasets and volumes are written: each with the name by which cells know it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...config.forms import Form, path_from_root, refuse, texts_of
from ...config.setting import rows, setting
from ...core.model import DATA_NAME, MAX_ATTACHED

_NAME = re.compile(DATA_NAME)
MODES = ("ro", "rw")


def _datasets(name: str, raw: object) -> tuple[str, ...]:
    """Return texts NAME=/path, or NAME alone for one that an operator has listed."""
    if isinstance(raw, Mapping):
        pairs = [(key, path) for key, path in raw.items() if path is not None]
    else:
        pairs = [(key, path if mark else "") for key, mark, path in (one.partition("=") for one in _texts(name, raw))]
    found: dict[str, str] = {}
    for key, path in pairs:
        folder = "" if path == "" else path_from_root(path)
        if folder is None:
            raise refuse(name, path, f"{name}: a dataset is a folder of the host, as a path from the root on")
        found[_name(name, key, found)] = folder
    return tuple(f"{key}={path}" for key, path in found.items())


def _written(name: str, raw: object) -> list[str]:
    """Return each dataset as a command line has it. Raises `ConfigurationError` for one that it cannot hold."""
    words = list(_datasets(name, raw))
    for word in words:
        if _datasets(name, word) != (word,):  # a comma in it would part it, and name another folder
            raise refuse(name, word, f"{name} cannot be written into one argument; use a config file")
    return words or ["none"]


def _reread(name: str, kept: object) -> tuple[str, ...]:
    """Return datasets as they were kept: each text is one, whatever its folder is called."""
    if not isinstance(kept, list | tuple) or not all(isinstance(one, str) for one in kept):
        raise refuse(name, kept, f"{name} is no list of datasets")
    if len(found := dict(one.split("=", 1) if "=" in one else (one, "") for one in kept)) < len(kept):
        raise refuse(name, kept, f"{name} has one name twice")
    return _datasets(name, found)


def _volumes(name: str, raw: object) -> tuple[str, ...]:
    """Return texts NAME:MODE; without a mode it is for reading alone."""
    if isinstance(raw, Mapping):
        pairs = [(key, mode) for key, mode in raw.items() if mode is not None]
    else:
        pairs = [(key, mode if mark else "ro") for key, mark, mode in (one.partition(":") for one in _texts(name, raw))]
    found: dict[str, str] = {}
    for key, mode in pairs:
        if mode not in MODES:
            raise refuse(name, mode, f"{name}: a volume is read (ro), or read and written (rw)")
        found[_name(name, key, found)] = str(mode)
    return tuple(f"{key}:{mode}" for key, mode in found.items())


def _texts(name: str, raw: object) -> list[str]:
    return [text for text in texts_of(name, raw, "names") if text]


def _name(name: str, key: object, found: Mapping[str, str]) -> str:
    if not isinstance(key, str) or not _NAME.fullmatch(key):
        raise refuse(name, key, f"{name}: a name has letters, digits, dots, dashes and underlines, 63 at most")
    if key.lower() in (one.lower() for one in found):
        raise refuse(name, key, f"{name} has one name twice")
    if len(found) == MAX_ATTACHED:
        raise refuse(name, len(found) + 1, f"{name} has too many names", limit=str(MAX_ATTACHED))
    return key


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSettings:
    """What sandboxes have of the host's by an exception."""

    datasets: tuple[str, ...] = setting(
        (),
        Form(
            _datasets,
            "names with folders, with commas between them: `sales=/srv/parquet`",
            "NAME=FOLDER",
            adds_up=True,
            written=_written,
            reread=_reread,
            types="str | Sequence[str] | Mapping[str, str]",
        ),
        "Folders of the host that cells may read, at /mnt/datasets/NAME, without a copy. Cells see what others may "
        "read there, and nothing outside. With a broker: the name of a dataset that its operator lists.",
        singular="dataset",
        scope="sandbox",
    )
    volumes: tuple[str, ...] = setting(
        (),
        Form(
            _volumes,
            "names with `:ro` or `:rw`, with commas between them: `models:rw`",
            "NAME:MODE",
            adds_up=True,
            written=lambda name, raw: list(_volumes(name, raw)) or ["none"],
            types="str | Sequence[str] | Mapping[str, str]",
        ),
        "Volumes of this user, at /mnt/volumes/NAME, which outlive the session. rw: one sandbox at a time writes it. "
        "ro, or no mode: it is read, by many at a time.",
        singular="volume",
        scope="sandbox",
    )


GROUP = "Data"
SETTINGS = rows(DataSettings)
