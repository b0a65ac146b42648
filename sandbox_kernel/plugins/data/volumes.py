"""The volumes of one owner: disks with a name that outlive sandboxes, and who may use each just now.

A volume is a file of a fixed size with an ext4 file system, in a folder that only this process's user can open. Cells
write to it through the machine's ext4, never to its blocks, so the machine may mount it. Who uses one has a lock on the
open file that its loop device shows: the lock lasts for as long as the device, whoever was killed in between.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shlex
import stat
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from ...core.codes import Note
from ...core.errors import EngineError
from ...core.helper_processes import environment_of_helpers
from ...core.home_folder import home_folder
from ...core.model import DATA_NAME, GIB, format_bytes
from ...engines.attachment import Quota, Volume
from ...engines.user_ids import UID_RANGE, new_uid
from . import disk_images
from .codes import DataCode

DEFAULT_BYTES = 10 * GIB
"""Of a volume that is made because a sandbox asks to write to it."""
WAIT_SECONDS = 60.0
"""For another process that makes, repairs or opens a volume of the same owner."""
CHECK_SECONDS = 300.0
"""For a file system to be repaired that was cut off while it was written to."""
PAUSE_SECONDS = 0.02
MAX_VOLUMES = 1000
"""Files of one owner that are looked at."""

_SUFFIX = ".ext4"
_NEW = ".new"
_OWNER = "owner"
_NAME = re.compile(DATA_NAME)
_REPAIRED = (0, 1)
"""How e2fsck ends if nothing is wrong any more."""
_SUPERBLOCK, _MAGIC = 1024, 0xEF53
_VALID, _HAS_ERRORS = 1, 2
_NEEDS_RECOVERY = 4


@runtime_checkable
class VolumeKeeper(Protocol):
    """An engine that keeps volumes itself, for users who cannot: a broker. Methods raise `EngineError`."""

    async def volumes(self) -> tuple[Volume, ...]:
        """Return this user's."""

    async def create_volume(self, name: str, size: int | None = None) -> None:
        """Make an empty one."""

    async def remove_volume(self, name: str) -> None:
        """Remove one with its content."""

    async def rename_volume(self, name: str, new: str) -> None:
        """Give one another name, which none has."""


class Volumes:
    """The volumes in one folder, which are one owner's."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def uid(self) -> int:
        """Return the user id that the owner's sandboxes have; chosen once. Raises `EngineError`."""
        with self._opened_folder(create=True) as folder:
            try:
                return _uid(folder)
            except FileNotFoundError:
                pass
            with self._alone(folder):
                with contextlib.suppress(FileNotFoundError):  # another was faster
                    return _uid(folder)
                fd = os.open(_NEW, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
                with open(fd, "w") as file:  # noqa: PTH123 (a descriptor)
                    file.write(f"{new_uid()}\n")
                    file.flush()
                    os.fsync(fd)  # an empty one, after a crash of the machine, would be no owner of any volume
                os.rename(_NEW, _OWNER, src_dir_fd=folder, dst_dir_fd=folder)
                os.fsync(folder)
                return _uid(folder)

    def list(self) -> tuple[Volume, ...]:
        """Return all, in the order of their names. Raises `EngineError`."""
        found = []
        if not os.path.lexists(self.folder):
            return ()
        with self._opened_folder() as folder:
            for name in self._names(folder):
                try:
                    fd = self._open(folder, name, os.O_RDONLY)
                except EngineError:
                    continue  # removed just now, or no volume: using its name is an error
                with _closing(fd):
                    found.append(Volume(name, os.fstat(fd).st_size, _used(fd), users(fd)))
        return tuple(found)

    def size(self, name: str) -> int:
        """Return the largest size of a volume, in bytes. Raises `EngineError`."""
        with self._opened_folder(name) as folder, _closing(self._open(folder, name, os.O_RDONLY)) as fd:
            return os.fstat(fd).st_size

    def create(self, name: str, size: int | None = None, *, quota: Quota | None = None, exist_ok: bool = False) -> None:
        """Make an empty volume and reserve its room.

        Args:
            name: Of the volume.
            size: In bytes; None is the usual one, or as much as the quota allows.
            quota: What its owner may have; None is no limit.
            exist_ok: Whether a volume of that name is left as it is.

        Raises:
            EngineError: It is there, or there is no room for it.
        """
        _check(name)
        uid = self.uid()
        if size is None:
            size = DEFAULT_BYTES if quota is None else min(DEFAULT_BYTES, quota.total_bytes)
        with self._opened_folder(create=True) as folder, self._alone(folder):
            try:
                self._create(folder, name, size, uid, quota)
            except EngineError as error:
                if not exist_ok or error.code is not DataCode.VOLUME_EXISTS:
                    raise

    def remove(self, name: str) -> None:
        """Remove a volume with its content. Raises `EngineError`: it is not there, or in use."""
        with self._opened_folder(name) as folder, self._alone(folder):
            fd = self._open(folder, name, os.O_RDWR)
            with _closing(fd):
                self._lock(fd, name, writable=True)
                os.unlink(name + _SUFFIX, dir_fd=folder)

    def rename(self, name: str, new: str) -> None:
        """Give a volume another name. Raises `EngineError`: it is not there, or another one has that name."""
        _check(new)
        with self._opened_folder(name) as folder, self._alone(folder):
            os.close(self._open(folder, name, os.O_RDONLY))
            self._check_free(folder, new)
            os.rename(name + _SUFFIX, new + _SUFFIX, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)

    def repair(self, name: str) -> None:
        """Have a volume in order that was cut off, unless somebody uses it: `attach` need not, then."""
        with self._opened_folder(name) as folder, self._alone(folder):
            self._repair(folder, name)

    def attach(self, name: str, *, writable: bool, create: bool = True) -> disk_images.Device:
        """Return a device with a volume; with `create`, one that is to be written to is made if it is not there.

        For as long as the device is there, others may read a volume that is read, and not use one that is written to.
        Raises `EngineError`.
        """
        check()
        uid = self.uid() if writable else 0
        with self._opened_folder(name, create=writable) as folder, self._alone(folder):
            if create and writable and not _is_there(folder, name):
                self._create(folder, name, DEFAULT_BYTES, uid, None)
            self._repair(folder, name)
            fd = self._open(folder, name, os.O_RDWR if writable else os.O_RDONLY)
            with _closing(fd):
                self._lock(fd, name, writable=writable)
                if writable:
                    # The host's disk does not keep all of the room of a copy with holes.
                    try:
                        disk_images.reserve_again(fd)
                    except EngineError as error:
                        raise _no_volume(name, error.message, error.limit, error.value) from error
                return disk_images.attach(fd, writable=writable)

    # --- inside -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _opened_folder(self, name: str | None = None, *, create: bool = False) -> Iterator[int]:
        """Open the folder, which has to be this user's alone; `name` is the volume that is asked for.

        Whatever is done with its files is done within: what the machine refuses there is told with the folder's name.
        """
        if name is not None:
            _check(name)
        try:
            if create:
                os.makedirs(self.folder, 0o700, exist_ok=True)  # noqa: PTH103 (a string)
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise EngineError(DataCode.VOLUME_NOT_HERE.note(name=name or ""), setting="volumes") from error
        except OSError as error:
            raise unusable(f"{self.folder}: {error.strerror}") from error
        with _closing(folder):
            status = os.fstat(folder)
            if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                raise unusable(
                    f"{self.folder} has to be this user's alone: `chmod 700 {shlex.quote(str(self.folder))}`"
                )
            try:
                yield folder
            except OSError as error:
                raise unusable(f"{self.folder}: {error.strerror or error}") from error

    @contextmanager
    def _alone(self, folder: int) -> Iterator[None]:
        """Keep other processes from making, repairing and opening volumes of the same owner."""
        if not _locked(folder, fcntl.LOCK_EX, WAIT_SECONDS):
            raise unusable(f"another process makes or repairs one in {self.folder}, for {WAIT_SECONDS:.0f} s by now")
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_NEW, dir_fd=folder)  # of a process that was killed when it made one, with all its room
            yield
        finally:
            fcntl.flock(folder, fcntl.LOCK_UN)

    def _names(self, folder: int) -> tuple[str, ...]:
        found = (name.removesuffix(_SUFFIX) for name in os.listdir(folder) if name.endswith(_SUFFIX))
        return tuple(sorted(name for name in found if _NAME.fullmatch(name))[:MAX_VOLUMES])

    def _check_free(self, folder: int, name: str) -> tuple[str, ...]:
        """Refuse a name that a volume has, and return all that there are."""
        names = self._names(folder)
        if same := [one for one in names if one.lower() == name.lower()]:
            raise EngineError(DataCode.VOLUME_EXISTS.note(name=same[0]), setting="volumes")
        return names

    def _create(self, folder: int, name: str, size: int, uid: int, quota: Quota | None) -> None:
        names = self._check_free(folder, name)
        if len(names) >= MAX_VOLUMES:
            raise EngineError(DataCode.VOLUME_QUOTA.note(name=name), limit=f"{MAX_VOLUMES} volumes", setting="volumes")
        if quota is not None:
            self._check_quota(folder, names, name, size, quota)
        try:
            fd = os.open(_NEW, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
            with _closing(fd):
                disk_images.make(fd, size, uid, journal=True)
                os.fsync(fd)
            os.rename(_NEW, name + _SUFFIX, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.unlink(_NEW, dir_fd=folder)
            if isinstance(error, OSError):
                raise not_made(name, error.strerror or str(error)) from error
            if isinstance(error, EngineError):
                raise not_made(name, error.message, error.limit, error.value) from error
            raise

    def _check_quota(self, folder: int, names: tuple[str, ...], name: str, size: int, quota: Quota) -> None:
        total = size
        for one in names:
            with contextlib.suppress(OSError):
                total += os.stat(one + _SUFFIX, dir_fd=folder, follow_symlinks=False).st_size
        for over, limit, value in (
            (len(names) >= quota.volumes, f"{quota.volumes} volumes", f"{len(names) + 1}"),
            (total > quota.total_bytes, f"{format_bytes(quota.total_bytes)} of all volumes", format_bytes(total)),
        ):
            if over:
                raise EngineError(DataCode.VOLUME_QUOTA.note(name=name), limit=limit, value=value, setting="volumes")

    def _open(self, folder: int, name: str, flags: int) -> int:
        """Open the file of a volume, which has to be a file of this user's with one name."""
        try:
            fd = os.open(name + _SUFFIX, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except FileNotFoundError as error:
            raise EngineError(DataCode.VOLUME_NOT_HERE.note(name=name), setting="volumes") from error
        except OSError as error:
            raise _no_volume(name, f"its file cannot be opened: {error.strerror}") from error
        status = os.fstat(fd)
        if (
            not stat.S_ISREG(status.st_mode)
            or status.st_uid != os.geteuid()
            or status.st_nlink != 1
            or status.st_mode & 0o077
        ):
            os.close(fd)
            raise _no_volume(name, "its file is a link, another user's, or open to others")
        return fd

    def _lock(self, fd: int, name: str, *, writable: bool) -> None:
        if not _locked(fd, fcntl.LOCK_EX if writable else fcntl.LOCK_SH):
            note = Note(
                DataCode.VOLUME_IN_USE, f"{DataCode.VOLUME_IN_USE.note(name=name).text}: {users(fd) or 'unknown'}"
            )
            raise EngineError(note, setting="volumes")

    def _repair(self, folder: int, name: str) -> None:
        """Have a file system in order that was cut off while it was written to, unless another has it."""
        fd = self._open(folder, name, os.O_RDWR)
        with _closing(fd):
            if _in_order(fd) or not _locked(fd, fcntl.LOCK_EX):
                return
            program = disk_images.program("e2fsck")
            if program is None:
                raise unusable("e2fsck is not installed (Debian: e2fsprogs)")
            try:
                done = subprocess.run(
                    [program, "-p", f"/proc/self/fd/{fd}"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=CHECK_SECONDS,
                    check=False,
                    pass_fds=[fd],
                    env=environment_of_helpers(),
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise _no_volume(name, f"e2fsck does not run: {error}") from error
            if done.returncode not in _REPAIRED:
                place = f"{self.folder}/{name}{_SUFFIX}"
                raise _no_volume(name, f"its file system is damaged; `e2fsck -f {place}` may repair it")


def default_folder() -> str:
    """Return the folder of this process's user's volumes, by the machine's table: no variable has a say."""
    if (home := home_folder()) is None:
        raise unusable("this user has no home in the machine's table of users")
    return f"{home}/.local/share/sandbox-kernel/volumes"


def of_user() -> Volumes:
    """Return the volumes of this process's user."""
    return Volumes(default_folder())


def at(source: str) -> Volumes:
    """Return the volumes in a folder, as `Attached.source` names it; empty: those of this process's user."""
    return Volumes(source) if source else of_user()


def check() -> None:
    """Raise `EngineError` if this process cannot use volumes."""
    if (why := disk_images.available()) is not None:
        raise unusable(why)


def users(fd: int) -> str:
    """Return who has a lock on an open file, as the machine's list of locks says."""
    status = os.fstat(fd)
    mark = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    found: dict[str, list[str]] = {"READ": [], "WRITE": []}
    try:
        with open("/proc/locks") as file:  # noqa: PTH123 (as others that read /proc)
            for words in map(str.split, file):
                # 1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF
                if len(words) == 8 and words[1] == "FLOCK" and words[5] == mark and words[3] in found:
                    found[words[3]].append(words[4])
    except OSError:
        return ""
    if found["WRITE"]:
        return f"written to by a sandbox of process {found['WRITE'][0]}"
    if found["READ"]:
        processes = sorted(set(found["READ"]), key=int)
        more = ", ..." if len(processes) > 3 else ""
        return f"read by {len(found['READ'])}, of the processes {', '.join(processes[:3])}{more}"
    return ""


def unusable(why: str) -> EngineError:
    """Return the error for volumes that cannot be used here at all."""
    return EngineError(DataCode.VOLUMES_UNUSABLE, f"{DataCode.VOLUMES_UNUSABLE.text}: {why}", setting="volumes")


def not_made(name: str, why: str, limit: str | None = None, value: str | None = None) -> EngineError:
    """Return the error for a volume that cannot be made."""
    words = f"{DataCode.VOLUME_NOT_MADE.note(name=name).text}: {why}"
    return EngineError(DataCode.VOLUME_NOT_MADE, words, limit=limit, value=value, setting="volumes")


def _no_volume(name: str, why: str, limit: str | None = None, value: str | None = None) -> EngineError:
    words = f"{DataCode.VOLUME_NOT_OPENED.note(name=name).text}: {why}"
    return EngineError(DataCode.VOLUME_NOT_OPENED, words, limit=limit, value=value, setting="volumes")


def _check(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise _no_volume(name[:80], "a name has letters, digits, dots, dashes and underlines, 63 at most")


def _is_there(folder: int, name: str) -> bool:
    try:
        os.stat(name + _SUFFIX, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _uid(folder: int) -> int:
    """Return the user id of the owner's sandboxes. Raises FileNotFoundError: none was chosen yet."""
    fd = os.open(_OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with _closing(fd):
        text = os.read(fd, 32).decode("ascii", "replace").strip()
    low, high = UID_RANGE
    if not (text.isdigit() and text.isascii() and low <= int(text) < high):
        raise unusable(f"the file `{_OWNER}` beside them has no user id that sandboxes may have")
    return int(text)


def _locked(fd: int, how: int, seconds: float = 0.0) -> bool:
    """Lock an open file, or return False if another has it for so long."""
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise
            if time.monotonic() >= until:
                return False
            time.sleep(PAUSE_SECONDS)
        else:
            return True


def _superblock(fd: int) -> bytes | None:
    block = os.pread(fd, 1024, _SUPERBLOCK)
    return block if len(block) == 1024 and struct.unpack_from("<H", block, 0x38)[0] == _MAGIC else None


def _in_order(fd: int) -> bool:
    """Return whether a file system was let go of as it should be, and nothing was wrong with it."""
    block = _superblock(fd)
    if block is None:
        return False
    (state,), (features,) = struct.unpack_from("<H", block, 0x3A), struct.unpack_from("<I", block, 0x60)
    return bool(state & _VALID and not state & _HAS_ERRORS and not features & _NEEDS_RECOVERY)


def _used(fd: int) -> int | None:
    block = _superblock(fd)
    if block is None:
        return None
    places = (0x4, 0xC, 0x150, 0x158, 0x248, 0x18)
    low, free_low, high, free_high, overhead, size = (struct.unpack_from("<I", block, place)[0] for place in places)
    return int(max(0, ((high - free_high) << 32) + low - free_low - overhead) * (1024 << min(size, 6)))


@contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)
