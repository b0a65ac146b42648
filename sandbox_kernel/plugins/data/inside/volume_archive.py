"""Runs inside a sandbox: a volume as a tar stream, out of it and into it, in pieces that lie in a file of scratch.

Standard library and Python 3.9 only. A thread walks the volume, or fills it; the kernel's cells move one piece each.
"""

import errno
import os
import tarfile
import threading
from collections.abc import Callable, Iterator
from typing import IO

PIECE = "/mnt/data/piece"
READ_SIZE = 1 << 20
MAX_NAME = 4000
"""Bytes of a path in a volume: the system takes 4095, with where the volume is."""
LEFT_OUT = {errno.EACCES, errno.EPERM, errno.ENAMETOOLONG}
"""Of the errors at one name: those that a cell can cause, and that must not keep the rest from an archive."""


class Archive:
    """One archive, written or read by a thread that has the other end of a pipe."""

    def __init__(self, work: Callable[["Archive", int], None], *, writes: bool) -> None:
        self.skipped = 0
        self.error: str | None = None
        read, write = os.pipe()
        mine, its = (read, write) if writes else (write, read)
        self.end: IO[bytes] = os.fdopen(mine, "rb" if writes else "wb", buffering=0)
        self._work = work
        self._thread = threading.Thread(target=self._run, args=(its,), daemon=True)
        self._thread.start()

    def _run(self, fd: int) -> None:
        try:
            self._work(self, fd)
        except BaseException as error:  # the host is told
            self.error = type(error).__name__ + ": " + str(error)[:200]

    def take(self, size: int) -> int:
        """Put the next bytes of the archive into the piece, and return how many."""
        count = 0
        with open(PIECE, "wb") as file:
            while count < size and (data := self.end.read(min(READ_SIZE, size - count))):
                file.write(data)
                count += len(data)
        if count < size:
            self._thread.join()
        return count

    def give(self) -> None:
        """Pass the piece on to what fills the volume."""
        try:
            with open(PIECE, "rb") as file:
                while data := file.read(READ_SIZE):
                    view = memoryview(data)
                    while view:
                        view = view[self.end.write(view) :]
        except BrokenPipeError:
            self._thread.join()

    def finish(self) -> None:
        """Wait until the volume is filled."""
        self.end.close()
        self._thread.join()
        os.sync()


def export(folder: str) -> Archive:
    """Begin to write what is in a folder. What cannot be read is counted."""

    def work(archive: Archive, fd: int) -> None:
        with os.fdopen(fd, "wb") as pipe, tarfile.open(fileobj=pipe, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for path in entries(folder, archive):
                try:
                    add(tar, path, os.path.relpath(path, folder))
                except OSError as error:
                    if error.errno not in LEFT_OUT:
                        raise
                    skip(archive)

    return Archive(work, writes=True)


def entries(folder: str, archive: Archive) -> Iterator[str]:
    """Yield the path of all that is in a folder, however deep: `os.walk` recurses before Python 3.12."""
    waiting = [folder]
    while waiting:
        path = waiting.pop()
        try:
            found = sorted(os.scandir(path), key=lambda one: one.name)
        except OSError:
            skip(archive)
            continue
        yield from (one.path for one in found)
        waiting.extend(one.path for one in reversed(found) if one.is_dir(follow_symlinks=False))


def add(tar: tarfile.TarFile, path: str, name: str) -> None:
    """Write one entry, and remember its file only for its other names, which are links to a name that is there."""
    if len(os.fsencode(name)) > MAX_NAME:
        raise OSError(errno.ENAMETOOLONG, "it is too long for a volume of another name")
    status = os.lstat(path)
    links = False
    try:
        tar.add(path, name, False)
        links = status.st_nlink > 1
    finally:
        if not links:
            tar.inodes.pop((status.st_ino, status.st_dev), None)  # type: ignore[attr-defined]
        tar.members.clear()  # type: ignore[attr-defined]


def skip(archive: Archive) -> None:
    """Count what is left out."""
    archive.skipped += 1


def fill(folder: str) -> Archive:
    """Begin to unpack an archive into a folder. What leads out of it is an error."""

    def work(archive: Archive, fd: int) -> None:
        with os.fdopen(fd, "rb") as pipe, tarfile.open(fileobj=pipe, mode="r|*") as tar:
            if hasattr(tarfile, "tar_filter"):
                tar.extractall(folder, forgotten(tar), filter="tar")
            else:
                tar.extractall(folder, forgotten(tar))  # noqa: S202 (in a sandbox, and nothing else is in it)
            while pipe.read(READ_SIZE):
                pass

    return Archive(work, writes=False)


def forgotten(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the entries of an archive that is read as a stream, each once: there is no memory for all of them."""
    while (member := tar.next()) is not None:
        tar.members[:] = [member]  # type: ignore[attr-defined]
        yield member
