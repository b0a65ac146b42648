"""The wheels of an image or a root, fetched on the host for the Python in there, and kept in a cache folder.

Nothing is built from source and no code of a wheel runs here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.codes import EndCode
from ..core.errors import EngineError
from ..core.model import format_bytes
from .pip_process import PYTHON_VERSION, Pip, PipFailed, PipTooLarge, PipTooSlow, WheelTarget, errors_of

LOCKED_FOR = ("3.11", "3.12", "3.13", "3.14")
"""The versions of Python that there are locks for: that of the images, and those of machines (images/locks/)."""

FOR_EVERY_PYTHON = ("deno", "installer")
"""The locks of wheels that any Python installs: pip, and a program that is not of Python."""

DOWNLOAD_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Wheels:
    """What to install: wheels, the installer among them, and the requirements file that pip reads there."""

    files: tuple[Path, ...]
    requirements: str


def lock_of(recipes: Path, name: str, python: str = PYTHON_VERSION) -> Path:
    """Return a lock for a version of Python, of `LOCKED_FOR`; those of `FOR_EVERY_PYTHON` are the same for all."""
    if name in FOR_EVERY_PYTHON or python == PYTHON_VERSION:
        return recipes / f"{name}.lock"
    return recipes / "locks" / f"{name}-{python}.lock"


def locked(recipes: Path, name: str, target: WheelTarget) -> Wheels:
    """Return the wheels of a lock; pip checks each hash here, and again where they are installed."""
    path = lock_of(recipes, name, target.python)
    lock = path.read_text()
    kept = f"{target.prefix}{name}"
    folder = cache() / f"{kept}-{digest(lock, target.architecture)}"
    pip = None if name == "installer" else installer(recipes, target)
    if not folder.is_dir():
        try:
            fill_folder(folder, pip, target, name, lambda pip, part: pip.download(part, path))
        except PipFailed as failed:
            what = f"pip cannot fetch the wheels of images/{name}.lock: {errors_of(str(failed))}"
            raise EngineError(EndCode.WHEELS_NOT_FETCHED, what) from None
        for old in cache().glob(f"{kept}-*"):
            if old != folder and ".part" not in old.name:
                shutil.rmtree(old, ignore_errors=True)
    files = tuple(sorted(folder.glob("*.whl")))
    return Wheels(files if pip is None else (*files, pip), lock)


def all_locked(recipes: Path, names: Sequence[str], target: WheelTarget) -> Wheels:
    """Return the wheels of several locks, which agree on each package that more than one has."""
    each = [locked(recipes, name, target) for name in names]
    files = {file.name: file for wheels in each for file in wheels.files[:-1]}
    return Wheels(
        (*files.values(), each[-1].files[-1]), "\n".join(dict.fromkeys(wheels.requirements for wheels in each))
    )


def installer(recipes: Path, target: WheelTarget) -> Path:
    """Return pip itself as a wheel, of the locked version: any Python runs it as it is."""
    return locked(recipes, "installer", WheelTarget(target.architecture)).files[0]


def cache() -> Path:
    """Return the folder where wheels are kept between builds."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return Path(chosen if chosen.startswith("/") else Path.home() / ".cache", "sandbox-kernel", "wheels")


def fill_folder(
    folder: Path, wheel: Path | None, target: WheelTarget, name: str, fill: Callable[[Pip, Path], None]
) -> None:
    """Fill `folder` by pip; it appears complete or not at all. Raises what `fill` raises, and `EngineError`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.part-", dir=folder.parent))
    try:
        with tempfile.TemporaryDirectory(prefix="sandbox-kernel-") as place:
            fill(Pip(Path(place), wheel, target, DOWNLOAD_SECONDS), part)
        try:
            part.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another build was faster
                raise
    except PipTooLarge as error:
        what = f"what pip says of the wheels of {name} takes {format_bytes(error.size)}"
        raise EngineError(EndCode.WHEELS_NOT_FETCHED, what) from None
    except PipTooSlow:
        what = f"pip did not fetch the wheels of {name}"
        raise EngineError(EndCode.WHEELS_NOT_FETCHED, what, limit=f"{DOWNLOAD_SECONDS:g} s") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def digest(*texts: str) -> str:
    """Return what stands for texts in the name of a folder."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
