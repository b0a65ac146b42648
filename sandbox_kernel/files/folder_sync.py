"""Keeping the host's folders and scratch in step: what is new or changed goes in before a cell, and out after it.

Nothing that the agent answers is believed, or reaches a report as it is, and everything that grows has a limit.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from ..core.codes import Code, FileCode
from ..core.errors import FileRefused
from ..core.events import Emit, FileNotTransferred, FileTransferred
from ..core.model import Settings, format_bytes
from .file_rules import (
    HABITS,
    SLOWEST,
    FileLimits,
    check_downloaded_name,
    check_size,
    folded,
    printable,
    safe_name,
    stands_in,
)
from .host_paths import Folder
from .host_tree import DownloadFolder, HostFile, HostStamp, UploadFolder
from .scratch_files import MAX_LISTED, Ask, ScratchFile, Stamp, call, entries, send, stream

Hook = Callable[[], Awaitable[list[str]]]


T = TypeVar("T")
F = TypeVar("F", "HostFile", "ScratchFile")
FOLDER_SECONDS = 15.0
"""How long a folder of the host may take for one step; the walk through it is the longest."""
MAX_OTHERS = 100
"""Things in scratch that are no regular files, of which a listing is believed."""
MAX_REPORTED = 50
"""Refusals that a report names; the rest is counted."""
MAX_LINES, MAX_RENAMED_LINES = 15, 5
"""In one cell, of files that were refused and of those that go by another name; a line beneath counts the others. Both
directions together are fewer than what the host may say in a cell (`requests.queue.MAX_TOLD`).
"""
_KINDS = {
    "link": FileCode.NOT_A_FILE.note(what="a link"),
    "fifo": FileCode.NOT_A_FILE.note(what="a FIFO"),
    "socket": FileCode.NOT_A_FILE.note(what="a socket"),
    "device": FileCode.NOT_A_FILE.note(what="a device"),
    "too deep": FileCode.PATH_DEEPER.note(),
    "unreadable": FileCode.FOLDER_UNREADABLE.note(),
}
_OTHER_KIND = FileCode.NOT_A_FILE.note(what="no regular file")


class Folders:
    """Both folders of one session; either may be missing."""

    def __init__(self, settings: Settings, ask: Ask, emit: Emit = lambda event: None) -> None:
        limits = FileLimits.of(settings.limits)
        self._ask = ask
        self._emit = emit
        self._state = SyncState()
        self._uploads = (
            Uploads(UploadFolder(settings.uploads, limits), self._state, limits) if settings.uploads else None
        )
        self._downloads = (
            Downloads(DownloadFolder(settings.downloads), self._state, limits) if settings.downloads else None
        )

    @property
    def before_cell(self) -> Hook | None:
        """The hook that copies in, None without an upload folder."""
        return self._hook(self._uploads, "upload", "not copied into the sandbox")

    @property
    def after_cell(self) -> Hook | None:
        """The hook that copies out, None without a download folder."""
        return self._hook(self._downloads, "download", "not copied to the downloads folder")

    def _hook(self, side: Uploads | Downloads | None, op: str, refusal: str) -> Hook | None:
        if side is None:
            return None

        async def copy() -> list[str]:
            report = await side.sync(self._ask)
            for path, size in report.copied:
                self._emit(FileTransferred(op=op, path=path, bytes=size, sha256=report.sha256.get(path)))
            for one in report.refusals:
                self._emit(FileNotTransferred(op=op, path=one.path, code=one.code, reason=one.reason))
            return _notes(report, refusal) + _renamed(report)

        return copy

    def hold_downloads(self, folder: Folder) -> None:
        """Take a download folder that the caller has open, in place of looking its name up."""
        if self._downloads is not None:
            self._downloads.folder = DownloadFolder(folder)

    def close(self) -> None:
        """Let go of both; for the end of the session, when nothing is copied any more."""
        for side in (self._uploads, self._downloads):
            if side is not None:
                side.close()

    def forget_scratch(self) -> None:
        """Note that a new container has an empty scratch."""
        self._state.forget_scratch()

    def arrived(self, path: str, stamp: Stamp) -> None:
        """Note that a front end wrote a file into scratch: no cell made it, so it does not go to the downloads."""
        self._state.inside[path] = stamp

    def state(self) -> dict[str, Any]:
        """Return what a successor process needs to know, as plain JSON."""
        return self._state.as_json()

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from the state of another process that had the same container."""
        self._state.restore(state)


def _renamed(report: SyncReport) -> list[str]:
    """Say which files go by a name that stands for another one."""
    names = [path for path, _ in report.copied if stands_in(path)]
    notes = [f"copied as {name}: {FileCode.NAME_REPLACED.text}" for name in names[:MAX_RENAMED_LINES]]
    more = len(names) - MAX_RENAMED_LINES
    return notes + [f"copied under other names, too: {more} more"] * (more > 0)


def _notes(report: SyncReport, what: str) -> list[str]:
    notes = [f"{what}: {path}: {reason}" for path, reason in report.refused[:MAX_LINES]]
    more = max(0, len(report.refused) - MAX_LINES) + report.more_refused
    return notes + [f"{what}: {more} more"] * (more > 0)


class DiskThread:
    """A thread for one folder's files: a slow disk holds up neither the loop, nor the order of the steps."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "sandbox-files")

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Return what `function` does. Raises `FileRefused` after `FOLDER_SECONDS`; later steps wait for this one."""
        try:
            async with asyncio.timeout(FOLDER_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)
        except TimeoutError:
            raise FileRefused(FileCode.FOLDER_SILENT, limit=f"{FOLDER_SECONDS:.0f} s") from None

    async def finish(self, function: Callable[[], None]) -> None:
        """Run `function` after all steps before it, also when the caller was cancelled, and wait for it a little."""
        done = self._thread.submit(function)
        with suppress(TimeoutError):
            async with asyncio.timeout(FOLDER_SECONDS):
                await asyncio.shield(asyncio.wrap_future(done))

    def close(self) -> None:
        """Have the thread end after the steps that it has; waits for nothing. There are no steps any more."""
        self._thread.shutdown(wait=False)


class FileRefusal(NamedTuple):
    """A file that was not copied; the texts are safe to print."""

    path: str
    reason: str
    code: Code


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What one synchronisation did. Every text is safe to print, and the whole is bounded."""

    copied: tuple[tuple[str, int], ...] = ()
    """Path and size in bytes."""
    refusals: tuple[FileRefusal, ...] = ()
    """The same one is not repeated in the next report."""
    more_refused: int = 0
    sha256: Mapping[str, str] = field(default_factory=dict)
    """Of what was copied, by path."""

    @property
    def refused(self) -> tuple[tuple[str, str], ...]:
        """Paths and reasons, for people."""
        return tuple((one.path, one.reason) for one in self.refusals)

    def __bool__(self) -> bool:
        return bool(self.copied or self.refusals)


@dataclass(slots=True)
class SyncState:
    """What both sides are known to have, shared by the two directions so that no file goes round in a circle.

    `as_json()` is plain JSON, for a restarted host process that takes over the container.
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

    def as_json(self) -> dict[str, Any]:
        return {name: dict(getattr(self, name)) for name in ("sent", "inside", "written", "held")}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `as_json` returned."""
        self.sent = {path: HostStamp(*stamp) for path, stamp in state["sent"].items()}
        self.inside = {path: Stamp(*stamp) for path, stamp in state["inside"].items()}
        self.written = {path: HostStamp(*stamp) for path, stamp in state["written"].items()}
        self.held = dict(state["held"])


class _Direction:
    """What both directions have."""

    def __init__(self, state: SyncState, limits: FileLimits) -> None:
        self._state = state
        self._limits = limits
        self._disk = DiskThread()
        self._notes = _Notes()

    async def sync(self, ask: Ask) -> SyncReport:
        """Copy. A file that is refused is a line of the report; raises `SandboxError` of `ask` only."""
        async with self._state.lock:
            await self._sync(ask)
            return self._notes.report()

    def close(self) -> None:
        """Let go of the disk; nothing is copied any more."""
        self._disk.close()

    async def _sync(self, ask: Ask) -> None:
        raise NotImplementedError


class Uploads(_Direction):
    """Before a cell: copies what is new or changed in a host folder into scratch. What is gone there stays inside."""

    def __init__(self, folder: UploadFolder, state: SyncState, limits: FileLimits) -> None:
        super().__init__(state, limits)
        self._folder = folder

    async def _sync(self, ask: Ask) -> None:
        try:
            scan = await self._disk.run(self._folder.scan)
        except FileRefused as reason:
            if reason.code is not FileCode.FOLDER_MISSING:  # an empty one, looked for again
                self._notes.refuse(self._folder.path.name, reason)
            return
        state = self._state
        state.upload_root = scan.root
        state.sent = {file.path: state.sent[file.path] for file in scan.files if file.path in state.sent}
        ours = set(state.written.values())
        changed = [file for file in scan.files if file.stamp not in ours and file.stamp != state.sent.get(file.path)]
        for path, refusal in scan.refused:
            self._notes.refuse(path, refusal)
        await self._notes.each(self._limits.seconds, changed, lambda file: self._copy(ask, file))

    async def _copy(self, ask: Ask, file: HostFile) -> int:
        source = self._folder.source(file)

        async def chunks() -> AsyncIterator[bytes]:
            await self._disk.run(source.open)
            while data := await self._disk.run(source.read):
                yield data
                self._notes.moved(len(data))

        try:
            stamp = await send(ask, file.path, chunks(), file.stamp.size)
        finally:
            await self._disk.finish(source.close)
        self._notes.sha256[file.path] = source.hash.hexdigest()
        self._state.sent[file.path] = file.stamp
        self._state.inside[file.path] = stamp
        return file.stamp.size


class Downloads(_Direction):
    """After a cell: copies the regular files that are new or changed in scratch into a host folder; deletes nothing."""

    def __init__(self, folder: DownloadFolder, state: SyncState, limits: FileLimits) -> None:
        super().__init__(state, limits)
        self.folder = folder
        self._names = _Names()

    async def _sync(self, ask: Ask) -> None:
        try:
            reply, _ = await call(ask, "file.list", limit=MAX_LISTED)
        except FileRefused as reason:
            self._notes.refuse(".", reason)
            return
        files, refused = await self._disk.run(_regular_files, reply, self._state.inside)
        for path, refusal in refused:
            self._notes.refuse(path, refusal)
        if reply.get("complete") is True:
            self._state.inside = {path: stamp for path, stamp in self._state.inside.items() if path in files}
        else:
            self._notes.refuse(".", FileRefused(FileCode.SCRATCH_ENTRIES, limit=f"{MAX_LISTED}"))
        changed = [ScratchFile(*item) for item in files.items() if item[1] != self._state.inside.get(item[0])]
        await self._notes.each(self._limits.seconds, changed, lambda file: self._copy(ask, file))

    async def _copy(self, ask: Ask, file: ScratchFile) -> int:
        limits, held, size = self._limits, self._state.held, file.stamp.size
        check_size(size, limits.file_bytes)
        new = self._names.new(file.path, held)
        if file.path not in held and len(self._names) + len(new) > limits.files:
            limit = f"{limits.files} files and folders"
            raise FileRefused(FileCode.SESSION_FILES, limit=limit, setting="folder_files")
        if (total := sum(held.values()) - held.get(file.path, 0) + size) > limits.total_bytes:
            limit, value = format_bytes(limits.total_bytes), format_bytes(total)
            raise FileRefused(FileCode.SESSION_BYTES, limit=limit, value=value, setting="folder_limit")
        target = self.folder.target(file.path)
        try:
            await self._disk.run(target.open)
            async with aclosing(stream(ask, file.path, limits.file_bytes, file.stamp)) as pieces:
                async for data in pieces:
                    await self._disk.run(target.write, data)
                    self._notes.moved(len(data))
            root, replaced = await self._disk.run(target.replaces)
            self._require_known(root, replaced)
            held[file.path] = size
            self._names.add(new)
            self._state.written[file.path] = await self._disk.run(target.commit)
        finally:
            await self._disk.finish(target.close)
        self._notes.sha256[file.path] = target.hash.hexdigest()
        self._state.inside[file.path] = file.stamp
        return size

    def _require_known(self, root: tuple[int, int], replaced: HostStamp | None) -> None:
        """Where one folder is both, a file that a person has put there or changed is not written over."""
        known = (*self._state.sent.values(), *self._state.written.values(), None)
        if root == self._state.upload_root and replaced not in known:
            raise FileRefused(FileCode.NOT_THE_KNOWN_ONE)


def _regular_files(
    reply: dict[str, Any], known: Mapping[str, Stamp]
) -> tuple[dict[str, Stamp], list[tuple[str, FileRefused]]]:
    """Divide a listing into what may be copied and what not. It may be a long one: not for the loop's thread.

    A file that the host put there, and that is unchanged, is not copied, whatever its name.
    """
    files: dict[str, Stamp] = {}
    refused: list[tuple[str, FileRefused]] = []
    for path, value in entries(reply):
        try:
            stamp = Stamp.parse(value)
            name = path if known.get(path) == stamp else safe_name(path)
            if known.get(name) != stamp:
                check_downloaded_name(name)
            files[name] = stamp
        except FileRefused as reason:
            refused.append((path, reason))
    others = reply.get("others")
    for other in others[:MAX_OTHERS] if isinstance(others, list) else ():
        match other:
            case [str(path), str(kind)]:
                refused.append((path, FileRefused(_KINDS.get(kind, _OTHER_KIND))))
    return files, refused


def _one_of_each_first(refusals: list[FileRefusal]) -> list[FileRefusal]:
    """Return the refusals so that none hides behind many of another kind, and what tools leave by habit comes last."""
    seen: Counter[Code] = Counter()
    ranked = []
    for refusal in refusals:
        ranked.append((refusal.code in HABITS, seen[refusal.code], refusal))
        seen[refusal.code] += 1
    return [refusal for *_, refusal in sorted(ranked, key=lambda row: row[:2])]


class _Names:
    """The files and folders that a session has put out: how many, and how each is written.

    Two names that differ by case or normal form are one file on many systems, and the second would replace the first.
    """

    def __init__(self) -> None:
        self._written: dict[str, str] = {}
        self._held = 0

    def __len__(self) -> int:
        return len(self._written)

    def new(self, path: str, held: dict[str, int]) -> dict[str, str]:
        """Return what a file would add, of itself and the folders above it. Raises `FileRefused` for another's name."""
        if self._held > len(held) or (held and not self._written):  # of a process before this one
            self._written.clear()
        if not self._written:
            for one in held:
                self.add(self._parts(one))
        self._held = len(held)
        parts = self._parts(path)
        for key, name in parts.items():
            if self._written.get(key, name) != name:
                raise FileRefused(FileCode.NAME_OF_ANOTHER.note(other=printable(self._written[key])))
        return {key: name for key, name in parts.items() if key not in self._written}

    def add(self, names: dict[str, str]) -> None:
        self._written |= names

    @staticmethod
    def _parts(path: str) -> dict[str, str]:
        steps = path.split("/")
        names = ["/".join(steps[: depth + 1]) for depth in range(len(steps))]
        return {folded(name): name for name in names}


class _Notes:
    """Collects one report after another, and remembers which refusals were told already."""

    def __init__(self) -> None:
        self._told: set[FileRefusal] = set()
        self._refused: dict[FileRefusal, None] = {}
        self._copied: list[tuple[str, int]] = []
        self.sha256: dict[str, str] = {}
        self._timeout: asyncio.Timeout | None = None

    def moved(self, count: int) -> None:
        """Note that so many bytes were copied, which take their time: at `SLOWEST`, and no more of it."""
        if self._timeout is not None and not self._timeout.expired() and (when := self._timeout.when()) is not None:
            self._timeout.reschedule(when + count / SLOWEST)

    def refuse(self, path: str, reason: FileRefused) -> None:
        self._refused[FileRefusal(printable(path), printable(str(reason), 400), reason.code)] = None

    async def each(self, seconds: float, files: list[F], copy: Callable[[F], Awaitable[int]]) -> None:
        """Copy files until the time is up, and note what became of each. Bytes that move add to the time: `moved`."""
        left = deque(files)
        try:
            async with asyncio.timeout(seconds) as self._timeout:
                while left:
                    try:
                        self._copied.append((left[0].path, await copy(left[0])))
                    except FileRefused as reason:
                        self.refuse(left[0].path, reason)
                        await asyncio.sleep(0)  # thousands of refusals would otherwise hold up the loop
                    left.popleft()
        except TimeoutError:
            self.refuse(left[0].path, FileRefused(FileCode.TIME_UP.note(count=len(left)), limit=f"{seconds:g} s"))

    def report(self) -> SyncReport:
        new = _one_of_each_first([one for one in self._refused if one not in self._told])
        more = max(0, len(new) - MAX_REPORTED)
        report = SyncReport(tuple(self._copied), tuple(new[:MAX_REPORTED]), more, self.sha256)
        self._told = set(self._refused)
        self._refused, self._copied, self.sha256 = {}, [], {}
        return report
