"""Which files a sandbox opens below its datasets, as the machine's own kernel tells: fanotify, on its own overlays.

A dataset is an overlay of the sandbox's own, so no other process's opening of the same files is among its events. The
sandbox cannot see, hold or stop what is heard here, and only hears are asked for: no event waits for an answer. The
queue is the kernel's and bounded; an overflow is reported. Each event comes with an open file, which is
closed at once and never read. Needs CAP_SYS_ADMIN. Standard library and core only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from ...core.model import DATASETS, OpenedDatasetFile

_CLOEXEC, _NONBLOCK = 0x1, 0x2
_ADD, _FLUSH, _WHOLE_FILE_SYSTEM = 0x1, 0x80, 0x100
_ACCESS, _OPEN, _OVERFLOW = 0x1, 0x20, 0x4000
_EVENT = struct.Struct("=IBBHQii")
BATCH = 64
"""Events that are read at once: each is an open file until it was looked at."""
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOATIME | getattr(os, "O_LARGEFILE", 0)
"""How a file of an event is opened: a pipe among them waits for nobody."""
_OVERLAY = 0x794C7630


class DatasetWatch:
    """Hears of what is opened from its making on, until it is closed."""

    def __init__(self, mounts: Mapping[str, str], *, partial: bool) -> None:
        """Begin to listen.

        Args:
            mounts: Where this process reaches the file system of each dataset, by its path in the sandbox.
            partial: Whether what opens the files keeps them open, and does not open them again for the next cell.

        Raises:
            OSError: It is not permitted, there is no room for one more, or a path is no overlay of a sandbox's own.
        """
        self._mounts = dict(mounts)
        self.partial = partial
        self.overflowed = False
        """The queue was full: events are missing."""
        self.elsewhere = 0
        """How many files were opened by a path outside of the datasets."""
        self.fd = _call("fanotify_init", ctypes.c_uint(_CLOEXEC | _NONBLOCK), ctypes.c_uint(_FLAGS))
        self._own: set[int] = set()
        """The mounts on this side, by their numbers: what comes through them is of this machine's own processes."""
        self._devices: dict[int, str] = {}
        """The datasets, by the numbers of their file systems."""
        try:
            for inside, path in self._mounts.items():
                mount, device = _mark(self.fd, path)
                if not path.startswith("/proc/"):  # which leads to the sandbox's own mount
                    self._own.add(mount)
                self._devices[device] = inside.removeprefix(DATASETS)
        except BaseException:
            self.close()
            raise

    def renew(self) -> DatasetWatch:
        """Return another one that hears what comes from now on, and have this one hear no more: it is to be read."""
        following = DatasetWatch(self._mounts, partial=self.partial)
        flags = ctypes.c_uint(_FLUSH | _WHOLE_FILE_SYSTEM)
        _call("fanotify_mark", ctypes.c_int(self.fd), flags, ctypes.c_uint64(0), ctypes.c_int(-100), b"/")
        return following

    def read(self, most: int) -> Iterator[OpenedDatasetFile]:
        """Yield what was heard, `most` events at most. It waits for nothing, and may be called in a thread."""
        left = most
        while left > 0 and self.fd >= 0:
            try:
                data = os.read(self.fd, _EVENT.size * min(BATCH, left))
            except BlockingIOError:
                return
            except OSError:  # the file of an event cannot be opened any more, or no file can: it is lost then
                self.overflowed = True
                left -= BATCH
                continue
            for at in range(0, len(data), _EVENT.size):
                _, _, _, _, mask, fd, _ = _EVENT.unpack_from(data, at)
                left -= 1
                if mask & _OVERFLOW:
                    self.overflowed = True
                if fd >= 0 and (found := self._looked_at(fd, read=bool(mask & _ACCESS))) is not None:
                    yield found

    def _looked_at(self, fd: int, *, read: bool) -> OpenedDatasetFile | None:
        """Close the file of an event, and return what it is; None for one that the sandbox did not open."""
        try:
            name, status = self._name(fd), os.fstat(fd)
        except (OSError, LookupError, ValueError):
            name = None
            self.elsewhere += 1
        finally:
            os.close(fd)
        return None if not name else OpenedDatasetFile(name, status.st_size, status.st_mtime_ns, read)

    def _name(self, fd: int) -> str:
        """Return what to call a file; "" for one that this machine's own processes opened. Raises LookupError."""
        path = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 (a string)
        if any(path.startswith(f"{own}/") for own in self._mounts.values()):
            return ""
        # An engine's part that opens files for the sandbox may see its paths below another root.
        _, found, inside = path.partition(DATASETS)
        if found and f"{DATASETS}{inside.partition('/')[0]}" in self._mounts:
            return inside
        # Its mount is gone, and with it how it is called: the path begins in the dataset.
        if _mount_of(fd) in self._own:
            return ""
        device = os.fstat(fd).st_dev
        dataset = self._devices[device] if len(self._mounts) > 1 else next(iter(self._devices.values()))
        return f"{dataset}/{path.lstrip('/')}"

    def close(self) -> None:
        """Hear no more, and forget what was not read. Idempotent. It may take some milliseconds."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def _mark(group: int, path: str) -> tuple[int, int]:
    """Have a group hear of a file system, if it is an overlay that this machine's own root has no part in.

    Returns the numbers of the mount that the path leads to, and of the file system.
    """
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        kind = ctypes.create_string_buffer(512)
        _call("fstatfs", ctypes.c_int(fd), kind)
        outside = os.stat("..", dir_fd=fd).st_dev, os.lstat("/").st_dev
        if int.from_bytes(kind.raw[:4], "little") != _OVERLAY or os.fstat(fd).st_dev in outside:
            raise OSError(errno.EXDEV, "it is no file system of the sandbox's own")
        flags = ctypes.c_uint(_ADD | _WHOLE_FILE_SYSTEM)
        name = f"/proc/self/fd/{fd}".encode()  # it takes no descriptor that is for a path alone
        _call("fanotify_mark", ctypes.c_int(group), flags, ctypes.c_uint64(_OPEN | _ACCESS), ctypes.c_int(-100), name)
        return _mount_of(fd), os.fstat(fd).st_dev
    finally:
        os.close(fd)


def _mount_of(fd: int) -> int:
    """Return the number of the mount by which a file was opened. Raises OSError, ValueError and LookupError."""
    info = os.open(f"/proc/self/fdinfo/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        rows = dict(row.split(b":", 1) for row in os.read(info, 4096).splitlines() if b":" in row)
        return int(rows[b"mnt_id"])
    finally:
        os.close(info)


@cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> int:
    try:
        function = getattr(_libc(), name)
    except AttributeError:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
    result = int(function(*arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
