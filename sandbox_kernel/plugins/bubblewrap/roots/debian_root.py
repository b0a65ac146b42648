"""A root of Debian's packages and the wheels of locks, for a kind that this machine's own files cannot make: R.

It has the files that the image of the kind has, and Docker has no part in it. mmdebstrap makes Debian's file system,
and the image's recipe runs on it in a sandbox without a network.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from ....core.codes import EndCode
from ....core.errors import EngineError
from ....core.model import format_bytes
from ....core.package_files import brought
from ....engines.image_names import Kind
from ....setup.build_lock import alone
from ....setup.command_steps import Say, Steps
from ....setup.image_build import BUILD_FOLDER, build_files, chain
from ....setup.image_kinds import KINDS, bootstrapped
from ....wheels import image_wheels
from ....wheels.pip_process import WheelTarget
from ... import index
from ..discovery import bubblewrap_program
from .exported_root import add_etc, unpack
from .root_generations import Generation, folder_of, new_generation, read
from .root_steps import lent, run_step, with_more

RECIPE = 1
"""Of the steps in this module: a root that was made by others is stale."""
RECIPE_SECONDS = 1800.0
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
"""The image's."""


def build(name: str, kind: Kind, *, requirements: Path | None, force: bool, progress: Say) -> str:
    """Make a root unless it is there with the same contents, and return its name.

    Raises `EngineError`, and `ConfigurationError` for requirements that cannot be met.
    """
    steps = Steps(progress)
    wanted = contents(kind, requirements)
    with alone(folder_of(name).parent, steps):
        if not force and read(folder_of(name)).get("contents") == wanted:
            steps(f"the root {name} is up to date")
            return name
        bwrap = bubblewrap_program()
        if bwrap is None:
            raise EngineError(EndCode.ENGINE_NOT_SET_UP, "there is no bwrap, in which a root with R is made")
        with steps.during(f"fetching the wheels of {name}, as far as they are not here"):
            ready = _wheels(kind, requirements, fresh=force)
        with new_generation(name, wanted) as made:
            tree = made.path / "root"
            tree.mkdir()
            with bootstrapped(KINDS[kind].debian, steps) as path, tarfile.open(path) as archive:
                _unpack(archive, tree)
            _copy(build_files(ready), tree / BUILD_FOLDER.lstrip("/"))
            with steps.during(f"installing {len(ready.files)} wheels, offline, in a sandbox"):
                _run_recipe(made, bwrap)
            add_etc(tree)
            made.said["tree"] = made.within("root")
            made.said["environment"] = ENVIRONMENT
    steps(f"the root {name} is ready: {format_bytes(read(folder_of(name))['size_bytes'])} in {folder_of(name)}")
    return name


def contents(kind: Kind, requirements: Path | None = None) -> str:
    stages = chain(kind, None, requirements, os.uname().machine, fresh=False)
    return f"sha256:{hashlib.sha256(f'{RECIPE} {stages[-1].digest}'.encode()).hexdigest()}"


def _wheels(kind: Kind, requirements: Path | None, *, fresh: bool) -> image_wheels.Wheels:
    target = WheelTarget(os.uname().machine)
    fetch = partial(image_wheels.all_locked, brought("images"), KINDS[kind].locks, target)
    if requirements is None:
        return fetch()
    _, resolve = index.requirements(requirements)
    return with_more(fetch, partial(resolve, brought("images"), target=target, fresh=fresh))


def _unpack(archive: tarfile.TarFile, tree: Path) -> None:
    try:
        unpack(archive, tree)
    except (tarfile.TarError, ValueError, OSError) as error:
        raise EngineError(EndCode.IMAGE_NOT_BUILT, f"the files of Debian cannot be unpacked: {error}") from error


def _copy(files: Mapping[str, Path | bytes], folder: Path) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.read_bytes())


def _run_recipe(made: Generation, bwrap: str) -> None:
    """Run the recipe with the tree for its root, as a user who is root in there alone."""
    tree = made.path / "root"
    for name in ("dev", "proc", "tmp"):
        (tree / name).mkdir(exist_ok=True)
    command = [bwrap, "--unshare-all", "--unshare-user", "--uid", "0", "--gid", "0", "--new-session"]
    command += ["--die-with-parent", "--clearenv", "--bind", str(tree), "/", "--proc", "/proc", "--dev", "/dev"]
    command += ["--tmpfs", "/tmp", "--chdir", "/"]  # noqa: S108 -- the sandbox's own
    for variable, value in (*ENVIRONMENT.items(), ("HOME", "/tmp")):  # noqa: S108 -- the sandbox's own
        command += ["--setenv", variable, value]
    command += ["python3", "-I", f"{BUILD_FOLDER}/recipe.py", "system", "packages"]
    with lent(tree) as user:
        run_step(command, Path("/"), "the recipe does not end well", seconds=RECIPE_SECONDS, user=user)
    for name in ("dev", "proc", "tmp"):  # a sandbox has its own
        shutil.rmtree(tree / name)
