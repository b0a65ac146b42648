"""Folders of the host, whose files enter and leave scratch: the only code that opens a file beneath them.

Every file is opened one name at a time beneath the handle of its folder, and no link is followed on the way. The handle
is kept as long as the folder is in use, so that nobody moves the session elsewhere by swapping a name above it. Nothing
here blocks on a FIFO or a device, but a disk may be slow: callers run these functions in a thread (folder_sync.py).

The rules are in names, host_paths and folder_policy.

Public: plugins may import it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ..core.codes import FileCode
from ..core.errors import FileRefused
from ..core.model import format_bytes
from . import folder_policy
from .file_rules import (
    CHUNK_BYTES,
    FileLimits,
    check_copied_name,
    check_downloaded_name,
    check_size,
    safe_name,
)
from .host_paths import Folder, Held, require_regular
from .path_walk import kind

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class HostStamp(NamedTuple):
    """What tells one state of a host file from another."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> HostStamp:
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class HostFile(NamedTuple):
    """A regular file of an upload folder that may go in."""

    path: str
    """As it goes in: a name with characters that are refused is its safe one."""
    stamp: HostStamp
    name: str
    """Its path in the folder."""


@dataclass(frozen=True, slots=True)
class Scan:
    """An upload folder at one moment."""

    root: tuple[int, int]
    """Device and inode of the folder."""
    files: tuple[HostFile, ...]
    refused: tuple[tuple[str, FileRefused], ...]


class UploadFolder:
    """A host folder whose regular files go in."""

    def __init__(self, path: str | Path | Folder, limits: FileLimits) -> None:
        """Name the folder, or hand it over open."""
        self.held = Held(path, "uploads")
        self._limits = limits

    @property
    def path(self) -> Path:
        return self.held.path

    def scan(self) -> Scan:
        """Look at every entry without opening a file. Raises `FileRefused` if the folder cannot be read."""
        root = self.held.open()
        try:
            status = os.fstat(root)
            walk = _UploadWalk(self._limits)
            walk.folder(root, "", "")
            return Scan((status.st_dev, status.st_ino), tuple(walk.files), tuple(walk.refused))
        finally:
            os.close(root)

    def source(self, file: HostFile) -> HostSource:
        return HostSource(self.held, file)


class _UploadWalk:
    """One walk through an upload folder, in the order of names, so that limits cut off the same files each time."""

    def __init__(self, limits: FileLimits) -> None:
        self.files: list[HostFile] = []
        self.refused: list[tuple[str, FileRefused]] = []
        self._limits = limits
        self._bytes = 0
        self._folders: set[str] = set()
        self._entries_left = 20 * limits.files

    def folder(self, fd: int, prefix: str, above: str) -> None:
        """Look at the folder `above`, whose files go in below `prefix`."""
        with os.scandir(fd) as entries:
            found = []
            for entry in entries:
                self._entries_left -= 1
                if self._entries_left < 0:
                    self.refused.append((prefix or ".", FileRefused(FileCode.FOLDER_ENTRIES)))
                    break
                found.append(entry)
            for entry in sorted(found, key=lambda entry: entry.name):
                try:
                    self._entry(entry, safe_name(prefix + entry.name), fd, above + entry.name)
                except FileRefused as reason:
                    self.refused.append((prefix + entry.name, reason))
                except OSError as error:
                    self.refused.append((prefix + entry.name, _refusal(error)))

    def _entry(self, entry: os.DirEntry[str], path: str, folder: int, name: str) -> None:
        check_copied_name(path)
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            fd = os.open(entry.name, _FOLDER, dir_fd=folder)
            try:
                self.folder(fd, path + "/", name + "/")
            finally:
                os.close(fd)
            return
        require_regular(status)
        check_size(status.st_size, self._limits.file_bytes)
        above = {path[:end] for end, char in enumerate(path) if char == "/"} - self._folders
        if len(self.files) + len(self._folders) + len(above) >= self._limits.files:
            limit = f"{self._limits.files} files and folders"
            raise FileRefused(FileCode.FOLDER_FILES, limit=limit, setting="folder_files")
        if self._bytes + status.st_size > self._limits.total_bytes:
            limit = format_bytes(self._limits.total_bytes)
            raise FileRefused(FileCode.FOLDER_BYTES, limit=limit, setting="folder_limit")
        self._bytes += status.st_size
        self._folders |= above
        self.files.append(HostFile(path, HostStamp.of(status), name))


class HostSource:
    """A file on its way in: opened, read to its end and closed by one thread."""

    def __init__(self, root: Held, file: HostFile) -> None:
        self._root = root
        self._file = file
        self._left = file.stamp.size
        self._fd = -1
        self.hash = hashlib.sha256()
        """Of what was read."""

    def open(self) -> None:
        """Open the file that was scanned. Raises `FileRefused` if anything else is there now."""
        path, way = PurePosixPath(self._file.name), _Way()
        try:
            way.open(self._root, path.parts[:-1])
            require_regular(os.stat(path.name, dir_fd=way.end, follow_symlinks=False))
            self._fd = os.open(path.name, _READ, dir_fd=way.end)
            self._require_unchanged()
        except OSError as error:
            raise _refusal(error) from None
        finally:
            way.close()

    def read(self) -> bytes:
        """Return the next chunk, b"" at the end. Raises `FileRefused` if the file is not what was scanned any more."""
        try:
            data = os.read(self._fd, min(CHUNK_BYTES, self._left))
        except OSError as error:
            raise _refusal(error) from None
        self._left -= len(data)
        self.hash.update(data)
        if self._left == 0 or not data:
            self._require_unchanged()
        return data

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _require_unchanged(self) -> None:
        status = os.fstat(self._fd)
        require_regular(status)
        if HostStamp.of(status) != self._file.stamp:
            raise FileRefused(FileCode.BEING_CHANGED)


class DownloadFolder:
    """A host folder that receives regular files: one that a cell may fill."""

    def __init__(self, path: str | Path | Folder) -> None:
        """Name the folder, or hand it over open; one that is missing is made when a file arrives."""
        self.held = Held(path, "downloads", folder_policy.why_not, make=True)

    def target(self, path: str) -> HostTarget:
        """Return a place for a file. Raises `FileRefused` for its name."""
        return HostTarget(self.held, check_downloaded_name(path))


class HostTarget:
    """A file on its way out: opened, written, then put in place as a whole or discarded, by one thread.

    Until `commit` it has no name where the file system allows that, so that not even a killed host process leaves
    half a file behind, and a hidden one elsewhere.
    """

    def __init__(self, root: Held, path: PurePosixPath) -> None:
        self._root = root
        self._path = path
        self._way = _Way()
        self._partial = f".sandbox-{secrets.token_hex(8)}.part"
        self._named = False
        self._fd = -1
        self.hash = hashlib.sha256()
        """Of what was written."""

    def open(self) -> None:
        """Make the folders on the way and an empty file. Raises `FileRefused`; call `close` whatever happened."""
        try:
            self._way.open(self._root, self._path.parts[:-1], make=True)
            self._replaced()
            unnamed = os.O_WRONLY | os.O_CLOEXEC | getattr(os, "O_TMPFILE", 0)
            try:
                self._fd = os.open(".", unnamed, 0o644, dir_fd=self._way.end)
            except OSError:  # not on this file system; not on macOS, where this would open the folder for writing
                self._fd = os.open(self._partial, _NEW, 0o644, dir_fd=self._way.end)
                self._named = True
        except OSError as error:
            raise _refusal(error) from None

    def write(self, data: bytes) -> None:
        """Append `data`. Raises `FileRefused` if the host's disk is full."""
        self.hash.update(data)
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            raise _refusal(error) from None

    def replaces(self) -> tuple[tuple[int, int], HostStamp | None]:
        """Return device and inode of the whole folder, and the file that `commit` would replace."""
        status = os.fstat(self._way.handles[0])
        return (status.st_dev, status.st_ino), self._replaced()

    def commit(self) -> HostStamp:
        """Give the file its name, in place of a regular file that has it. Raises `FileRefused` for anything else."""
        folder = self._way.end
        try:
            self._replaced()
            if not self._named:
                os.link(f"/proc/self/fd/{self._fd}", self._partial, dst_dir_fd=folder, follow_symlinks=True)
                self._named = True
            os.rename(self._partial, self._path.name, src_dir_fd=folder, dst_dir_fd=folder)
            self._named = False
            self._way.made.clear()
            return HostStamp.of(os.fstat(self._fd))
        except OSError as error:
            raise _refusal(error) from None

    def close(self) -> None:
        """Close everything; without a commit, remove the file and the folders made for it."""
        with suppress(OSError):
            if self._named:
                os.unlink(self._partial, dir_fd=self._way.end)
        self._named = False
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._way.close()

    def _replaced(self) -> HostStamp | None:
        try:
            status = os.stat(self._path.name, dir_fd=self._way.end, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(status.st_mode):
            raise FileRefused(FileCode.NAME_TAKEN.note(where="the host's folder has", what=kind(status)))
        return HostStamp.of(status)


class _Way:
    """The handles of a root folder and of each folder on the way to a file; no name on it is looked up twice."""

    def __init__(self) -> None:
        self.handles: list[int] = []
        self.made: list[tuple[int, str]] = []

    @property
    def end(self) -> int:
        return self.handles[-1]

    def open(self, root: Held, folders: tuple[str, ...], make: bool = False) -> None:
        """Raises `FileRefused` for a link or a file on the way, and OSError."""
        self.handles.append(root.open())
        for name in folders:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=self.end)
                    self.made.append((self.end, name))
            status = os.stat(name, dir_fd=self.end, follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                raise FileRefused(FileCode.PATH_TAKEN.note(what=kind(status)))
            self.handles.append(os.open(name, _FOLDER, dir_fd=self.end))

    def close(self) -> None:
        """Remove the folders that were made, if they are empty and `made` still names them; close all handles."""
        with suppress(OSError):
            while self.made:
                folder, name = self.made.pop()
                os.rmdir(name, dir_fd=folder)
        while self.handles:
            os.close(self.handles.pop())


def _refusal(error: OSError) -> FileRefused:
    """Say what the system said, without a path of the host."""
    return FileRefused(FileCode.HOST_FAILED.note(why=os.strerror(error.errno or 0)))
