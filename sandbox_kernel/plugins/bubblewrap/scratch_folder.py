"""Scratch of an ordinary user who accepts less than a disk: a folder on the host's disk, how full it is, and its end.

Nothing of the machine keeps such a folder's size, so it is looked at, and the setting `limits` has to accept that. The
folder that a sandbox has lies in one that others cannot enter, whatever rights a cell gives to its own: what a cell
marks as setuid there no other user can run.
It also runs as a script, which removes one folder (`python -I -S scratch_folder.py FOLDER`), and imports the standard
library only, unless it makes one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import stat
import sys
import time
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ...core.model import SandboxSpec


PLACE = "/var/tmp"  # noqa: S108 (for what is in it, see above)
INSIDE = "data"
"""The folder that the sandbox has, within the one that is closed to others."""
ON_DISK = {0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E}
"""What statfs(2) calls ext4, xfs, btrfs, f2fs, zfs and bcachefs. Others are in memory, on a network, or of layers."""
MAX_FILES = 200_000
"""Of one sandbox, open ones without a name included: a look at so many takes about a second."""
MAX_DEPTH = 100
"""Folders within each other. A look has each of them open."""
MIN_FREE = 1 << 30
"""Bytes that are to be left of the host's disk, or a tenth of a small one."""
BATCH = 1000
PAUSE_SECONDS = 0.02

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NAMED = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class OverLimitError(Exception):
    """Its text says what there is too much of, for people."""


def takes_its_place(spec: SandboxSpec) -> bool:
    """Return whether a sandbox for `spec` gets a folder for its scratch. Raises `EngineError` where it gets nothing."""
    if spec.limits.scratch != "disk" or os.geteuid() == 0:
        return False
    if spec.limits_kept != "best-effort":
        from ...engines import attachment

        raise attachment.no_disk(
            "only root can make one: use a broker that root runs, or accept a folder, whose size is looked at and not "
            "enforced, with limits = best-effort"
        )
    return True


def make(name: str, size: int, place: str | None = None) -> int:
    """Return a descriptor of a new folder for the sandbox `name`, for its path alone. Raises `EngineError`."""
    from ...engines import attachment

    above = place or PLACE
    if attachment.file_system(above) not in ON_DISK:
        raise attachment.no_disk(f"{above} is not on a disk of this machine, so there is no folder, either")
    outer = f"{above}/{name}"
    try:
        os.mkdir(outer, 0o700)  # noqa: PTH102 (a string)
        os.mkdir(f"{outer}/{INSIDE}", 0o700)  # noqa: PTH102 (a string)
        fd = os.open(f"{outer}/{INSIDE}", _NAMED)
    except OSError as error:
        raise attachment.no_disk(f"no folder can be made in {above}: {error.strerror}") from error
    space = room(f"{outer}/{INSIDE}")
    if space.free - space.least < size:
        os.close(fd)
        remove(outer)
        raise attachment.no_room(size, max(0, space.free - space.least))
    return fd


def of(opened: Mapping[str, str], path: str) -> str | None:
    """Return the closed folder that has what a sandbox sees at `path`, if that is one of these."""
    outer, _, name = opened.get(path, "").rpartition("/")
    return outer if name == INSIDE and outer.startswith(f"{PLACE}/sandbox-kernel-") else None


def left_behind() -> Iterator[str]:
    """Yield the folders of this user's sandboxes whose first owner is gone; the sandbox itself may be there still."""
    from ...engines.owner_process import OwnerProcess

    with contextlib.suppress(OSError):
        for name in os.listdir(PLACE):  # noqa: PTH208 (names are enough)
            owner = OwnerProcess.parse(name)
            if owner is not None and not owner.alive():
                with contextlib.suppress(OSError):
                    if os.lstat(f"{PLACE}/{name}").st_uid == os.geteuid():
                        yield f"{PLACE}/{name}"


# --- how full it is ---------------------------------------------------------------------------------------------------


class Room(NamedTuple):
    """What is left of a disk."""

    free: int
    """Bytes."""
    least: int
    """Of these, how many are to be left."""
    files: int
    """That it could have more; 0 where it does not say."""


def room(folder: str) -> Room:
    """Return what is left of a folder's disk. Raises OSError once the folder is gone."""
    space = os.statvfs(folder)
    size = space.f_frsize
    return Room(space.f_bavail * size, min(MIN_FREE, space.f_blocks * size // 10), space.f_favail)


def used(folder: str, processes: Iterable[int]) -> tuple[int, int]:
    """Return the bytes and files that a sandbox has in its closed `folder`.

    Files without a name that `processes` have open are among them.

    Its cells change all of it meanwhile. Raises `OverLimitError` for more files or deeper folders than are looked at,
    and OSError once the folder is gone.
    """
    count = total = 0
    seen: set[int] = set()

    def add(status: os.stat_result) -> None:
        nonlocal count, total
        count += 1
        if count > MAX_FILES:
            raise OverLimitError(f"more than {MAX_FILES:,} files")
        if status.st_nlink == 1 or stat.S_ISDIR(status.st_mode) or status.st_ino not in seen:
            total += status.st_blocks * 512
            if status.st_nlink != 1:
                seen.add(status.st_ino)

    above = os.open(folder, _FOLDER)
    try:
        device = os.fstat(above).st_dev
        _walk(above, add)
    except PermissionError as error:  # its owner's rights were just given back, and taken again meanwhile
        raise OverLimitError("folders that cannot be looked into") from error
    finally:
        os.close(above)
    for pid in processes:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 (names are enough)
                with contextlib.suppress(OSError):  # it is closed meanwhile
                    status = os.stat(f"/proc/{pid}/fd/{number}")  # noqa: PTH116 (a magic link)
                    if status.st_dev == device and status.st_nlink == 0:
                        add(status)
    return total, count


def _walk(above: int, add: Callable[[os.stat_result], None]) -> None:
    way: list[tuple[int, list[str]]] = [(os.dup(above), [INSIDE])]
    try:
        while way:
            fd, left = way[-1]
            if not left:
                os.close(way.pop()[0])
                continue
            if (inner := _opened(left.pop(), fd)) is None:
                continue
            way.append((inner, []))
            if len(way) > MAX_DEPTH + 1:
                raise OverLimitError(f"more than {MAX_DEPTH} folders within each other")
            with os.scandir(inner) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):  # it is removed meanwhile
                        status = entry.stat(follow_symlinks=False)
                        add(status)
                        if stat.S_ISDIR(status.st_mode):
                            way[-1][1].append(entry.name)
    finally:
        for fd, _ in way:
            os.close(fd)


def _opened(name: str, above: int) -> int | None:
    """Open a folder of cells', giving its owner the rights back that it lacks; None if it is gone, or none any more."""
    try:
        place = os.open(name, _NAMED, dir_fd=above)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
            return None
        raise
    try:
        mode = stat.S_IMODE(os.fstat(place).st_mode)
        if mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{place}", mode | 0o700)  # noqa: PTH101 (by its descriptor: no path is followed)
        return os.open(f"/proc/self/fd/{place}", _FOLDER & ~os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    finally:
        os.close(place)


# --- its end ----------------------------------------------------------------------------------------------------------


def remove(folder: str, seconds: float | None = None) -> bool:
    """Remove a closed folder with all that cells left, and return whether it is gone; at most for so many seconds.

    Folders are moved up and emptied one after the other, so neither their depth nor their number takes memory. The
    sandbox has ended. One process at a time does it.
    """
    until = None if seconds is None else time.monotonic() + seconds
    try:
        top = os.open(folder, _FOLDER)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        if os.fstat(top).st_uid != os.geteuid():
            return False
        if not _alone(top, until):
            return False
        numbers = itertools.count()
        while names := _some(top):
            for name in names:
                if not _empty(name, top, numbers, until):
                    return False
        os.rmdir(folder)  # noqa: PTH106 (a string)
    except FileNotFoundError:
        return not os.path.lexists(folder)
    except OSError:
        return False
    finally:
        os.close(top)
    return True


def _alone(top: int, until: float | None) -> bool:
    """Wait while another process removes it, or until there is no more time."""
    if until is None:
        fcntl.flock(top, fcntl.LOCK_EX)
        return True
    while True:
        try:
            fcntl.flock(top, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(PAUSE_SECONDS)
        else:
            return True


def _empty(name: str, top: int, numbers: Iterator[int], until: float | None) -> bool:
    """Remove one entry of `top`, its folders moved up to `top`. Return whether there was time for it."""
    try:
        os.unlink(name, dir_fd=top)
    except IsADirectoryError:
        pass
    else:
        return True
    inner = _opened(name, top)
    if inner is None:
        return True
    try:
        while entries := _some(inner):
            for entry in entries:
                if until is not None and time.monotonic() > until:
                    return False
                try:
                    os.unlink(entry, dir_fd=inner)
                except IsADirectoryError:
                    if (moved := _opened(entry, inner)) is not None:  # to be moved, it must be its owner's to write
                        os.close(moved)
                    os.rename(entry, _free(top, numbers), src_dir_fd=inner, dst_dir_fd=top)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)
    return True


def _free(top: int, numbers: Iterator[int]) -> str:
    """Return a name that nothing has there; another process may have been killed in the midst of this."""
    for number in numbers:
        try:
            os.stat(f"{number}", dir_fd=top, follow_symlinks=False)
        except FileNotFoundError:
            return f"{number}"
    raise AssertionError


def _some(fd: int) -> list[str]:
    with os.scandir(fd) as entries:
        return [entry.name for entry in itertools.islice(entries, BATCH)]


if __name__ == "__main__":
    sys.exit(not remove(sys.argv[1]))
