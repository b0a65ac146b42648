"""Is the sandbox what was asked for? Two witnesses are compared with the spec: the sandbox itself, and the engine.

What the sandbox says is compared here, and what an engine says where its language is known. Fails closed: what is
missing, unreadable or of a strange type differs. Pure. What a runtime cannot show is listed in `EXCUSED`, what an
engine cannot with its provider, and nowhere else.

Public: plugins may import it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..core.errors import AttestationFailed
from ..core.model import HOME, SCRATCH, Attached, SandboxSpec
from .base import AttestationCheck, Inspection
from .hardening import (
    CPU_PERIOD_MICROSECONDS,
    MASKED_PATHS,
    OF_A_USER,
    PAGE_BYTES,
    READONLY_PATHS,
    cpu_quota,
    protections,
)
from .select import excuses

EPERM, EINVAL, ENOSYS = 1, 22, 38

ALL_CLOSED = {
    "AF_NETLINK": EINVAL,
    "AF_PACKET": EPERM,
    "AF_ALG": EPERM,
    "AF_VSOCK": EPERM,
    "TIOCSTI": EPERM,
    "F_SETLEASE": EPERM,
    "priority of the agent": EPERM,
    "signal to the agent": EPERM,
}

OWN_FILTERS = 2
"""The list of calls, and what keeps cells off the agent."""

TMPFS = {"/tmp", SCRATCH, HOME, "/dev/shm"}  # noqa: S108
"""Where a cell may write: scratch is at one of its two names."""

SYSTEM_MOUNTS = {
    "/": None,
    "/proc": "proc",
    "/dev": "tmpfs",
    "/dev/pts": "devpts",
    "/dev/mqueue": None,
    "/sys": "sysfs",
}
"""What every container has, and its type; None: the storage driver's, or masked."""

READONLY_MOUNTS = {
    "/",
    "/sys",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/run/.containerenv",
    *("/proc/bus", "/proc/fs", "/proc/irq"),
    *READONLY_PATHS,
}
"""Mounts that may be there, and must be read-only. An engine that masks by a list of its own has three more."""

DEVICES = {"/dev/full", "/dev/null", "/dev/pts/ptmx", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero"}

FALLBACK_TUNNELS = {"tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "sit0", "ip6tnl0", "ip6gre0"}
"""Some kernels put these into every new network namespace. They are down, and nothing in the sandbox can raise them."""

ENVIRONMENT = {"PATH", "HOSTNAME", "HOME", "LC_CTYPE", "container"}
"""Set by the engines, and by Python itself (PEP 538)."""

_ENGINE_S_FILTER = "system call filter of the engine alone for AF_NETLINK"
_OUTSIDE = "gVisor runs inside the limits that the engine sets and does not show them; the engine's word is checked"
_OWN = "gVisor is a kernel of its own: the engine's filter is for the host's, and gVisor puts one around itself"

_SHARED = "gVisor shows the host's file system as one of its own; the engine's word on it is checked"

ANYTHING = "whatever it is"

WITHOUT_A_CGROUP = "bubblewrap without a cgroup"
WITH_A_FOLDER = "bubblewrap with a folder for a disk"
WITHOUT_EITHER = "bubblewrap without a cgroup and with a folder for a disk"
DOCKER_WITHOUT_A_CGROUP = "docker without a cgroup"
PODMAN_WITHOUT_A_CGROUP = "podman without a cgroup"
LOOKED_AT = frozenset({
    WITHOUT_A_CGROUP, WITH_A_FOLDER, WITHOUT_EITHER, DOCKER_WITHOUT_A_CGROUP, PODMAN_WITHOUT_A_CGROUP,
})  # fmt: skip
"""Where some limit is not the machine's to keep: somebody looks at what is used."""
EXCUSED: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "runsc": {
        "ambient capabilities": ("nothing", "gVisor has none"),
        "no_new_privs": ("nothing", "gVisor does not honour setuid files and does not report the flag"),
        "seccomp mode": ("0", _OWN),
        f"{_ENGINE_S_FILTER} (error number)": ("0", "gVisor's own netlink knows the loopback only"),
        "memory limit": ("nothing", _OUTSIDE),
        "process limit": ("nothing", _OUTSIDE),
        "CPU quota and period": ("[None, None]", _OUTSIDE),
        "device nodes": (
            "/dev/fuse, /dev/net/tun or /dev/fuse or /dev/net/tun",
            "gVisor's own, useless without capabilities",
        ),
        "options of /tmp": (
            "rw",
            "gVisor honours neither setuid files nor device nodes, and does not report the options",
        ),
        f"options of {SCRATCH}": ("rw", "as for /tmp"),
        "options of /dev/shm": ("noexec, rw", "as for /tmp"),
        "file system of a dataset": ("9p", _SHARED),
        "options of a dataset": ("rw", f"{_SHARED}; nothing can be written to it"),
        "file system of a volume": ("9p", _SHARED),
        "options of a volume": ("rw or ro", "as for /tmp"),
        "file system of a disk": ("9p", _SHARED),
        "size of a disk": ("nothing", _SHARED),
    },
}
"""What a runtime shows differently: which other value is accepted, and why. Everything else is a difference, but for
what the engine excuses (`select.EngineProvider.excuses`)."""

GVISOR_KERNEL = "4.4.0"
"""The version that gVisor gives itself. The excuses above are for gVisor, not for whatever is registered as runsc."""


OF_THE_OWNER = (65534, 1)
"""How a sandbox sees groups of an ordinary user who started it, and could drop none: as none that it knows, or, in a
namespace of two users, as what the owner's own group is called there."""
THE_OWNER_S = "those of its owner"


def demand(lines: Iterable[AttestationCheck]) -> None:
    """Raise `AttestationFailed`, with one sentence for each difference, unless all is as asked for."""
    if found := tuple(line.sentence for line in lines if not line.ok):
        raise AttestationFailed(found)


def checks(spec: SandboxSpec, report: object, witness: Inspection) -> tuple[AttestationCheck, ...]:
    """Return all comparisons: `report` is what the sandbox says of itself, `witness` what its engine says."""
    inside = report if isinstance(report, Mapping) else {}
    if all(at(mount, "path") != spec.scratch for mount in as_list(inside.get("mounts"))):
        spec = spec.without_home()  # not every engine has scratch there; each keeps the same walls around it
    found = [*_inside(spec, inside, witness.environment), *_mounts(spec, inside.get("mounts"), witness), *witness.lines]
    if witness.shared:
        found.append(same("system call filter for inotify (error number)", ENOSYS, inside.get("inotify")))
    if (excused := excuses(witness.engine) if witness.engine else EXCUSED.get(spec.runtime or "")) is None:
        return tuple(found)
    if spec.runtime in EXCUSED:
        kernel = str(inside.get("kernel"))
        found.append(
            AttestationCheck("gVisor's kernel", GVISOR_KERNEL, kernel, kernel == GVISOR_KERNEL or "gvisor" in kernel)
        )
    return tuple(_excuse(check, *excused.get(check.name, (None, ""))) for check in found)


def _excuse(check: AttestationCheck, value: str | None, reason: str) -> AttestationCheck:
    if check.ok or value is None or (value != ANYTHING and check.found not in value.split(" or ")):
        return check
    return AttestationCheck(check.name, f"{value} ({reason})", check.found, ok=True, excuse=reason)


def same(name: str, expected: object, found: object) -> AttestationCheck:
    """Compare two values, one of them from an inspection."""
    # The type as well: True is not 1 in a report.
    ok = type(found) is type(expected) and found == expected
    return AttestationCheck(name, short(expected), short(found), ok)


def only(name: str, allowed: set[str], found: object) -> AttestationCheck:
    """Every name that was found must be allowed."""
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        return AttestationCheck(name, "a list", short(found), ok=False)
    return AttestationCheck(
        name, "nothing else", ", ".join(sorted(set(found) - allowed))[:200] or "nothing else", set(found) <= allowed
    )


def _other_groups(spec: SandboxSpec, groups: object) -> AttestationCheck:
    """What an engine cannot take away is excused by its name: the engine then compares these groups itself."""
    known = {spec.uid, *OF_THE_OWNER}
    of_owner = isinstance(groups, list) and groups and all(type(each) is int and each in known for each in groups)
    return AttestationCheck(
        "other groups", "none", THE_OWNER_S if of_owner else short(groups), groups in ([], [spec.uid])
    )


def _inside(spec: SandboxSpec, report: Mapping[str, Any], variables: frozenset[str]) -> Iterator[AttestationCheck]:
    """What the sandbox sees of itself, mounts apart; it may have the environment `variables` that its engine set."""
    limits = spec.limits
    yield same("process id of the agent", 1, report.get("pid"))
    yield same("user ids", [spec.uid] * 3, report.get("uids"))
    yield same("group ids", [spec.uid] * 3, report.get("gids"))
    yield _other_groups(spec, report.get("groups"))
    for kind in ("inheritable", "permitted", "effective", "bounding", "ambient"):
        yield same(f"{kind} capabilities", 0, at(report, "capabilities", kind))
    yield same("no_new_privs", 1, report.get("no_new_privileges"))
    yield same("seccomp mode", 2, report.get("seccomp_mode"))
    yield same(f"{_ENGINE_S_FILTER} (error number)", EINVAL, at(report, "own_filters", "netlink before"))
    yield _own_filters(report.get("own_filters"))
    for name, expected in ALL_CLOSED.items():
        yield same(f"system call filter for {name} (error number)", expected, at(report, "probes", name))
    yield only("network interfaces besides lo", {"lo", *FALLBACK_TUNNELS}, report.get("interfaces"))
    yield only("addresses that answer", set(), report.get("reached"))
    yield same("open files", [limits.open_files] * 2, at(report, "rlimits", "nofile"))
    for name in OF_A_USER:
        yield _few(name, at(report, "rlimits", name))
    yield same("core file size", [0, 0], at(report, "rlimits", "core"))
    yield same("memory limit", limits.memory // PAGE_BYTES * PAGE_BYTES, at(report, "cgroup", "memory_bytes"))
    yield _swap(spec, report)
    yield same("process limit", limits.pids, at(report, "cgroup", "pids"))
    cpu = [at(report, "cgroup", "cpu_quota"), at(report, "cgroup", "cpu_period")]
    yield same("CPU quota and period", [cpu_quota(limits), CPU_PERIOD_MICROSECONDS], cpu)
    if spec.cpuset is not None and spec.runtime not in EXCUSED:  # gVisor does not show the host's
        yield same("processors", spec.cpuset, report.get("processors"))
    wanted = protections(spec)
    places = {place.path for place in wanted.writable if not place.readonly}
    places |= {one.path for one in wanted.mounts if one.writable}
    yield only("writable places", {"/dev/shm"} | places, report.get("writable"))  # noqa: S108
    yield only("device nodes", DEVICES, report.get("devices"))
    yield only("environment variables", ENVIRONMENT | variables, report.get("environment"))
    yield same("host name", "sandbox", report.get("hostname"))


def _few(name: str, found: object) -> AttestationCheck:
    """A limit of what the machine counts by user is one for this process and all that it starts, and no higher."""
    most = OF_A_USER[name]
    ok = isinstance(found, list) and len(found) == 2 and all(type(each) is int and 0 <= each <= most for each in found)
    return AttestationCheck(f"limit of {name}", f"at most {most}", short(found), ok)


def _own_filters(found: object) -> AttestationCheck:
    """The agent put its filters around its kernels; a system that counts the filters of a process counts them, too."""
    taken, counted = at(found, "taken"), at(found, "counted")
    ok = type(taken) is int and taken == OWN_FILTERS and (counted is None or counted == taken)
    shown = str(taken) if ok else f"{short(taken)}, of which the system counts {short(counted)}"
    return AttestationCheck("system call filters of the agent", str(OWN_FILTERS), shown, ok)


def _swap(spec: SandboxSpec, report: Mapping[str, Any]) -> AttestationCheck:
    """Memory and swap together are limited, or there is no swap to be had (a kernel may not count it)."""
    both, swap = at(report, "cgroup", "memory_and_swap_bytes"), at(report, "cgroup", "swap_bytes")
    none = type(report.get("swap_kib")) is int and report["swap_kib"] == 0
    limited = both == spec.limits.memory // PAGE_BYTES * PAGE_BYTES
    found = f"{short(both)} of both, {short(swap)} of swap, host has {short(report.get('swap_kib'))} KiB"
    return AttestationCheck("swap", "none", found, limited or swap == 0 or (none and both is None and swap is None))


def _mounts(spec: SandboxSpec, mounts: object, witness: Inspection) -> Iterator[AttestationCheck]:
    """Nothing is mounted that was not asked for, and the three places to write have their size and options."""
    listed = as_list(mounts)
    if not listed or not all(isinstance(m, Mapping) and isinstance(m.get("path"), str) for m in listed):
        yield AttestationCheck("mounts", "a list", short(mounts), ok=False)
        return
    top = {m["path"]: m for m in listed}  # of several at one place, the last is the one that is seen
    wanted = protections(spec)
    disks = {disk.path for disk in wanted.disks}
    covers = {place.path: place for place in wanted.writable if place.path not in TMPFS}
    checked = {one.path for one in spec.attached} | disks | covers.keys()
    limits = spec.limits
    sizes = {"/tmp": limits.tmp_size, spec.scratch: limits.scratch_size, "/dev/shm": limits.shm_size}  # noqa: S108
    strange = [
        f"{m['path']} ({m.get('type')}, {'read-only' if 'ro' in as_list(m.get('options')) else 'writable'})"
        for m in top.values()
        if m["path"] not in checked
        and (m["path"] in TMPFS - sizes.keys() or not known_mount(m, witness.mounts))
        and not is_writable_group(m)
    ]
    yield AttestationCheck("mounts besides the sandbox's own", "none", ", ".join(strange)[:300] or "none", not strange)
    writable = any(map(is_writable_group, top.values()))
    yield AttestationCheck("control groups", "read-only", "writable" if writable else "read-only", not writable)
    bare = ", ".join(sorted(path for path in witness.layers if at(top, path, "type") != "overlay"))
    yield AttestationCheck(
        "layers above what others have", "all", f"none for {bare}"[:300] if bare else "all", not bare
    )
    yield AttestationCheck(
        "root file system", "read-only", short(as_list(at(top, "/", "options"))), _readonly(top.get("/", {}))
    )
    for place_of, size in sizes.items():
        mount, path = top.get(place_of, {}), SCRATCH if place_of == spec.scratch else place_of
        options = set(as_list(mount.get("options")))
        if place_of in disks:
            yield same("file system of a disk", "ext4", mount.get("type"))
            yield _of_a_disk(size, mount.get("bytes"))
            yield from _identity("disk of scratch", mount, witness.attached.get(place_of))
        else:
            yield same(f"file system of {path}", "tmpfs", mount.get("type"))
            yield same(f"size of {path}", -(-size // PAGE_BYTES) * PAGE_BYTES, mount.get("bytes"))
        missing = {"nosuid", "nodev"} - options
        yield AttestationCheck(f"options of {path}", "nosuid, nodev", ", ".join(sorted(map(str, options))), not missing)

    for place in (place for path, place in covers.items() if path in top):
        found = top[place.path]
        ok = (found.get("type"), found.get("root")) == ("tmpfs", "/") and (_readonly(found) or not place.readonly)
        shown = f"{short(found.get('type'))}, {', '.join(map(str, as_list(found.get('options'))))}"
        yield AttestationCheck(f"mount of {place.path}", "read-only tmpfs" if place.readonly else "tmpfs", shown, ok)
        if not place.readonly:
            yield same(f"size of {place.path}", place.size_bytes, found.get("bytes"))

    for one in spec.attached:
        yield from _attached(one, top.get(one.path, {}), witness.attached.get(one.path))


def _of_a_disk(size: int, found: object) -> AttestationCheck:
    """A file system of a disk takes some of it for itself, and is never larger."""
    ok = type(found) is int and size * 3 // 4 <= found <= size
    return AttestationCheck("size of a disk", f"{size}, less what its file system takes", short(found), ok)


def _attached(
    one: Attached, mount: Mapping[str, Any], identity: tuple[int, int, int] | None
) -> Iterator[AttestationCheck]:
    """What the sandbox has of the host's is the folder that was opened, and has no way out of it."""
    options = set(as_list(mount.get("options")))
    wanted = {"nosuid", "nodev", "rw" if one.writable else "ro"}
    yield same(f"file system of a {one.kind}", "overlay" if one.layered else "ext4", mount.get("type"))
    shown = ", ".join(sorted(map(str, options))) or "nothing"
    yield AttestationCheck(f"options of a {one.kind}", ", ".join(sorted(wanted)), shown, wanted <= options)
    yield from _identity(f"folder of the {one.kind} {one.name}", mount, identity)


def _identity(name: str, mount: Mapping[str, Any], identity: tuple[int, int, int] | None) -> Iterator[AttestationCheck]:
    if identity is not None:
        found, (before, opened, now) = mount.get("identity"), identity
        ok = type(found) is int and (found == before or opened <= found <= now)
        other = "another one, which the engine has at its path"
        yield AttestationCheck(name, "the one that was opened", "the same" if ok else other, ok)


BELOW_READONLY = tuple(f"{path}/" for path in READONLY_PATHS)


def known_mount(mount: Mapping[str, Any], more: frozenset[str] = frozenset()) -> bool:
    """Return whether a sandbox has such a mount: its `path`, `type`, `root` and `options`, as mountinfo has them.

    `more` are places where its engine mounts something of its own, read-only.
    """
    path, kind = mount["path"], mount.get("type")
    if path in more:
        return _readonly(mount)
    if path in TMPFS:
        return kind == "tmpfs" and mount.get("root") == "/"
    if path in MASKED_PATHS and kind in {"tmpfs", "devtmpfs", "mqueue"}:
        # A masked folder is an empty read-only file system, a masked file is /dev/null. The engine's own /dev/mqueue
        # lies below the mask.
        return _readonly(mount) or mount.get("root") == "/null" or kind == "mqueue"
    if path == "/sys/fs/cgroup" or path.startswith("/sys/fs/cgroup/"):
        return _readonly(mount) if kind in {"cgroup", "cgroup2"} else (path == "/sys/fs/cgroup" and kind == "tmpfs")
    if path in DEVICES:
        return kind in {"devtmpfs", "tmpfs"}  # an engine without root binds the host's nodes, for it can make none
    if kind == "tmpfs" and mount.get("root") == "/" and path.startswith(BELOW_READONLY):
        return _readonly(mount)  # it covers what the machine has mounted there, such as /proc/sys/fs/binfmt_misc
    if path in READONLY_MOUNTS and not _readonly(mount):
        return False
    return path in READONLY_MOUNTS or (path in SYSTEM_MOUNTS and kind == SYSTEM_MOUNTS[path])


def is_writable_group(mount: Mapping[str, Any]) -> bool:
    """Return whether the file system of a control group is not mounted read-only. Its folder may be root's still."""
    of_groups = str(mount["path"]).startswith("/sys/fs/cgroup") and mount.get("type") in {"cgroup", "cgroup2"}
    return of_groups and not _readonly(mount)


def _readonly(mount: Mapping[str, Any]) -> bool:
    return "ro" in as_list(mount.get("options"))


def at(document: object, *path: str) -> Any:
    """Return what lies at a path of keys, None where there is nothing."""
    for key in path:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document


def as_list(value: object) -> list[Any]:
    """Return a list as it is, and an empty one for anything else."""
    return value if isinstance(value, list) else []


def short(value: object) -> str:
    """Return a value as it is shown in a line."""
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 120 else text[:117] + "..."
