"""The seam of what is mounted into a sandbox besides its own folders: opened while it starts, and closed with it.

What is opened is what is mounted: Docker is given names of descriptors, `/proc/PID/fd/N`. So a path that is
changed in between leads nowhere else, its letters have no meaning to the engine, and the sandbox does not learn it.
An engine that sees another /proc than this process cannot mount these, and is given paths (`Attachment.use_paths`).
bubblewrap would leave them open in the sandbox: it is given the path that they have just then, and what it mounted is
compared. What there is to mount, a plugin knows (`Attachments`), which is imported for a sandbox that has some.

Public: plugins may import it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from ..core.codes import EndCode
from ..core.errors import EngineError
from ..core.model import DATASETS, Attached, SandboxSpec, Settings, format_bytes
from ..plugins import index

if TYPE_CHECKING:
    from ..core.errors import ConfigurationError
    from ..plugins.api import FileWatch

EMPTY = "empty"
"""Among what is opened: an empty folder, which an overlay needs below another one. No other machine, and no other
PID namespace, has a folder of its name: an engine that finds it there sees the files of this process."""
TICK_NANOSECONDS = 10_000_000
"""By how much the time that a file system notes may be behind the clock."""
_IN_A_LIST = re.compile(r"[,:\\]")
"""Letters that mean something to an overlay's list of folders."""


class Attachment:
    """Open descriptors of what a sandbox is started with. They must be open until it runs, and may be closed then."""

    def __init__(self) -> None:
        self._fds: list[int] = []
        self._since: dict[str, tuple[int, int]] = {}
        self._disks: dict[str, int] = {}
        self.foreign = False
        """Whether it was opened with the rights of another user than this process's: a path could lead elsewhere."""
        self.names: dict[str, str] = {}
        """What an engine mounts at each path of the sandbox: the name of a descriptor, or a device."""
        self.descriptors: dict[str, int] = {}
        """The descriptor of each."""
        self.devices: dict[str, int] = {}
        """The number of each device (`st_rdev`), which files of its file system have (`st_dev`)."""

    def keep(self, path: str, fd: int, name: str | None = None, file_system: int = 0) -> None:
        """Hold `fd` for what is to be mounted at `path`; a device has a name, and the number of its file system."""
        self._fds.append(fd)
        self.descriptors[path] = fd
        if path.startswith(DATASETS):
            self._since[path] = _changed_at(fd), time.time_ns() - TICK_NANOSECONDS
        if name is not None:
            self.devices[path] = os.fstat(fd).st_rdev
            self._disks[path] = file_system
        self.names[path] = name or f"/proc/{os.getpid()}/fd/{fd}"
        if path == EMPTY:
            self.names[path] += f"/../{os.path.basename(_path_of(fd))}"  # noqa: PTH119 (a string)

    def use_paths(self) -> None:
        """Name each folder by its path, which an engine in other namespaces may see as well. Raises `EngineError`.

        What only this container has, it does not see, but for the folder in which the container's own files are.
        """
        if self.foreign:
            what = "a folder for another user, whose path may lead elsewhere by then: start the broker where that runs"
            raise EngineError(EndCode.FOLDER_NOT_MOUNTED.note(what=what))
        own, upper = os.stat("/").st_dev, container_files()  # noqa: PTH116 (pathlib is slow to import)
        for path, fd in self.descriptors.items():
            if path in self.devices:
                continue
            place = _path_of(fd)
            if upper and os.fstat(fd).st_dev == own:
                if path != EMPTY:
                    raise unseen(place, ", which is in this container's own files")
                place = upper + place
            if _IN_A_LIST.search(place):
                raise unseen(place, ", for a comma, a colon or a backslash in its path")
            self.names[path] = place

    def started(self) -> None:
        """Let go of devices: the machine removes each with its last mount. Folders stay open, for `identities`."""
        for path, name in self.names.items():
            if name.startswith("/dev/") and self.descriptors[path] in self._fds:
                self._fds.remove(self.descriptors[path])
                os.close(self.descriptors[path])

    def identities(self) -> dict[str, tuple[int, int, int]]:
        """Return for each folder when it was last changed as this was opened, when that was, and its last change now.

        Another folder is not taken for it, unless that one is changed in the moment of the start, and this one too.
        For a disk, it is the number of its file system, three times.
        """
        folders = [(path, fd) for path, fd in self.descriptors.items() if fd in self._fds and path in self._since]
        disks = {path: (number, number, number) for path, number in self._disks.items()}
        return disks | {path: (*self._since[path], _changed_at(fd)) for path, fd in folders}

    def close(self) -> None:
        """Let go of all; idempotent."""
        while self._fds:
            os.close(self._fds.pop())


# --- what the plugin knows --------------------------------------------------------------------------------------------


class Volume(NamedTuple):
    """A volume as a list shows it."""

    name: str
    size_bytes: int
    used_bytes: int | None
    """As its file system said when it was last written to; None if that is no file system."""
    used_by: str
    """Who uses it just now, for people; empty: no sandbox."""


class Quota(NamedTuple):
    """What one owner of volumes may have."""

    volumes: int
    total_bytes: int
    """Of their largest sizes, whatever is in them."""


class VolumeFolder(Protocol):
    """The volumes of one owner. Methods raise `EngineError`."""

    @property
    def folder(self) -> str: ...

    def list(self) -> tuple[Volume, ...]: ...

    def create(
        self, name: str, size: int | None = None, *, quota: Quota | None = None, exist_ok: bool = False
    ) -> None: ...

    def remove(self, name: str) -> None: ...

    def rename(self, name: str, new: str) -> None: ...

    def repair(self, name: str) -> None:
        """Have a volume in order that was cut off while it was written to, unless somebody uses it."""


class Attachments(Protocol):
    """What a plugin knows of what is mounted into sandboxes (`Plugin.attachments`)."""

    def of(self, settings: Settings) -> tuple[Attached, ...]:
        """Return what settings name, in the order of their paths."""

    def told(self, settings: Settings) -> tuple[str, ...]:
        """Return for people and models where cells find what. No folder of the host."""

    def hold(self, spec: SandboxSpec, held: Attachment, *, disks: bool) -> None:
        """Open what a sandbox has; without `disks`, no scratch. Raises `ConfigurationError` and `EngineError`."""

    def owner(self, found: tuple[Attached, ...]) -> int | None:
        """Return the user id that a sandbox has to have for these; None if any will do."""

    def watch(self, places: Mapping[str, str], *, partial: bool) -> FileWatch | None:
        """Hear which files are opened; None if there is nothing that can be watched. Raises OSError.

        `places` says where this process reaches what is mounted at each path; `partial` is as for `FileWatch`.
        """

    def not_layered(self, path: str, why: str) -> ConfigurationError:
        """Return the error for a folder that could not be mounted at a path."""

    def disk_image(self, size: int, owner: int) -> int:
        """Return the file of a disk, without a name, open for reading and writing. Raises `EngineError`."""

    def volumes(self, source: str) -> VolumeFolder:
        """Return the volumes in a folder, as `Attached.source` names it."""

    def check_volumes(self) -> None:
        """Raise `EngineError` if this process cannot use volumes."""


def provider(setting: str | None = None) -> Attachments:
    """Return what a plugin knows, for `setting`. Raises `ConfigurationError` if it is not here."""
    made = index.attachments(setting).attachments
    assert made is not None  # noqa: S101 (for the reader of types)
    return cast("Attachments", made())


def of(settings: Settings) -> tuple[Attached, ...]:
    """Return what settings name, in the order of their paths; none without such settings."""
    asked = index.attaching(settings)
    return () if asked is None else provider(asked).of(settings)


def told(settings: Settings) -> tuple[str, ...]:
    """Return for people and models where cells find what, and whether they can write there. No folder of the host."""
    asked = index.attaching(settings)
    return () if asked is None else provider(asked).told(settings)


def hold(spec: SandboxSpec, *, disks: bool = True) -> Attachment:
    """Open all that a sandbox for `spec` has; without `disks`, no scratch, which is the engine's then.

    Raises `ConfigurationError` and `EngineError`.
    """
    held = Attachment()
    held.foreign = spec.reader not in {None, os.geteuid()}
    if spec.attached or (disks and spec.limits.scratch == "disk"):
        try:
            provider(spec.attached[0].setting if spec.attached else "scratch").hold(spec, held, disks=disks)
        except BaseException:
            held.close()
            raise
    return held


def opens_disks(spec: SandboxSpec) -> bool:
    """Return whether `hold` makes disks, or opens what may be on a slow one, which takes a while."""
    return may_wait(spec) or bool(spec.attached)


def may_wait(spec: SandboxSpec) -> bool:
    """Return whether `hold` may wait for programs and for other processes, by seconds."""
    return spec.limits.scratch == "disk" or not all(one.layered for one in spec.attached)


def owner(found: tuple[Attached, ...]) -> int | None:
    """Return the user id that a sandbox has to have for what is mounted, the same each time; None if any will do."""
    return provider(found[0].setting).owner(found) if found else None


def watch(places: Mapping[str, str], *, partial: bool) -> FileWatch | None:
    """Hear which files are opened; None if there is nothing that can be watched. Raises OSError.

    `places` says where this process reaches what is mounted at each path; `partial` is as for `FileWatch`.
    """
    return provider().watch(places, partial=partial) if places else None


# --- errors, and what they are decided by -----------------------------------------------------------------------------


def lacking(setting: str, why: str = "") -> EngineError:
    """Return the error for an engine that does not give a sandbox what a setting asks for."""
    words = "scratch on a disk" if setting == "scratch" else setting
    code = EndCode.ENGINE_LACKS_DATA
    return EngineError(code, f"{code.note(what=words).text}{why and f': {why}'}", setting=setting)


def unseen(place: str, why: str = "") -> EngineError:
    """Return the error for an engine that cannot mount a folder or a device by the name that it has here."""
    remedy = "The engine has to be on this machine, and have its devices"
    if not place.startswith("/dev/"):
        remedy = f"It has to be on a local disk, and within a container it has to come by `--volume {place}:{place}`"
    code = EndCode.FOLDER_NOT_MOUNTED
    return EngineError(code, f"{code.note(what=f'{place}{why}').text}. {remedy}")


def no_disk(why: str) -> EngineError:
    """Return the error for a disk that cannot be made."""
    return EngineError(EndCode.DISK_NOT_MADE, f"{EndCode.DISK_NOT_MADE.text}: {why}", setting="scratch")


def no_room(size: int, free: int) -> EngineError:
    """Return the error for what the host's disk has no room for."""
    return EngineError(
        EndCode.DISK_NOT_MADE,
        "the host's disk has no room for it",
        limit=f"{format_bytes(free)} that are free",
        value=format_bytes(size),
        setting="scratch_size",
    )


def file_system(path: str) -> int | None:
    """Return the number of the kind of a folder's file system, the first word of statfs(2); None if there is none."""
    import ctypes
    import sys

    said = ctypes.create_string_buffer(512)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.statfs(os.fsencode(path), said) != 0:
        return None
    return int.from_bytes(said.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)


def container_files() -> str:
    """Return where the machine itself has the files of the container that this process is in.

    Empty where it is in none, or where its root is no overlay.
    """
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 (as below)
        found = re.findall(r"^\S+ \S+ \S+ / / .* - overlay .*[ ,]upperdir=(/[^ ,]*)", file.read(), re.MULTILINE)
    return found[-1] if found else ""


def _path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 (pathlib is slow to import)


def _changed_at(fd: int) -> int:
    """Return when a folder was last changed, in nanoseconds; 0 if its file system no longer says."""
    try:
        return os.fstat(fd).st_ctime_ns
    except OSError:
        return 0
