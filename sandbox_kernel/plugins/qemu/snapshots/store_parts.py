"""What a folder of snapshots holds, looked at without believing it: names, heads, sizes and owners.

For `store` alone. Reads and removes beneath folders that it is handed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from ....core.descriptors import is_locked
from ....core.errors import FileNotThere, FileRefused
from ....files.host_paths import Folder
from ....sdk.values import Snapshot
from ..codes import SnapshotCode

VERSION = 1
"""Of what is written here; another one is refused."""
HEAD, CONTENT, NEW, LOCK = "head", "content", ".new-", ".lock"
MAX_HEAD = 8 << 20
PIECE = 4 << 20
MAX_NAMES = 10_000
"""Entries of the folder that are looked at."""
LOCK_SECONDS, LOCK_PAUSE = 10.0, 0.02
"""The lock is held for a look and a rename, never while a snapshot is written."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def said(path: str) -> Iterator[None]:
    """Translate errors of the system into `FileRefused`."""
    try:
        yield
    except OSError as error:
        full = error.errno in {28, 27, 122}  # ENOSPC, EFBIG, EDQUOT
        code = SnapshotCode.SNAPSHOT_NO_ROOM if full else SnapshotCode.SNAPSHOTS_UNFIT
        raise FileRefused(code.note(why=f"{path}: {error.strerror or error}")) from None


@contextmanager
def locked(folder: Folder) -> Iterator[None]:
    """Be the only one who takes or removes a name. Raises `FileRefused` if somebody keeps it for too long."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(LOCK, flags, 0o600, dir_fd=folder.handle)
    try:
        until = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise FileRefused(SnapshotCode.SNAPSHOT_BUSY.note(why="another process holds the folder")) from None
                time.sleep(LOCK_PAUSE)
        yield
    finally:
        os.close(handle)


def names(folder: Folder, *, every: bool = False) -> list[str]:
    """Return the names of snapshots, and of drafts with `every`."""
    found: list[str] = []
    with os.scandir(folder.handle) as entries:
        for entry in entries:
            if len(found) >= MAX_NAMES:
                break
            if entry.name != LOCK and (every or not entry.name.startswith(".")):
                found.append(entry.name)
    return found


def taken(folder: Folder, name: str) -> bool:
    """Return whether anything has a name, be it a snapshot or not."""
    try:
        os.stat(name, dir_fd=folder.handle, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def inside(folder: Folder, name: str) -> Iterator[int]:
    """Yield a snapshot's folder, which is this user's alone."""
    try:
        place = os.open(name, FOLDER, dir_fd=folder.handle)
    except FileNotFoundError:
        raise FileNotThere(SnapshotCode.SNAPSHOT_MISSING.note(name=name)) from None
    except OSError:
        raise FileRefused(SnapshotCode.SNAPSHOT_NOT_OWN.note(name=name, why="it is a link, or no folder")) from None
    try:
        _require_own(name, place, stat.S_ISDIR)
        yield place
    finally:
        os.close(place)


def opened(name: str, file: str, place: int) -> int:
    """Open a file of a snapshot for reading: a regular one, with one name, of this user's alone."""
    try:
        handle = os.open(file, _READ, dir_fd=place)
    except FileNotFoundError:
        damaged(name, f"it has no {file}")
    except OSError:
        raise FileRefused(SnapshotCode.SNAPSHOT_NOT_OWN.note(name=name, why=f"its {file} is a link")) from None
    try:
        _require_own(name, handle, stat.S_ISREG)
        if os.fstat(handle).st_nlink != 1:
            raise FileRefused(SnapshotCode.SNAPSHOT_NOT_OWN.note(name=name, why=f"its {file} has another name"))
    except BaseException:
        os.close(handle)
        raise
    return handle


def _require_own(name: str, handle: int, kind: Callable[[int], bool]) -> None:
    status = os.fstat(handle)
    why = None
    if not kind(status.st_mode):
        why = "it is something else"
    elif status.st_uid != os.geteuid():
        why = "another user owns it"
    elif stat.S_IMODE(status.st_mode) & 0o077:
        why = "others may read or write it"
    if why is not None:
        raise FileRefused(SnapshotCode.SNAPSHOT_NOT_OWN.note(name=name, why=why))


def read_head(name: str, place: int) -> tuple[Snapshot, str]:
    """Return what a snapshot's head says, and the digest of its content."""
    handle = opened(name, HEAD, place)
    try:
        data = b""
        while len(data) <= MAX_HEAD and (piece := os.read(handle, MAX_HEAD + 1 - len(data))):
            data += piece
    finally:
        os.close(handle)
    digest, _, text = data.partition(b"\n")
    if len(data) > MAX_HEAD or hashlib.sha256(text).hexdigest().encode() != digest:
        damaged(name, "its head is not what was written")
    try:
        given = json.loads(text)
        if given["version"] != VERSION:
            why = f"it has version {str(given['version'])[:20]}, and this is {VERSION}"
            raise FileRefused(SnapshotCode.SNAPSHOT_UNFIT.note(name=name, why=why))
        if given["name"] != name or given["owner"] != os.geteuid():
            why = f"it was taken as {str(given['name'])[:64]!r} by the user {str(given['owner'])[:20]}"
            raise FileRefused(SnapshotCode.SNAPSHOT_NOT_OWN.note(name=name, why=why))
        size, made, about = int(given["bytes"]), float(given["made"]), dict(given["about"])
        return Snapshot(name, made, size, about), str(given["sha256"])
    except (ValueError, LookupError, TypeError, RecursionError):
        damaged(name, "its head is not what was written")


def looked(folder: Folder, name: str) -> Snapshot | None:
    """Return the snapshot of a name without reading its content; None for what would be refused."""
    try:
        with inside(folder, name) as place:
            head, _ = read_head(name, place)
            content = opened(name, CONTENT, place)
            try:
                return head if os.fstat(content).st_size == head.bytes else None
            finally:
                os.close(content)
    except FileRefused:
        return None


def size_of(folder: Folder, name: str) -> int:
    """Return what counts for the limit: what lies there, or what a draft may come to."""
    reserved = name.rpartition("-")[2] if name.startswith(NEW) else ""
    if reserved.isdecimal() and len(reserved) < 16:
        return int(reserved)
    with suppress(OSError):
        return os.stat(f"{name}/{CONTENT}", dir_fd=folder.handle, follow_symlinks=False).st_size
    return 0


def digest_of(handle: int) -> tuple[str, int]:
    """Return the digest and the size of a file, read from its beginning, where it stands afterwards."""
    digest, at = hashlib.sha256(), 0
    while piece := os.pread(handle, PIECE, at):
        digest.update(piece)
        at += len(piece)
    os.lseek(handle, 0, os.SEEK_SET)
    return digest.hexdigest(), at


def write(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def is_held(folder: Folder, draft: str) -> bool:
    """Return whether somebody writes a draft: its lock goes with its process."""
    return is_locked(f"{draft}/{CONTENT}", folder.handle)


def remove(folder: Folder, name: str) -> bool:
    """Remove a snapshot or a draft, and of it our own two files; return whether there was one.

    What is no folder goes by itself, a link without what it leads to. A file that somebody else has put beside ours
    stays, and its folder with it. It is no snapshot any more, and only a new one of that name meets it.
    """
    try:
        place = os.open(name, FOLDER, dir_fd=folder.handle)
    except FileNotFoundError:
        return False
    except OSError:
        os.unlink(name, dir_fd=folder.handle)
        return True
    try:
        count = 0
        for file in (HEAD, CONTENT):  # without its head it counts for nothing, should this end in between
            with suppress(FileNotFoundError):
                os.unlink(file, dir_fd=place)
                count += 1
    finally:
        os.close(place)
    try:
        os.rmdir(name, dir_fd=folder.handle)
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise
        return count > 0
    return True


def damaged(name: str, why: str) -> NoReturn:
    raise FileRefused(SnapshotCode.SNAPSHOT_DAMAGED.note(name=name, why=why))
