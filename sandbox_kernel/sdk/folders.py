"""What lies in the folders of a sandbox, awaited: listed, made, moved, removed and watched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, overload

from ..core.codes import UsageCode
from ..core.errors import ConfigurationError, FileNotThere
from ..files import scratch
from ..files.scratch import Ask, Stamp
from . import entries
from .callbacks import Callback
from .entries import DEEPEST, AsyncWatchHandle, Entries, EntryInfo, FileInfo, FileList, FilesystemEvent, Watching
from .following import OWN_USERS
from .paths import Name, folder_of, named, relative

OF_A_SERVICE = frozenset((
    "allow_network_mounts", "gzip", "request_timeout", "stream_idle_timeout", "use_octet_stream", "user",
))  # fmt: skip
"""What hosted interpreters take besides: how files are carried, which has no effect here, and whose they are."""


def check_service(given: Mapping[str, Any]) -> None:
    """Raise for an argument that does not exist, and for another user than the sandbox's own."""
    if unknown := sorted(given.keys() - OF_A_SERVICE):
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}")
    if given.get("user") not in OWN_USERS:
        why = f"the files are those of the sandbox's own user, and not of {given['user']!r}"
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, why, setting="user")


class Scratch(Protocol):
    """What files need of a sandbox."""

    async def ask(self, *, fresh: bool) -> Ask:
        """Return the way to ask the agent; with `fresh`, a sandbox that is gone is replaced by a new one."""

    def arrived(self, path: str, stamp: Stamp) -> None:
        """Note that a file was written by the caller, and not by a cell."""

    def record(self, op: str, path: str, size: int, sha256: str | None) -> None:
        """Write down that a file went in or came out."""


class AsyncFolders:
    """The folders of one sandbox; a part of `AsyncFiles`. Methods raise `FileRefused` with the reason."""

    _place: Scratch

    @overload
    async def list(self, path: Name = "", depth: None = None, **service: Any) -> FileList: ...
    @overload
    async def list(self, path: Name = "", *, depth: int, **service: Any) -> Entries: ...
    @overload
    async def list(self, path: Name, depth: int, **service: Any) -> Entries: ...
    async def list(self, path: Name = "", depth: int | None = None, **service: Any) -> FileList | Entries:
        """Return what lies in a folder, in the order of the paths.

        Without a `depth`, the regular files in it and in all folders below it; with one, files, folders and links,
        so many levels deep.
        """
        check_service(service)
        folder, ask = folder_of(path), await self._place.ask(fresh=False)
        if depth is not None:
            return await named(folder, entries.entries(ask, folder, entries.depth_of(depth)))
        under = f"{folder}/" if folder else ""
        found = await scratch.listing(ask)
        return [FileInfo(file.path, file.stamp.size) for file in found if file.path.startswith(under)]

    async def exists(self, path: Name, **service: Any) -> bool:
        """Return whether there is a regular file, or a folder, of that name."""
        check_service(service)
        reply, _ = await (await self._place.ask(fresh=False))("file.read", path=relative(path), offset=0, size=0)
        return reply.get("ok") is True or reply.get("error") == "is_folder"

    async def get_info(self, path: Name, **service: Any) -> EntryInfo:
        """Return what a file, a folder or a link is, as the sandbox says. Raises `FileNotThere` for nothing."""
        check_service(service)
        name = relative(path)
        return await named(name, entries.stat(await self._place.ask(fresh=False), name))

    async def rename(self, old_path: Name, new_path: Name, **service: Any) -> EntryInfo:
        """Move a file or a folder, with the folders above the new place; a file there is replaced."""
        check_service(service)
        name, to = relative(old_path), relative(new_path)
        return await named(name, entries.rename(await self._place.ask(fresh=False), name, to))

    async def remove(self, path: Name, *, recursive: bool = False, **service: Any) -> None:
        """Remove a file or an empty folder; with `recursive`, a folder with all that is in it."""
        check_service(service)
        name = relative(path)
        ask = await self._place.ask(fresh=False)
        await named(name, entries.remove_all(ask, name) if recursive else scratch.remove(ask, name))

    async def make_folder(self, path: Name) -> None:
        """Make a folder and those above it; that it is there already is fine."""
        name = relative(path)
        await named(name, scratch.make_folder(await self._place.ask(fresh=True), name))

    async def make_dir(self, path: Name, **service: Any) -> bool:
        """Make a folder and those above it; return whether it was not there already."""
        check_service(service)
        await self._place.ask(fresh=True)
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
        **service: Any,
    ) -> AsyncWatchHandle:
        """Call `on_event` for what changes in a folder, until `stop`, or for `timeout` seconds (0: until its end).

        The folder is looked at four times a second; what comes and goes in between is not seen.
        """
        watching = await self.watching(path, recursive=recursive, include_entry=include_entry, service=service)
        return AsyncWatchHandle(watching, on_event, on_exit, timeout or None)

    async def watching(
        self, path: Name, *, recursive: bool, include_entry: bool, service: Mapping[str, Any]
    ) -> Watching:
        """Look at a folder for the first time; for handles."""
        service = {name: value for name, value in service.items() if name != "allow_network_mounts"}
        check_service(service)
        place, folder = self._place, folder_of(path)

        async def ask() -> Ask:
            return await place.ask(fresh=False)

        watching = Watching(ask, folder, depth=DEEPEST if recursive else 1, entry=include_entry)
        await named(folder, watching.look())
        return watching
