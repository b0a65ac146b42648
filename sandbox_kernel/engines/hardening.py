"""The protections of a sandbox, from its spec: a pure function, in values that no engine owns.

An engine puts them into its own words, and refuses what it cannot enforce; the attestation compares a running sandbox
with them. No I/O, no clock, no look at the host, no engine's words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..core.model import ATTACHED, HOME, SCRATCH, Attached, Limits, SandboxSpec
from . import seccomp

CPU_PERIOD_MICROSECONDS = 100_000
"""The scheduler's default. A sandbox's quota is a part of it."""

PAGE_BYTES = 4096
OOM_SCORE = 500
"""Of 1000: how much sooner than others of the machine its processes end when that runs out of memory."""

OF_A_USER = {"sigpending": 256, "memlock": 65536}
"""Signals and timers that wait, and bytes of memory that stay, for a sandbox whose user others have, too.

The machine's kernel counts both by user, and a user may have a few thousand and 8 MiB. Programs with secrets ask for
64 KiB at most.
"""

MASKED_PATHS = (
    "/dev/mqueue",
    "/proc/acpi",
    "/proc/asound",
    "/proc/bootconfig",
    "/proc/buddyinfo",
    "/proc/bus",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/consoles",
    "/proc/crypto",
    "/proc/devices",
    "/proc/diskstats",
    "/proc/dma",
    "/proc/driver",
    "/proc/execdomains",
    "/proc/fb",
    "/proc/filesystems",
    "/proc/fs",
    "/proc/interrupts",
    "/proc/iomem",
    "/proc/ioports",
    "/proc/irq",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/locks",
    "/proc/mdstat",
    "/proc/misc",
    "/proc/modules",
    "/proc/mtrr",
    "/proc/pagetypeinfo",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/sched_debug",
    "/proc/schedstat",
    "/proc/scsi",
    "/proc/slabinfo",
    "/proc/softirqs",
    "/proc/swaps",
    "/proc/sys/dev",
    "/proc/sys/fs/quota",
    "/proc/sys/fs/xfs",
    "/proc/sys/kernel/random/boot_id",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/tty",
    "/proc/vmallocinfo",
    "/proc/zoneinfo",
    "/sys/block",
    "/sys/bus",
    "/sys/class/block",
    "/sys/dev",
    "/sys/devices/system/cpu/vulnerabilities",
    "/sys/devices/virtual/dmi",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/hypervisor",
    "/sys/kernel",
    "/sys/module",
    "/sys/power",
)
"""Docker's own list, and more that tells of the host: how and when it was started, its disks, drivers and locks.

Every user can write in /dev/mqueue and /proc/pressure. What each process has of its own, such as mountinfo, cannot be
masked by a path. What programs count by stays: cpuinfo, meminfo, stat, uptime, loadavg, vmstat, limits in /proc/sys.
"""

READONLY_PATHS = ("/proc/sys", "/proc/sysrq-trigger")


USER = "sandbox"
"""What the uid is called inside."""


class Tmpfs(NamedTuple):
    """A folder in memory that cells may write to: no setuid files and no device nodes, but programs may run there.

    An uploaded wheel with a compiled module is honest work, and memfd_create() gets around noexec anyway.
    """

    path: str
    size_bytes: int
    files: int
    """At most so many: an empty one takes kernel memory as well."""
    mode: int
    owner: int | None = None
    """User and group id; None is root."""
    readonly: bool = False
    """Whether nothing can be written but to what is mounted below."""


class ScratchDisk(NamedTuple):
    """A file system of a disk of its own, of a fixed size: no setuid files and no device nodes."""

    path: str
    size_bytes: int
    owner: int
    """User and group id."""
    layered: bool = False
    writable: bool = True
    """Both as of `Attached`."""


class Protections(NamedTuple):
    """All that keeps a sandbox apart. What has one value only is the same for every sandbox."""

    # --- who it is ---
    uid: int
    """User and group of every process inside; no other group."""
    capabilities: frozenset[str]
    new_privileges: bool
    """Whether a setuid file may give any."""
    system_calls: tuple[seccomp.SyscallRule, ...]

    # --- what it sees ---
    networks: frozenset[str]
    """Besides a loopback of its own."""
    own_namespaces: frozenset[str]
    """Besides those of mounts and of networks, without which nothing else here would hold."""
    hostname: str
    environment: Mapping[str, str]
    """All of it, but for the image's own."""
    host_folders: frozenset[str]
    """Of the host's as they are: none, ever."""
    attached: tuple[Attached, ...]
    """Of the host's by an exception: each a file system of the sandbox's own above what is there, without setuid
    files and device nodes."""
    devices: frozenset[str]
    """Of the host's; those that every sandbox has, such as /dev/null, are not named."""
    masked_paths: tuple[str, ...]
    readonly_paths: tuple[str, ...]

    # --- where it writes ---
    writable_root: bool
    working_folder: str
    writable: tuple[Tmpfs, ...]
    disks: tuple[ScratchDisk, ...]
    shm_bytes: int

    # --- what it uses up ---
    memory_bytes: int
    swap_bytes: int
    cpu_period_microseconds: int
    cpu_quota_microseconds: int
    cpuset: str | None
    """The processors that it may run on; None is all."""
    pids: int
    open_files: int
    core_bytes: int
    oom_score: int
    """When the host itself runs out of memory, what has more of it goes first; the host's own processes have 0."""

    @property
    def mounts(self) -> tuple[Attached | ScratchDisk, ...]:
        """All that an engine mounts besides folders in memory."""
        return (*self.attached, *self.disks)


def cpu_quota(limits: Limits) -> int:
    """Return the time on processors in each period, in microseconds; the kernel's least is 1 ms."""
    return max(1000, round(limits.cpus * CPU_PERIOD_MICROSECONDS))


def protections(spec: SandboxSpec) -> Protections:
    """Return what a sandbox for `spec` has, on whatever engine."""
    limits = spec.limits
    in_memory, at_home = limits.scratch == "memory", spec.scratch == HOME
    mode = 0o755 if at_home else 0o700
    scratch = Tmpfs(spec.scratch, limits.scratch_size, _files(limits.scratch_size), mode, spec.uid)
    # The image has the link the other way round: it is covered. The agent makes this one, and has room for that.
    covers = (
        Tmpfs("/home", PAGE_BYTES, 8, 0o755, readonly=True),
        Tmpfs(ATTACHED, PAGE_BYTES, 8 + 2 * len(spec.attached), 0o755, spec.uid),
    )
    return Protections(
        uid=spec.uid,
        capabilities=frozenset(),
        new_privileges=False,
        system_calls=seccomp.rules(watched=spec.watched),
        networks=frozenset(),
        own_namespaces=frozenset({"cgroup", "ipc", "pid", "uts"}),
        hostname="sandbox",
        environment=spec.environment,
        host_folders=frozenset(),
        attached=spec.attached,
        devices=frozenset(),
        masked_paths=MASKED_PATHS,
        readonly_paths=READONLY_PATHS,
        writable_root=False,
        working_folder=spec.scratch,
        writable=(
            Tmpfs("/tmp", limits.tmp_size, _files(limits.tmp_size), 0o1777),  # noqa: S108 (inside the sandbox)
            *(covers if at_home else ()),
            *((scratch,) if in_memory else ()),
        ),
        disks=() if in_memory else (ScratchDisk(SCRATCH, limits.scratch_size, spec.uid),),
        shm_bytes=limits.shm_size,
        memory_bytes=limits.memory,
        swap_bytes=0,
        cpu_period_microseconds=CPU_PERIOD_MICROSECONDS,
        cpu_quota_microseconds=cpu_quota(limits),
        cpuset=spec.cpuset,
        pids=limits.pids,
        open_files=limits.open_files,
        core_bytes=0,
        oom_score=OOM_SCORE,
    )


def accounts(uid: int | str) -> dict[str, str]:
    """Return the lists of users and groups as a sandbox has them, in the form of passwd(5) and group(5)."""
    return {
        "passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        f"{USER}:x:{uid}:{uid}::/tmp/home:/bin/sh\n",
        "group": f"root:x:0:\nnogroup:x:65534:\n{USER}:x:{uid}:\n",
    }


def _files(size: int) -> int:
    return max(1024, size // PAGE_BYTES)
