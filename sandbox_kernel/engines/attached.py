"""What a sandbox has of the host's by an exception: its datasets and disks, opened for as long as it starts.

What is opened here is what is mounted: Docker is given names of descriptors, `/proc/PID/fd/N`. So a path that is
changed in between leads nowhere else, its letters have no meaning to the engine, and the sandbox does not learn it.
bubblewrap would leave them open in the sandbox: it is given the path that they have just then, and what it mounted is
compared.
Imports errors, model, hardening and the disks; no engine's words.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeVar

from ..core.codes import EndCode
from ..core.errors import ConfigurationError, EngineError
from ..core.home_folder import home_folder
from ..core.model import ATTACHED, Attached, SandboxSpec, Settings
from . import dataset_folder
from .hardening import protections

if TYPE_CHECKING:
    import asyncio

    from .disk_images import Device

Made = TypeVar("Made")


EMPTY = "empty"
"""Among what is opened: an empty folder, which an overlay needs below a dataset's."""
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
TICK_NANOSECONDS = 10_000_000
"""By how much the time that a file system notes may be behind the clock."""


def of(settings: Settings) -> tuple[Attached, ...]:
    """Return what the settings of the plugin `data` name, in the order of their names; none without them."""
    datasets = (text.partition("=") for text in settings.get("datasets", ()))
    volumes = (text.partition(":") for text in settings.get("volumes", ()))
    found = [
        *(Attached(kind="dataset", name=name, source=path) for name, _, path in datasets),
        *(Attached(kind="volume", name=name, writable=mode == "rw") for name, _, mode in volumes),
    ]
    return tuple(sorted(found, key=lambda one: one.path))


def told(settings: Settings) -> tuple[str, ...]:
    """Return for people and models where cells find what, and whether they can write there. No folder of the host."""
    words = {
        ("dataset", False): "a dataset, read-only",
        ("volume", False): "a volume of other sessions, read-only",
        ("volume", True): "a volume, whose files outlive the session",
    }
    return tuple(f"{one.path} ({words[one.kind, one.writable]})" for one in of(settings))


class Held:
    """Open descriptors of what a sandbox is started with. They must be open until it runs, and may be closed then."""

    def __init__(self) -> None:
        self._fds: list[int] = []
        self._since: dict[str, tuple[int, int]] = {}
        self.names: dict[str, str] = {}
        """What an engine mounts at each path of the sandbox: the name of a descriptor, or a device."""
        self.descriptors: dict[str, int] = {}
        """The descriptor of each."""
        self.devices: dict[str, int] = {}
        """The number of each device (`st_rdev`), which files of its file system have (`st_dev`)."""

    def keep(self, path: str, fd: int, name: str | None = None) -> None:
        """Hold `fd` for what is to be mounted at `path`."""
        self._fds.append(fd)
        self.descriptors[path] = fd
        if path.startswith(ATTACHED) and name is None:
            self._since[path] = _changed_at(fd), time.time_ns() - TICK_NANOSECONDS
        if name is not None:
            self.devices[path] = os.fstat(fd).st_rdev
        self.names[path] = name or f"/proc/{os.getpid()}/fd/{fd}"

    def started(self) -> None:
        """Let go of devices: the machine removes each with its last mount. Folders stay open, for `changed`."""
        for path, name in self.names.items():
            if name.startswith("/dev/") and self.descriptors[path] in self._fds:
                self._fds.remove(self.descriptors[path])
                os.close(self.descriptors[path])

    def changed(self) -> dict[str, tuple[int, int, int]]:
        """Return for each folder when it was last changed as this was opened, when that was, and its last change now.

        Another folder is not taken for it, unless that one is changed in the moment of the start, and this one too.
        """
        folders = [(path, fd) for path, fd in self.descriptors.items() if fd in self._fds and path in self._since]
        return {path: (*self._since[path], _changed_at(fd)) for path, fd in folders}

    def close(self) -> None:
        """Let go of all; idempotent."""
        while self._fds:
            os.close(self._fds.pop())


def hold(spec: SandboxSpec, *, disks: bool = True) -> Held:
    """Open all that a sandbox for `spec` has of the host's; without `disks`, no scratch, which is the engine's then.

    Raises `ConfigurationError` and `EngineError`.
    """
    held = Held()
    try:
        for one in spec.attached:
            if one.kind == "volume":
                volume = _volume(one, spec.uid)
                held.keep(one.path, volume.fd, volume.path)
            else:
                held.keep(one.path, open_dataset(one, spec.reader))
        if any(one.kind == "dataset" for one in spec.attached):
            held.keep(EMPTY, empty_folder())
        for disk in protections(spec).disks if disks else ():
            from . import disk_images

            device = disk_images.scratch(disk.size_bytes, disk.owner)
            held.keep(disk.path, device.fd, device.path)
    except BaseException:
        held.close()
        raise
    return held


def opens_disks(spec: SandboxSpec) -> bool:
    """Return whether `hold` makes disks, or opens what may be on a slow one, which takes a while."""
    return may_wait(spec) or bool(spec.attached)


def may_wait(spec: SandboxSpec) -> bool:
    """Return whether `hold` may wait for programs and for other processes, by seconds."""
    return spec.limits.scratch == "disk" or any(one.kind == "volume" for one in spec.attached)


def owner(found: tuple[Attached, ...]) -> int | None:
    """Return the user id of a sandbox with these volumes, which is the same each time; None without any.

    Where they cannot be had it is None, too: `hold` says why.
    """
    for one in found:
        if one.kind == "volume" and os.geteuid() == 0:
            from . import volumes

            try:
                return volumes.at(one.source).uid()
            except EngineError:
                return None
    return None


def _volume(one: Attached, uid: int) -> Device:
    from . import volumes

    its = volumes.at(one.source)
    # Those of a broker's users are made before, within a quota.
    device = its.attach(one.name, writable=one.writable, create=not one.source)
    if its.uid() != uid:
        os.close(device.fd)
        raise volumes.unusable("those of two owners are not for one sandbox")
    return device


async def made_aside(make: Callable[[], Made], undo: Callable[[Made], object]) -> Made:
    """Return what `make` returns, made in a thread; if this is cancelled meanwhile, it is undone when it is there."""
    import asyncio

    making = asyncio.ensure_future(asyncio.to_thread(make))

    def done(made: asyncio.Future[Made]) -> None:
        if not made.cancelled() and made.exception() is None:
            undo(made.result())

    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        making.add_done_callback(done)
        raise


def open_dataset(one: Attached, reader: int | None = None) -> int:
    """Return a descriptor of a dataset's folder, for its path alone (O_PATH). Raises `ConfigurationError`.

    What `reader` may not read is refused (None: this process's user), and so is a folder that the sandbox's own user
    cannot read.
    """
    path = one.source
    if not path.startswith("/"):
        raise _refused(one, "it has no folder: name it as NAME=/path, or have the operator of a broker list it")
    try:
        fd = dataset_folder.opened(path, reader)
    except dataset_folder.UnfitFolderError as error:
        raise _refused(one, str(error)) from error
    try:
        mode = os.fstat(fd).st_mode
    except OSError as error:  # a file system of a user's own, which tells root nothing, or whose server is gone
        os.close(fd)
        raise _refused(one, f"{path}: {error.strerror}") from error
    if mode & (stat.S_IROTH | stat.S_IXOTH) != stat.S_IROTH | stat.S_IXOTH:
        os.close(fd)
        why = f"others may not read {path}, and cells have a user of their own: `chmod -R o+rX {shlex.quote(path)}`"
        raise _refused(one, why)
    return fd


def empty_folder() -> int:
    """Return a descriptor of an empty folder, which an overlay needs below one that is not. Raises `EngineError`."""
    user = os.geteuid()
    # Root's home is closed to the users that its sandboxes have. Not every user has a home.
    home = home_folder()
    first = "/var/lib" if user == 0 else f"{home}/.local/share" if home else None
    places = (f"{first}/sandbox-kernel/empty",) if first else ()
    failed = ""
    for path in (*places, f"/tmp/sandbox-kernel-{user}/empty"):  # noqa: S108 (of its owner alone, as is looked at)
        try:
            fd = _made_folder(path, user)
        except OSError as error:
            failed += f"{path}: {error.strerror}; "
            continue
        if fd is not None:
            return fd
        failed += f"{path} has to be this user's and empty, in a folder of this user's; "
    raise EngineError(EndCode.ENGINE_FAILED, f"there is no place for an empty folder: {failed.rstrip('; ')}")


def _made_folder(path: str, user: int) -> int | None:
    """Return a descriptor of an empty folder that no other user can fill, or put another in the place of.

    None for one that is not so. Raises OSError.
    """
    above, name = os.path.split(path)
    with contextlib.suppress(FileExistsError):
        os.makedirs(os.path.dirname(above))  # noqa: PTH103, PTH120 (a string)
        os.chmod(os.path.dirname(above), 0o755)  # noqa: PTH101, PTH120, S103 (whatever the umask)
    with contextlib.suppress(FileExistsError):
        os.mkdir(above)  # noqa: PTH102 (a string)
        os.chmod(above, 0o755)  # noqa: PTH101, S103 (whatever the umask)
    top = os.open(above, _FOLDER)
    try:
        if not _is_own(top, user):
            return None
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=top)
            os.chmod(name, 0o755, dir_fd=top)  # noqa: S103 (as above)
        fd = os.open(name, _FOLDER, dir_fd=top)
    finally:
        os.close(top)
    if _is_own(fd, user) and not os.listdir(f"/proc/self/fd/{fd}"):  # noqa: PTH208 (pathlib is slow to import)
        return fd
    os.close(fd)
    return None


def _is_own(fd: int, user: int) -> bool:
    status = os.fstat(fd)
    return status.st_uid == user and not status.st_mode & 0o022


def _changed_at(fd: int) -> int:
    """Return when a folder was last changed, in nanoseconds; 0 if its file system no longer says."""
    try:
        return os.fstat(fd).st_ctime_ns
    except OSError:
        return 0


def lacking(what: Literal["datasets", "volumes", "scratch"], why: str = "") -> EngineError:
    """Return the error for an engine that does not give a sandbox what a setting asks for."""
    words = "scratch on a disk" if what == "scratch" else what
    code = EndCode.ENGINE_LACKS_DATA
    return EngineError(code, f"{code.note(what=words).text}{why and f': {why}'}", setting=what)


def _refused(one: Attached, why: str) -> ConfigurationError:
    code = EndCode.DATASET_NOT_OPENED
    return ConfigurationError(code, f"{code.note(name=one.name).text}: {why}", setting="datasets")
