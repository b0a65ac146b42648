"""E2B's wire in a sandbox: folders and their entries, listed, moved, removed and watched."""

from __future__ import annotations

import asyncio
import posixpath
import secrets
import sys
from collections import deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from ....core.errors import FileNotThere, SandboxError
from ....sdk.folder_entries import (
    WATCH_SECONDS,
    EntryInfo,
    FilesystemEvent,
    FilesystemEventType,
    FileType,
    Watching,
    memory_of,
)
from ....sdk.sandbox_paths import folder_of
from ..codes import ServeCode
from ..home import HOME
from ..home import USER as OWNER
from ..requests import Refusal
from ..streams import Piece, Put
from ..tenants import Lease
from . import metadata as e2b_metadata
from .bodies import ListDir, MoveRequest, OfWatcher, PathRequest, WatchRequest
from .rpc import RpcCall, streamed, unary

MAX_WATCHERS = 16
"""Of one sandbox."""
MAX_EVENTS = 10_000
"""Of a watcher that nobody asks; then the oldest go."""
MAX_WATCHED = 32 << 20
"""Bytes of memory of all watchers of one sandbox: what they saw last, and events that nobody has asked for."""
EVENT_BYTES = 200
"""Memory of an event beside its texts and its entry."""
_FOLLOWED = "stream-"
"""What the name of a watcher begins with that is a stream: it is a call, and counts as one."""
_TYPES = {FileType.FILE: "FILE_TYPE_FILE", FileType.DIR: "FILE_TYPE_DIRECTORY"}
_HOME: Piece = {"name": OWNER, "type": "FILE_TYPE_DIRECTORY", "path": HOME, "owner": OWNER, "group": OWNER}


def _type(entry: EntryInfo) -> str:
    """Return what a client is told: of a link, what it leads to."""
    if (kind := entry.type or entry.target_type) is not None:
        return _TYPES[kind]
    return "FILE_TYPE_UNSPECIFIED" if entry.symlink_target is None else "FILE_TYPE_SYMLINK"


def described(lease: Lease, entry: EntryInfo) -> Piece:
    """Return an entry as the wire has it."""
    path = PurePosixPath(HOME, entry.path)
    found: Piece = {
        "name": path.name,
        "type": _type(entry),
        "path": str(path),
        "size": str(entry.size),
        "mode": entry.mode,
        "permissions": entry.permissions,
        "owner": OWNER,
        "group": OWNER,
        "modifiedTime": entry.modified_time.isoformat().replace("+00:00", "Z"),
        **e2b_metadata.of(lease, entry.path),
    }
    if entry.symlink_target is not None:
        found["symlinkTarget"] = posixpath.normpath(posixpath.join(path.parent, entry.symlink_target))
    return found


async def stat(asked: RpcCall[PathRequest]) -> Piece:
    """Say what an entry is."""
    path = asked.body.path
    if not folder_of(path):
        return {"entry": _HOME}
    return {"entry": described(asked.lease, await asked.lease.sandbox.files.get_info(path))}


async def list_dir(asked: RpcCall[ListDir]) -> Piece:
    """List a folder, one level deep unless more are asked for."""
    found = await asked.lease.sandbox.files.list(asked.body.path, asked.body.depth or 1)
    return {"entries": [described(asked.lease, entry) for entry in found]}


async def make_dir(asked: RpcCall[PathRequest]) -> Piece:
    """Make a folder and those above it."""
    path, files = asked.body.path, asked.lease.sandbox.files
    if not folder_of(path) or not await files.make_dir(path):
        raise Refusal(409, ServeCode.REQUEST_IMPROPER, f"{path[:200]!r} is there already")
    return {"entry": described(asked.lease, await files.get_info(path))}


async def move(asked: RpcCall[MoveRequest]) -> Piece:
    """Move an entry."""
    entry = await asked.lease.sandbox.files.rename(asked.body.source, asked.body.destination)
    e2b_metadata.moved(asked.lease, folder_of(asked.body.source), entry.path)
    return {"entry": described(asked.lease, entry)}


async def remove(asked: RpcCall[PathRequest]) -> Piece:
    """Remove an entry, and what is in it; nothing of that name is fine."""
    with suppress(FileNotThere):
        await asked.lease.sandbox.files.remove(asked.body.path, recursive=True)
    e2b_metadata.removed(asked.lease, folder_of(asked.body.path))
    return {}


# --- watching ---------------------------------------------------------------------------------------------------------


class Watcher:
    """A folder that is watched, and what has happened in it since somebody asked."""

    def __init__(self, watching: Watching, beside: Mapping[str, Any], sent: Collection[str] = ()) -> None:
        """`beside` are all watchers of the sandbox, which have a bound together; `sent` are files that clients sent."""
        self._watching, self._beside, self._sent = watching, beside, sent
        self._looking = asyncio.Lock()
        self.events: deque[FilesystemEvent] = deque()
        self.waiting = 0
        self._dropped = False
        self.task: asyncio.Task[None] | None = None

    @property
    def size(self) -> int:
        """Bytes of memory that it takes, about."""
        return self.waiting + self._watching.kept

    async def watch(self) -> None:
        """Look at it again and again, until it cannot be looked at."""
        with suppress(SandboxError):
            while True:
                await asyncio.sleep(WATCH_SECONDS)
                with suppress(Refusal):  # until there is room again
                    await self._look()

    async def _look(self) -> None:
        async with self._looking:
            for event in await self._watching.look():
                self._add(event)
                created = self._sent and event.type is FilesystemEventType.CREATE
                if created and self._watching.whole(event.name) in self._sent:
                    self._add(replace(event, type=FilesystemEventType.CHMOD))  # E2B gives such a file its owner
            while len(self.events) > MAX_EVENTS:
                self.drop()
            self._make_room()

    def _add(self, event: FilesystemEvent) -> None:
        self.events.append(event)
        self.waiting += _memory_of(event)

    def drop(self) -> int:
        """Forget the oldest event; return how many bytes it took."""
        size = _memory_of(self.events.popleft())
        self.waiting -= size
        self._dropped = True
        return size

    def _make_room(self) -> None:
        """Drop the oldest events of the watcher that has most of them. Raises `Refusal` if those are not enough."""
        all_of = [one for one in self._beside.values() if isinstance(one, Watcher)]
        over = sum(one.size for one in all_of) - MAX_WATCHED
        while over > 0 and any(one.events for one in all_of):
            over -= max(all_of, key=lambda one: one.waiting).drop()
        if over > 0:
            self._watching.forget()
            self._dropped = True
            words = f"What the watchers of a sandbox see may take {MAX_WATCHED:,} bytes. Watch fewer or smaller folders"
            raise Refusal(429, ServeCode.CALLS_OF_SANDBOX, words)

    async def taken(self) -> list[FilesystemEvent]:
        """Return what has happened until now, and forget it.

        Raises `Refusal` once if events were dropped: clients know a call that fails, and no event that says so.
        """
        with suppress(SandboxError):
            await self._look()
        return self._all()

    async def next(self) -> list[FilesystemEvent]:
        """Return what has happened since the last call, after a while. Raises `SandboxError` and `Refusal`."""
        await asyncio.sleep(WATCH_SECONDS)
        await self._look()
        return self._all()

    def _all(self) -> list[FilesystemEvent]:
        if self._dropped:
            self._dropped = False
            words = "Events were dropped: too many waited for their client. List the folder, and ask again"
            raise Refusal(500, ServeCode.CALLS_OF_SANDBOX, words)
        events = list(self.events)
        self.events.clear()
        self.waiting = 0
        return events


def _memory_of(event: FilesystemEvent) -> int:
    return EVENT_BYTES + sys.getsizeof(event.name) + (memory_of(event.entry) if event.entry is not None else 0)


def _event(lease: Lease, event: FilesystemEvent) -> Piece:
    found: Piece = {"name": event.name, "type": f"EVENT_TYPE_{event.type.name}"}
    return found if event.entry is None else {**found, "entry": described(lease, event.entry)}


async def create_watcher(asked: RpcCall[WatchRequest]) -> Piece:
    """Watch a folder, until the watcher is removed."""
    watchers = asked.lease.watchers
    if sum(not one.startswith(_FOLLOWED) for one in watchers) >= MAX_WATCHERS:
        raise Refusal(429, ServeCode.CALLS_OF_SANDBOX, f"A sandbox has up to {MAX_WATCHERS} watchers. Stop one")
    identity = secrets.token_hex(8)
    watchers[identity] = None
    try:
        watcher = Watcher(await _watching(asked), watchers, asked.lease.sent)
    except BaseException:
        del watchers[identity]
        raise
    watchers[identity] = watcher
    watcher.task = asked.tenants.tasks.hold(watcher.watch(), "watching a folder")
    return {"watcherId": identity}


async def _watching(asked: RpcCall[WatchRequest]) -> Watching:
    body = asked.body
    return await asked.lease.sandbox.files.watching(
        body.path, recursive=body.recursive, include_entry=body.include_entry
    )


def _watcher(asked: RpcCall[OfWatcher]) -> tuple[str, Watcher]:
    identity = asked.body.watcher_id
    watcher = asked.lease.watchers.get(identity)
    if not isinstance(watcher, Watcher) or identity.startswith(_FOLLOWED):
        raise Refusal(404, ServeCode.REQUEST_IMPROPER, "There is no such watcher")
    return identity, watcher


async def watcher_events(asked: RpcCall[OfWatcher]) -> Piece:
    """Return what has happened since the last call."""
    _, watcher = _watcher(asked)
    return {"events": [_event(asked.lease, event) for event in await watcher.taken()]}


async def remove_watcher(asked: RpcCall[OfWatcher]) -> Piece:
    """Watch a folder no more."""
    identity, watcher = _watcher(asked)
    del asked.lease.watchers[identity]
    if watcher.task is not None:
        watcher.task.cancel()
    return {}


async def watch_dir(asked: RpcCall[WatchRequest], put: Put) -> None:
    """Tell of what happens in a folder, as long as the client listens."""
    watcher = Watcher(await _watching(asked), asked.lease.watchers, asked.lease.sent)
    identity = _FOLLOWED + secrets.token_hex(8)
    asked.lease.watchers[identity] = watcher
    try:
        await put({"start": {}})
        while True:
            for event in await watcher.next():
                await put({"filesystem": _event(asked.lease, event)})
    finally:
        del asked.lease.watchers[identity]


_SERVICE = "/filesystem.Filesystem"
ROUTES = (
    ("POST", f"{_SERVICE}/Stat", unary(stat)),
    ("POST", f"{_SERVICE}/ListDir", unary(list_dir)),
    ("POST", f"{_SERVICE}/MakeDir", unary(make_dir)),
    ("POST", f"{_SERVICE}/Move", unary(move)),
    ("POST", f"{_SERVICE}/Remove", unary(remove)),
    ("POST", f"{_SERVICE}/CreateWatcher", unary(create_watcher)),
    ("POST", f"{_SERVICE}/GetWatcherEvents", unary(watcher_events)),
    ("POST", f"{_SERVICE}/RemoveWatcher", unary(remove_watcher)),
    ("POST", f"{_SERVICE}/WatchDir", streamed(watch_dir, {"keepalive": {}})),
)
"""Each with what the access token of a sandbox opens, on the port of E2B's agent."""
