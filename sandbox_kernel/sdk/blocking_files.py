"""Files of a sandbox without `await`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, overload

from ..core.codes import EndCode
from ..core.errors import SandboxClosed
from .blocking_commands import Caller
from .entries import Entries, EntryInfo, FileInfo, FileList, FilesystemEvent, Watching
from .files import AsyncFiles, Data
from .paths import Name


class WatchHandle:
    """A folder that is watched until `stop`: it is looked at when somebody asks."""

    def __init__(self, call: Caller, watching: Watching) -> None:
        self._call = call
        self._watching: Watching | None = watching

    def get_new_events(self, request_timeout: float | None = None) -> list[FilesystemEvent]:
        """Return what has changed since the last look; what came and went in between is not seen.

        Raises `SandboxClosed` after `stop`.
        """
        if self._watching is None:
            raise SandboxClosed(EndCode.SANDBOX_CLOSED, "the folder is not watched any more")
        return self._call(self._watching.look())

    def stop(self, request_timeout: float | None = None) -> None:
        """Watch it no more."""
        self._watching = None


class Files:
    """The files of a blocking sandbox; see `AsyncFiles`."""

    def __init__(self, inner: AsyncFiles, call: Caller) -> None:
        self._inner = inner
        self._call = call

    def write(self, path: Name, data: Data, **service: Any) -> FileInfo:
        """Write a file as a whole, with the folders above it. A `str` is its text; a `Path` is a file to copy."""
        return self._call(self._inner.write(path, data, **service))

    def write_files(self, files: Sequence[Mapping[str, Any]], **service: Any) -> FileList:
        """Write several files, one after another: `[{"path": "a.txt", "data": "text"}, ...]`."""
        return self._call(self._inner.write_files(files, **service))

    @overload
    def read(self, path: Name, format: Literal["text"] = "text", **service: Any) -> str: ...
    @overload
    def read(self, path: Name, format: Literal["bytes"], **service: Any) -> bytes: ...
    @overload
    def read(self, path: Name, format: Literal["stream"], **service: Any) -> Iterator[bytes]: ...
    def read(
        self,
        path: Name,
        format: Literal["text", "bytes", "stream"] = "text",  # noqa: A002 (the name people know)
        **service: Any,
    ) -> bytes | str | Iterator[bytes]:
        """Return a file: its text (UTF-8), its bytes, or its pieces of at most 1 MiB.

        What is no text is refused as such: `read(path, "bytes")`.
        """
        found: Any = self._call(self._inner.read(path, format, **service))
        return self._pieces(found) if format == "stream" else found

    def read_part(self, path: Name, offset: int, size: int) -> tuple[bytes, int]:
        """Return up to `size` bytes of a file from `offset` on, and the size of the whole file."""
        return self._call(self._inner.read_part(path, offset, size))

    @overload
    def list(self, path: Name = "", depth: None = None, **service: Any) -> FileList: ...
    @overload
    def list(self, path: Name = "", *, depth: int, **service: Any) -> Entries: ...
    @overload
    def list(self, path: Name, depth: int, **service: Any) -> Entries: ...
    def list(self, path: Name = "", depth: int | None = None, **service: Any) -> FileList | Entries:
        """Return what lies in a folder; see `AsyncFolders.list`."""
        if depth is None:
            files: FileList = self._call(self._inner.list(path, **service))
            return files
        entries: Entries = self._call(self._inner.list(path, depth, **service))
        return entries

    def exists(self, path: Name, **service: Any) -> bool:
        """Return whether there is a regular file, or a folder, of that name."""
        return self._call(self._inner.exists(path, **service))

    def get_info(self, path: Name, **service: Any) -> EntryInfo:
        """Return what a file, a folder or a link is, as the sandbox says. Raises `FileNotThere` for nothing."""
        return self._call(self._inner.get_info(path, **service))

    def rename(self, old_path: Name, new_path: Name, **service: Any) -> EntryInfo:
        """Move a file or a folder, with the folders above the new place; a file there is replaced."""
        return self._call(self._inner.rename(old_path, new_path, **service))

    def remove(self, path: Name, *, recursive: bool = False, **service: Any) -> None:
        """Remove a file or an empty folder; with `recursive`, a folder with all that is in it."""
        self._call(self._inner.remove(path, recursive=recursive, **service))

    def make_dir(self, path: Name, **service: Any) -> bool:
        """Make a folder and those above it; return whether it was not there already."""
        return self._call(self._inner.make_dir(path, **service))

    def watch_dir(
        self, path: Name, *, recursive: bool = False, include_entry: bool = False, **service: Any
    ) -> WatchHandle:
        """Look at a folder now; what changes is fetched by `get_new_events` of what is returned."""
        watching = self._inner.watching(path, recursive=recursive, include_entry=include_entry, service=service)
        return WatchHandle(self._call, self._call(watching))

    def make_folder(self, path: Name) -> None:
        """Make a folder and those above it; that it is there already is fine."""
        self._call(self._inner.make_folder(path))

    def upload(self, local: str | os.PathLike[str], path: Name | None = None) -> FileList:
        """Copy a file of this machine, or a folder with all its regular files."""
        return self._call(self._inner.upload(local, path))

    def download(self, path: Name, local: str | os.PathLike[str] | None = None) -> Path:
        """Copy a file to this machine: under `local`, into it if that is a folder, else to the current folder."""
        return self._call(self._inner.download(path, local))

    def _pieces(self, pieces: AsyncIterator[bytes]) -> Iterator[bytes]:
        while (piece := self._call(_next(pieces))) is not None:
            yield piece


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)
