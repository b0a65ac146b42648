"""The second wall: what the process of a session gives up before any code of a guest runs in it.

WebAssembly is the first wall. Here are a root of its own with nothing but the image and two sized folders in memory, no
network, no privileges, few system calls. Each part is reported, there or missing: an ordinary user may have no
namespaces. Linux; standard library.
"""

from __future__ import annotations

import ctypes
import os
import resource
from contextlib import suppress

from ...container.syscall_filters import put

IMAGE, DATA, TEMPORARY = "/image", "/data", "/tmp"  # noqa: S108 (in a root of its own)
_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_DETACH = 2
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP = 4, 38, 24
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITIES_3 = 0x20080522
MAX_FILES = 1 << 16
"""In each of the two folders: an empty one takes kernel memory as well."""

_libc = ctypes.CDLL(None, use_errno=True)


def enclose(image: str, place: str, data_bytes: int, tmp_bytes: int, uid: int) -> str | None:
    """Take a root of its own, namespaces and the user `uid`; return what forbids it, None if that was done.

    `place` is an empty folder, for the moment in which the root is made. Call before there is a second thread.
    """
    root, me, group = os.geteuid() == 0, os.geteuid(), os.getegid()
    try:
        _called(_libc.unshare(_NEWNS | _NEWUTS | _NEWIPC | _NEWNET | (0 if root else _NEWUSER)))
        if not root:
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{me} {me} 1")
            _write("/proc/self/gid_map", f"{group} {group} 1")
        _mount("none", "/", None, _REC | _PRIVATE)
        _mount("root", place, "tmpfs", _NOSUID | _NODEV, "size=64k,nr_inodes=16,mode=755")
        for path in (IMAGE, DATA, TEMPORARY):
            os.mkdir(place + path, 0o755)  # noqa: PTH102
        _mount(image, place + IMAGE, None, _BIND)
        _mount("none", place + IMAGE, None, _BIND | _REMOUNT | _RDONLY | _NOSUID | _NODEV)
        owner = uid if root else me
        for path, size in ((DATA, data_bytes), (TEMPORARY, tmp_bytes)):
            options = f"size={size},nr_inodes={MAX_FILES},mode=700"
            _mount("scratch", place + path, "tmpfs", _NOSUID | _NODEV | _NOEXEC, options)
            if root:
                os.chown(place + path, owner, owner)
        _mount("none", place, None, _REMOUNT | _RDONLY | _NOSUID | _NODEV, "size=64k,nr_inodes=16,mode=755")
        os.chdir(place)
        _called(_libc.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."))
        _called(_libc.umount2(b".", _DETACH))
        os.chdir("/")
        if root:
            os.setgroups([])
            os.setresgid(owner, owner, owner)
            os.setresuid(owner, owner, owner)
    except (OSError, LookupError) as error:
        return str(error)
    return None


def page_map(proc: int) -> int:
    """Open what shows which pages are this process's own, after `enclose`, so that it shows no addresses.

    `proc` is /proc/self, as it was before. Raises `OSError`.
    """
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # else it is root's; `give_up` takes that back
    return os.open("pagemap", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)


def give_up(calls: bytes, open_files: int, file_bytes: int) -> dict[str, bool]:
    """Drop privileges and system calls for good; `calls` is a filter as the system takes it. Say which of them went.

    Call when all that is loaded from files is loaded.
    """
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_FSIZE, file_bytes),
    ):
        with suppress(OSError, ValueError):
            resource.setrlimit(what, (most, most))
    for number in range(64):
        _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)  # of no effect without privileges
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_3, 0)
    capset = _CAPSET.get(os.uname().machine, -1)
    dropped = _libc.syscall(capset, header, (ctypes.c_uint32 * 6)()) == 0
    quiet = _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    return {"capabilities dropped": dropped, "no new privileges": quiet, "system call filter": put(_libc, calls)}


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    words = [None if one is None else one.encode() for one in (source, target, kind)]
    _called(_libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None))


def _called(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(text)
