"""Files of the sandbox, as the agent serves them inside the container: a bounded step a request, and no state between.

A path is relative to scratch, where no link is followed, or a whole one elsewhere, where links lead where they lead.
Elsewhere, this user may read and write what cells may, and what is no regular file is not opened there either.

The host asks for each chunk, so the agent never waits and never holds more than one. It runs as the same user as the
cells, which may race with it: they can only harm their own files, and the host believes nothing of what it gets.

Its source is shipped into the container: it must import nothing but the standard library, and run on Python 3.9.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ROOT = "/mnt/data"
CHUNK_BYTES = 1 << 20
MAX_ENTRIES = 20_000
"""Entries one listing looks at: some 0.1 s of work."""
LIST_SECONDS = 1.0
"""Of one listing, at most: where the host's disk is slow, or much of the image is asked for."""
MAX_DEPTH = 16
MAX_READS = 1024
"""Of a file that is made while it is read: such files give a page or more at a time."""
MAX_NAMED = 100
"""Things that are no regular files which a listing names; the rest is only counted."""
REMOVED_AT_ONCE = 2_000
PACKAGES = ".packages"
"""What was installed; the last folder where kernels look for modules (`engines/shipping.py`). None is a cell's work."""
SPILL = ".tmp"
"""What programs put beside their memory, where scratch is on a disk. None is a cell's work, either."""
PARTIAL = ".upload-"
"""How the name of a file starts that is still being written."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "link"}
_TOKEN = re.compile(r"[0-9a-f]{8,32}")
_STAND_IN = re.compile(r".*~([0-9a-f]{8})(?:\.[^.]{0,16})?", re.DOTALL)
_CODES = {
    errno.ENOENT: "missing",
    errno.ELOOP: "link",
    errno.EISDIR: "is_folder",
    errno.ENOTDIR: "not_folder",
    errno.ENOTEMPTY: "not_empty",
    errno.ENOSPC: "no_space",
    errno.EDQUOT: "no_space",
    errno.ENOMEM: "no_space",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.EROFS: "denied",
    errno.ENAMETOOLONG: "bad_name",
    errno.EFBIG: "endless",
    errno.EXDEV: "elsewhere",
}
_OWN = "/proc/self" if os.path.exists("/proc/self") else "/proc/1"
_OF_THE_SYSTEM = ("/proc/", "/sys/")
"""Where files have no size of their own, and what they say is made while it is read."""


def handle(op: str, request: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
    """Answer one request of the host; whatever goes wrong is part of the answer.

    file.list    limit [path]                       files [[path, *stamp]], others [[path, kind]], counts, complete
    file.read    path offset size                   stamp, and at most CHUNK_BYTES of data
    file.write   path token offset [size] [final]   stamp once it is final; until then the file has another name
    file.mkdir   path                               with all folders above it
    file.remove  path [all]                         a file, a link or an empty folder; with all, a part of any: more
    file.entries path depth limit                   entries [[path, kind, mode, link, *stamp]], complete; "" is the root
    file.stat    path                               entry; its kind may be "link to file", or another
    file.rename  path to                            with the folders above it; a file there is replaced
    file.discard token [path]                       ends an unfinished file.write

    A stamp is [size, mtime_ns, ctime_ns, inode]; [size, 0, 0, 0] for what is made while it is read, and has one chunk.
    For a name that the host does not take stands another one, with the CRC-32 of it: `_said` makes those of names that
    are no UTF-8, the host makes the others, and `_real` finds them.
    """
    try:
        if op == "file.list":
            top = _parts(request["path"]) if request.get("path") else []
            if top:
                with _folder(top):
                    pass  # it is one
            return {"ok": True, **_Listing(int(request["limit"]), top).walk()}, b""
        if op == "file.discard":
            with _folder(_beside(_real(_parts(request.get("path", "-"))))) as root, suppress(FileNotFoundError):
                os.unlink(_partial(request), dir_fd=root)
            return {"ok": True}, b""
        if op == "file.entries":
            return _entries(request["path"], int(request["depth"]), int(request["limit"])), b""
        parts = _real(_parts(request["path"]))
        if op == "file.stat":
            with _folder(parts[:-1]) as folder:
                return {"ok": True, "entry": _entry(parts[-1], folder, request["path"])}, b""
        if op == "file.rename":
            return _rename(parts, request["to"]), b""
        if op == "file.read":
            return _read(parts, int(request["offset"]), int(request["size"]))
        if op == "file.write":
            return _write(parts, request, data), b""
        if op == "file.mkdir":
            with _folder(parts, make=True):
                return {"ok": True}, b""
        if op == "file.remove":
            return _remove_all(parts) if request.get("all") else _remove(parts), b""
    except OSError as error:
        return _refusal(_CODES.get(error.errno or 0, "failed"), error.strerror or str(error))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        return _refusal("bad_request", repr(error))
    except MemoryError:
        return _refusal("no_space", "no memory is left")
    return _refusal("bad_request", f"no operation {op}")


def _refusal(code: str, message: str) -> tuple[dict[str, Any], bytes]:
    return {"ok": False, "error": code, "message": message}, b""


def _parts(path: object) -> list[str]:
    """Return the names on a way from scratch; one that begins at the root has "" for its first."""
    parts = path.split("/") if isinstance(path, str) else []
    if path == "/":
        return [""]
    if not parts or any(part in ("", ".", "..") for part in parts[_is_elsewhere(parts) :]):
        raise OSError(errno.ENAMETOOLONG, "not the path of a file")
    return parts


def _is_elsewhere(parts: list[str]) -> bool:
    return parts[:1] == [""]


def _beside(parts: list[str]) -> list[str]:
    """Return the folder where a file lies until it is whole: on the same file system as its own."""
    return parts[:-1] if _is_elsewhere(parts) else []


def _said(name: str) -> str:
    """Return what the host is told of a name: that itself, or one that stands for it, since it is no text."""
    raw = os.fsencode(name)
    text = raw.decode("utf-8", "replace")
    if text == name:
        return name
    text = text.replace("\ufffd", "_")
    dot = text.rfind(".")
    end = dot if dot > 0 and len(text) - dot <= 17 else len(text)
    return "%s~%08x%s" % (text[:end].encode()[:200].decode("utf-8", "ignore"), zlib.crc32(raw), text[end:])


def _real(parts: list[str]) -> list[str]:
    """Return a path as it is in scratch, where names of it may stand for others."""
    found: list[str] = []
    for part in parts:
        match = _STAND_IN.fullmatch(part)
        found.append(_stood_for(part, match[1], found) if match else part)
    return found


def _stood_for(part: str, digest: str, above: list[str]) -> str:
    names: list[str] = []
    with suppress(OSError), _folder(above) as folder, os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, MAX_ENTRIES)]
    if part in names:
        return part
    ours = (name for name in names if part == (said := _said(name)) or digest == "%08x" % zlib.crc32(said.encode()))
    return min(ours, default=part)


def _partial(request: dict[str, Any]) -> str:
    token = request["token"]
    if not _TOKEN.fullmatch(token):
        raise ValueError("a token is 8 to 32 hexadecimal digits")
    return PARTIAL + str(token)


def _stamp(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


@contextmanager
def _folder(parts: list[str], make: bool = False) -> Iterator[int]:
    """Open a folder: beneath scratch one name at a time, so that no link is followed on the way."""
    if _is_elsewhere(parts):
        path = "/".join(parts) or "/"
        if make:
            os.makedirs(path, 0o755, exist_ok=True)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)
        return
    fd = os.open(os.path.realpath(ROOT), _FOLDER)  # of which one name may be a link of the agent's own
    try:
        for part in parts:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=fd)
            if stat.S_ISLNK(os.stat(part, dir_fd=fd, follow_symlinks=False).st_mode):
                raise OSError(errno.ELOOP, "a folder on the way is a link")
            inner = os.open(part, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _regular(name: str, folder: int, flags: int, follow: bool = False) -> int:
    """Open a regular file; a device or a FIFO is not even opened, unless a cell swaps it in at that moment."""
    status = os.stat(name, dir_fd=folder, follow_symlinks=follow)
    fd = -1
    if stat.S_ISREG(status.st_mode):
        fd = os.open(name, flags | (_FILE & ~os.O_NOFOLLOW if follow else _FILE), dir_fd=folder)
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode):
            return fd
        os.close(fd)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    raise OSError(errno.ELOOP, "it is a link, or no regular file")


def _read(parts: list[str], offset: int, size: int) -> tuple[dict[str, Any], bytes]:
    with _folder(parts[:-1]) as folder:
        fd = _regular(parts[-1], folder, os.O_RDONLY, _is_elsewhere(parts))
    try:
        size = max(0, min(size, CHUNK_BYTES))
        if _is_elsewhere(parts) and os.readlink("%s/fd/%d" % (_OWN, fd)).startswith(_OF_THE_SYSTEM):
            said = _all_of(fd)
            return {"ok": True, "stamp": [len(said), 0, 0, 0]}, said[offset : offset + size]
        data = os.pread(fd, size, offset)
        return {"ok": True, "stamp": _stamp(os.fstat(fd))}, data
    finally:
        os.close(fd)


def _all_of(fd: int) -> bytes:
    """Return all of a file that is made while it is read, which may have no end."""
    said = b""
    for _ in range(MAX_READS):
        if not (data := os.read(fd, CHUNK_BYTES)):
            return said
        said += data
        if len(said) > CHUNK_BYTES:
            break
    raise OSError(errno.EFBIG, "it is larger than one chunk")


def _write(parts: list[str], request: dict[str, Any], data: bytes) -> dict[str, Any]:
    partial, offset = _partial(request), int(request["offset"])
    with _folder(_beside(parts), make=True) as root:
        if offset == 0:
            free = os.fstatvfs(root)
            if free.f_blocks and free.f_bavail * free.f_frsize < int(request.get("size") or 0):
                raise OSError(errno.ENOSPC, "scratch has no room for the whole file")
            fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o644, dir_fd=root)
        else:
            fd = _regular(partial, root, os.O_WRONLY)
        try:
            if os.fstat(fd).st_size != offset:
                raise OSError(errno.EIO, "the part before this one is not there")
            view = memoryview(data)
            while view:
                done = os.pwrite(fd, view, offset)
                offset, view = offset + done, view[done:]
            if not request.get("final"):
                return {"ok": True}
            with _folder(parts[:-1], make=True) as folder:
                os.rename(partial, parts[-1], src_dir_fd=root, dst_dir_fd=folder)
            return {"ok": True, "stamp": _stamp(os.fstat(fd))}
        except OSError:
            with suppress(OSError):
                os.unlink(partial, dir_fd=root)
            raise
        finally:
            os.close(fd)


def _remove(parts: list[str]) -> dict[str, Any]:
    with _folder(parts[:-1]) as folder:
        if stat.S_ISDIR(os.stat(parts[-1], dir_fd=folder, follow_symlinks=False).st_mode):
            os.rmdir(parts[-1], dir_fd=folder)
        else:
            os.unlink(parts[-1], dir_fd=folder)
    return {"ok": True}


def _remove_all(parts: list[str]) -> dict[str, Any]:
    """Remove what is in a folder, as much as one step may do, and the folder itself when it is empty."""
    left, way = REMOVED_AT_ONCE, [parts]
    while left:
        with _folder(way[-1][:-1]) as folder:
            status = os.stat(way[-1][-1], dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            _remove(way[-1])
            return {"ok": True}
        below: list[str] | None = None
        with _folder(way[-1]) as folder:
            with os.scandir(folder) as entries:
                names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(entries, left)]
            for name, is_folder in names:
                if is_folder:
                    below = [*way[-1], name]
                    break
                os.unlink(name, dir_fd=folder)
                left -= 1
        if below is not None:
            left -= 1
            way.append(below)
        elif not names:
            _remove(way.pop())
            if not way:
                return {"ok": True}
    return {"ok": True, "more": True}


def _rename(parts: list[str], path: str) -> dict[str, Any]:
    to = _real(_parts(path))
    with _folder(parts[:-1]) as source, _folder(to[:-1], make=True) as target:
        os.rename(parts[-1], to[-1], src_dir_fd=source, dst_dir_fd=target)
        return {"ok": True, "entry": _entry(to[-1], target, path)}


def _entry(name: str, folder: int, path: str) -> list[Any]:
    status = os.stat(name or "/", dir_fd=folder, follow_symlinks=False)
    kind, link = _KINDS.get(stat.S_IFMT(status.st_mode), "other"), None
    if kind == "link":
        link = os.readlink(name, dir_fd=folder).encode("utf-8", "backslashreplace").decode()
        with suppress(OSError):  # it leads nowhere
            target = _KINDS.get(stat.S_IFMT(os.stat(name, dir_fd=folder).st_mode), "other")
            kind = "link to " + target
    return [path, kind, stat.S_IMODE(status.st_mode), link, *_stamp(status)]


def _entries(path: str, depth: int, limit: int) -> dict[str, Any]:
    """List a folder and those below it, so many levels deep, those near the root first."""
    top = _real(_parts(path)) if path else []
    with _folder(top):
        pass  # it is one
    found: list[list[Any]] = []
    complete = True
    left = max(0, min(limit, MAX_ENTRIES))
    folders = deque([(top, 1, path.rstrip("/") + "/" if path else "")])
    end = time.monotonic() + LIST_SECONDS
    while folders:
        if time.monotonic() > end:
            return {"ok": True, "entries": found, "complete": False}
        above, level, under = folders.popleft()
        try:
            with _folder(above) as folder, os.scandir(folder) as entries:
                for entry in entries:
                    if not left:
                        return {"ok": True, "entries": found, "complete": False}
                    left -= 1
                    if (not above or _is_elsewhere(above)) and entry.name.startswith(PARTIAL):
                        continue
                    with suppress(FileNotFoundError):  # a process of the cell removed it just now
                        row = _entry(entry.name, folder, under + _said(entry.name))
                        found.append(row)
                        if row[1] != "dir" or level >= min(depth, MAX_DEPTH):
                            complete = complete and (row[1] != "dir" or depth < MAX_DEPTH)
                        else:
                            folders.append(([*above, entry.name], level + 1, row[0] + "/"))
        except OSError:  # closed to its own user, or removed just now
            complete = False
    return {"ok": True, "entries": found, "complete": complete}


class _Listing:
    """The regular files of a folder, those near it first: a huge folder further down hides nothing above it."""

    def __init__(self, limit: int, top: list[str]) -> None:
        self.files: list[list[Any]] = []
        self.others: list[list[str]] = []
        self.counts: dict[str, int] = {}
        self.complete = True
        self._left = max(0, min(limit, MAX_ENTRIES))
        self._folders: deque[list[str]] = deque([top])

    def walk(self) -> dict[str, Any]:
        end = time.monotonic() + LIST_SECONDS
        while self._folders and self.complete:
            if time.monotonic() > end:
                self.complete = False
                break
            above = self._folders.popleft()
            try:
                with _folder(above) as folder, os.scandir(folder) as entries:
                    for entry in entries:
                        if self._left == 0:
                            self.complete = False
                            break
                        self._left -= 1
                        self._add(entry, [*above, entry.name])
            except OSError:
                self._leave_out(above or ["."], "unreadable")
        return {"files": self.files, "others": self.others, "counts": self.counts, "complete": self.complete}

    def _add(self, entry: os.DirEntry[str], parts: list[str]) -> None:
        if len(parts) == 1 and (entry.name.startswith(PARTIAL) or entry.name in (PACKAGES, SPILL)):
            return
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:  # a process of the cell removed it just now
            return
        kind = stat.S_IFMT(status.st_mode)
        if kind not in (stat.S_IFREG, stat.S_IFDIR):
            names = {stat.S_IFLNK: "link", stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket"}
            self._leave_out(parts, names.get(kind, "device"))
        elif len(parts) + (kind == stat.S_IFDIR) > MAX_DEPTH:
            self._leave_out(parts, "too deep")
        elif kind == stat.S_IFDIR:
            self._folders.append(parts)
        else:
            self.files.append(["/".join(map(_said, parts)), *_stamp(status)])

    def _leave_out(self, parts: list[str], kind: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if len(self.others) < MAX_NAMED:
            self.others.append(["/".join(parts).encode("utf-8", "backslashreplace").decode(), kind])
