"""The files of a sandbox as E2B's SDK has them.

Paths are whole, below /home/user; a list has one level of a folder; what is not there or not empty can be removed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

from ...core.codes import UsageCode
from ...core.errors import ConfigurationError, FileNotThere
from ...sdk.blocking import Files
from ...sdk.files import AsyncFiles
from ...sdk.folder_entries import EntryInfo, FileInfo
from ...sdk.sandbox_paths import Name

HOME = "/home/user"
OWNER = "user"
"""Whom E2B's entries belong to."""
Info = TypeVar("Info", bound=FileInfo)


class Stream(Iterator[bytes]):
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

    @classmethod
    def over(cls, files: AsyncFiles) -> Self:
        return cls(files._place, files._limits)  # noqa: SLF001 (of its own class)

    async def write(self, path: Any, data: Any = None, **service: Any) -> Any:
        """Write a file, or those of a list, which is E2B's older form of `write_files`."""
        if isinstance(path, list):
            return await self.write_files(path, **service)
        return _whole(await super().write(path, data, **service))

    async def write_files(self, files: Sequence[Mapping[str, Any]], **service: Any) -> Any:
        return [await self.write(one["path"], one["data"], **service) for one in _checked(files)]

    async def read(self, path: Name, format: Any = "text", **service: Any) -> Any:  # noqa: A002
        """Return a file; a stream is refused at once if there is no such file."""
        found = await super().read(path, format, **service)
        return await AsyncStream.of(found) if format == "stream" else found

    async def list(self, path: Name = "", depth: int | None = 1, **service: Any) -> Any:
        """Return what lies in a folder, `depth` levels deep: files, folders and links."""
        return [_whole(entry) for entry in await super().list(path, _depth(depth), **service)]

    async def get_info(self, path: Name, **service: Any) -> EntryInfo:
        return _whole(await super().get_info(path, **service))

    async def rename(self, old_path: Name, new_path: Name, **service: Any) -> EntryInfo:
        return _whole(await super().rename(old_path, new_path, **service))

    async def remove(self, path: Name, *, recursive: bool = True, **service: Any) -> None:
        """Remove a file, or a folder with all that is in it; nothing of that name is fine."""
        try:
            await super().remove(path, recursive=recursive, **service)
        except FileNotThere:
            return


class Filesystem(Files):
    """See `AsyncFilesystem`."""

    @classmethod
    def over(cls, files: Files) -> Self:
        return cls(files._inner, files._call)  # noqa: SLF001 (of its own class)

    def write(self, path: Any, data: Any = None, **service: Any) -> Any:
        """Write a file, or those of a list, which is E2B's older form of `write_files`."""
        if isinstance(path, list):
            return self.write_files(path, **service)
        return _whole(super().write(path, data, **service))

    def write_files(self, files: Sequence[Mapping[str, Any]], **service: Any) -> Any:
        return [self.write(one["path"], one["data"], **service) for one in _checked(files)]

    def read(self, path: Name, format: Any = "text", **service: Any) -> Any:  # noqa: A002
        """Return a file; a stream is refused at once if there is no such file."""
        found = super().read(path, format, **service)
        return Stream(found) if format == "stream" else found

    def list(self, path: Name = "", depth: int | None = 1, **service: Any) -> Any:
        """Return what lies in a folder, `depth` levels deep: files, folders and links."""
        return [_whole(entry) for entry in super().list(path, _depth(depth), **service)]

    def get_info(self, path: Name, **service: Any) -> EntryInfo:
        return _whole(super().get_info(path, **service))

    def rename(self, old_path: Name, new_path: Name, **service: Any) -> EntryInfo:
        return _whole(super().rename(old_path, new_path, **service))

    def remove(self, path: Name, *, recursive: bool = True, **service: Any) -> None:
        """Remove a file, or a folder with all that is in it; nothing of that name is fine."""
        try:
            super().remove(path, recursive=recursive, **service)
        except FileNotThere:
            return


def _whole(info: Info) -> Info:
    owner: dict[str, Any] = {"owner": OWNER, "group": OWNER} if isinstance(info, EntryInfo) else {}
    return replace(info, path=f"{HOME}/{info.path}", **owner)


def _depth(depth: int | None) -> int:
    if depth is not None and (type(depth) is not int or depth < 1):
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, "depth should be at least 1", setting="depth")
    return depth or 1


def _checked(files: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    if not all(isinstance(one, Mapping) and one.keys() == {"path", "data"} for one in files):
        raise ConfigurationError(
            UsageCode.WRONG_ARGUMENT, "each file is a mapping with a path and data", setting="files"
        )
    return files
