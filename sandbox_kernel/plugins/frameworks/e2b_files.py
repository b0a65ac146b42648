"""The files of a sandbox as E2B's SDK has them.

Paths are whole, below /home/user; a list has one level of a folder; what is not there or not empty can be removed.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from types import TracebackType
from typing import Any, Self, TypeVar

from ...core.codes import UsageCode
from ...core.errors import ConfigurationError, FileNotThere
from ...sdk import blocking_base
from ...sdk.blocking import Files
from ...sdk.files import AsyncFiles
from ...sdk.folder_entries import EntryInfo, FileInfo
from ...sdk.sandbox_paths import Name
from .e2b_arguments import hosted, own, waited

HOME = "/home/user"
OWNER = "user"
"""Whom E2B's entries belong to."""
Info = TypeVar("Info", bound=FileInfo)


class FileStream(Iterator[bytes]):
    """The pieces of a file, which can be used in `with`."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._next = next(pieces, None)  # which finds out whether there is such a file

    def __next__(self) -> bytes:
        piece = self._next
        if piece is None:
            raise StopIteration
        self._next = next(self._pieces, None)
        return piece

    def close(self) -> None:
        """Read no more of it. Idempotent."""
        self._next, self._pieces = None, iter(())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class AsyncStream(AsyncIterator[bytes]):
    """The pieces of a file, which can be used in `async with`."""

    def __init__(self, pieces: AsyncIterator[bytes], first: bytes | None) -> None:
        self._pieces = pieces
        self._next = first

    @classmethod
    async def of(cls, pieces: AsyncIterator[bytes]) -> Self:
        return cls(pieces, await anext(pieces, None))

    async def __anext__(self) -> bytes:
        piece = self._next
        if piece is None:
            raise StopAsyncIteration
        self._next = await anext(self._pieces, None)
        return piece

    async def aclose(self) -> None:
        """Read no more of it. Idempotent."""
        self._next = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


class AsyncFilesystem(AsyncFiles):
    """See `sandbox_kernel.sdk.files.AsyncFiles`; what differs is told in this module's docstring."""

    write_files = hosted(AsyncFiles.write_files, "files", "user")
    exists = hosted(AsyncFiles.exists, "path", "user")
    make_dir = hosted(AsyncFiles.make_dir, "path", "user")
    watch_dir = hosted(AsyncFiles.watch_dir, "path", "on_event", "on_exit")

    async def write(self, path: Any, data: Any = None, **service: Any) -> Any:
        """Write a file, or those of a list, which is E2B's older form of `write_files`."""
        if isinstance(path, list):
            return await self.write_files(path, **service)
        return _whole(await super().write(path, data, **own(service)))

    async def read(self, path: Name, format: Any = "text", **service: Any) -> Any:  # noqa: A002
        """Return a file; a stream is refused at once if there is no such file."""
        found = await super().read(path, format, **own(service))
        return await AsyncStream.of(found) if format == "stream" else found

    async def list(self, path: Name = "", depth: int | None = 1, **service: Any) -> Any:
        """Return what lies in a folder, `depth` levels deep: files, folders and links."""
        return [_whole(entry) for entry in await super().list(path, _depth(depth), **own(service))]

    async def get_info(self, path: Name, **service: Any) -> EntryInfo:
        return _whole(await super().get_info(path, **own(service)))

    async def rename(self, old_path: Name, new_path: Name, **service: Any) -> EntryInfo:
        return _whole(await super().rename(old_path, new_path, **own(service)))

    async def remove(self, path: Name, *, recursive: bool = True, **service: Any) -> None:
        """Remove a file, or a folder with all that is in it; nothing of that name is fine."""
        try:
            await super().remove(path, recursive=recursive, **own(service))
        except FileNotThere:
            return


class WatchHandle(blocking_base.WatchHandle):
    """See `sandbox_kernel.sdk.blocking_base.WatchHandle`."""

    get_new_events = hosted(blocking_base.WatchHandle.get_new_events, "request_timeout")
    stop = hosted(blocking_base.WatchHandle.stop, "request_timeout")


class Filesystem(Files):
    """See `AsyncFilesystem`."""

    _handle = WatchHandle
    _call: Any
    _inner: Any
    watch_dir: Any = hosted(Files.watch_dir, "path")
    write_files = waited(AsyncFilesystem.write_files)
    list: Any = waited(AsyncFilesystem.list)
    exists = waited(AsyncFilesystem.exists)
    get_info = waited(AsyncFilesystem.get_info)
    make_dir = waited(AsyncFilesystem.make_dir)
    rename = waited(AsyncFilesystem.rename)
    remove = waited(AsyncFilesystem.remove)

    def write(self, path: Any, data: Any = None, **service: Any) -> Any:
        """Write a file, or those of a list, which is E2B's older form of `write_files`."""
        if isinstance(path, builtins.list):
            return self.write_files(path, **service)
        return _whole(super().write(path, data, **own(service)))

    def read(self, path: Name, format: Any = "text", **service: Any) -> Any:  # noqa: A002
        """Return a file; a stream is refused at once if there is no such file."""
        found = self._call(self._inner.read, path, format, **service)
        return FileStream(found) if format == "stream" else found


def _whole(info: Info) -> Info:
    owner: dict[str, Any] = {"owner": OWNER, "group": OWNER} if isinstance(info, EntryInfo) else {}
    return replace(info, path=str(PurePosixPath(HOME, info.path)), **owner)


def _depth(depth: int | None) -> int:
    if depth is not None and (type(depth) is not int or depth < 1):
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, "depth should be at least 1", setting="depth")
    return depth or 1
