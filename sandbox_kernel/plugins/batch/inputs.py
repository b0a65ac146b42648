"""Files of the host: what goes in before the first cell, and what was copied out, with sizes and hashes.

Of what is copied out, cells chose the names; it is opened through no link.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from ...core.errors import ConfigurationError, FileRefused
from ...core.model import format_bytes
from ...files.file_rules import CHUNK_BYTES, check_name, check_size, printable
from ...files.host_paths import Folder, Held, is_folder, open_folder, open_parent
from ...files.host_tree import FileLimits, HostFile, HostStamp, Source, UploadFolder
from .codes import BatchCode


@dataclass(frozen=True, slots=True)
class Input:
    """One file that goes in: its path in /mnt/data, and where it is read."""

    path: str
    folder: Held
    file: HostFile


@dataclass(slots=True)
class Inputs:
    """What the user named with `--input`, looked at before anything starts."""

    files: list[Input] = field(default_factory=list)
    refused: list[dict[str, str]] = field(default_factory=list)
    """Files in a folder that are left out: hidden ones, links, devices."""


def plan(names: Iterable[str], limits: FileLimits) -> Inputs:
    """Look at files and folders. Raises `ConfigurationError` for one that was named and cannot go in.

    A file keeps its name. A folder comes with its own name, as with `cp -r`; `FOLDER/.` is its content. The user typed
    these names, but what has them may come from elsewhere: no link is followed, and the folders stay open.
    """
    found = Inputs()
    for name in names:
        path = Path(name)
        try:
            if is_folder(name):
                prefix = "" if name.rstrip("/").split("/")[-1] in (".", "..") else f"{path.name}/"
                _folder(open_folder(name), prefix, found, limits)
            else:
                check_name(path.name)
                folder, last = open_parent(name, follow=True)
                stamp = HostStamp.of(folder.require_readable(last))
                check_size(stamp.size, limits.file_bytes)
                found.files.append(Input(path.name, Held(folder, "--input"), HostFile(last, stamp)))
        except OSError as error:
            raise ConfigurationError(
                BatchCode.INPUT_REFUSED, f"the input {name} cannot be read: {error.strerror}", setting="--input"
            ) from None
        except FileRefused as error:
            raise ConfigurationError(
                BatchCode.INPUT_REFUSED,
                f"the input {name} cannot go in: {error.message}",
                limit=error.limit,
                value=error.value,
                setting=error.setting,
            ) from None
    paths = [file.path for file in found.files]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise ConfigurationError(BatchCode.INPUT_REFUSED, f"two inputs have the same name: {twice}", setting="--input")
    total = sum(file.file.stamp.size for file in found.files)
    if len(paths) > limits.files or total > limits.total_bytes:
        raise ConfigurationError(
            BatchCode.INPUT_REFUSED,
            "the inputs are too many, or too large together",
            limit=f"{limits.files} files, {format_bytes(limits.total_bytes)}",
            value=f"{len(paths)} files, {format_bytes(total)}",
            setting="folder_files or folder_limit",
        )
    return found


def _folder(opened: Folder, prefix: str, found: Inputs, limits: FileLimits) -> None:
    folder = UploadFolder(opened, limits)
    scan = folder.scan()
    found.files += [Input(prefix + file.path, folder.held, file) for file in scan.files]
    for path, reason in scan.refused:
        if reason.limit is not None:  # what was named would not be there as a whole
            raise reason
        found.refused.append({"path": printable(prefix + path), "reason": str(reason)})


class Reader:
    """A file that goes in, hashed as it is read; opened beneath its folder, through no link."""

    def __init__(self, item: Input, heard: Callable[[int], None] = lambda count: None) -> None:
        """`heard` is called with the number of bytes that were read so far."""
        self._heard = heard
        self._source = Source(item.folder, item.file)
        self._hash = hashlib.sha256()
        self._bytes = 0
        self.path = item.path

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Give the open file, as far as a copy needs it: something with `read`."""
        self._source.open()
        try:
            yield cast("BinaryIO", self)
        finally:
            self._source.close()

    def read(self, size: int = CHUNK_BYTES) -> bytes:
        """Return the next chunk, whatever size was asked for."""
        data = self._source.read()
        self._hash.update(data)
        self._bytes += len(data)
        self._heard(self._bytes)
        return data

    def row(self) -> dict[str, Any]:
        return {"path": self.path, "bytes": self._bytes, "sha256": self._hash.hexdigest()}


def produced(folder: Folder, paths: Iterable[str]) -> list[dict[str, Any]]:
    """Return path, size and hash of files that were copied out; one that is gone meanwhile is left out."""
    rows = []
    for path in sorted(paths):
        try:
            descriptor = folder.open_file(str(check_name(path)))
        except (OSError, FileRefused):
            continue
        with os.fdopen(descriptor, "rb") as file:
            digest = hashlib.file_digest(file, "sha256")
            rows.append({"path": path, "bytes": file.tell(), "sha256": digest.hexdigest()})
    return rows
