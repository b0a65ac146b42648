"""What a session would miss of its datasets and volumes, for the doctor: each with what to do."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator

from ...core.errors import SandboxError
from ...core.model import Attached, Settings
from ...engines.select import is_service
from ..api import Diagnosis, Problem
from . import attached, volumes

MAX_FILES = 1000
"""That are looked at in the first level of a dataset."""


def diagnosis(settings: Settings) -> Diagnosis:
    """Return what is missing. What a broker has, only its broker can say: names without a folder are not looked at."""
    found = attached.of(settings)
    places = ", ".join(one.path for one in found)
    problems: list[Problem] = []
    for one in found:
        if one.kind == "dataset" and one.source:
            problems += _of_a_dataset(one)
        elif one.kind == "volume" and not is_service(settings.engine):
            problems += _of_a_volume(one)
    return Diagnosis(f"cells find {places}", tuple(problems))


def _of_a_dataset(one: Attached) -> Iterator[Problem]:
    try:
        fd = attached.open_dataset(one)
    except SandboxError as error:
        yield Problem(error.message, f"{error.code.remedy} Setting: datasets.")
        return
    try:
        closed = []  # what others may not read, as cells are others
        with os.scandir(f"/proc/self/fd/{fd}") as entries:
            for _, entry in zip(range(MAX_FILES), entries, strict=False):
                mode = entry.stat(follow_symlinks=False).st_mode
                wanted = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
                if not stat.S_ISLNK(mode) and mode & wanted != wanted:
                    closed.append(entry.name)
    except OSError:
        return
    finally:
        os.close(fd)
    if closed:
        words = f"dataset {one.name}: cells cannot read {len(closed)} of its entries, such as {closed[0]!r}"
        yield Problem(words, f"`chmod -R o+rX {shlex.quote(one.source)}`, if they are to be read", certain=False)


def _of_a_volume(one: Attached) -> Iterator[Problem]:
    try:
        volumes.check()
        if not one.writable:
            volumes.of_user().size(one.name)
    except SandboxError as error:
        yield Problem(error.message, f"{error.code.remedy} Setting: volumes.")
