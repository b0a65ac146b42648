"""Copying files between the host's folders and scratch, by asking the agent for one chunk after another.

The agent is not believed: names are checked, a file is exactly as long as it was said to be, and everything that
grows has a limit. Nothing it answers reaches a report as it is.

Imports errors, model and files only. `Ask` is what a session offers: one request to the agent, in bounded time.
"""

from __future__ import annotations

import asyncio
import io
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple, TypeVar

from .errors import FileRefused, SandboxError
from .files import (
    CHUNK_BYTES,
    DownloadFolder,
    FileLimits,
    HostFile,
    HostStamp,
    UploadFolder,
    check_copied_name,
    check_name,
    check_size,
    printable,
)
from .model import format_bytes

T = TypeVar("T")
F = TypeVar("F", "HostFile", "ScratchFile")
Ask = Callable[..., Awaitable[tuple[dict[str, Any], bytes]]]
"""`await ask(op, data=b"", **fields)` returns the agent's reply and its data. Raises `SandboxError`."""

MAX_LISTED = 20_000
"""Entries of scratch that are looked at after a cell."""
MAX_OTHERS = 100
"""Things in scratch that are no regular files, of which a listing is believed."""
MAX_REPORTED = 50
"""Refusals that a report names; the rest is counted."""
FOLDER_SECONDS = 15.0
"""How long a folder of the host may take for one step; the walk through it is the longest."""
DISCARD_SECONDS = 2.0

_REASONS = {
    "missing": "there is no such file",
    "link": "it is a link, lies behind one, or is no regular file",
    "is_folder": "there is a folder of that name",
    "not_folder": "a part of its path is a file",
    "not_empty": "the folder is not empty",
    "denied": "the sandbox may not touch it",
    "bad_name": "scratch cannot hold a file of that name",
}
_KINDS = {
    "link": "it is a link",
    "fifo": "it is a FIFO",
    "socket": "it is a socket",
    "device": "it is a device",
    "too deep": "it lies too deep",
    "undecodable": "its name is not UTF-8",
    "unreadable": "the folder cannot be read",
}


class Stamp(NamedTuple):
    """What tells one state of a file in scratch from another, as far as the sandbox says."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def parse(cls, value: object) -> Stamp:
        """Check what came from the sandbox. Raises `FileRefused`."""
        if not isinstance(value, list) or len(value) != 4:
            raise FileRefused("the sandbox gave no proper description of it")
        if not all(type(number) is int and 0 <= number < 1 << 64 for number in value):
            raise FileRefused("the sandbox gave no proper description of it")
        return cls(*value)


class ScratchFile(NamedTuple):
    """A regular file of scratch."""

    path: str
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class Report:
    """What one synchronisation did. Every text is safe to print, and the whole is bounded."""

    copied: tuple[tuple[str, int], ...] = ()
    """Path and size in bytes."""
    refused: tuple[tuple[str, str], ...] = ()
    """Path and reason; the same refusal is not repeated in the next report."""
    more_refused: int = 0

    def __bool__(self) -> bool:
        return bool(self.copied or self.refused)


@dataclass(slots=True)
class Ledger:
    """What both sides are known to have, shared by the two directions so that no file goes round in a circle.

    `state()` is plain JSON, for a restarted host process that takes over the container.
    """

    sent: dict[str, HostStamp] = field(default_factory=dict)
    """Files of the upload folder that are inside, as they were then."""
    inside: dict[str, Stamp] = field(default_factory=dict)
    """Files of scratch that the host has, as they were then: uploaded, or downloaded."""
    written: dict[str, HostStamp] = field(default_factory=dict)
    """Files of the download folder as they were written: not to be uploaded, should the upload folder show them."""
    held: dict[str, int] = field(default_factory=dict)
    """Sizes of all files that the session has put into the download folder: its limits outlive a container."""
    upload_root: tuple[int, int] | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One synchronisation at a time, when cells of several subshells begin and end together."""

    def forget_scratch(self) -> None:
        """A new container has an empty scratch: everything goes in again."""
        self.sent.clear()
        self.inside.clear()
        self.written.clear()

    def state(self) -> dict[str, Any]:
        return {name: dict(getattr(self, name)) for name in ("sent", "inside", "written", "held")}

    @classmethod
    def of(cls, state: dict[str, Any]) -> Ledger:
        return cls(
            {path: HostStamp(*stamp) for path, stamp in state["sent"].items()},
            {path: Stamp(*stamp) for path, stamp in state["inside"].items()},
            {path: HostStamp(*stamp) for path, stamp in state["written"].items()},
            dict(state["held"]),
        )


class Uploads:
    """Copies what is new or changed in a host folder into scratch. What is gone on the host stays inside."""

    def __init__(self, folder: UploadFolder, ledger: Ledger, limits: FileLimits) -> None:
        self._folder = folder
        self._ledger = ledger
        self._limits = limits
        self._disk = _Disk()
        self._notes = _Notes()

    async def sync(self, ask: Ask) -> Report:
        """Run before a cell. A file that cannot go in is a line of the report; raises `SandboxError` of `ask` only."""
        async with self._ledger.lock:
            await self._sync(ask)
            return self._notes.report()

    async def _sync(self, ask: Ask) -> None:
        try:
            scan = await self._disk.run(self._folder.scan)
        except FileRefused as reason:
            self._notes.refuse(self._folder.path.name, reason)
            return
        ledger = self._ledger
        ledger.upload_root = scan.root
        ledger.sent = {file.path: ledger.sent[file.path] for file in scan.files if file.path in ledger.sent}
        ours = set(ledger.written.values())
        changed = [file for file in scan.files if file.stamp not in ours and file.stamp != ledger.sent.get(file.path)]
        for path, refusal in scan.refused:
            self._notes.refuse(path, refusal)
        await self._notes.each(self._limits.seconds, changed, lambda file: self._copy(ask, file))

    async def _copy(self, ask: Ask, file: HostFile) -> int:
        source = self._folder.source(file)

        async def chunks() -> AsyncIterator[bytes]:
            await self._disk.run(source.open)
            while data := await self._disk.run(source.read):
                yield data

        try:
            stamp = await _send(ask, file.path, chunks(), file.stamp.size)
        finally:
            await self._disk.finish(source.close)
        self._ledger.sent[file.path] = file.stamp
        self._ledger.inside[file.path] = stamp
        return file.stamp.size


class Downloads:
    """Copies the regular files that cells made or changed in scratch into a host folder. Nothing is deleted there."""

    def __init__(self, folder: DownloadFolder, ledger: Ledger, limits: FileLimits) -> None:
        self._folder = folder
        self._ledger = ledger
        self._limits = limits
        self._disk = _Disk()
        self._notes = _Notes()

    async def sync(self, ask: Ask) -> Report:
        """Run after a cell. A file that cannot go out is a line of the report; raises `SandboxError` of `ask` only."""
        async with self._ledger.lock:
            await self._sync(ask)
            return self._notes.report()

    async def _sync(self, ask: Ask) -> None:
        try:
            reply, _ = await _call(ask, "file.list", limit=MAX_LISTED)
        except FileRefused as reason:
            self._notes.refuse(".", reason)
            return
        files, refused = await self._disk.run(_regular_files, reply)
        for path, refusal in refused:
            self._notes.refuse(path, refusal)
        if reply.get("complete") is True:
            self._ledger.inside = {path: stamp for path, stamp in self._ledger.inside.items() if path in files}
        else:
            self._notes.refuse(".", FileRefused("scratch has more entries than are looked at", limit=f"{MAX_LISTED}"))
        changed = [ScratchFile(*item) for item in files.items() if item[1] != self._ledger.inside.get(item[0])]
        await self._notes.each(self._limits.seconds, changed, lambda file: self._copy(ask, file))

    async def _copy(self, ask: Ask, file: ScratchFile) -> int:
        limits, held, size = self._limits, self._ledger.held, file.stamp.size
        check_size(size, limits.file_bytes)
        if file.path not in held and len(held) >= limits.files:
            raise FileRefused("the session has put too many files out", limit=f"{limits.files} files")
        if (total := sum(held.values()) - held.get(file.path, 0) + size) > limits.total_bytes:
            limit, value = format_bytes(limits.total_bytes), format_bytes(total)
            raise FileRefused("the session's files are too large together", limit=limit, value=value)
        target = self._folder.target(file.path)
        try:
            await self._disk.run(target.open)
            async for data in stream(ask, file.path, limits.file_bytes, file.stamp):
                await self._disk.run(target.write, data)
            root, replaced = await self._disk.run(target.replaces)
            self._require_known(root, replaced)
            held[file.path] = size
            self._ledger.written[file.path] = await self._disk.run(target.commit)
        finally:
            await self._disk.finish(target.close)
        self._ledger.inside[file.path] = file.stamp
        return size

    def _require_known(self, root: tuple[int, int], replaced: HostStamp | None) -> None:
        """Where one folder is both, a file that a person has put there or changed is not written over."""
        known = (*self._ledger.sent.values(), *self._ledger.written.values(), None)
        if root == self._ledger.upload_root and replaced not in known:
            raise FileRefused("the host's file of that name is not the one that the sandbox knows")


# --- single files, for the SDK ---------------------------------------------------------------------------------------


async def write(ask: Ask, path: str, data: bytes | BinaryIO, limit: int = FileLimits().file_bytes) -> int:
    """Write a file of scratch as a whole and return its size. Raises `FileRefused`; then there is no part of it."""
    check_name(path)
    size = len(data) if isinstance(data, bytes) else None
    check_size(size or 0, limit)
    file = io.BytesIO(data) if isinstance(data, bytes) else data
    disk = _Disk()

    async def chunks() -> AsyncIterator[bytes]:
        done = 0
        while chunk := await disk.run(file.read, CHUNK_BYTES):
            done += len(chunk)
            check_size(done, limit)
            yield chunk

    return (await _send(ask, path, chunks(), size)).size


async def read(ask: Ask, path: str, limit: int = FileLimits().file_bytes) -> bytes:
    """Return the content of a file of scratch, of at most `limit` bytes. Raises `FileRefused`."""
    return b"".join([data async for data in stream(ask, path, limit)])


async def stream(ask: Ask, path: str, limit: int, stamp: Stamp | None = None) -> AsyncIterator[bytes]:
    """Yield a file of scratch in chunks. Raises `FileRefused` if it is not, or does not stay, what `stamp` says."""
    check_name(path)
    offset = 0
    while True:
        reply, data = await _call(ask, "file.read", path=path, offset=offset, size=CHUNK_BYTES)
        seen = Stamp.parse(reply.get("stamp"))
        stamp = stamp or seen
        check_size(stamp.size, limit)
        # A short answer would be honest only for a file that changed, and could go on for ever.
        if seen != stamp or len(data) != min(CHUNK_BYTES, stamp.size - offset):
            raise FileRefused("it changed while it was copied")
        offset += len(data)
        yield data
        if offset == stamp.size:
            return


async def listing(ask: Ask, limit: int = MAX_LISTED) -> list[ScratchFile]:
    """Return the regular files of scratch that have proper names, in the order of their paths."""
    reply, _ = await _call(ask, "file.list", limit=limit)
    files = {}
    for path, value in _entries(reply, limit):
        with suppress(FileRefused):
            check_name(path)
            files[path] = Stamp.parse(value)
    return sorted(ScratchFile(*item) for item in files.items())


async def make_folder(ask: Ask, path: str) -> None:
    """Make a folder of scratch, with those above it. Raises `FileRefused`."""
    check_name(path)
    await _call(ask, "file.mkdir", path=path)


async def remove(ask: Ask, path: str) -> None:
    """Remove a file, a link or an empty folder of scratch. Raises `FileRefused`."""
    check_name(path)
    await _call(ask, "file.remove", path=path)


# --- parts -----------------------------------------------------------------------------------------------------------


async def _call(ask: Ask, op: str, data: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
    """Ask, and turn a refusal into ours: the sandbox chooses among our sentences, it does not write them."""
    reply, content = await ask(op, data=data, **fields)
    if not isinstance(reply, dict) or not isinstance(content, bytes):
        raise FileRefused("the sandbox gave no proper answer")
    if reply.get("ok") is True:
        return reply, content
    error = reply.get("error")
    if error == "no_space":
        raise FileRefused("scratch is full", setting="scratch_size")
    raise FileRefused(_REASONS.get(error, "the sandbox could not do it") if isinstance(error, str) else "no answer")


async def _send(ask: Ask, path: str, chunks: AsyncIterator[bytes], size: int | None) -> Stamp:
    """Write a file under another name and give it its own with the last chunk; leave nothing of it otherwise."""
    token, offset, chunk = secrets.token_hex(8), 0, b""
    try:
        async for following in chunks:
            if chunk:
                start, offset = offset, offset + len(chunk)
                await _call(ask, "file.write", chunk, path=path, token=token, offset=start, size=size, final=False)
            chunk = following
        reply, _ = await _call(ask, "file.write", chunk, path=path, token=token, offset=offset, size=size, final=True)
        return Stamp.parse(reply.get("stamp"))
    except BaseException:
        if offset:
            with suppress(SandboxError, TimeoutError):
                async with asyncio.timeout(DISCARD_SECONDS):
                    await ask("file.discard", token=token)
        raise


def _entries(reply: dict[str, Any], limit: int = MAX_LISTED) -> Iterable[tuple[str, object]]:
    """Yield path and the rest of each entry of a listing, of at most `limit` of them."""
    files = reply.get("files")
    for entry in files[:limit] if isinstance(files, list) else ():
        match entry:
            case [str(path), *stamp]:
                yield path, stamp


def _regular_files(reply: dict[str, Any]) -> tuple[dict[str, Stamp], list[tuple[str, FileRefused]]]:
    """Divide a listing into what may be copied and what not. It may be a long one: not for the loop's thread."""
    files: dict[str, Stamp] = {}
    refused: list[tuple[str, FileRefused]] = []
    for path, value in _entries(reply):
        try:
            check_copied_name(path)
            files[path] = Stamp.parse(value)
        except FileRefused as reason:
            refused.append((path, reason))
    others = reply.get("others")
    for other in others[:MAX_OTHERS] if isinstance(others, list) else ():
        match other:
            case [str(path), str(kind)]:
                refused.append((path, FileRefused(_KINDS.get(kind, "it is no regular file"))))
    return files, refused


class _Notes:
    """Collects one report after another, and remembers which refusals were told already."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()
        self._refused: dict[tuple[str, str], None] = {}
        self._copied: list[tuple[str, int]] = []

    def refuse(self, path: str, reason: FileRefused) -> None:
        self._refused[printable(path), printable(str(reason), 400)] = None

    async def each(self, seconds: float, files: list[F], copy: Callable[[F], Awaitable[int]]) -> None:
        """Copy files until the time is up, and note what became of each."""
        left = deque(files)
        try:
            async with asyncio.timeout(seconds):
                while left:
                    try:
                        self._copied.append((left[0].path, await copy(left[0])))
                    except FileRefused as reason:
                        self.refuse(left[0].path, reason)
                        await asyncio.sleep(0)  # thousands of refusals would otherwise hold up the loop
                    left.popleft()
        except TimeoutError:
            late = FileRefused(f"time is up; {len(left)} files are left for the next cell", limit=f"{seconds:g} s")
            self.refuse(left[0].path, late)

    def report(self) -> Report:
        new = [note for note in self._refused if note not in self._told]
        report = Report(tuple(self._copied), tuple(new[:MAX_REPORTED]), max(0, len(new) - MAX_REPORTED))
        self._told = set(self._refused)
        self._refused, self._copied = {}, []
        return report


class _Disk:
    """A thread for the files of one folder: a slow disk holds up neither the loop, nor the order of the steps."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "sandbox-files")

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Return what `function` does. Raises `FileRefused` after `FOLDER_SECONDS`; later steps wait for this one."""
        try:
            async with asyncio.timeout(FOLDER_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)
        except TimeoutError:
            raise FileRefused("the host's folder does not answer", limit=f"{FOLDER_SECONDS:.0f} s") from None

    async def finish(self, function: Callable[[], None]) -> None:
        """Run `function` after all steps before it, also when the caller was cancelled, and wait for it a little."""
        done = self._thread.submit(function)
        with suppress(TimeoutError):
            async with asyncio.timeout(FOLDER_SECONDS):
                await asyncio.shield(asyncio.wrap_future(done))
