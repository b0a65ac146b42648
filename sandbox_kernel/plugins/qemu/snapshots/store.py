"""The snapshots of one user: a folder for each, whole or not there, which nobody else may read or have written.

    ~/.local/share/sandbox-kernel/snapshots/NAME/head       a digest of the rest of it, and JSON
                                                 content    what an engine wrote; its size and digest are in the head
                                            .new-*          one that is being taken; counts for nothing else

What lies there is believed in nothing: a snapshot with another owner, a link, a second name, more rights or other bytes
than its head says is refused. Knows neither engines nor sessions: what they have to say is JSON to it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from ....core.errors import FileNotThere, FileRefused
from ....core.home_folder import home_folder
from ....core.model import Settings, format_bytes
from ....files.host_paths import Folder, open_folder
from ....sdk.values import Snapshot
from ..codes import SnapshotCode
from ..settings import QemuSettings
from .store_parts import (
    CONTENT,
    CREATE,
    FOLDER,
    HEAD,
    MAX_HEAD,
    NEW,
    VERSION,
    damaged,
    digest_of,
    inside,
    is_held,
    locked,
    looked,
    names,
    opened,
    read_head,
    remove,
    said,
    size_of,
    taken,
    write,
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


def usual_folder() -> str:
    """Return the folder of this user's snapshots; no variable has a say."""
    return f"{home_folder() or '/'}/.local/share/sandbox-kernel/snapshots"


def checked(name: object) -> str:
    """Return a name that may be one. Raises `FileRefused`."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise FileRefused(SnapshotCode.SNAPSHOT_NAME_UNFIT, setting="name")
    return name


class Store:
    """See the module. Everything here raises `FileRefused`."""

    def __init__(self, most_bytes: int, most_seconds: float, path: str | None = None) -> None:
        """`most_bytes` is what all may take together; one that is older than `most_seconds` is removed."""
        self._most_bytes = most_bytes
        self._most_seconds = most_seconds
        self.path = path or usual_folder()

    @classmethod
    def of(cls, settings: Settings) -> Store:
        """Return this user's, as far as the settings let it grow."""
        own = settings.of(QemuSettings)
        return cls(own.snapshots_size, own.snapshots_age)

    def begin(self, name: str, bytes_at_most: int) -> Draft:
        """Begin one, for which there is room for so many bytes; nobody else gets to see it before it is whole."""
        checked(name)
        with self._opened(make=True) as folder, said(self.path), locked(folder):
            self._tidy(folder)
            if taken(folder, name):
                raise FileRefused(SnapshotCode.SNAPSHOT_EXISTS.note(name=name))
            there = sum(size_of(folder, each) for each in names(folder, every=True))
            self._require_room(folder, there, bytes_at_most)
            draft = f"{NEW}{os.urandom(8).hex()}-{bytes_at_most}"
            os.mkdir(draft, 0o700, dir_fd=folder.handle)
            return Draft(Folder(folder.opened(), folder.path), draft, name)

    def open(self, name: str) -> Saved:
        """Return one whose every byte was read and is what it was."""
        checked(name)
        with self._opened() as folder, said(self.path):
            with locked(folder):
                self._tidy(folder)
            return Saved(folder, name)

    def list(self) -> tuple[Snapshot, ...]:
        """Return those that are whole and this user's alone, the newest first; their contents are not read."""
        try:
            with self._opened() as folder, said(self.path):
                with locked(folder):
                    self._tidy(folder)
                found = [looked(folder, name) for name in names(folder)]
        except FileNotThere:
            return ()
        return tuple(sorted((one for one in found if one is not None), key=lambda one: (-one.made, one.name)))

    def delete(self, name: str) -> bool:
        """Remove one, be it whole or not; return whether there was one."""
        checked(name)
        try:
            with self._opened() as folder, said(self.path), locked(folder):
                return remove(folder, name)
        except FileNotThere:
            return False

    def tidy(self) -> int:
        """Remove what is too old, and what was never finished; return how many."""
        try:
            with self._opened() as folder, said(self.path), locked(folder):
                return self._tidy(folder)
        except FileNotThere:
            return 0

    def scratch(self, bytes_at_most: int) -> int:
        """Return a file without a name, which is gone with its last handle, if there is room for so much."""
        with self._opened(make=True) as folder, said(self.path):
            with locked(folder):
                there = sum(size_of(folder, each) for each in names(folder, every=True))
                self._require_room(folder, there, bytes_at_most)
                name = f"{NEW}{os.urandom(8).hex()}"
                handle = os.open(name, CREATE, 0o600, dir_fd=folder.handle)
                os.unlink(name, dir_fd=folder.handle)  # under the lock: else another one takes it for a draft left over
            return handle

    @contextmanager
    def _opened(self, *, make: bool = False) -> Iterator[Folder]:
        try:
            opened = open_folder(self.path, make=make)
        except FileNotFoundError:
            raise FileNotThere(SnapshotCode.SNAPSHOT_MISSING.note(name="")) from None
        except OSError as error:
            raise FileRefused(SnapshotCode.SNAPSHOTS_UNFIT.note(why=f"{self.path}: {error.strerror}")) from None
        with opened as folder:
            if not folder.close_to_others():
                raise FileRefused(SnapshotCode.SNAPSHOTS_UNFIT.note(why=f"{self.path} is another user's"))
            yield folder

    def _require_room(self, folder: Folder, there: int, wanted: int) -> None:
        if there + wanted > self._most_bytes:
            raise FileRefused(
                SnapshotCode.SNAPSHOT_NO_ROOM.note(why="all snapshots together may not take more"),
                limit=format_bytes(self._most_bytes),
                value=f"{format_bytes(there)}, and {format_bytes(wanted)} at most for this one",
                setting="snapshots_size",
            )
        disk = os.fstatvfs(folder.handle)
        if disk.f_bavail * disk.f_frsize < wanted:
            free = format_bytes(disk.f_bavail * disk.f_frsize)
            raise FileRefused(SnapshotCode.SNAPSHOT_NO_ROOM.note(why="the disk is full"), limit=f"{free} that are free")

    def _tidy(self, folder: Folder) -> int:
        """Remove old snapshots, and drafts without an owner. The caller holds the lock."""
        count = 0
        for name in names(folder, every=True):
            with suppress(OSError):  # what cannot be removed is no reason to refuse the others
                if name.startswith(NEW):
                    count += not is_held(folder, name) and remove(folder, name)
                elif (found := looked(folder, name)) is not None and time.time() - found.made > self._most_seconds:
                    count += remove(folder, name)
        return count


class Draft:
    """A snapshot that is being taken. What is not committed goes with it, and what a crash leaves a little later."""

    def __init__(self, folder: Folder, draft: str, name: str) -> None:
        self._folder = folder
        self._draft = draft
        self._committing = threading.Lock()
        """A thread may be at it when its owner gives up."""
        self.name = name
        try:
            self._inside = os.open(draft, FOLDER, dir_fd=folder.handle)
            self.content = os.open(CONTENT, CREATE, 0o600, dir_fd=self._inside)
            """A new empty file, for reading and writing."""
            fcntl.flock(self.content, fcntl.LOCK_EX | fcntl.LOCK_NB)  # by which others see that somebody is at it
        except OSError:
            remove(folder, draft)
            raise

    def commit(self, about: Mapping[str, Any]) -> Snapshot:
        """Give it its name, with what is to be known of it; all of it is on the disk then. May take seconds."""
        with self._committing, said(str(self._folder.path)):
            digest, size = digest_of(self.content)
            known: dict[str, Any] = {"version": VERSION, "name": self.name, "owner": os.geteuid(), "made": time.time()}
            known |= {"bytes": size, "sha256": digest, "about": dict(about)}
            text = json.dumps(known, sort_keys=True, allow_nan=False).encode()
            if len(text) > MAX_HEAD:
                raise FileRefused(SnapshotCode.SNAPSHOT_NO_ROOM.note(why="there is too much to be said of it"))
            head = os.open(HEAD, CREATE, 0o600, dir_fd=self._inside)
            try:
                write(head, hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
                for each in (head, self.content, self._inside):
                    os.fsync(each)
            finally:
                os.close(head)
            with locked(self._folder):
                if taken(self._folder, self.name):
                    raise FileRefused(SnapshotCode.SNAPSHOT_EXISTS.note(name=self.name))
                os.rename(self._draft, self.name, src_dir_fd=self._folder.handle, dst_dir_fd=self._folder.handle)
                self._draft = ""
            os.fsync(self._folder.handle)
        return Snapshot(self.name, float(known["made"]), size, dict(about))

    def close(self) -> None:
        """Remove what was not committed. Idempotent."""
        with self._committing:
            draft, self._draft = self._draft, ""
            if draft:
                with suppress(OSError):
                    remove(self._folder, draft)
            content, self.content = self.content, -1
            if content >= 0:
                os.close(content)
                os.close(self._inside)
                self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Saved:
    """A snapshot that is whole: its content as an open file, at its beginning, and what was said of it."""

    def __init__(self, folder: Folder, name: str) -> None:
        with inside(folder, name) as place:
            self.head, digest = read_head(name, place)
            self.content = opened(name, CONTENT, place)
        try:
            if digest_of(self.content) != (digest, self.head.bytes):
                damaged(name, "its content is not what was written")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Idempotent."""
        content, self.content = self.content, -1
        if content >= 0:
            os.close(content)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
