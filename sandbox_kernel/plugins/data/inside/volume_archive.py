"""Runs inside a sandbox: a volume as a tar stream, out of it and into it, in pieces that lie in a file of scratch.

Standard library and Python 3.9 only. A thread walks the volume, or fills it; the kernel's cells move one piece each.
"""

import os
import tarfile
import threading
from collections.abc import Callable
from typing import IO

PIECE = "/mnt/data/piece"
READ_SIZE = 1 << 20


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
            for path, folders, files in os.walk(folder, onerror=lambda _: skip(archive)):
                folders.sort()
                for name in sorted([*folders, *files]):
                    try:
                        tar.add(os.path.join(path, name), os.path.relpath(os.path.join(path, name), folder), False)
                    except (PermissionError, UnicodeError):
                        skip(archive)

    return Archive(work, writes=True)


def skip(archive: Archive) -> None:
    """Count what is left out."""
    archive.skipped += 1


def fill(folder: str) -> Archive:
    """Begin to unpack an archive into a folder. What leads out of it is an error."""

    def work(archive: Archive, fd: int) -> None:
        with os.fdopen(fd, "rb") as pipe, tarfile.open(fileobj=pipe, mode="r|*") as tar:
            if hasattr(tarfile, "tar_filter"):
                tar.extractall(folder, filter="tar")
            else:
                tar.extractall(folder)  # noqa: S202 (in a sandbox, and nothing else is in it)
            while pipe.read(READ_SIZE):
                pass

    return Archive(work, writes=False)
