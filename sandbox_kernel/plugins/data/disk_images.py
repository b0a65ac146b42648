"""Disks of a fixed size: a file of the host's with an ext4 file system, which the machine shows as a loop device.

The size is the machine's to keep: a cell that fills its disk meets ENOSPC, and the host's disk has that room reserved.
The file of a disk for scratch has no name any more when the sandbox starts, and the device lets go of it with the last
mount: so nothing is left, whoever was killed in between. Root's alone, as loop devices and mounts are; what is another
program's disk, as QEMU's, is a file and anybody's. A device makes no holes in its file: their room would be the host's
again, to be taken by others.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ...core.errors import EngineError
from ...core.helper_processes import environment_of_helpers
from ...core.model import MIB, format_bytes
from ...core.remedies import confined
from ...engines.attachment import file_system, no_disk, no_room

LEAST_BYTES = 16 * MIB
"""Of a disk: a file system takes some of it for itself."""
FOLDERS = ("/var/tmp", "/var/lib", "/var")  # noqa: S108 (for files without a name)
"""Where files without a name are: in the first of these that is on a disk. /tmp may be memory, and /var/tmp be missing
or memory, too; no program that tidies up finds a file without a name."""
MAKE_SECONDS = 60.0
TRIES = 16
"""For a free loop device, which another process may take first."""

_ADD_FREE, _CONFIGURE = 0x4C82, 0x4C0A
_READ_ONLY, _AUTOCLEAR, _DIRECT = 1, 4, 16
_UUID_BYTE = 1024 + 0x68
"""Of an ext4 file system."""
_BLOCK = 4096
"""Bytes of a block, of the device and so of its file system: mkfs would give a small one less."""
_ZEROED = "assume_storage_prezeroed=1"
_OF_MEMORY = {0x01021994, 0x858458F6}
"""What statfs(2) calls tmpfs and ramfs."""


class Device(NamedTuple):
    """A loop device. The machine removes it once neither `fd` nor a mount holds it."""

    path: str
    fd: int

    @property
    def file_system(self) -> int:
        """The lower half of the number that statfs(2) gives its ext4 file system. Raises OSError."""
        first, second = struct.unpack("<2Q", os.pread(self.fd, 16, _UUID_BYTE))
        return int((first ^ second) & 0xFFFFFFFF)


def available() -> str | None:
    """Return why there is no device of a disk to be had here, None if there is one."""
    if os.geteuid() != 0:
        return "only root can make one: use a broker that root runs"
    if not os.access("/dev/loop-control", os.R_OK | os.W_OK):
        has = "; a container has the machine's with `--privileged --volume /dev:/dev`" if confined() else ""
        return f"there are no loop devices here (/dev/loop-control){has}"
    return cannot_make()


def cannot_make() -> str | None:
    """Return why there is no file of a disk to be had here, None if there is one."""
    missing = [name for name in ("mkfs.ext4", "debugfs") if program(name) is None]
    return f"{missing[0]} is not installed (Debian: e2fsprogs)" if missing else None


def program(name: str = "mkfs.ext4") -> str | None:
    """Return where a program of e2fsprogs is: root's, and not what a variable says."""
    return shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")


def scratch(size: int, owner: int) -> Device:
    """Return a new disk of `size` bytes whose root is `owner`'s, as user and group; its file has no name.

    Raises `EngineError`: this machine cannot make one, or its disk has no room for it.
    """
    if (why := available()) is not None:
        raise no_disk(why)
    fd = image(size, owner)
    try:
        return attach(fd)
    finally:
        os.close(fd)


def image(size: int, owner: int) -> int:
    """Return the file of such a disk, without a name, open for reading and writing. Raises `EngineError`."""
    fd = _unnamed()
    try:
        make(fd, size, owner)
    except BaseException:
        os.close(fd)
        raise
    return fd


def make(fd: int, size: int, owner: int, *, journal: bool = False) -> None:
    """Reserve `size` bytes for an empty file and write an empty file system to it. Raises `EngineError`."""
    if (why := cannot_make()) is not None:
        raise no_disk(why)
    # Look first whether the host's disk has as much room: trying takes all there is.
    if size < LEAST_BYTES:
        raise no_disk(f"it would have {format_bytes(size)}, and takes at least {format_bytes(LEAST_BYTES)}")
    if size > (free := _free(fd)):
        raise no_room(size, free)
    _allocate(fd, size)
    options = f"nodiscard,lazy_itable_init=1,lazy_journal_init=1,root_owner={owner}:{owner}"
    place = f"/proc/self/fd/{fd}"
    features = () if journal else ("-O", "^has_journal")
    # mkfs takes smaller blocks for a small disk, which a device of larger ones does not mount.
    words = [program(), "-q", "-F", "-m", "0", "-b", str(_BLOCK), *features, "-E"]
    # Else the system zeroes what mkfs did not, and the loop device makes holes of zeros: room that is not reserved.
    try:
        _run([*words, f"{options},{_ZEROED}", place], fd)
    except EngineError as error:
        if _ZEROED.partition("=")[0] not in error.message:
            raise
        _run([*words, options, place], fd)  # before e2fsprogs 1.47
    _run([program("debugfs"), "-w", "-R", "rmdir lost+found", place], fd)


def attach(fd: int, *, writable: bool = True) -> Device:
    """Return a loop device that shows an open regular file; it keeps this very open file, with a lock that it has.

    Raises `EngineError`.
    """
    flags = _AUTOCLEAR | _DIRECT | (0 if writable else _READ_ONLY)
    try:
        with _opened("/dev/loop-control") as control:
            for _ in range(TRIES):
                path = f"/dev/loop{fcntl.ioctl(control, _ADD_FREE)}"
                device = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
                try:
                    _configure(device, fd, flags)
                    if writable:
                        _make_no_holes(path)
                except OSError as error:
                    os.close(device)
                    if error.errno != errno.EBUSY:
                        raise
                else:
                    return Device(path, device)
    except OSError as error:
        raise no_disk(f"a loop device cannot be had: {error}") from error
    raise no_disk("a loop device cannot be had: others take each that is free")


def _configure(device: int, fd: int, flags: int) -> None:
    """Bind a file to a device, in one step (struct loop_config of linux/loop.h)."""
    for direct in (_DIRECT, 0):  # not every file system of a host can do without its cache
        wanted = flags & ~_DIRECT | direct
        info = struct.pack("<5Q4I64s64s32s2Q", 0, 0, 0, 0, 0, 0, 0, 0, wanted, b"", b"", b"", 0, 0)
        try:
            fcntl.ioctl(device, _CONFIGURE, struct.pack("<II", fd, _BLOCK) + info + bytes(64))
        except OSError as error:
            if error.errno != errno.EINVAL or not direct:
                raise
        else:
            return


def _make_no_holes(path: str) -> None:
    """Have a device refuse to discard, and with it to zero by a hole: ext4 writes zeros then. Raises OSError.

    ext4 zeroes what cells reserve, when its disk is full: the cells of a sandbox could give all of the room away. There
    is no call for one use of a device, and no way back: this lasts until the machine removes the device.
    """
    with open(f"/sys/block/{path.removeprefix('/dev/')}/queue/discard_max_bytes", "w") as file:  # noqa: PTH123 (a string)
        file.write("0")


def reserve_again(fd: int) -> None:
    """Have the host's disk keep the room of a whole file whose holes a copy, or another program, made."""
    status = os.fstat(fd)
    held = status.st_blocks * 512
    if held < status.st_size:
        if status.st_size - held > (free := _free(fd)):
            raise no_room(status.st_size - held, free)
        _allocate(fd, status.st_size)


def _allocate(fd: int, size: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    # Not posix_fallocate(), which writes zeros where the file system cannot reserve.
    if libc.fallocate(fd, 0, ctypes.c_int64(0), ctypes.c_int64(size)) == 0:
        return
    code = ctypes.get_errno()
    if code in {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}:
        raise no_room(size, _free(fd))
    raise no_disk(f"the host's file system cannot reserve room: {os.strerror(code)}")


def _free(fd: int) -> int:
    space = os.fstatvfs(fd)
    return space.f_bavail * space.f_frsize


def folder(folders: Sequence[str] = FOLDERS) -> str:
    """Return the first of some folders that is on a disk. Raises `EngineError`."""
    for path in folders:
        if os.path.isdir(path) and file_system(path) not in _OF_MEMORY:  # noqa: PTH112 (a string)
            return path
    raise no_disk(f"{' and '.join(folders)} are in memory, or not there")


def _unnamed() -> int:
    """Return a new file without a name, on a disk."""
    place = folder()
    try:
        return os.open(place, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        pass
    try:  # not every file system can
        fd, path = tempfile.mkstemp(prefix="sandbox-kernel-", dir=place)
    except OSError as error:
        raise no_disk(f"no file can be made in {place}: {error}") from error
    os.unlink(path)  # noqa: PTH108 (a string)
    return fd


def _run(words: list[str | None], fd: int) -> None:
    if words[0] is None:
        raise no_disk("debugfs is not installed (Debian: e2fsprogs)")
    try:
        done = subprocess.run(
            [*filter(None, words)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=MAKE_SECONDS,
            check=False,
            pass_fds=[fd],
            env=environment_of_helpers(),
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise no_disk(f"{words[0]} does not run: {error}") from error
    if done.returncode != 0:
        raise no_disk(f"{words[0]}: {done.stderr.decode('utf-8', 'replace').strip()[:200]}")


@contextmanager
def _opened(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
