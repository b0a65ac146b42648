"""Files of a sandbox for callers of the SDK: written, read, listed, removed, uploaded and downloaded.

Paths are relative to /mnt/data, where the cells run, or whole: all that cells may read can be read, and what they may
write can be written. What is no regular file (a device, a FIFO) is refused.

Public: plugins may import it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path, PurePath
from typing import IO, Any, Literal, NamedTuple, TypeVar, cast, overload

from ..core.codes import FileCode
from ..core.errors import FileNotThere, FileRefused, SandboxClosed, SandboxDied, wrong_argument
from ..core.events import FileTransferred
from ..files import scratch_files
from ..files.file_rules import (
    CHUNK_BYTES,
    FileLimits,
    check_downloaded_name,
    check_size,
    check_whole,
    printable,
    safe_name,
)
from ..files.host_paths import Folder, is_folder, open_file, open_folder, open_parent
from ..files.scratch_files import Ask, Stamp
from . import folder_entries
from .callbacks import Callback
from .file_copies import Hash, Progress, followed
from .folder_entries import (
    DEEPEST,
    AsyncWatchHandle,
    Entries,
    EntryInfo,
    FileInfo,
    FileList,
    FilesystemEvent,
    FileType,
    Watching,
)
from .instance import Instance
from .sandbox_paths import Name, about, folder_of, named, place

T = TypeVar("T")
Steps = AsyncGenerator[Progress | T, None]
"""A copy, step by step: how far it is, and its result as the last one."""
Data = bytes | bytearray | memoryview | str | os.PathLike[str] | IO[bytes]
"""Content, as bytes or as text; or where it comes from: a path of this machine (not a `str`), an open binary file."""


class OpenedFile(NamedTuple):
    """A file of the sandbox in one state; reading it later refuses another one."""

    size: int
    """Bytes."""
    state: str
    """Another text for each state of the file, as the sandbox says."""
    pieces: Callable[[int, int], AsyncGenerator[bytes, None]]
    """`pieces(begin, end)` reads the bytes from `begin` up to `end`."""


class AsyncFiles:
    """The files of one sandbox. Methods raise `FileRefused` with the reason; what fails leaves no part of a file."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._limits = FileLimits.of(instance.settings.limits)

    async def write(
        self,
        path: Name,
        data: Data,
        *,
        progress: Callback[Progress] | None = None,
        sha256: str | None = None,
    ) -> FileInfo:
        """Write a file as a whole, with the folders above it.

        Args:
            path: Where, relative to /mnt/data.
            data: Its text, bytes, a `Path` to copy, or an open file. A file is read piece by piece.
            progress: Called with a `Progress` as the file goes in. What it raises ends the copy.
            sha256: What the content must have; anything else is refused, and does not appear.

        Raises:
            FileRefused: The name, the size (`file_limit`) or the room does not allow it.
        """
        return await followed(self.writing(path, data, sha256), progress)

    async def writing(self, path: Name, data: Data, sha256: str | None) -> Steps[FileInfo]:
        """Do what `write` does, step by step; for callers in another thread."""
        name, wanted = place(path), Hash(sha256)
        if isinstance(data, os.PathLike):
            with open_local(data) as file:
                async with aclosing(self._write(name, file, wanted)) as steps:
                    async for step in steps:
                        yield step
                return
        if isinstance(data, str):
            data = data.encode()
        if not isinstance(data, (bytes, bytearray, memoryview)) and not hasattr(data, "read"):
            raise wrong_argument(
                "data", f"data must be bytes, text, a path or an open binary file, not {type(data).__name__}"
            )
        async with aclosing(self._write(name, data, wanted)) as steps:
            async for step in steps:
                yield step

    @overload
    async def read(self, path: Name, format: Literal["text"] = "text") -> str: ...
    @overload
    async def read(self, path: Name, format: Literal["bytes"]) -> bytes: ...
    @overload
    async def read(self, path: Name, format: Literal["stream"]) -> AsyncIterator[bytes]: ...
    async def read(
        self,
        path: Name,
        format: Literal["text", "bytes", "stream"] = "text",  # noqa: A002 (the name people know)
    ) -> bytes | str | AsyncIterator[bytes]:
        """Return a file: its text (UTF-8), its bytes, or its pieces of at most 1 MiB.

        What is no text is refused as such: `read(path, "bytes")`. As text or bytes a file may have 256 MiB, which are
        all in memory; a larger one is read as a stream, or copied with `download`.
        """
        if format not in {"bytes", "text", "stream"}:
            raise wrong_argument("format", f'format must be "bytes", "text" or "stream", not {format!r}')
        name = place(path)
        if format == "stream":
            return self._pieces(name)
        content = b"".join([piece async for piece in self._pieces(name, whole=True)])
        if format == "bytes":
            return content
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise about(str(path), FileRefused(FileCode.NOT_TEXT)) from None

    async def read_part(self, path: Name, offset: int, size: int) -> tuple[bytes, int]:
        """Read a piece of a file.

        Args:
            path: Which file, relative to /mnt/data.
            offset: Where to begin, in bytes.
            size: How many bytes at most.

        Returns:
            The bytes, and the size of the whole file.

        Raises:
            FileRefused: It is no regular file, changes meanwhile, or more than 256 MiB are asked for of it.
        """
        name = place(path)
        return await named(name, self._part(name, offset, size))

    async def opened(self, path: Name) -> OpenedFile:
        """Return the size of a file, and how to read any part of it in pieces; for servers."""
        name = place(path)
        ask = await self._ask(fresh=False)
        stamp, _ = await named(name, scratch_files.chunk(ask, name, 0, 0, self._limits.file_bytes))
        held: bytes | None = None
        if stamp.is_made_anew:  # another read would find another state
            stamp, held = await named(name, scratch_files.chunk(ask, name, 0, CHUNK_BYTES, self._limits.file_bytes))

        async def pieces(begin: int, end: int) -> AsyncGenerator[bytes, None]:
            done, digest = 0, hashlib.sha256()
            limit = self._limits.file_bytes
            if held is not None:
                yield held[begin:end]
                return
            rest = scratch_files.stream(ask, name, limit, stamp, begin=begin, end=end)
            try:
                async with aclosing(rest) as found:
                    async for piece in found:
                        done += len(piece)
                        await asyncio.to_thread(digest.update, piece)
                        yield piece
            except FileRefused as error:
                raise about(name, error) from None
            if begin == 0:  # the others go on with a read that stands in the audit
                self._record("read", name, done, digest.hexdigest())

        return OpenedFile(stamp.size, hashlib.sha256(repr(stamp).encode()).hexdigest()[:32], pieces)

    async def upload(
        self,
        local: str | os.PathLike[str],
        path: Name | None = None,
        *,
        progress: Callback[Progress] | None = None,
        sha256: str | None = None,
        resume: bool = False,
    ) -> FileList:
        """Copy a file of this machine, or a folder with all its regular files. Links in a folder are left out.

        Args:
            local: The file or folder here.
            path: Its path in the sandbox. None is its own name.
            progress: Called with a `Progress` as each file goes in. What it raises ends the copy.
            sha256: What a file must have; anything else is refused, and does not appear. Not for a folder.
            resume: Go on with what a call with `resume` has left that lost its sandbox or its process. Of a file that
                has changed here meanwhile, all goes in again.

        Raises:
            FileRefused: A file is refused, or there are more than `folder_files`.
        """
        return await followed(self.uploading(local, path, sha256, resume=resume), progress)

    async def uploading(
        self, local: str | os.PathLike[str], path: Name | None, sha256: str | None, *, resume: bool
    ) -> Steps[FileList]:
        """Do what `upload` does, step by step; for callers in another thread."""
        source, wanted = Path(local), Hash(sha256)
        name = place(path if path is not None else Path.cwd().joinpath(source).name)
        done = FileList()
        if not await asyncio.to_thread(_local, is_folder, source):
            with open_local(source) as file:
                async with aclosing(self._write(name, file, wanted, resume=resume)) as steps:
                    async for step in steps:
                        if isinstance(step, Progress):
                            yield step
                        else:
                            done.append(step)
            yield done
            return
        if sha256 is not None:
            raise wrong_argument("sha256", "sha256 is that of a file, and this is a folder")
        with await asyncio.to_thread(_local, open_folder, source) as folder:
            for one in await asyncio.to_thread(regular_files, folder, self._limits.files):
                try:
                    descriptor = await asyncio.to_thread(folder.open_file, one)
                except FileRefused as error:
                    raise about(one, error) from None
                with os.fdopen(descriptor, "rb") as file:
                    async with aclosing(
                        self._write(safe_name(f"{name}/{one}"), file, Hash(None), resume=resume)
                    ) as steps:
                        async for step in steps:
                            if isinstance(step, Progress):
                                yield step
                            else:
                                done.append(step)
        yield done

    async def download(
        self,
        path: Name,
        local: str | os.PathLike[str] | None = None,
        *,
        progress: Callback[Progress] | None = None,
        sha256: str | None = None,
        resume: bool = False,
    ) -> Path:
        """Copy a file to this machine. A file or a link of that name is replaced.

        Args:
            path: The file in the sandbox.
            local: The file, or the folder it goes into. None is the current folder.
            progress: Called with a `Progress` as the file comes out. What it raises ends the copy.
            sha256: What the file must have; anything else is refused, and does not appear.
            resume: Leave what has come in a hidden file beside `local` if the sandbox or this process is lost, and go
                on with that of an earlier call. Of a file that has changed in the sandbox meanwhile, all comes again.

        Returns:
            Where it is now.

        Raises:
            FileRefused: It is too large, no regular file, or has a name that tools act upon and that `local` does
                not say.
        """
        return await followed(self.downloading(path, local, sha256, resume=resume), progress)

    async def downloading(
        self, path: Name, local: str | os.PathLike[str] | None, sha256: str | None, *, resume: bool
    ) -> Steps[Path]:
        """Do what `download` does, step by step; for callers in another thread."""
        name, wanted = place(path), Hash(sha256)
        target = Path(local) if local is not None else Path()
        if await asyncio.to_thread(_local, _receives, target):
            try:
                target /= check_downloaded_name(PurePath(name).name)
            except FileRefused as error:
                raise error.about(f"{name!r}: {error.message}; say under which name it is to be written") from None
        ask = await self._ask(fresh=False)
        stamp, _ = await named(name, scratch_files.chunk(ask, name, 0, 0, self._limits.file_bytes))
        folder, last = await asyncio.to_thread(_local, open_parent, target)
        # Another one for each sandbox, file and state of it.
        state = hashlib.sha256(f"{self._instance.session.id}\0{name}\0{last}\0{stamp}".encode()).hexdigest()
        part = f".sandbox-{state[:16]}.part" if resume else None
        with folder, await asyncio.to_thread(folder.create, last, part) as file:
            if file.size > stamp.size:
                await asyncio.to_thread(file.start_again)
            done = file.size
            await wanted.add_beginning(cast("IO[bytes]", file), done)
            try:
                rest = scratch_files.stream(ask, name, self._limits.file_bytes, stamp, begin=done)
                async with aclosing(rest) as pieces:
                    async for piece in pieces:
                        await asyncio.to_thread(file.write, piece)
                        await wanted.add(piece)
                        done += len(piece)
                        yield Progress(name, done, stamp.size)
                found = wanted.check()
            except FileRefused as error:
                raise about(name, error) from None
            except (SandboxDied, SandboxClosed):
                if resume:
                    file.keep_part()
                raise
            await asyncio.to_thread(partial(file.commit, links=True, lasting=False))
        self._record("read", name, done, found)
        yield Progress(name, done, stamp.size, found)
        yield target

    async def write_files(self, files: Sequence[Mapping[str, Any]]) -> FileList:
        """Write several files, one after another: `[{"path": "a.txt", "data": "text"}, ...]`."""
        if not all(isinstance(file, Mapping) and file.keys() == {"path", "data"} for file in files):
            raise wrong_argument("files", "each file is a mapping with a path and data")
        return FileList([await self.write(file["path"], file["data"]) for file in files])

    async def _ask(self, *, fresh: bool) -> Ask:
        """Return the way to ask the agent; with `fresh`, a sandbox that is gone is replaced by a new one."""
        await self._instance.ready(fresh=fresh)
        return self._instance.session.ask

    def _record(self, op: str, path: str, size: int, sha256: str | None) -> None:
        """Write down that a file went in or came out."""
        event = FileTransferred(op=op, path=printable(path), bytes=size, sha256=sha256)
        self._instance.session.emit(event)

    async def _write(
        self, name: str, data: bytes | bytearray | memoryview | IO[bytes], wanted: Hash, *, resume: bool = False
    ) -> Steps[FileInfo]:
        try:
            async with aclosing(self._copy_in(name, data, wanted, resume=resume)) as steps:
                async for step in steps:
                    yield step
        except FileRefused as error:
            raise about(name, error) from None

    async def _copy_in(
        self, name: str, data: bytes | bytearray | memoryview | IO[bytes], wanted: Hash, *, resume: bool
    ) -> Steps[FileInfo]:
        whole = memoryview(data).cast("B") if isinstance(data, (bytes, bytearray, memoryview)) else None
        size = len(whole) if whole is not None else _size(data)
        read = begin = 0
        digest = ""

        async def chunks() -> AsyncIterator[bytes]:
            nonlocal read, digest
            while True:
                piece: Any
                if whole is not None:
                    piece = bytes(whole[read : read + CHUNK_BYTES])
                else:
                    piece = await asyncio.to_thread(data.read, CHUNK_BYTES)  # type: ignore[union-attr]
                    if isinstance(piece, str):  # a file opened as text, or StringIO
                        piece = piece.encode()
                if not piece:
                    digest = wanted.check()  # before the last piece is sent, with which the file appears
                    return
                read += len(piece)
                await wanted.add(piece)
                check_size(read, self._limits.file_bytes)
                yield piece

        check_size(size or 0, self._limits.file_bytes)
        ask, token = await self._ask(fresh=True), ""
        if resume and whole is None and size:
            file = cast("IO[bytes]", data)
            status = os.fstat(file.fileno())
            # Named by the file's path there, and by the state of its source.
            state = f"{name}\0{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"
            token = hashlib.sha256(state.encode()).hexdigest()[:32]
            begin = await scratch_files.begun(ask, name, token)
            if begin > size:
                await scratch_files.discard(ask, name, token)
                begin = 0
            await wanted.add_beginning(file, begin)
            read = begin
        stamp: Stamp | None = None
        async with aclosing(scratch_files.sending(ask, name, chunks(), size, token=token, begin=begin)) as steps:
            async for done, stamp in steps:
                if stamp is None:
                    yield Progress(name, done, size)
        assert stamp is not None  # noqa: S101 (the last step has it)
        if not name.startswith("/"):  # files elsewhere are never copied out
            self._instance.session.folders.arrived(name, stamp)
        self._record("write", name, read, digest)
        yield Progress(name, read, read, digest)
        yield FileInfo(name, read)

    async def _part(self, name: str, offset: int, size: int) -> tuple[bytes, int]:
        if type(offset) is not int or type(size) is not int or offset < 0 or size < 0:
            raise wrong_argument("offset or size", "offset and size are numbers of bytes, not below 0")
        ask = await self._ask(fresh=False)
        stamp, data = await scratch_files.chunk(ask, name, offset, min(size, CHUNK_BYTES), self._limits.file_bytes)
        pieces, end = [data], min(offset + size, stamp.size)
        check_whole(end - offset)
        while data and (done := offset + sum(map(len, pieces))) < end:
            seen, data = await scratch_files.chunk(
                ask, name, done, min(end - done, CHUNK_BYTES), self._limits.file_bytes
            )
            if seen != stamp:
                raise FileRefused(FileCode.CHANGED.note(done="copied"))
            pieces.append(data)
        if offset == 0:  # the others go on with a read that stands in the audit
            self._record("read", name, stamp.size, None)
        return b"".join(pieces), stamp.size

    async def _pieces(self, name: str, *, whole: bool = False) -> AsyncGenerator[bytes, None]:
        ask = await self._ask(fresh=False)
        done, digest = 0, hashlib.sha256()
        try:
            async with aclosing(scratch_files.stream(ask, name, self._limits.file_bytes)) as pieces:
                async for piece in pieces:
                    done += len(piece)
                    if whole:
                        check_whole(done)
                    await asyncio.to_thread(digest.update, piece)
                    yield piece
        except FileRefused as error:
            raise about(name, error) from None
        self._record("read", name, done, digest.hexdigest())

    @overload
    async def list(self, path: Name = "", depth: None = None) -> FileList: ...
    @overload
    async def list(self, path: Name = "", *, depth: int) -> Entries: ...
    @overload
    async def list(self, path: Name, depth: int) -> Entries: ...
    async def list(self, path: Name = "", depth: int | None = None) -> FileList | Entries:
        """Return what lies in a folder, in the order of the paths.

        Without a `depth`, the regular files in it and in all folders below it; with one, files, folders and links,
        so many levels deep. A name that is no text, or has characters that nobody sees, is there by one that stands
        for it (`_m~1a2b3c4d.csv`), which reads, writes and moves the same file. `complete` says whether these are all.
        """
        folder, ask = folder_of(path), await self._ask(fresh=False)
        if depth is not None:
            return await named(folder, folder_entries.entries(ask, folder, folder_entries.depth_of(depth)))
        under = f"{folder.rstrip('/')}/" if folder else ""
        elsewhere = folder if folder.startswith("/") else ""
        found, complete = await named(folder, scratch_files.scan(ask, elsewhere=elsewhere))
        files = FileList(FileInfo(file.path, file.stamp.size) for file in found if file.path.startswith(under))
        files.complete = complete
        return files

    async def exists(self, path: Name) -> bool:
        """Return whether there is a regular file, or a folder, of that name."""
        reply, _ = await (await self._ask(fresh=False))("file.read", path=place(path), offset=0, size=0)
        return reply.get("ok") is True or reply.get("error") == "is_folder"

    async def get_info(self, path: Name) -> EntryInfo:
        """Return what a file, a folder or a link is, as the sandbox says. Raises `FileNotThere` for nothing."""
        name = place(path)
        return await named(name, folder_entries.stat(await self._ask(fresh=False), name))

    async def rename(self, old_path: Name, new_path: Name) -> EntryInfo:
        """Move a file or a folder, with the folders above the new place; a file there is replaced.

        Between two file systems of the sandbox, such as /mnt/data and /tmp, only a file is moved.
        """
        name, to = place(old_path), place(new_path)
        ask = await self._ask(fresh=False)
        try:
            return await named(name, folder_entries.rename(ask, name, to))
        except FileRefused as error:
            if error.code is not FileCode.OTHER_FILE_SYSTEM or (await self.get_info(name)).type is not FileType.FILE:
                raise
        async with aclosing(scratch_files.stream(ask, name, self._limits.file_bytes)) as pieces:
            await named(name, scratch_files.send(ask, to, pieces, None))
        await self.remove(name)
        return await self.get_info(to)

    async def remove(self, path: Name, *, recursive: bool = False) -> None:
        """Remove a file or an empty folder; with `recursive`, a folder with all that is in it."""
        name = place(path)
        ask = await self._ask(fresh=False)
        await named(name, folder_entries.remove_all(ask, name) if recursive else scratch_files.remove(ask, name))

    async def make_folder(self, path: Name) -> None:
        """Make a folder and those above it; that it is there already is fine."""
        name = place(path)
        await named(name, scratch_files.make_folder(await self._ask(fresh=True), name))

    async def make_dir(self, path: Name) -> bool:
        """Make a folder and those above it; return whether it was not there already."""
        await self._ask(fresh=True)
        try:
            await self.get_info(path)
        except FileNotThere:
            await self.make_folder(path)
            return True
        await self.make_folder(path)  # refused if it is no folder
        return False

    async def watch_dir(
        self,
        path: Name,
        on_event: Callback[FilesystemEvent],
        on_exit: Callback[Exception | None] | None = None,
        *,
        timeout: float | None = 60,
        recursive: bool = False,
        include_entry: bool = False,
    ) -> AsyncWatchHandle:
        """Call `on_event` for what changes in a folder, until `stop`, or for `timeout` seconds (0: until its end).

        The folder is looked at four times a second; what comes and goes in between is not seen.
        """
        watching = await self.watching(path, recursive=recursive, include_entry=include_entry)
        return AsyncWatchHandle(watching, on_event, on_exit, timeout or None)

    async def watching(self, path: Name, *, recursive: bool, include_entry: bool) -> Watching:
        """Look at a folder for the first time; for handles."""
        folder, depth = folder_of(path), DEEPEST if recursive else 1
        watching = Watching(partial(self._ask, fresh=False), folder, depth=depth, entry=include_entry)
        await named(folder, watching.look())
        return watching


def _size(data: Any) -> int | None:
    """Return how much a file has from where it stands, None if it is none or does not say."""
    try:
        status = os.fstat(data.fileno())
        return max(0, status.st_size - data.tell()) if stat.S_ISREG(status.st_mode) and "b" in data.mode else None
    except (OSError, AttributeError, TypeError, ValueError):
        return None


def open_local(path: os.PathLike[str]) -> IO[bytes]:
    """Open a regular file of this machine; a FIFO would block for ever, and a device has no end."""
    return os.fdopen(_local(open_file, path), "rb")


def regular_files(folder: Folder, limit: int) -> list[str]:
    """Return the regular files of a folder of this machine, links left out. Raises `FileRefused` for too many."""
    found: list[str] = []
    for above, folders, names, handle in os.fwalk(".", dir_fd=folder.handle):
        folders.sort()
        for name in sorted(names):
            if stat.S_ISREG(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode):
                found.append(PurePath(above, name).as_posix())
            if len(found) > limit:
                error = FileRefused(FileCode.FOLDER_FILES, limit=str(limit), setting="folder_files")
                raise about(str(folder.path), error)
    return found


def _receives(path: Path) -> bool:
    """Return whether a path is a folder that files go into; a link to a file is what is replaced, and no folder."""
    try:
        return is_folder(path)
    except FileNotFoundError:
        return False
    except FileRefused:
        if path.is_symlink() and not path.is_dir():
            return False
        raise


def _local(do: Callable[[Any], T], path: os.PathLike[str]) -> T:
    """Do something with a path of this machine, and name it where it is refused.

    A path to elsewhere is the caller's own word, as one for `open` is: links among its parents are followed. In the
    working folder, which may be somebody else's, none is. What it names is no link.
    """
    local = Path(path)
    if local.is_absolute() and not local.is_relative_to(Path.cwd()):
        local = Path(os.path.realpath(local.parent), local.name)
    try:
        return do(local)
    except FileRefused as error:
        raise about(os.fspath(path), error) from None
