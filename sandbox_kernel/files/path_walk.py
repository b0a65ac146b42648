"""A way through folders of the host, one name at a time: which link on it is followed, and that is nearly none.

No link is followed on a path, with one exception, for absolute paths that do not lead through the current folder:
links in the system's own folders and right in the home folder (/home -> /usr/home, ~/scratch -> /lustre/me), where
nobody but root or this user can have put them.

Everything here raises `FileRefused` for what the rule forbids, and OSError.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from ..core.codes import FileCode
from ..core.errors import FileRefused
from ..core.home_folder import home_folder

_STEP = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
"""A folder on the way need not be readable: to pass through it is enough."""

_SYSTEM = frozenset(
    (
        "/",
        "/home",
        "/usr",
        "/var",
        "/run",
        "/mnt",
        "/media",
        "/export",
        "/net",
        "/dev",
        "/System/Volumes",
        "/private/var",
    )
)
"""Folders whose links are the system's: /home -> /usr/home, /tmp -> private/tmp, /var/run -> /run, /dev/fd."""
MAX_LINKS = 16

_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFREG: "a file",
}


def kind(status: os.stat_result) -> str:
    """Return what something is, in words."""
    return _KINDS.get(stat.S_IFMT(status.st_mode), "something else")


class PathWalk:
    """A way through folders: the handle and name of each that was passed, and the names that are left."""

    def __init__(self, path: str, beneath: int | None = None) -> None:
        """Begin where `path` does; or, with no name to go yet and without a `path` of its own, at an open folder."""
        self._left = deque(path.split("/"))
        self._links = 0
        self._handles: list[int] = []
        self._names: list[str] = []
        self._free = False
        if beneath is not None:
            self._left.clear()
            self._base = "/"
            self._handles.append(os.open(".", _STEP, dir_fd=beneath))
            return
        if not path or "\0" in path:
            raise FileRefused(FileCode.PATH_NONE)
        here = os.getcwd()  # noqa: PTH109 (text, to be divided)
        inside = None if here == "/" else next((name for name in self._spellings(here) if _leads(name, path)), None)
        if not path.startswith("/") or inside is not None:
            self._base = here
            self._handles.append(os.open(".", _STEP))
            for _ in (inside or "").split("/") if inside is not None else ():
                self._left.popleft()
        else:
            self._base, self._free = "/", True
            self._handles.append(os.open("/", _STEP))

    @staticmethod
    def _spellings(here: str) -> Iterable[str]:
        """Yield the names of the current folder: its own, and the one by which the shell came to it."""
        yield here
        shown = os.environ.get("PWD", "")
        with suppress(OSError):
            if shown.startswith("/") and shown != "/" and os.path.samestat(os.stat(shown), os.stat(".")):  # noqa: PTH116
                yield shown.rstrip("/")

    @classmethod
    def beneath(cls, handle: int) -> PathWalk:
        """Begin at an open folder; the way has no `path`."""
        return cls("", handle)

    @property
    def end(self) -> int:
        return self._handles[-1]

    @property
    def path(self) -> Path:
        return Path(self._base, *self._names)

    def go(self, names: Iterable[str]) -> None:
        self._left.extend(names)
        self.go_on()

    def go_on(self, *, make: bool = False) -> None:
        """Go to the end."""
        while self._left:
            self._step(self._left.popleft(), make=make)

    def go_to_last(self, *, or_folder: bool = False) -> str:
        """Go up to the last name, which is not a link, and return it; with `or_folder`, "" for a path that has none."""
        while self._left:
            name = self._left.popleft()
            if any(left not in {"", "."} for left in self._left) or name == "..":
                self._step(name)
            elif name not in {"", "."}:
                status = os.stat(name, dir_fd=self.end, follow_symlinks=False)
                if not stat.S_ISLNK(status.st_mode):
                    if self._left and not or_folder:  # a slash follows
                        raise FileRefused(FileCode.FOLDER_NOT_FILE)
                    return name
                self._follow(name, status)
        if or_folder:
            return ""
        raise FileRefused(FileCode.FOLDER_NOT_FILE)

    def _step(self, name: str, *, make: bool = False) -> None:
        if name in {"", "."}:
            return
        if name == "..":
            self._up()
            return
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, 0o777, dir_fd=self.end)
        try:
            self._handles.append(os.open(name, _STEP, dir_fd=self.end))
            self._names.append(name)
        except OSError:
            status = os.stat(name, dir_fd=self.end, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                raise
            self._follow(name, status)

    def _up(self) -> None:
        if self._names:
            self._names.pop()
            os.close(self._handles.pop())
            return
        above = os.open("..", _STEP, dir_fd=self.end)
        os.close(self._handles.pop())
        self._handles.append(above)
        self._base = str(Path(self._base).parent)

    def _follow(self, name: str, status: os.stat_result) -> None:
        """Go where a link leads, if it is one of the system's or in the home folder; raise `FileRefused` otherwise."""
        if not stat.S_ISLNK(status.st_mode):
            from .file_rules import printable  # slow to import, and a start waits for this module

            raise FileRefused(FileCode.FOLDER_EXPECTED.note(name=printable(name), what=kind(status)))
        self._links += 1
        if self._links > MAX_LINKS or not self._is_trusted(status):
            from .file_rules import printable  # as above

            raise FileRefused(FileCode.LINK_NOT_FOLLOWED.note(name=printable(name)))
        target = os.readlink(name, dir_fd=self.end)
        if target.startswith("/"):
            while self._names:
                self._up()
        self._left.extendleft(reversed(target.split("/")))

    def _is_trusted(self, link: os.stat_result) -> bool:
        """Say whether nobody but root or this user can have put a link here, and not by unpacking a folder."""
        here, mine = os.fstat(self.end), {0, os.geteuid()}
        if not self._free or link.st_uid not in mine or here.st_uid not in mine or here.st_mode & 0o022:
            return False
        if str(self.path) in _SYSTEM:
            return True
        home = home_folder()
        with suppress(OSError):
            if home and os.path.samestat(os.stat(home), here):  # noqa: PTH116
                return True
        # What an administrator made is trusted where this user is not one.
        found = map(os.fstat, self._handles)
        return os.geteuid() != 0 and all(each.st_uid == 0 and not each.st_mode & 0o022 for each in found)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        while self._handles:
            os.close(self._handles.pop())


def _leads(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder + "/")
