"""A sandbox's protections in bubblewrap's words: its arguments, as a pure function, and what it cannot enforce.

What is neither said here nor in `ELSEWHERE` and cannot be enforced is a refusal. The limits are not bubblewrap's: a
cgroup has them (`cgroups`), and what a process may have at most is set before it starts (`launch`). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...core.codes import EndCode
from ...core.errors import EngineError
from ...core.model import HOME, SCRATCH
from ...engines.attachment import EMPTY
from ...engines.hardening import Protections, Tmpfs, accounts
from .root_lookup import ETC, Root

ELSEWHERE: Mapping[str, str] = {
    "memory_bytes": "the cgroup",
    "swap_bytes": "the cgroup",
    "cpu_period_microseconds": "the cgroup",
    "cpu_quota_microseconds": "the cgroup",
    "cpuset": "the cgroup",
    "pids": "the cgroup",
    "open_files": "the process's own limit, set before it starts",
    "core_bytes": "the process's own limit, set before it starts",
    "oom_score": "the process's own score, set before it starts",
    "new_privileges": "bubblewrap sets no_new_privs for all that it starts",
}
"""Protections that no argument is for, and whose they are."""

NAMESPACES = {"cgroup": "--unshare-cgroup", "ipc": "--unshare-ipc", "pid": "--unshare-pid", "uts": "--unshare-uts"}
ALWAYS = ("--unshare-net", "--as-pid-1", "--new-session", "--clearenv")
OWN_USER = ("--unshare-user", "--disable-userns")
"""The user namespace is what gives an ordinary user all others, and there is none within it.

The second one writes to /proc/sys. Where that is read-only, the filter of system calls alone refuses another namespace.
"""

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
PROC = "/proc/"
PARTS_OF_PROC = tuple(
    f"/proc/{name}" for name in ("cpuinfo", "loadavg", "meminfo", "stat", "uptime", "version", "vmstat")
)
"""What is shown of the machine's /proc where Linux mounts no new one: nothing of any process."""
AGENT = "/proc/1"
"""Its own folder of the machine's /proc, which says what is mounted and what its rights are."""
NOT_OPENED: Mapping[str, str] = {}


class SandboxFacts(NamedTuple):
    files: frozenset[str]
    """Paths below /proc that the machine has and that are files, of those that are masked or read-only."""
    folders: frozenset[str]
    """The same for folders."""
    cgroup: tuple[tuple[str, str], ...] = ()
    """Folders of the sandbox's own cgroup, and where it sees them."""
    mounted: tuple[str, ...] = ()
    """Where the machine has mounted something below read-only paths; systemd has it at /proc/sys/fs/binfmt_misc."""
    space: int | None = None
    """A descriptor of a namespace of users that is there already, in which there is none within, either."""
    layers: frozenset[str] = frozenset()
    """Of the places where a root is bound, those that get a layer of the sandbox's own."""
    opened: Mapping[str, str] = NOT_OPENED
    """Paths of what is mounted at each path that is the host's by an exception (`engines.attachment`)."""
    own_proc: bool = True
    """Whether Linux mounts a new /proc here. It does not where something covers a part of the machine's, as in most
    containers."""


class Descriptors(NamedTuple):
    """Open files that bubblewrap reads from, or writes to."""

    filter: int
    status: int
    etc: Mapping[str, int]
    """For each file of `etc`."""


def arguments(
    wanted: Protections, root: Root, machine: SandboxFacts, descriptors: Descriptors, command: tuple[str, ...]
) -> list[str]:
    """Return what bubblewrap is started with. Raises `EngineError` for what it cannot enforce."""
    refuse(wanted, machine)
    users = OWN_USER[: 1 + machine.own_proc] if machine.space is None else ("--userns", str(machine.space))
    words = [*users, *ALWAYS, *(NAMESPACES[name] for name in sorted(NAMESPACES))]
    words += ["--uid", str(wanted.uid), "--gid", str(wanted.uid), "--hostname", wanted.hostname, "--cap-drop", "ALL"]
    for name, value in {**root.environment, **wanted.environment}.items():
        words += ["--setenv", name, value]
    words += _root(root, descriptors, machine.layers)
    if wanted.working_folder == SCRATCH:
        words += ["--symlink", SCRATCH, HOME]  # as in the image
    shared = _tmpfs("/dev/shm", wanted.shm_bytes, 0o1777)  # noqa: S108 (inside)
    words += ["--dev", "/dev", *shared, "--remount-ro", "/dev"]
    words += _proc(wanted, machine)
    if machine.cgroup:
        words += [*_folder("/sys", "0755"), *_folder("/sys/fs", "0755")]
        if any(target != "/sys/fs/cgroup" for _, target in machine.cgroup):
            words += _folder("/sys/fs/cgroup", "0755")
        for source, target in machine.cgroup:
            words += ["--ro-bind", source, target]
    paths = [*(place.path for place in wanted.writable), *(disk.path for disk in wanted.disks)]
    for parent in sorted({path.rpartition("/")[0] for path in paths} - {""}):
        words += _folder(parent, "0755")
    for place in wanted.writable:
        words += _tmpfs(place.path, place.size_bytes, place.mode)
    for place in wanted.writable:
        words += ["--remount-ro", place.path] if place.readonly else []
    words += _attached(wanted, machine.opened)
    for disk in wanted.disks:
        words += ["--bind", machine.opened[disk.path], disk.path]
    words += ["--remount-ro", "/", "--chdir", wanted.working_folder]
    words += ["--seccomp", str(descriptors.filter), "--json-status-fd", str(descriptors.status)]
    return [*words, "--", *command]


def refuse(wanted: Protections, machine: SandboxFacts) -> None:
    """Raise `EngineError` for a protection that would be left out, or a hole that is not made."""
    odd = [
        name
        for name, ok in {
            "capabilities": not wanted.capabilities,
            "new_privileges": not wanted.new_privileges,
            "networks": not wanted.networks,
            "host_folders": not wanted.host_folders,
            "volumes": all(one.layered or one.path in machine.opened for one in wanted.attached),
            "scratch on a disk": all(disk.path in machine.opened for disk in wanted.disks),
            "devices": not wanted.devices,
            "writable_root": not wanted.writable_root,
            "own_namespaces": wanted.own_namespaces == NAMESPACES.keys(),
            "readonly_paths": all(path.startswith(PROC) for path in wanted.readonly_paths),
            "masked_paths": all(path.startswith((PROC, "/sys/", "/dev/mqueue")) for path in wanted.masked_paths),
            "writable": all(_fits(place, wanted.uid) for place in wanted.writable),
            "core_bytes": wanted.core_bytes == 0,
        }.items()
        if not ok
    ]
    if odd:
        raise EngineError(
            EndCode.ENGINE_LACKS_PROTECTION,
            f"bubblewrap cannot do what is asked for: {', '.join(odd)}",
            setting="engine",
        )


def etc(wanted: Protections) -> dict[str, str]:
    """Return the files of /etc that every sandbox has of its own."""
    return {
        **accounts(wanted.uid),
        "hosts": f"127.0.0.1 localhost {wanted.hostname}\n::1 localhost\n",
        "hostname": f"{wanted.hostname}\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
        "resolv.conf": "",
    }


def variables(wanted: Protections, root: Root) -> frozenset[str]:
    """Return the names of all variables that are set; PWD is bubblewrap's."""
    return frozenset({*root.environment, *wanted.environment, "PWD"})


def mounts(root: Root, *, own_proc: bool = True) -> frozenset[str]:
    """Return where something is mounted read-only that another engine's sandboxes have no mount for."""
    parts = () if own_proc else (*PARTS_OF_PROC, AGENT)
    return frozenset({*(target for _, target in root.binds), *ETC_MOUNTS, *parts})


ETC_MOUNTS = frozenset(f"/etc/{name}" for name in ETC)
"""What every sandbox has of its own there."""


def _root(root: Root, descriptors: Descriptors, layers: frozenset[str]) -> list[str]:
    """A layer gives the sandbox inodes of its own, so that locks, leases and watches of files are not its neighbours'.

    What could be written to it is for bubblewrap alone, and closed before the sandbox's program starts.
    """
    words: list[str] = []
    for source, target in root.binds:
        if target in layers:
            words += ["--overlay-src", source, "--tmp-overlay", target, "--remount-ro", target]
        else:
            words += ["--ro-bind", source, target]
    for says, target in root.links:
        words += ["--symlink", says, target]
    if not root.etc:
        words += _folder("/etc", "0755")
    for name, descriptor in descriptors.etc.items():
        words += ["--perms", "0444", "--ro-bind-data", str(descriptor), f"/etc/{name}"]
    return words


def _attached(wanted: Protections, opened: Mapping[str, str]) -> list[str]:
    """An overlay of two folders has nothing to write to, and its root is the folder's own: its times, its rights.

    What has no layer is a file system of its own already.
    """
    words: list[str] = []
    for place in sorted({one.path.rpartition("/")[0] for one in wanted.attached}):
        words += _folder(place, "0755")
    for one in wanted.attached:
        if not one.layered:
            words += ["--bind" if one.writable else "--ro-bind", opened[one.path], one.path]
            continue
        words += ["--overlay-src", opened[EMPTY], "--overlay-src", opened[one.path], "--ro-overlay", one.path]
        words += ["--remount-ro", one.path]  # with nosuid and nodev
    return words


def _proc(wanted: Protections, machine: SandboxFacts) -> list[str]:
    """A masked file is /dev/null, a masked folder an empty read-only file system.

    A read-only path is the machine's: what it shows depends on who looks, and the settings of a namespace of its own
    would be the sandbox's to change. What the machine has mounted below comes along, and is covered. Of /sys and
    /dev/mqueue there is nothing at all. Without a /proc of its own, it has a folder with a few parts of the machine's.
    """
    if machine.own_proc:
        words, masked = ["--proc", "/proc"], PROC
    else:
        words, masked = [*_folder("/proc", "0555"), "--ro-bind", "/proc/self", AGENT], "/proc/sys/"
        for path in PARTS_OF_PROC:
            words += ["--ro-bind-try", path, path]
    for path in wanted.readonly_paths:
        if path in machine.files or path in machine.folders:
            words += ["--ro-bind", path, path]
    for path in machine.mounted:
        words += [*_tmpfs(path, 4096, 0o555), "--remount-ro", path]
    for path in sorted(path for path in wanted.masked_paths if path.startswith(masked)):
        if path in machine.files:
            words += ["--dev-bind", "/dev/null", path]
        elif path in machine.folders:
            words += [*_tmpfs(path, 4096, 0o555), "--remount-ro", path]
    return words


def _fits(place: Tmpfs, uid: int) -> bool:
    return place.owner in {None, uid}


def _tmpfs(path: str, size: int, mode: int) -> list[str]:
    return ["--perms", f"{mode:04o}", "--size", str(size), "--tmpfs", path]


def _folder(path: str, mode: str) -> list[str]:
    return ["--perms", mode, "--dir", path]
