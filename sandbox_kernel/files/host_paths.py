"""The way to every file and folder of the host that is named by a path: one rule, and handles in place of names.

**The working folder is as hostile as the cell**: a notebook from elsewhere comes in a folder from elsewhere. So a path
is opened one name at a time, and no link is followed on it (path_walk.py). Files are regular, with one name; what is
written appears whole under its name, in place of a regular file at most; an opened folder is kept as a handle, so that
a name which is swapped later changes nothing.

Everything here raises `FileRefused` for what the rule forbids, and OSError.

Public: plugins may import it.
"""

from __future__ import annotations

import os
import stat
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from ..core.codes import Code, FileCode, UsageCode
from ..core.errors import ConfigurationError, FileRefused
from ..core.model import MIB, format_bytes
from .path_walk import PathWalk, kind

Name = str | os.PathLike[str]
WhyNot = Callable[["Folder"], str | None]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

MAX_SOURCE_BYTES = 256 * MIB
"""Of a notebook or a script that a command reads."""
_HANDED_OVER = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""What a shell names a pipe by: a handle that this process has, and no place."""


def require_regular(status: os.stat_result) -> None:
    """Raise `FileRefused` for anything but a regular file with one name.

    A second name may lie anywhere: it lets a file of this user's be read, or be written to, under an innocent name.
    """
    if not stat.S_ISREG(status.st_mode):
        raise FileRefused(FileCode.NOT_A_FILE.note(what=kind(status)))
    if status.st_nlink > 1:
        raise FileRefused(FileCode.HARD_LINK)


@contextmanager
def usable(code: Code, what: str, *, setting: str | None = None) -> Iterator[None]:
    """Say which file or folder could not be used: what forbids it becomes a `ConfigurationError` that begins so."""
    try:
        yield
    except FileRefused as error:
        words = f"{what}: {error.message}"
        raise ConfigurationError(code, words, limit=error.limit, value=error.value, setting=setting) from None
    except OSError as error:
        raise ConfigurationError(code, f"{what}: {error.strerror or error}", setting=setting) from None


class Folder:
    """An open folder. What is done in it goes by its handle, wherever its name leads meanwhile."""

    def __init__(self, handle: int, path: Path) -> None:
        """Take over a handle. `path` is the way on which it was reached, without a link."""
        self.handle = handle
        self.path = path
        self._close = weakref.finalize(self, os.close, handle)

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode."""
        status = os.fstat(self.handle)
        return status.st_dev, status.st_ino

    @property
    def is_gone(self) -> bool:
        """Whether the folder was removed; to move it elsewhere does not count."""
        return os.fstat(self.handle).st_nlink == 0

    def close_to_others(self) -> bool:
        """Let nobody but this user enter; return False, and change nothing, if it is another user's."""
        status = os.fstat(self.handle)
        if status.st_uid != os.geteuid():
            return False
        if stat.S_IMODE(status.st_mode) & 0o077:
            os.fchmod(self.handle, 0o700)
        return True

    def opened(self) -> int:
        """Return a new handle of the same folder, for reading it and opening what is in it."""
        return os.open(".", _FOLDER, dir_fd=self.handle)

    def open_file(self, path: str) -> int:
        """Open a regular file beneath for reading; no link is followed to it."""
        *folders, name = path.split("/")
        with PathWalk.beneath(self.handle) as way:
            way.go(folders)
            return _open_regular(name, way.end)

    def require_readable(self, name: str) -> os.stat_result:
        """Return the state of a regular file of this folder that can be read."""
        handle = _open_regular(name, self.handle)
        try:
            return os.fstat(handle)
        finally:
            os.close(handle)

    def create(self, name: str, part: str | None = None) -> NewFile:
        """Begin a file, or go on with the part of it that lies here by the name `part`."""
        return NewFile(self, name, part)

    def close(self) -> None:
        """Idempotent."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Held:
    """A host folder that was opened once, and is this one from then on, wherever its name may lead.

    It may be missing at first, and one that was removed is looked for again under its name; to move it, or to put
    another one in its place, changes nothing.
    """

    def __init__(
        self, path: str | Path | Folder, setting: str, why_not: WhyNot = lambda folder: None, *, make: bool = False
    ) -> None:
        """`why_not` says of an opened folder why it cannot be used, None if it can. `make` makes it when it is used."""
        self._why_not = why_not
        self._make = make
        self._folder: Folder | None = None
        if isinstance(path, Folder):
            self.path, self._folder = path.path, path
            return
        try:
            self.path = Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100 (no link is followed)
        except (OSError, RuntimeError, ValueError) as error:
            raise ConfigurationError(UsageCode.PLACE_UNFIT, f"no such folder: {error}", setting=setting) from None
        with suppress(FileRefused):  # it is told when the folder is used
            self._keep(make=False)

    def open(self) -> int:
        """Return a new handle of the folder. Raises `FileRefused` without a path of the host.

        Its code is `FOLDER_MISSING` if there is none.
        """
        folder = self._folder
        if folder is None or folder.is_gone:
            folder = self._keep(make=self._make)
        try:
            return folder.opened()
        except OSError as error:
            raise _cannot(error) from None

    def close(self) -> None:
        """Let go of the folder; without this, that happens with the last use of the object. Idempotent."""
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.close()

    def _keep(self, *, make: bool) -> Folder:
        try:
            folder = self._made() if make else open_folder(self.path)
        except FileRefused:
            problem = "a link is on its path, or something else in the place of a folder"
            raise FileRefused(FileCode.FOLDER_NOT_OPENED.note(why=problem)) from None
        except FileNotFoundError:
            raise FileRefused(FileCode.FOLDER_MISSING) from None
        except OSError as error:
            raise _cannot(error) from None
        if reason := self._why_not(folder):
            raise FileRefused(FileCode.FOLDER_UNFIT.note(why=reason))
        self._folder = folder
        return folder

    def _made(self) -> Folder:
        """Open the folder; if it alone is missing, make it, and take it away again where it cannot be used."""
        try:
            return open_folder(self.path)
        except FileNotFoundError:
            with open_folder(self.path.parent) as parent:
                os.mkdir(self.path.name, 0o755, dir_fd=parent.handle)
                folder = open_folder(self.path)
                if self._why_not(folder):
                    with suppress(OSError):
                        os.rmdir(self.path.name, dir_fd=parent.handle)
                return folder


class NewFile:
    """A file that appears whole under its name, or not at all. It is nobody's old file: others' names stay theirs."""

    def __init__(self, folder: Folder, name: str, part: str | None = None) -> None:
        """`part` is the name of the incomplete file, which may exist; None makes a unique name."""
        if not name or name in {".", ".."} or "/" in name or "\0" in name:
            from .file_rules import printable  # slow to import, and a start waits for this module

            raise FileRefused(FileCode.NAME_IMPROPER.note(name=printable(name)))
        self._folder = folder
        self._name = name
        self._partial = part or f".sandbox-{os.urandom(8).hex()}.part"
        self._keeps, self._read = False, 0
        try:
            self._handle = os.open(self._partial, _NEW, 0o666, dir_fd=folder.handle)
        except FileExistsError:
            if part is None:
                raise
            self._handle = self._begun()
        self.size = os.fstat(self._handle).st_size
        """Bytes that were there already."""

    def _begun(self) -> int:
        """Open what an earlier copy of this user's has left. Raises `FileRefused` for anything else."""
        handle = os.open(self._partial, _APPEND & ~os.O_CREAT, dir_fd=self._folder.handle)
        try:
            status = os.fstat(handle)
            require_regular(status)
            if status.st_uid != os.geteuid():
                raise FileRefused(FileCode.OTHER_USER)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def read(self, size: int) -> bytes:
        """Return what was there already, piece by piece from its begin."""
        data = os.pread(self._handle, size, self._read)
        self._read += len(data)
        return data

    def start_again(self) -> None:
        """Let go of what was there already."""
        os.ftruncate(self._handle, 0)
        self.size = 0

    def keep_part(self) -> None:
        """Have `close` leave what is not committed, for a copy that goes on with it."""
        self._keeps = True

    def write(self, data: bytes) -> None:
        """Append."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._handle, view) :]

    def commit(self, *, links: bool = False, lasting: bool = True) -> str:
        """Give the file its name, in place of a regular file that has it, and return it.

        With `links`, also in place of a link, which is not followed. Without `lasting`, it is not waited for until the
        disk has it, as with `cp`.
        """
        folder = self._folder.handle
        with suppress(FileNotFoundError):
            status = os.stat(self._name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode) and not (links and stat.S_ISLNK(status.st_mode)):
                raise FileRefused(FileCode.NAME_TAKEN.note(where="there is", what=kind(status)))
        if lasting:
            os.fsync(self._handle)
        os.rename(self._partial, self._name, src_dir_fd=folder, dst_dir_fd=folder)
        self._partial = ""
        return self._name

    def close(self) -> None:
        """Remove what was not committed. Idempotent."""
        if self._partial and not self._keeps:
            with suppress(OSError):
                os.unlink(self._partial, dir_fd=self._folder.handle)
        self._partial = ""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def open_folder(path: Name, *, make: bool = False) -> Folder:
    """Open a folder; with `make`, those that are missing are made."""
    with PathWalk(os.fspath(path)) as way:
        way.go_on(make=make)
        return Folder(os.open(".", _FOLDER, dir_fd=way.end), way.path)


def open_file(path: Name, *, pipes: bool = False) -> int:
    """Open a regular file for reading; with `pipes`, also a FIFO, and what the shell or a parent handed over."""
    text = os.fspath(path)
    if pipes and text.startswith(_HANDED_OVER):
        return os.open(text, os.O_RDONLY | os.O_CLOEXEC)
    with PathWalk(text) as way:
        name = way.go_to_last()
        if pipes and stat.S_ISFIFO(os.stat(name, dir_fd=way.end, follow_symlinks=False).st_mode):
            return os.open(name, _READ & ~os.O_NONBLOCK, dir_fd=way.end)  # waits for its writer
        return _open_regular(name, way.end)


def fetch(name: str) -> bytes:
    """Return a notebook or a script that a command is told to read, or what comes from stdin for "-".

    It waits for a pipe as long as its writer lets it. Raises `ConfigurationError`.
    """
    with usable(UsageCode.NOTEBOOK_UNREADABLE, f"{name} cannot be read"):
        if name == "-":
            data = sys.stdin.buffer.read(MAX_SOURCE_BYTES + 1)
        else:
            with os.fdopen(open_file(name, pipes=True), "rb") as file:
                data = file.read(MAX_SOURCE_BYTES + 1)
    if len(data) > MAX_SOURCE_BYTES:
        words = f"{name} is too large"
        raise ConfigurationError(UsageCode.NOTEBOOK_TOO_LARGE, words, limit=format_bytes(MAX_SOURCE_BYTES))
    return data


def is_folder(path: Name) -> bool:
    """Return whether there is a folder of that name; what is no folder need not be there."""
    with PathWalk(os.fspath(path)) as way:
        name = way.go_to_last(or_folder=True)
        return not name or stat.S_ISDIR(os.stat(name, dir_fd=way.end, follow_symlinks=False).st_mode)


def open_parent(path: Name, *, follow: bool = False) -> tuple[Folder, str]:
    """Open the folder of a file, and return it with the file's own name; with `follow`, by the way that is read."""
    text = os.fspath(path)
    if follow:
        with PathWalk(text) as way:
            name = way.go_to_last()
            return Folder(os.open(".", _FOLDER, dir_fd=way.end), way.path), name
    parent, name = os.path.split(text)
    if name in {"", ".", ".."}:
        raise FileRefused(FileCode.FOLDER_NOT_FILE)
    return open_folder(parent or "."), name


def open_log(path: Name, begins: bytes) -> int:
    """Open a file for appending: a new one, or one of ours that is empty or begins with `begins`."""
    parent, name = os.path.split(os.fspath(path))
    with open_folder(parent or ".") as folder:
        return open_log_in(folder, name, begins)


def open_log_in(folder: Folder, name: str, begins: bytes) -> int:
    """Do what `open_log` does in an open folder."""
    try:
        handle = os.open(name, _APPEND, 0o600, dir_fd=folder.handle)
    except OSError:
        with suppress(FileNotFoundError):  # say what is there in place of "too many levels of symbolic links"
            require_regular(os.stat(name, dir_fd=folder.handle, follow_symlinks=False))
        raise
    try:
        status = os.fstat(handle)
        require_regular(status)
        if status.st_uid != os.geteuid():
            raise FileRefused(FileCode.OTHER_USER)
        if os.pread(handle, len(begins), 0) not in {b"", begins}:
            raise FileRefused(FileCode.NOT_APPENDED)
        if status.st_mode & 0o022:
            os.fchmod(handle, stat.S_IMODE(status.st_mode) & ~0o022)
    except BaseException:
        os.close(handle)
        raise
    return handle


def check_log(path: Name, begins: bytes) -> Path:
    """Return the path of a file that `open_log` would take, without a link. Makes no file."""
    parent, name = os.path.split(os.fspath(path))
    with open_folder(parent or ".") as folder:
        if name in {"", ".", ".."}:
            raise FileRefused(FileCode.FOLDER_NOT_FILE)
        with suppress(FileNotFoundError):
            require_regular(os.stat(name, dir_fd=folder.handle, follow_symlinks=False))
            os.close(open_log(folder.path / name, begins))
        return folder.path / name


def _cannot(error: OSError) -> FileRefused:
    return FileRefused(FileCode.FOLDER_NOT_OPENED.note(why=os.strerror(error.errno or 0)))


def _open_regular(name: str, folder: int) -> int:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    require_regular(status)
    handle = os.open(name, _READ, dir_fd=folder)
    try:
        require_regular(os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return handle
