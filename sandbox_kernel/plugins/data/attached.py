"""What a sandbox has of the host's by an exception: its datasets and disks, opened for as long as it starts.

This module is what engines know of data (`engines.attachment.Attachments`).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...core.codes import EndCode
from ...core.errors import ConfigurationError, EngineError
from ...core.home_folder import home_folder
from ...core.model import DATASETS, Attached, SandboxSpec, Settings
from ...engines.attachment import EMPTY
from ...engines.hardening import protections
from . import dataset_folder
from .codes import DataCode

if TYPE_CHECKING:
    from ...engines.attachment import Attachment
    from .file_watch import DatasetWatch
    from .volumes import Volumes

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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


def hold(spec: SandboxSpec, held: Attachment, *, disks: bool = True) -> None:
    """Open all that a sandbox for `spec` has of the host's; without `disks`, no scratch.

    Raises `ConfigurationError` and `EngineError`.
    """
    for one in spec.attached:
        if one.kind == "volume":
            from . import volumes

            its = volumes.at(one.source)
            # Those of a broker's users are made before, within a quota.
            volume = its.attach(one.name, writable=one.writable, create=not one.source)
            if its.uid() != spec.uid:
                os.close(volume.fd)
                raise volumes.unusable("those of two owners are not for one sandbox")
            held.keep(one.path, volume.fd, volume.path, volume.file_system)
        else:
            held.keep(one.path, open_dataset(one, spec.reader))
    if any(one.kind == "dataset" for one in spec.attached):
        held.keep(EMPTY, empty_folder())
    for disk in protections(spec).disks if disks else ():
        from . import disk_images

        device = disk_images.scratch(disk.size_bytes, disk.owner)
        held.keep(disk.path, device.fd, device.path, device.file_system)


def owner(found: tuple[Attached, ...]) -> int | None:
    """Return the user id of a sandbox with these volumes, which is the same each time; None without any.

    Where they cannot be had it is None, too: `hold` says why.
    """
    for one in found:
        if one.kind == "volume" and os.geteuid() == 0:
            try:
                return volumes(one.source).uid()
            except EngineError:
                return None
    return None


def watch(places: Mapping[str, str], *, partial: bool) -> DatasetWatch | None:
    """Hear which files of datasets are opened; None without any. Raises OSError."""
    from .file_watch import DatasetWatch

    found = {path: place for path, place in places.items() if path.startswith(DATASETS)}
    return DatasetWatch(found, partial=partial) if found else None


def not_layered(path: str, why: str) -> ConfigurationError:
    """Return the error for a dataset that could not be mounted at a path."""
    return _refused(path.removeprefix(DATASETS), why)


def disk_image(size: int, owner: int) -> int:
    """Return the file of a disk, without a name, open for reading and writing. Raises `EngineError`."""
    from . import disk_images

    return disk_images.image(size, owner)


def volumes(source: str) -> Volumes:
    """Return the volumes in a folder, as `Attached.source` names it; empty: those of this process's user."""
    from . import volumes

    return volumes.at(source)


def check_volumes() -> None:
    """Raise `EngineError` if this process cannot use volumes."""
    from . import volumes

    volumes.check()


def open_dataset(one: Attached, reader: int | None = None) -> int:
    """Return a descriptor of a dataset's folder, for its path alone (O_PATH). Raises `ConfigurationError`.

    What `reader` may not read is refused (None: this process's user), and so is a folder that the sandbox's own user
    cannot read.
    """
    path = one.source
    if not path.startswith("/"):
        raise _refused(one.name, "it has no folder: name it as NAME=/path, or have the operator of a broker list it")
    try:
        fd = dataset_folder.opened(path, reader)
    except dataset_folder.UnfitFolderError as error:
        raise _refused(one.name, str(error)) from error
    try:
        mode = os.fstat(fd).st_mode
    except OSError as error:  # a file system of a user's own, which tells root nothing, or whose server is gone
        os.close(fd)
        raise _refused(one.name, f"{path}: {error.strerror}") from error
    if mode & (stat.S_IROTH | stat.S_IXOTH) != stat.S_IROTH | stat.S_IXOTH:
        os.close(fd)
        why = f"others may not read {path}, and cells have a user of their own: `chmod -R o+rX {shlex.quote(path)}`"
        raise _refused(one.name, why)
    return fd


def empty_folder() -> int:
    """Return a descriptor of an empty folder, which an overlay needs below one that is not. Raises `EngineError`."""
    user = os.geteuid()
    # Root's home is closed to the users that its sandboxes have. Not every user has a home.
    home = home_folder()
    first = "/var/lib" if user == 0 else f"{home}/.local/share" if home else None
    places = (f"{first}/sandbox-kernel",) if first else ()
    failed = ""
    for path in (*places, f"/tmp/sandbox-kernel-{user}"):  # noqa: S108 (of its owner alone, as is looked at)
        try:
            fd = _made_folder(path, user)
        except OSError as error:
            failed += f"{path}: {error.strerror}; "
            continue
        if fd is not None:
            return fd
        failed += f"{path} has to be this user's, and folders `empty-…` in it empty; "
    raise EngineError(EndCode.ENGINE_FAILED, f"there is no place for an empty folder: {failed.rstrip('; ')}")


def _made_folder(above: str, user: int) -> int | None:
    """Return a descriptor of an empty folder that no other user can fill, or put another in the place of.

    Its name is this PID namespace's alone. None for one that is not so. Raises OSError.
    """
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
        space = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 (a magic link)
        there = os.listdir(f"/proc/self/fd/{top}")  # noqa: PTH208 (pathlib is slow to import)
        own = (name for name in there if name.startswith("empty-") and name.endswith(f"-{space}"))
        name = min(own, default=f"empty-{os.urandom(16).hex()}-{space}")
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


def _refused(name: str, why: str) -> ConfigurationError:
    code = DataCode.DATASET_NOT_OPENED
    return ConfigurationError(code, f"{code.note(name=name).text}: {why}", setting="datasets")
