"""What a sandbox is made of: from a spec to the engine's arguments, as a pure function.

The attestation compares a running container with these same arguments. Imports model and the seccomp profile only;
no I/O, no clock, no look at the host.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ..core.model import SCRATCH, Limits, SandboxSpec
from .seccomp import profile

LABEL = "sandbox-kernel"

CPU_PERIOD_MICROSECONDS = 100_000
"""The scheduler's default. A quota is used, and not `NanoCpus`: engines refuse more of those than the machine has."""

PAGE_BYTES = 4096

MASKED_PATHS = (
    "/dev/mqueue",
    "/proc/acpi",
    "/proc/asound",
    "/proc/bootconfig",
    "/proc/buddyinfo",
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
    "/proc/interrupts",
    "/proc/iomem",
    "/proc/ioports",
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
    "/proc/timer_list",
    "/proc/timer_stats",
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
"""Docker's own list, and more that tells of the host: how it was started, its disks, drivers and locks.

Every user can write in /dev/mqueue and /proc/pressure. What each process has of its own, such as mountinfo, cannot be
masked by a path.
"""

READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


def cpu_quota(limits: Limits) -> int:
    """Return the time on processors in each period, in microseconds; the kernel's least is 1 ms."""
    return max(1000, round(limits.cpus * CPU_PERIOD_MICROSECONDS))


def container_arguments(spec: SandboxSpec) -> dict[str, Any]:
    """Return the body of the engine's request that creates a container (Docker Engine API 1.41)."""
    limits = spec.limits
    host: dict[str, Any] = {
        # Nobody restarts, keeps or logs it.
        "AutoRemove": True,
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        "LogConfig": {"Type": "none", "Config": {}},
        "Init": False,  # the agent is
        # No way out, and nothing of the host in it.
        "NetworkMode": "none",
        "IpcMode": "private",
        "PidMode": "",
        "UTSMode": "",
        "CgroupnsMode": "private",
        "ReadonlyRootfs": True,
        "Binds": [],
        "Mounts": [],
        "Devices": [],
        "MaskedPaths": list(MASKED_PATHS),
        "ReadonlyPaths": list(READONLY_PATHS),
        # No privilege, and none to be had.
        "Privileged": False,
        "CapAdd": [],
        "CapDrop": ["ALL"],
        "GroupAdd": [],
        "SecurityOpt": ["no-new-privileges:true", "seccomp=" + json.dumps(profile(), separators=(",", ":"))],
        # Every resource has an end.
        "Memory": limits.memory_bytes,
        "MemorySwap": limits.memory_bytes,  # of both together, so there is no swap
        "CpuPeriod": CPU_PERIOD_MICROSECONDS,
        "CpuQuota": cpu_quota(limits),
        "PidsLimit": limits.pids,
        "OomScoreAdj": 500,  # before the host's own processes when the host itself runs out
        "ShmSize": limits.shm_bytes,
        "Tmpfs": {
            # Code may be run there: an uploaded wheel with a compiled module is honest work, and memfd_create() gets
            # around noexec anyway.
            "/tmp": _tmpfs(limits.tmp_bytes, "mode=1777"),  # noqa: S108
            SCRATCH: _tmpfs(limits.scratch_bytes, f"mode=0700,uid={spec.uid},gid={spec.uid}"),
        },
        "Ulimits": [
            {"Name": "nofile", "Soft": limits.open_files, "Hard": limits.open_files},
            {"Name": "core", "Soft": 0, "Hard": 0},
        ],
    }
    if spec.runtime is not None:
        host["Runtime"] = spec.runtime
    return {
        "Image": spec.image,
        "Hostname": "sandbox",
        "Domainname": "",
        "User": f"{spec.uid}:{spec.uid}",
        "WorkingDir": SCRATCH,
        "Entrypoint": list(spec.command),  # as the entry point, so that nothing of the image's own is put before it
        "Cmd": [],
        "Env": [f"{name}={value}" for name, value in sorted(spec.environment.items())],
        # The pipe is the container's life: once its stdin closes, for whatever reason, the agent ends.
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": False,
        "Healthcheck": {"Test": ["NONE"]},
        "StopSignal": "SIGKILL",  # an engine that shuts down does not wait for PID 1, which ignores SIGTERM
        "NetworkDisabled": True,
        "Labels": {f"{LABEL}.session": spec.session_id, f"{LABEL}.memory": str(limits.memory_bytes)},
        "HostConfig": host,
    }


def digest(spec: SandboxSpec) -> str:
    """Return a name for everything that was asked for: equal specs have equal digests."""
    canonical = json.dumps(container_arguments(spec), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _tmpfs(size: int, owner: str) -> str:
    # An empty file takes kernel memory as well: at most one for each page of the size.
    return f"rw,nosuid,nodev,exec,size={size},nr_inodes={max(1024, size // PAGE_BYTES)},{owner}"
