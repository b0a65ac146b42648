"""A sandbox's protections in Docker's words: the body of the request that creates a container. Pure.

What the engine is asked, and what it says of a container later, are compared with this same document.
Imports model, the protections and their rules; no I/O, no clock, no look at the host.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from ...core.model import Attached, SandboxSpec
from ..attachment import EMPTY
from ..hardening import Protections, ScratchDisk, Tmpfs, protections
from ..seccomp import EPERM, ArgumentCondition, SyscallRule
from ..user_ids import is_few

LABEL = "sandbox-kernel"
"""What the names of our labels begin with."""


NOT_OPENED: Mapping[str, str] = {}


def container_arguments(spec: SandboxSpec, opened: Mapping[str, str] = NOT_OPENED) -> dict[str, Any]:
    """Return the body of the engine's request that creates a container (Docker Engine API 1.41 to 1.52).

    `opened` says what is mounted at each path that is the host's by an exception (`engines.attachment`).
    """
    wanted = protections(spec)
    host = _host(wanted, opened)
    host["Ulimits"] += _of_user(spec)
    if spec.runtime is not None:
        host["Runtime"] = spec.runtime
    return {
        "Image": spec.image,
        "Hostname": wanted.hostname,
        "Domainname": "",
        "User": f"{wanted.uid}:{wanted.uid}",
        "WorkingDir": wanted.working_folder,
        "Entrypoint": list(spec.command),  # as the entry point, so that nothing of the image's own is put before it
        "Cmd": [],
        "Env": [f"{name}={value}" for name, value in sorted(wanted.environment.items())],
        # The pipe is the container's life: once its stdin closes, for whatever reason, the agent ends.
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": False,
        "Healthcheck": {"Test": ["NONE"]},
        "StopSignal": "SIGKILL",  # an engine that shuts down does not wait for PID 1, which ignores SIGTERM
        "NetworkDisabled": not wanted.networks,
        "Labels": {f"{LABEL}.session": spec.session_id, f"{LABEL}.memory": str(wanted.memory_bytes)},
        "HostConfig": host,
    }


def _host(wanted: Protections, opened: Mapping[str, str]) -> dict[str, Any]:
    own = wanted.own_namespaces
    filtered = "seccomp=" + json.dumps(profile(wanted.system_calls), separators=(",", ":"))
    return {
        # No restart policy, no removal delay, no logs.
        "AutoRemove": True,
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        "LogConfig": {"Type": "none", "Config": {}},
        "Init": False,  # the agent is
        # No way out, and nothing of the host in it.
        "NetworkMode": "+".join(sorted(wanted.networks)) or "none",
        "IpcMode": "private" if "ipc" in own else "host",
        "PidMode": "" if "pid" in own else "host",
        "UTSMode": "" if "uts" in own else "host",
        "CgroupnsMode": "private" if "cgroup" in own else "host",
        "ReadonlyRootfs": not wanted.writable_root,
        "Binds": sorted(wanted.host_folders),
        "Mounts": [_mount(one, opened) for one in wanted.mounts],
        "Devices": sorted(wanted.devices),
        "MaskedPaths": list(wanted.masked_paths),
        "ReadonlyPaths": list(wanted.readonly_paths),
        # No privilege, and none to be had.
        "Privileged": False,
        "CapAdd": sorted(wanted.capabilities),
        "CapDrop": ["ALL"],
        "GroupAdd": [],
        "SecurityOpt": [*([] if wanted.new_privileges else ["no-new-privileges"]), filtered],
        # Every resource has an end.
        "Memory": wanted.memory_bytes,
        "MemorySwap": wanted.memory_bytes + wanted.swap_bytes,  # of both together
        # A quota, and not `NanoCpus`: engines refuse more of those than the machine has.
        "CpuPeriod": wanted.cpu_period_microseconds,
        "CpuQuota": wanted.cpu_quota_microseconds,
        "CpusetCpus": wanted.cpuset or "",
        "PidsLimit": wanted.pids,
        "OomScoreAdj": wanted.oom_score,
        "ShmSize": wanted.shm_bytes,
        "Tmpfs": {place.path: _options(place) for place in wanted.writable},
        "Ulimits": [
            {"Name": "nofile", "Soft": wanted.open_files, "Hard": wanted.open_files},
            {"Name": "core", "Soft": wanted.core_bytes, "Hard": wanted.core_bytes},
        ],
    }


def _of_user(spec: SandboxSpec) -> list[dict[str, Any]]:
    """Where ids are few, the engine may have no cgroups: Linux counts processes of a user, and data of a process."""
    if not is_few(spec.uid):
        return []
    from ..usage_watch import MayUse

    most = MayUse.of(spec)
    wanted = {"nproc": most.pids, **({"data": most.data_bytes} if spec.limits_kept == "best-effort" else {})}
    return [{"Name": name, "Soft": value, "Hard": value} for name, value in wanted.items()]


def digest(spec: SandboxSpec) -> str:
    """Return a name for everything that was asked for: equal specs have equal digests."""
    canonical = json.dumps(container_arguments(spec), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _options(place: Tmpfs) -> str:
    owner = "" if place.owner is None else f",uid={place.owner},gid={place.owner}"
    mode = "ro" if place.readonly else "rw"
    return f"{mode},nosuid,nodev,exec,size={place.size_bytes},nr_inodes={place.files},mode={place.mode:04o}{owner}"


def _mount(one: Attached | ScratchDisk, opened: Mapping[str, str]) -> dict[str, Any]:
    """An overlay is a file system of the sandbox's own: what is a socket, a lock or a watch below is none in it.

    It takes two folders when there is none to write to.
    """
    if one.layered:
        folders = f"lowerdir={opened.get(one.path, one.path)}:{opened.get(EMPTY, EMPTY)}"
        return _volume(one.path, "overlay", "overlay", f"ro,nosuid,nodev,noexec,noatime,{folders}")
    mode = "rw" if one.writable else "ro"
    return _volume(one.path, "ext4", opened.get(one.path, one.path), f"{mode},nosuid,nodev,noatime")


def _volume(path: str, kind: str, device: str, options: str) -> dict[str, Any]:
    """A volume without a name, which the engine mounts for this container and removes with it."""
    driver = {"Name": "local", "Options": {"type": kind, "device": device, "o": options}}
    return {"Type": "volume", "Target": path, "VolumeOptions": {"NoCopy": True, "DriverConfig": driver}}


def renamed(mounts: object, opened: Mapping[str, str] = NOT_OPENED) -> list[Any]:
    """Return the `Mounts` of a container with other names of what was opened; none, as no second process has them."""
    found = json.loads(json.dumps(mounts if isinstance(mounts, list) else ["nothing said"]))
    for one in found:
        try:
            options = one["VolumeOptions"]["DriverConfig"]["Options"]
            if options["type"] == "ext4" and _DEVICE.fullmatch(options["device"]):
                options["device"] = opened.get(one["Target"], one["Target"])
            elif options["type"] == "overlay" and (named := _FOLDERS.fullmatch(options["o"])):
                folders = f"{opened.get(one['Target'], one['Target'])}:{opened.get(EMPTY, EMPTY)}"
                options["o"] = f"{named[1]}lowerdir={folders}"
        except (LookupError, TypeError):
            continue
    return list(found)


_DEVICE = re.compile(r"/dev/loop[0-9]{1,6}")
_FOLDERS = re.compile(r"([a-z,]+,)lowerdir=/[^,:\\]+:/[^,:\\]+/empty-[0-9a-f]{32}-[0-9]{1,20}")


def profile(rules: tuple[SyscallRule, ...]) -> dict[str, Any]:
    """Return a filter for system calls in the JSON format that Docker and Podman share."""
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": EPERM,
        "archMap": [
            {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": []},
            {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": []},
        ],
        "syscalls": [_rule(one) for one in rules],
    }


def _rule(rule: SyscallRule) -> dict[str, Any]:
    action: dict[str, Any] = {"action": "SCMP_ACT_ALLOW"}
    if rule.error is not None:
        action = {"action": "SCMP_ACT_ERRNO", "errnoRet": rule.error}
    if rule.watched:
        action = {"action": "SCMP_ACT_TRACE"}
    conditions = {"args": [_condition(one) for one in rule.conditions]} if rule.conditions else {}
    return {"names": list(rule.names), **action, **conditions}


def _condition(one: ArgumentCondition) -> dict[str, Any]:
    if one.mask is None:
        return {"index": one.argument, "value": one.value, "op": "SCMP_CMP_EQ"}
    return {"index": one.argument, "value": one.mask, "valueTwo": one.value, "op": "SCMP_CMP_MASKED_EQ"}
