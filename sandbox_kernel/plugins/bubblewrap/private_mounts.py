"""Disks for one sandbox, mounted where no other process of the machine sees them: root's alone.

A thread takes a mount namespace of its own, mounts them there, and starts bubblewrap, which inherits it. So no mount is
ever the machine's, and the system takes all of them back when bubblewrap has ended, whoever was killed before.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

PLACE = "/sys/kernel"
"""Covered in that namespace: every machine has it, and neither a root nor what a sandbox is given is below it."""

_NEWNS = 0x00020000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _NOATIME, _REC, _SLAVE = 1, 2, 4, 8, 0x400, 0x4000, 1 << 19
_HIDDEN = b"size=64k,mode=0711"

Started = TypeVar("Started")


def places(paths: Iterable[str]) -> dict[str, str]:
    """Return where the disk of each path is mounted meanwhile."""
    return {path: f"{PLACE}/{number}" for number, path in enumerate(sorted(paths))}


def start_with(devices: Mapping[str, str], start: Callable[[], Started]) -> Started:
    """Return what `start` returns, called where each device is mounted at its one of `places`.

    Raises what `start` does, and `EngineError` for what cannot be mounted.
    """
    result: list[Started] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            _mount_all(devices)
            result.append(start())
        except BaseException as error:
            failed.append(error)

    import threading

    thread = threading.Thread(target=run, name="private mounts")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return result[0]


def _mount_all(devices: Mapping[str, str]) -> None:
    """Mount all, in a mount namespace of this thread's own. What the machine unmounts later, this lets go of, too."""
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(source: bytes | None, target: str, kind: bytes | None, flags: int, data: bytes | None = None) -> None:
        _done(libc.mount(source, os.fsencode(target), kind, ctypes.c_ulong(flags), data), target)

    try:
        _done(libc.unshare(_NEWNS), "unshare")
        mount(None, "/", None, _REC | _SLAVE)
        mount(b"disks", PLACE, b"tmpfs", _NOSUID | _NODEV | _NOEXEC, _HIDDEN)
        for path, place in places(devices).items():
            os.mkdir(place)  # noqa: PTH102 (a string)
            os.chmod(place, 0o711)  # noqa: PTH101, S103 (whatever the umask)
            flags = _NOSUID | _NODEV | _NOATIME
            try:
                mount(os.fsencode(devices[path]), place, b"ext4", flags)
            except OSError as error:
                if error.errno not in {errno.EACCES, errno.EROFS}:
                    raise
                mount(os.fsencode(devices[path]), place, b"ext4", flags | _RDONLY)  # a file system that is only read
    except OSError as error:
        from ...engines.attachment import no_disk

        raise no_disk(f"it cannot be mounted: {error.strerror}") from error


def _done(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{errno.errorcode.get(code, code)} at {what}")
