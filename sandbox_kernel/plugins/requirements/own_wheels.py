"""The wheels that a user's requirements ask for, and all that these need, for an image or a root."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from packaging.utils import canonicalize_name

from ...core.errors import ConfigurationError
from ...wheels import image_wheels
from ...wheels.pip_process import Pip, PipFailed, WheelTarget
from .codes import RequirementCode
from .requirements import Wanted
from .resolver import Unresolved, WrongHash, explain, fetch, resolve


def resolved(recipes: Path, wanted: Wanted, target: WheelTarget, *, fresh: bool = False) -> image_wheels.Wheels:
    """Return wheels that meet a user's requirements, and all that these need.

    What the images have already keeps its version if that is possible at all; the kernel and what it needs always do.
    `fresh` asks the package index again, instead of taking what was found for the same text before. Raises
    `ConfigurationError` and `EngineError`.
    """
    pins = {name: _pins(image_wheels.lock_of(recipes, name, target.python)) for name in ("data", "base")}
    wheel = image_wheels.installer(recipes, target)
    identity = (wanted.identity, *(f"{name}=={version}" for name, version in pins["data"].items()))
    folder = image_wheels.cache() / f"{target.prefix}custom-{image_wheels.digest(*identity, target.architecture)}"
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)

    def fill(pip: Pip, part: Path) -> None:
        for name, ours in pins.items():
            try:
                # With hashes, the file alone says which versions there are.
                found = resolve(wanted, pip, {} if wanted.has_hashes else ours)
                break
            except (PipFailed, Unresolved) as error:
                pin = error.pin.partition("==")[0] if isinstance(error, Unresolved) else ""
                if wanted.has_hashes or name == "base" or pin in pins["base"]:
                    raise
        fetch(found, wanted, pip, part)

    if not folder.is_dir():
        try:
            image_wheels.fill_folder(folder, wheel, target, "custom", fill)
        except (PipFailed, Unresolved, WrongHash) as error:
            what = explain(str(error), target).message if isinstance(error, PipFailed) else str(error)
            raise ConfigurationError(RequirementCode.REQUIREMENTS_UNMET, what, setting="requirements") from None
    files = tuple(sorted(folder.glob("*.whl")))
    return image_wheels.Wheels((*files, wheel), "\n".join(f"wheels/{file.name}" for file in files))


def _pins(lock: Path) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([^\s\\;]+)", lock.read_text(), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}
