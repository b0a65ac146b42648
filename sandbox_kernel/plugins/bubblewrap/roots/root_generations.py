"""The folders of roots: a generation is made beside the one before, and is there once root.json names it.

roots/NAME/root.json        what the engine reads (../root_lookup.py has the form)
roots/NAME/GENERATION/      what it names
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ....core.codes import EndCode
from ....core.errors import EngineError
from ..root_lookup import folders as root_folders

FORMAT = 1
_FOLDER_MODE = 0o755
MAX_BYTES = 1 << 20
"""Of a root.json that is looked at."""


def folder_of(name: str) -> Path:
    """Return where a root that this user makes is to lie, of the places where an engine looks.

    It is the user's own, and for root the one that all users see: root's sandboxes run as others.
    """
    places = root_folders()
    shared = [place for place in places if place.startswith("/usr/local/")] if os.geteuid() == 0 else []
    return Path(*(shared or places)[:1], name.replace("/", "%2F"))


def read(folder: Path) -> dict[str, Any]:
    """Return what the root.json in a folder says; nothing if there is none that can be read."""
    try:
        with (folder / "root.json").open("rb") as file:
            values = json.loads(file.read(MAX_BYTES))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) and _is_sound(values) else {}


def _is_sound(values: Mapping[str, Any]) -> bool:
    kinds = {"format": int, "contents": str, "made": str, "size_bytes": int, "binds": list}
    if values.get("format") != FORMAT or not all(isinstance(values.get(name), kind) for name, kind in kinds.items()):
        return False
    return all(isinstance(pair, list) and [type(word) for word in pair] == [str, str] for pair in values["binds"])


@dataclass(frozen=True, slots=True)
class Generation:
    path: Path
    """Its folder."""
    said: dict[str, Any] = field(default_factory=dict)
    """What root.json is to say of it, besides its contents and its size."""

    def within(self, source: str) -> str:
        """Return a source as root.json names it: one that is not the machine's lies in this generation."""
        return source if source.startswith("/") else f"{self.path.name}/{source}"


@contextmanager
def new_generation(name: str, contents: str) -> Iterator[Generation]:
    """Make a folder for a generation, and let root.json name it when the block ends; if that raises, nothing changes.

    The one before stays, for the sandboxes that run; those before that one go.
    """
    folder = folder_of(name)
    folder.mkdir(parents=True, exist_ok=True)
    shared = (folder.parent, folder.parent.parent) if str(folder).startswith("/usr/local/") else ()
    for path in (folder, *shared):
        path.chmod(_FOLDER_MODE)
    former = _generation(read(folder))
    # What a build that was killed has left goes, too.
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink() and entry.name != former:
            shutil.rmtree(entry, ignore_errors=True)
    path = Path(tempfile.mkdtemp(prefix=f"{contents.removeprefix('sha256:')[:12]}-", dir=folder))
    try:
        yield (made := Generation(path))
        size = tidy(path)
        description = {
            "format": FORMAT,
            "contents": contents,
            "made": f"{datetime.now(UTC):%Y-%m-%d}",
            "size_bytes": size,
        }
        _replace(folder / "root.json", json.dumps({**description, "binds": [], **made.said}, indent=1))
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def tidy(folder: Path) -> int:
    """Let everybody read what lies in `folder`, and only its owner write, with nobody's rights but the reader's own.

    Return how many bytes it holds. Raises `EngineError` for what is no file, folder or link.
    """
    total = 0
    folder.chmod(_FOLDER_MODE)
    seen: set[int] = set()
    for path, status in _walk(folder):
        if stat.S_ISDIR(status.st_mode):
            path.chmod(_FOLDER_MODE)
        elif stat.S_ISREG(status.st_mode):
            path.chmod(_FOLDER_MODE if status.st_mode & 0o111 else 0o644)
            total += 0 if status.st_ino in seen else status.st_size
            if status.st_nlink > 1:
                seen.add(status.st_ino)
        elif not stat.S_ISLNK(status.st_mode):
            raise EngineError(EndCode.IMAGE_NOT_BUILT, f"{path} is a device, a socket or a FIFO")
    return total


def _walk(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield what lies in a folder, each folder before its contents; no link is followed."""
    for path in folder.iterdir():
        status = path.lstat()
        yield path, status
        if stat.S_ISDIR(status.st_mode):
            yield from _walk(path)


def _generation(values: Mapping[str, Any]) -> str | None:
    """Return which folder beside it a root.json names."""
    for source in (values.get("tree"), *(source for source, _ in values.get("binds", ()))):
        if isinstance(source, str) and source and not source.startswith("/"):
            return source.partition("/")[0]
    return None


def _replace(path: Path, text: str) -> None:
    """Write a file that is there as a whole or not at all."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".root.json.", delete=False) as file:
        try:
            file.write(text + "\n")
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink()
            raise
