"""Steps that any root is made by: the wheels of a user's requirements, and commands with no right of the user's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from packaging.utils import parse_wheel_filename

from ....core.codes import EndCode
from ....core.errors import EngineError
from ....setup.command_steps import step, tail
from ....wheels import image_wheels

INSTALL_SECONDS = 1200.0
NOBODY = 65534


def with_more(
    fetch: Callable[[], image_wheels.Wheels], fetch_more: Callable[[], image_wheels.Wheels]
) -> image_wheels.Wheels:
    """Return wheels of locks and those of a user's requirements, which replace them."""
    locked, more = fetch(), fetch_more()
    by_name = {parse_wheel_filename(file.name)[0]: file for file in (*locked.files, *more.files)}
    pip = by_name.pop(parse_wheel_filename(locked.files[-1].name)[0])
    files = tuple(by_name.values())
    return image_wheels.Wheels((*files, pip), "\n".join(f"wheels/{file.name}" for file in files))


@contextmanager
def lent(home: Path) -> Iterator[int | None]:
    """Give a folder to the user `nobody` while root runs code of packages, and take it back afterwards."""
    if os.geteuid() != 0:
        yield None
        return
    parts = [home, *home.rglob("*")]
    for path in parts:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    home.parent.chmod(0o755)  # it is on the way
    try:
        yield NOBODY
    finally:
        for path in [home, *home.rglob("*")]:
            os.chown(path, 0, 0, follow_symlinks=False)


def run_step(
    command: list[str],
    folder: Path,
    problem: str,
    *,
    seconds: float = INSTALL_SECONDS,
    user: int | None = None,
    check: bool = True,
) -> None:
    """Run a step with none of this user's variables. Raises `EngineError`."""
    environment = {"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": str(folder), "PIP_CONFIG_FILE": os.devnull}
    try:
        done = step(command, seconds=seconds, environment=environment, folder=folder, umask=0o022, user=user)
    except subprocess.TimeoutExpired as error:
        what = f"`{Path(command[0]).name}` did not end"
        raise EngineError(EndCode.IMAGE_NOT_BUILT, what, limit=f"{seconds:g} s") from error
    except OSError as error:
        raise EngineError(EndCode.IMAGE_NOT_BUILT, f"{problem}: {error}") from error
    if check and done.returncode != 0:
        raise EngineError(EndCode.IMAGE_NOT_BUILT, f"{problem}: {tail(done.stdout)}")
