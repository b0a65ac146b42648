"""One build at a time: another one of this user's may be doing the same, and they would race for the names."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ..core.codes import EndCode
from ..core.errors import EngineError
from ..core.home_folder import home_folder
from .command_steps import Steps

OTHER_BUILD_SECONDS = 1800.0


@contextmanager
def alone(folder: Path, steps: Steps) -> Iterator[None]:
    """Wait for another build that holds the lock in `folder` to end.

    Raises `EngineError` after half an hour, and for a folder that cannot be written to.
    """
    with _opened(folder) as lock:
        if not _locked(lock):
            until = time.monotonic() + OTHER_BUILD_SECONDS
            with steps.during("waiting for another build to end"):
                while not _locked(lock):
                    if time.monotonic() > until:
                        raise EngineError(
                            EndCode.IMAGE_NOT_BUILT,
                            "another build does not end",
                            limit=f"{OTHER_BUILD_SECONDS:g} s",
                        )
                    time.sleep(0.5)
        yield


def _opened(folder: Path) -> IO[str]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / "build.lock").open("w")
    except OSError as error:
        home = "" if home_folder() else f"; the system's table of users has no home for user {os.getuid()}"
        raise EngineError(EndCode.IMAGE_NOT_BUILT, f"{folder} cannot be written to: {error.strerror}{home}") from error


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
