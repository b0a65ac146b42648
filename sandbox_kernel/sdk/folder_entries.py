"""Folders of a sandbox for callers of the SDK: what lies in them, moved, removed and watched.

What the sandbox says of its files is checked by kind and by name, and bounded; it need not be true.

Public: plugins may import it.
"""

from __future__ import annotations

import asyncio
import enum
import stat as modes
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

from ..core.codes import FileCode
from ..core.errors import FileRefused, SandboxError, wrong_argument
from ..core.model import format_bytes
from ..core.tasks import Tasks
from ..files import scratch_files
from ..files.file_rules import check_place, printable, safe_place
from ..files.scratch_files import Ask, Stamp
from .callbacks import Callback, Callbacks

WATCH_SECONDS = 0.25
"""Between two looks at a folder that is watched: what comes and goes between them is not seen."""
DEEPEST = 16
OWNER = "sandbox"
"""Everything in a sandbox belongs to its one user."""


class FileType(enum.StrEnum):
    """What an entry of a folder is."""

    FILE = "file"
    DIR = "dir"


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file of the sandbox."""

    path: str
    """Relative to /mnt/data; a whole one elsewhere."""
    size: int
    """Bytes."""

    @property
    def name(self) -> str:
        return PurePath(self.path).name

    @property
    def type(self) -> FileType | None:
        """None for what is neither a file nor a folder."""
        return FileType.FILE

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r}, {format_bytes(self.size)})"


class FileList(list[FileInfo]):
    """Files of the sandbox."""

    complete: bool = True
    """Whether these are all: not where there are more than a listing looks at, or some whose paths are too long."""


@dataclass(frozen=True, slots=True, repr=False)
class EntryInfo(FileInfo):
    """A file, a folder or a link of the sandbox, as it says itself."""

    kind: FileType | None = field(kw_only=True)
    mode: int = field(kw_only=True)
    """The bits of its permissions."""
    modified_time: datetime = field(kw_only=True)
    symlink_target: str | None = field(default=None, kw_only=True)
    """Where a link leads, as it says; nothing here follows it."""
    target_type: FileType | None = field(default=None, kw_only=True)
    """What a link leads to, if that is a file or a folder."""
    inode: int = field(default=0, kw_only=True)
    owner: str = field(default=OWNER, kw_only=True)
    group: str = field(default=OWNER, kw_only=True)

    @property
    def type(self) -> FileType | None:
        return self.kind

    @property
    def permissions(self) -> str:
        """As `ls -l` writes them: `-rw-r--r--`."""
        kinds = {FileType.FILE: modes.S_IFREG, FileType.DIR: modes.S_IFDIR, None: modes.S_IFLNK}
        return modes.filemode(kinds[self.kind] | self.mode)


class Entries(list[EntryInfo]):
    """What lies in a folder of the sandbox."""

    complete: bool = True
    """Whether this is all: not where there is more than a listing looks at, or a path that is too long or too deep."""


_KINDS = {"file": FileType.FILE, "dir": FileType.DIR}


class FilesystemEventType(enum.StrEnum):
    """What happened to an entry."""

    CREATE = "create"
    WRITE = "write"
    REMOVE = "remove"
    RENAME = "rename"
    CHMOD = "chmod"


@dataclass(frozen=True, slots=True)
class FilesystemEvent:
    """Something that happened in a folder that is watched."""

    name: str
    """Relative to that folder."""
    type: FilesystemEventType
    entry: EntryInfo | None = None
    """What it is by now, where that was asked for and it is still there."""


def entry_of(row: object) -> EntryInfo:
    """Check what came from the sandbox. Raises `FileRefused`."""
    match row:
        case [str(path), str(kind), int(mode), link, *stamp] if type(mode) is int and 0 <= mode <= 0o7777:
            found = Stamp.parse(stamp)
            return EntryInfo(
                safe_place(path),
                found.size,
                kind=_KINDS.get(kind),
                target_type=_KINDS.get(kind.removeprefix("link to ")) if kind.startswith("link to ") else None,
                mode=mode,
                modified_time=datetime.fromtimestamp(min(found.mtime_ns // 1000, 1 << 53) / 1e6, UTC),
                symlink_target=printable(link[:4096]) if isinstance(link, str) else None,
                inode=found.inode,
            )
    raise FileRefused(FileCode.NO_DESCRIPTION)


async def entries(ask: Ask, path: str, depth: int) -> Entries:
    """Return what lies in a folder of scratch, in the order of the paths. Raises `FileRefused`."""
    reply, _ = await scratch_files.call(ask, "file.entries", path=path, depth=depth, limit=scratch_files.MAX_LISTED)
    rows = reply.get("entries")
    if not isinstance(rows, list):
        raise FileRefused(FileCode.NO_DESCRIPTION)
    found = await asyncio.to_thread(_proper, rows[: scratch_files.MAX_LISTED], path.rstrip("/") + "/" if path else "")
    found.complete &= reply.get("complete") is True
    return found


def _proper(rows: list[object], under: str) -> Entries:
    found: dict[str, EntryInfo] = {}
    complete = True
    for row in rows:
        try:
            entry = entry_of(row)
        except (FileRefused, ValueError, OverflowError, OSError):
            complete = False
            continue  # a path that is too long or too deep, or an entry that makes no sense
        if entry.path.startswith(under) and entry.path.startswith("/") is under.startswith("/"):
            found[entry.path] = entry
    listed = Entries(found[path] for path in sorted(found))
    listed.complete = complete
    return listed


async def stat(ask: Ask, path: str) -> EntryInfo:
    """Return what an entry of scratch is. Raises `FileRefused`."""
    reply, _ = await scratch_files.call(ask, "file.stat", path=check_place(path))
    return _about(reply, path)


async def rename(ask: Ask, path: str, to: str) -> EntryInfo:
    """Move an entry of scratch, and return what it is. Raises `FileRefused`."""
    reply, _ = await scratch_files.call(ask, "file.rename", path=check_place(path), to=check_place(to))
    return _about(reply, to)


async def remove_all(ask: Ask, path: str) -> None:
    """Remove an entry of scratch with all that is in it. Raises `FileRefused`."""
    check_place(path)
    for _ in range(1000):  # some million entries: more than scratch holds
        reply, _ = await scratch_files.call(ask, "file.remove", path=path, all=True)
        if reply.get("more") is not True:
            return
    raise FileRefused(FileCode.NOT_DONE)


def depth_of(value: object) -> int:
    """Check how many levels a caller wants. Raises `ConfigurationError`."""
    if type(value) is not int or value < 1:
        raise wrong_argument("depth", "depth is a whole number from 1 on")
    return min(value, DEEPEST)


def _about(reply: dict[str, Any], path: str) -> EntryInfo:
    try:
        entry = entry_of(reply.get("entry"))
    except (ValueError, OverflowError, OSError):
        raise FileRefused(FileCode.NO_DESCRIPTION) from None
    if entry.path != path:
        raise FileRefused(FileCode.NO_DESCRIPTION)
    return entry


ENTRY_BYTES = 600
"""Memory of an entry beside its texts."""


def memory_of(entry: EntryInfo) -> int:
    """Return about how many bytes of memory an entry takes."""
    return ENTRY_BYTES + sys.getsizeof(entry.path) + sys.getsizeof(entry.symlink_target)


# --- watching --------------------------------------------------------------------------------------------------------


class Watching:
    """What changes in a folder of scratch, seen by looking at it again and again."""

    def __init__(self, ask: Callable[[], Awaitable[Ask]], path: str, *, depth: int, entry: bool) -> None:
        self._ask = ask
        self._path, self._depth, self._entry = path, depth, entry
        self._seen: dict[str, EntryInfo] | None = None
        self.kept = 0
        """Bytes of memory of what was seen last, about."""

    def whole(self, name: str) -> str:
        """Return the path of what has a name relative to the folder."""
        return f"{self._path.rstrip('/')}/{name}" if self._path else name

    def forget(self) -> None:
        """Keep nothing of what was seen: the next look is the first."""
        self._seen, self.kept = None, 0

    async def look(self) -> list[FilesystemEvent]:
        """Return what has changed since the last look; nothing at the first. Raises `SandboxError`."""
        found = {one.path: one for one in await entries(await self._ask(), self._path, self._depth)}
        before, self._seen = self._seen, found
        self.kept = sum(memory_of(one) for one in found.values())
        return [] if before is None else self._changes(before, found)

    def _changes(self, before: dict[str, EntryInfo], now: dict[str, EntryInfo]) -> list[FilesystemEvent]:
        came, went = now.keys() - before.keys(), before.keys() - now.keys()
        moved, were = {now[path].inode for path in came}, {before[path].inode for path in went}
        events = []
        for path in sorted(went):
            kind = FilesystemEventType.RENAME if before[path].inode in moved else FilesystemEventType.REMOVE
            events.append(self._event(path, kind, None))
        events += [self._event(path, FilesystemEventType.CREATE, now[path]) for path in sorted(came)]
        for path in sorted(now.keys() & before.keys()):
            old, new = before[path], now[path]
            if (old.size, old.modified_time, old.inode) != (new.size, new.modified_time, new.inode):
                if new.type is not FileType.DIR:
                    events.append(self._event(path, FilesystemEventType.WRITE, new))
            elif old.mode != new.mode:
                events.append(self._event(path, FilesystemEventType.CHMOD, new))
        events += [
            self._event(path, FilesystemEventType.WRITE, now[path])
            for path in sorted(came)
            if now[path].type is FileType.FILE and now[path].size and now[path].inode not in were
        ]
        return events

    def _event(self, path: str, kind: FilesystemEventType, entry: EntryInfo | None) -> FilesystemEvent:
        name = path[len(self._path.rstrip("/")) + 1 :] if self._path else path
        return FilesystemEvent(name, kind, entry if self._entry else None)


class AsyncWatchHandle:
    """A folder that is watched until `stop`, or for a time."""

    def __init__(
        self,
        watching: Watching,
        on_event: Callback[FilesystemEvent],
        on_exit: Callback[Exception | None] | None,
        limit: float | None,
    ) -> None:
        self._watching = watching
        self._callbacks = Callbacks(on_event=on_event, on_exit=on_exit)
        self._task = Tasks().hold(self._watch(limit), "watching a folder")

    async def stop(self) -> None:
        """Watch it no more."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _watch(self, limit: float | None) -> None:
        failure: Exception | None = None
        try:
            async with asyncio.timeout(limit):
                while True:
                    await asyncio.sleep(WATCH_SECONDS)
                    for event in await self._watching.look():
                        await self._callbacks.call("event", event)
        except (SandboxError, TimeoutError) as error:
            failure = error if isinstance(error, SandboxError) else None
        await self._callbacks.call("exit", failure)
