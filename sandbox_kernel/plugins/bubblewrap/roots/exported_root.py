"""A root that is an image's file system, for a machine that has Docker to build on.

The engine gives what the image holds as a tar archive, and its names are not believed: each file goes to a folder that
was opened name by name, and no link is followed on the way. What no sandbox may have is left out: device nodes, FIFOs,
and the rights of setuid files.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import tarfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO, cast

from ....core.codes import EndCode
from ....core.errors import EngineError, ImageMissing
from ....core.model import Settings, format_bytes
from ....engines.select import make_engine
from ....setup import engine_setup
from ....setup.build_lock import alone
from ....setup.command_steps import Say, Steps
from ....setup.image_build import SILENCE_SECONDS, check_tag, engine_errors
from .root_generations import folder_of, new_generation, read

EXPORTED_VARIABLES = ("PATH", "LANG")
LEFT_OUT = ("dev", "proc", "sys", "run", "tmp")
"""What a sandbox has of its own."""
ETC = ("passwd", "group", "hosts", "hostname", "nsswitch.conf", "resolv.conf")
"""Files of the sandbox's own take the places of these."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 20


def build(source: str, *, tag: str | None = None, force: bool = False, progress: Say = print) -> str:
    """Make a root of an image that the container engine has, unless it is there already, and return its name.

    It is named as the image, unless `tag` says otherwise. Raises `EngineUnavailable`, `ImageMissing`, `EngineError`.
    """
    check_tag(source)
    check_tag(tag)
    name = tag or source
    status = engine_setup.require_engine()
    steps = Steps(progress)
    try:
        variables = asyncio.run(make_engine(Settings(engine=status.host)).image(source)).variables
    except ImageMissing as error:
        raise ImageMissing(
            EndCode.IMAGE_MISSING, f"the engine has no image {source}", setting="--from-image"
        ) from error
    with engine_errors(), closing(engine_setup.connect(status.host, seconds=SILENCE_SECONDS)) as client:
        contents = str(client.images.get(source).id)
        with alone(folder_of(name).parent, steps):
            if not force and read(folder_of(name)).get("contents") == contents:
                steps(f"the root {name} is up to date")
                return name
            with new_generation(name, contents) as made, steps.during(f"copying the files of the image {source}"):
                tree = made.path / "root"
                tree.mkdir()
                _export(client, contents, tree)
                made.said["tree"] = made.within("root")
                made.said["environment"] = {key: value for key, value in variables if key in EXPORTED_VARIABLES}
    steps(f"the root {name} is ready: {format_bytes(read(folder_of(name))['size_bytes'])} in {folder_of(name)}")
    return name


def _export(client: Any, image: str, tree: Path) -> None:
    """Copy an image's files: of a container that is never started."""
    container = client.containers.create(
        image, ["/"], entrypoint=[], network_mode="none", labels={"sandbox-kernel.build": "export"}
    )
    try:
        with tarfile.open(fileobj=cast(BinaryIO, _Stream(container.export())), mode="r|") as archive:
            unpack(archive, tree)
    except (tarfile.TarError, ValueError, OSError) as error:
        raise EngineError(EndCode.IMAGE_NOT_BUILT, f"the files of the image cannot be copied: {error}") from error
    finally:
        container.remove(force=True, v=True)
    add_etc(tree)


def add_etc(tree: Path) -> None:
    """Put files in /etc where those of the sandbox's own are to lie over them."""
    (tree / "etc").mkdir(exist_ok=True)
    for name in ETC:
        if not (tree / "etc" / name).is_file() or (tree / "etc" / name).is_symlink():
            (tree / "etc" / name).unlink(missing_ok=True)
            (tree / "etc" / name).touch()


def unpack(archive: Iterable[tarfile.TarInfo], tree: Path) -> None:
    """Write the files, folders and links of an archive beneath `tree`.

    Raises ValueError for a name that leads elsewhere. The archive is read once, from its beginning to its end.
    """
    top = os.open(tree, _FOLDER)
    try:
        for member in archive:
            parts = _parts(member.name)
            if not parts or parts[0] in LEFT_OUT or not (member.isreg() or member.isdir() or _is_link(member)):
                continue
            parent = _open_folder(top, parts[:-1])
            try:
                _write(archive, member, parent, parts[-1], top)
            finally:
                os.close(parent)
    finally:
        os.close(top)


def _is_link(member: tarfile.TarInfo) -> bool:
    return member.issym() or member.islnk()


def _parts(name: str) -> list[str]:
    """Return the way to a file, name by name. Raises ValueError for one that goes up."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in name:
        raise ValueError(f"the archive names {name[:200]!r}")
    return parts


def _open_folder(top: int, parts: list[str]) -> int:
    """Open a folder beneath `top`, no link followed; those that are missing are made. The caller closes it."""
    here = os.dup(top)
    try:
        for name in parts:
            try:
                below = os.open(name, _FOLDER, dir_fd=here)
            except FileNotFoundError:
                os.mkdir(name, 0o755, dir_fd=here)
                below = os.open(name, _FOLDER, dir_fd=here)
            os.close(here)
            here = below
    except OSError as error:
        os.close(here)
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise ValueError(f"the archive leads through a link or a file: {'/'.join(parts)[:200]!r}") from error
        raise
    return here


def _write(archive: Any, member: tarfile.TarInfo, parent: int, name: str, top: int) -> None:
    if member.isdir():
        try:
            os.mkdir(name, 0o755, dir_fd=parent)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                raise ValueError(f"the archive has a folder and a file of the name {member.name[:200]!r}") from None
    elif member.issym():
        os.symlink(member.linkname, name, dir_fd=parent)  # read within the root alone
    elif member.islnk():
        *way, last = _parts(member.linkname)
        folder = _open_folder(top, way)
        try:
            if not stat.S_ISREG(os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode):
                raise ValueError(f"the archive links {member.name[:200]!r} to what is no file")
            os.link(last, name, src_dir_fd=folder, dst_dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(folder)
    else:
        mode = 0o755 if member.mode & 0o111 else 0o644
        with os.fdopen(os.open(name, _FILE, mode, dir_fd=parent), "wb") as file:
            source = archive.extractfile(member)
            while chunk := source.read(_CHUNK):
                file.write(chunk)
            file.flush()
            os.utime(file.fileno(), (member.mtime, member.mtime))  # bytecode is taken for this very source by its time


class _Stream:
    """The chunks of an answer, read like a file."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = b""

    def read(self, size: int) -> bytes:
        while len(self._rest) < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            self._rest += chunk
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken
