"""What the machine says of a sandbox, seen from outside: its process's own files in /proc, and its cgroup.

bubblewrap is gone once the sandbox's program runs, and remembers nothing; the system does. Fails closed: what is
missing or unreadable differs. `look` reads; the comparison is pure.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...core.model import SandboxSpec
from ...engines import neighbours
from ...engines.attachment import file_system
from ...engines.attestation import WITH_A_FOLDER, WITHOUT_A_CGROUP, WITHOUT_EITHER, same
from ...engines.base import AttestationCheck, Inspection
from ...engines.hardening import OF_A_USER, PAGE_BYTES, Protections
from ...engines.socket_memory import sockets_line
from .arguments import mounts, variables
from .cgroups import CPUSET, CgroupSet
from .launch import Launched, digest, drops, has_own_proc, walls
from .root_lookup import Root

NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
STATUS = {
    "user ids": "Uid",
    "group ids": "Gid",
    "no_new_privs": "NoNewPrivs",
    "seccomp mode": "Seccomp",
    "inheritable capabilities": "CapInh",
    "permitted capabilities": "CapPrm",
    "effective capabilities": "CapEff",
    "bounding capabilities": "CapBnd",
    "ambient capabilities": "CapAmb",
}
PROC_SUPER_MAGIC = 0x9FA0
OWN_PROC, PARTS = "one of its own", "parts of the machine's"
LIMITS = {"sigpending": "Max pending signals", "memlock": "Max locked memory"}


@dataclass(frozen=True, slots=True)
class SeenProcess:
    """What is to be read of a sandbox's first process, of bubblewrap's own and of the cgroup."""

    status: dict[str, str] = field(default_factory=dict)
    own_namespaces: tuple[str, ...] = ()
    words: str = ""
    """The digest of bubblewrap's arguments."""
    score: str = ""
    cgroups: str = ""
    limits: dict[str, str] = field(default_factory=dict)
    own_limits: dict[str, str] = field(default_factory=dict)
    """Of the process itself, by the names that the system gives them."""
    disks: dict[str, str] = field(default_factory=dict)
    """The numbers of device and inode of what it sees where it is to have a disk."""
    proc: str = ""
    core: int = 0
    """What tells those who may share a core with it from others; 0 if everybody may."""


def look(launched: Launched, first: int) -> SeenProcess:
    """Read all of it; `first` is the sandbox's first process. What cannot be read is left out."""
    rows = (row.partition(":") for row in _read(f"/proc/{first}/status").splitlines())
    arguments = _read(f"/proc/{launched.pid}/cmdline").split("\0")
    return SeenProcess(
        {name: value.strip() for name, _, value in rows},
        tuple(name for name in NAMESPACES if _namespace(first, name) not in {"", _namespace(os.getpid(), name)}),
        digest(arguments[1:-1]),
        _read(f"/proc/{first}/oom_score_adj").strip(),
        _read(f"/proc/{first}/cgroup"),
        limits_of(launched.group) if launched.group is not None else {},
        {row[:25].strip(): row[25:] for row in _read(f"/proc/{first}/limits").splitlines()},
        {path: _numbers(f"/proc/{first}/root{path}") for path in launched.disks},
        _proc(first),
        neighbours.core_of(first),
    )


def _proc(first: int) -> str:
    """Return whose /proc a sandbox has: a new one, or only the folder of its first process from this machine's."""
    place = f"/proc/{first}/root/proc"
    if file_system(place) == PROC_SUPER_MAGIC:
        return OWN_PROC if _numbers(place) != _numbers("/proc") else "the machine's"
    return PARTS if _numbers(f"{place}/1") == _numbers(f"/proc/{first}") != "" else "another one's"


def limits_of(group: CgroupSet) -> dict[str, str]:
    memory, pids, cpu = (group.place(name) for name in ("memory", "pids", "cpu"))
    names = {
        1: ("memory.limit_in_bytes", "pids.max", ("cpu.cfs_quota_us", "cpu.cfs_period_us")),
        2: ("memory.max", "pids.max", ("cpu.max",)),
    }[group.version]
    quota = " ".join(_read(f"{cpu.folder}/{name}").strip() for name in names[2])
    own = [folder for name, folder in group.folders if group.version == 2 or CPUSET in name.split(",")]
    processors = _read(f"{own[0]}/cpuset.cpus").strip() if own else ""
    return {
        "processors": processors,
        "memory limit": _read(f"{memory.folder}/{names[0]}").strip(),
        "process limit": _read(f"{pids.folder}/{names[1]}").strip(),
        "CPU quota and period": quota,
    }


def witness(
    spec: SandboxSpec, root: Root, launched: Launched, words: list[str], seen: SeenProcess | None
) -> Inspection:
    """Compare what was seen with `spec`; `words` are the arguments that bubblewrap was to be started with."""
    wanted, seen = walls(spec), seen or SeenProcess()
    limits = (
        () if drops() else _of_a_user(seen)
    )  # root's sandboxes have counts of their own, and their agent limits them
    lines: tuple[AttestationCheck, ...] = (*compared(wanted, launched, words, seen), *limits)
    if spec.core_scheduling == "on":
        alone = seen.core not in {0, neighbours.core_of(os.getpid())}
        lines = (*lines, same("engine: shares a core with its own alone", True, alone))
    excused = "bubblewrap"
    if spec.limits_kept == "best-effort":
        lacks = {(True, False): WITHOUT_A_CGROUP, (False, True): WITH_A_FOLDER, (True, True): WITHOUT_EITHER}
        excused = lacks.get((launched.group is None, launched.folder is not None), excused)
    if launched.folder is not None:
        lines = (*lines, *_of_a_folder(spec.limits.scratch_size, seen))
    changed, there = launched.held.identities(), mounts(root, own_proc=has_own_proc())
    return Inspection(lines, variables(wanted, root), there, excused, True, launched.layers, changed)


def _of_a_user(seen: SeenProcess) -> Iterator[AttestationCheck]:
    """The limits that its first process has, of what the machine counts by user."""
    for name, row in LIMITS.items():
        said = seen.own_limits.get(row, "").split()[:2]
        ok = len(said) == 2 and all(each.isdigit() and int(each) <= OF_A_USER[name] for each in said)
        yield AttestationCheck(
            f"engine: limit of {name}", f"at most {OF_A_USER[name]}", " ".join(said) or "nothing", ok
        )


def _of_a_folder(size: int, seen: SeenProcess) -> Iterator[AttestationCheck]:
    """A folder is no disk, which a setting has to accept; the largest file is a limit of the process."""
    yield same("engine: scratch", "a disk of its own", "a folder of this user's")
    yield same("engine: largest file", [f"{size}"] * 2, seen.own_limits.get("Max file size", "").split()[:2])


def other_groups(found: str) -> AttestationCheck:
    """The groups that its process has besides its own, in the machine's numbers.

    Linux lets an ordinary user drop no group. Each gives what the owner could do with the folders that the sandbox was
    given, and nothing else: nothing of the root, and no device, is a group's. Root's is no ordinary user's, but in a
    container that was started with the number of a user alone: there it is the user's own.
    """
    if drops():
        return same("engine: other groups", "", found)
    numbers = {int(each) if each.isdigit() else -1 for each in found.split()}
    ok = numbers <= {*os.getgroups(), os.getgid()} and (0 not in numbers or os.getgid() == 0)
    return AttestationCheck("engine: other groups", "none, or those of its owner without root's", found or "none", ok)


def compared(
    wanted: Protections, launched: Launched, words: list[str], seen: SeenProcess
) -> tuple[AttestationCheck, ...]:
    return tuple(_compared(wanted, launched, words, seen))


def _compared(
    wanted: Protections, launched: Launched, words: list[str], seen: SeenProcess
) -> Iterator[AttestationCheck]:
    yield same("engine: arguments", digest(words), seen.words)
    uid = "\t".join([str(launched.host_uid)] * 4)
    asked = {"user ids": uid, "group ids": None, "no_new_privs": "1", "seccomp mode": "2"}
    for name, key in STATUS.items():
        expected = asked.get(name, "0" * 16)
        if expected is not None:
            yield same(f"engine: {name}", expected, seen.status.get(key))
    yield other_groups(seen.status.get("Groups", "?"))
    yield same("engine: /proc", OWN_PROC, seen.proc)
    yield same("engine: namespaces of its own", ", ".join(NAMESPACES), ", ".join(seen.own_namespaces))
    for path, numbers in launched.disks.items():
        yield same(f"engine: disk at {path}", numbers, seen.disks.get(path))
    yield same("engine: score when the machine has no memory", str(wanted.oom_score), seen.score)
    if launched.group is None:
        yield same("engine: cgroup", "one of its own", "none")
        return
    rows = [row.split(":", 2) for row in seen.cgroups.splitlines()]
    inside = {name for _, names, path in rows if path.endswith(f"/{launched.name}") for name in names.split(",")}
    needed = {""} if launched.group.version == 2 else {"memory", "pids", "cpu", *([CPUSET] if wanted.cpuset else [])}
    missing = ", ".join(sorted(needed - inside)) if needed - inside != {""} else "all"
    yield AttestationCheck(
        "engine: cgroup", "one of its own", f"not for {missing}" if missing else "one of its own", not missing
    )
    limits = {
        "memory limit": str(wanted.memory_bytes // PAGE_BYTES * PAGE_BYTES),
        "process limit": str(wanted.pids),
        "CPU quota and period": f"{wanted.cpu_quota_microseconds} {wanted.cpu_period_microseconds}",
        **({} if wanted.cpuset is None else {"processors": wanted.cpuset}),
    }
    for name, expected in limits.items():
        yield same(f"engine: {name}", expected, seen.limits.get(name))
    yield sockets_line(launched.group.place("memory"))


def _namespace(pid: int, name: str) -> str:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/{name}").readlink())
    return ""


def _numbers(path: str) -> str:
    with contextlib.suppress(OSError):
        found = os.stat(path)  # noqa: PTH116 (a string)
        return f"{found.st_dev}:{found.st_ino}"
    return ""


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_bytes().decode("utf-8", "surrogateescape")
    return ""
