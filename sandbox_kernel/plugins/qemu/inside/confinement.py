"""The confinement of the sandbox in a virtual machine: what it sees, what it may use, and what it may call.

It is that of other engines, made by the machine's first process: the attestation finds it alike. All of it is held by
the machine's own kernel, and the machine is the wall around that.
Runs in the machine, where the host ships its source: standard library only, and Python 3.9 and later.
"""

from __future__ import annotations

import base64
import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
from typing import Any, NoReturn

CGROUP = "/sys/fs/cgroup"
GROUP = CGROUP + "/sandbox"
PLACE = "/run/sandbox"
"""Where the sandbox's root is put together."""
ETC = "/run/etc"

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_NOATIME = 1, 2, 4, 8, 32, 1024
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWPID, NEWNET = 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_SET_DUMPABLE = 24, 38, 22, 4
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
SHARED = "/dev/shm"  # noqa: S108 (the sandbox's own)
DATASETS, HOST = "/mnt/datasets", "/run/datasets"
"""Where the sandbox has folders of the host's, and where the machine has them before."""
OF_HOST = "trans=virtio,version=9p2000.L,msize=524288,cache=none,access=any"
"""Nothing is kept here, so what is changed on the host is seen at once, and takes no memory of the sandbox's."""
DISK = "/dev/vdb"
"""The machine's second one."""

libc = ctypes.CDLL(None, use_errno=True)


def called(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (what, os.strerror(number)))
    return result


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    words = [each.encode() if each else None for each in (source, target, kind)]
    called(libc.mount(*words, ctypes.c_ulong(flags), options.encode() if options else None), "mount " + target)


def bind(source: str, target: str, *, writable: bool = False) -> None:
    mount(source, target, flags=MS_BIND)
    if not writable:
        mount("", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def separate() -> None:
    """Give this process, and all that it starts, namespaces of its own."""
    called(libc.unshare(NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWPID | NEWNET), "unshare")


def limit(wanted: dict[str, Any]) -> None:
    """Make the sandbox's cgroup."""
    mount("cgroup2", CGROUP, "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    write(CGROUP + "/cgroup.subtree_control", "+memory +pids +cpu")
    os.mkdir(GROUP)
    write(GROUP + "/memory.max", str(wanted["memory_bytes"]))
    if os.path.exists(GROUP + "/memory.swap.max"):
        write(GROUP + "/memory.swap.max", "0")
    write(GROUP + "/pids.max", str(wanted["pids"]))
    write(GROUP + "/cpu.max", "%d %d" % (wanted["cpu_quota"], wanted["cpu_period"]))


def tmpfs(path: str, size: int, mode: int, *, files: int | None = None, owner: int = 0) -> None:
    more = ",nr_inodes=%d" % files if files else ""
    options = "size=%d,mode=%o,uid=%d,gid=%d%s" % (size, mode, owner, owner, more)
    mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options)


def build(wanted: dict[str, Any]) -> None:
    """Mount what the sandbox sees, and make it the root; the process has namespaces of its own."""
    mount("", "/", flags=MS_REC | MS_PRIVATE)
    os.makedirs(PLACE, exist_ok=True)
    os.makedirs(ETC, exist_ok=True)
    mount("/", PLACE, flags=MS_BIND)
    mount("", PLACE, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
    devices()
    mount("proc", PLACE + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    cover(wanted["masked"], wanted["readonly"])
    mount("cgroup2", PLACE + CGROUP, "cgroup2", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for name, text in wanted["etc"].items():
        write(ETC + "/" + name, text)
        os.chmod(ETC + "/" + name, 0o444)
        bind(ETC + "/" + name, PLACE + "/etc/" + name)
    for place in wanted["writable"]:
        tmpfs(PLACE + place["path"], place["bytes"], place["mode"], files=place["files"], owner=place["owner"])
    for path in wanted["disks"]:
        mount(DISK, PLACE + path, "ext4", MS_NOSUID | MS_NODEV | MS_NOATIME)
        os.chmod(PLACE + path, 0o700)
    if wanted["datasets"]:
        datasets(wanted["datasets"])
    tmpfs(PLACE + SHARED, wanted["shm_bytes"], 0o1777)
    mount("", PLACE + "/dev", flags=MS_REMOUNT | MS_RDONLY | MS_NOSUID)
    os.chdir(PLACE)
    called(libc.syscall(PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
    called(libc.umount2(b".", MNT_DETACH), "umount")
    os.chdir("/")


def datasets(paths: list[str]) -> None:
    """Mount each folder of the host's at its path, from the one device that has them all."""
    plain = MS_NOSUID | MS_NODEV | MS_NOEXEC
    os.mkdir(HOST)
    mount("datasets", HOST, "9p", MS_RDONLY | plain | MS_NOATIME, OF_HOST)
    tmpfs(PLACE + DATASETS, 1 << 16, 0o755)
    for path in paths:
        os.mkdir(PLACE + path, 0o755)
        mount(HOST + "/" + path.rpartition("/")[2], PLACE + path, flags=MS_BIND)
        mount("", PLACE + path, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | plain | MS_NOATIME)
    mount("", PLACE + DATASETS, flags=MS_REMOUNT | MS_RDONLY | plain)


def devices() -> None:
    mount("tmpfs", PLACE + "/dev", "tmpfs", MS_NOSUID, "size=65536,mode=755")
    for name, (major, minor) in DEVICES.items():
        path = PLACE + "/dev/" + name
        os.mknod(path, 0o20666, os.makedev(major, minor))
        os.chmod(path, 0o666)  # noqa: S103 (as everywhere)
    for name, says in {"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"}.items():
        os.symlink("/proc/self/fd" + says, PLACE + "/dev/" + name)
    os.mkdir(PLACE + SHARED)
    os.mkdir(PLACE + "/dev/pts")
    mount("devpts", PLACE + "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    os.symlink("pts/ptmx", PLACE + "/dev/ptmx")


def cover(masked: list[str], readonly: list[str]) -> None:
    """Hide what is nobody's business, and keep the rest of the kernel's switches from being changed."""
    for path in readonly:
        if os.path.exists(PLACE + path):
            bind(PLACE + path, PLACE + path)
    for path in masked:
        there = PLACE + path
        if os.path.isdir(there):
            mount("tmpfs", there, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "size=4096,mode=555")
        elif os.path.exists(there):
            mount(PLACE + "/dev/null", there, flags=MS_BIND)


def loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14x", b"lo", IFF_UP)
        fcntl.ioctl(sock, SIOCSIFFLAGS, request)


def drop(wanted: dict[str, Any]) -> None:
    """Give up every right that root has, for ever."""
    for name, value in ((resource.RLIMIT_NOFILE, wanted["open_files"]), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(name, (value, value))
    with open("/proc/sys/kernel/cap_last_cap") as file:
        last = int(file.read())
    for number in range(last + 1):
        called(libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0), "prctl")
    os.setgroups([])
    os.setresgid(wanted["uid"], wanted["uid"], wanted["uid"])
    os.setresuid(wanted["uid"], wanted["uid"], wanted["uid"])
    called(libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl")
    called(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")


def confine(calls: bytes) -> None:
    """Put the host's list of system calls around this process."""

    class FilterProgram(ctypes.Structure):
        """struct sock_fprog."""

        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

    buffer = ctypes.create_string_buffer(calls, len(calls))
    argument = FilterProgram(len(calls) // 8, ctypes.addressof(buffer))
    called(libc.prctl(PR_SET_SECCOMP, 2, ctypes.byref(argument), 0, 0), "seccomp")


def become(wanted: dict[str, Any], ends: tuple[int, int, int]) -> NoReturn:
    """Turn this process, the first of its namespace, into the sandbox's program."""
    build(wanted)
    loopback()
    socket.sethostname(wanted["hostname"])
    os.setsid()
    for number, fd in enumerate(ends):
        os.dup2(fd, number)
    for number in (signal.SIGPIPE, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    drop(wanted)
    os.chdir(wanted["folder"])
    os.umask(0o022)
    confine(base64.b64decode(wanted["calls"]))
    os.execvpe(wanted["command"][0], wanted["command"], wanted["environment"])  # noqa: S606 (the host's words)
