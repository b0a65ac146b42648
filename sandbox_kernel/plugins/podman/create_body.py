"""A sandbox's protections in libpod's words: Docker's body of a create, translated. Pure.

Podman's own API takes what its form of Docker's API does not: a filter of system calls as a file, masked paths, folders
in memory with an owner and a number of files, no list of users of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

LEAST_NPROC = 4096
"""Podman raises the limit of processes of a user where none is named, for which some machines' root lacks the right."""

FOLDERS_BELOW_READONLY = frozenset({"/proc/sys/dev", "/proc/sys/fs/quota", "/proc/sys/fs/xfs"})


def filter_of(docker: Mapping[str, Any]) -> str:
    """Return the filter of system calls in a body for Docker, as JSON."""
    options = docker["HostConfig"]["SecurityOpt"]
    return str(next(one for one in options if one.startswith("seccomp=")).removeprefix("seccomp="))


def libpod_body(docker: Mapping[str, Any], name: str, profile: str, *, limited: bool = True) -> dict[str, Any]:
    """Return the body of `POST /libpod/containers/create` (Podman 4 and 5) for Docker's body of the same container.

    Args:
        docker: Of `container_arguments`.
        name: Of the container.
        profile: The path of a file with the filter of system calls, which the service can read.
        limited: Whether the engine limits what a container uses; one that cannot refuses to be asked.
    """
    host = docker["HostConfig"]
    limits = [{"type": one["Name"], "soft": one["Soft"], "hard": one["Hard"]} for one in host["Ulimits"]]
    if all(one["type"] != "nproc" for one in limits):
        most = max(LEAST_NPROC, host["PidsLimit"])
        limits.append({"type": "nproc", "soft": most, "hard": most})
    body = {
        "name": name,
        "image": docker["Image"],
        "hostname": docker["Hostname"],
        "user": docker["User"],
        "work_dir": docker["WorkingDir"],
        "entrypoint": docker["Entrypoint"],
        "command": docker["Cmd"],
        "env": dict(one.split("=", 1) for one in docker["Env"]),
        "httpproxy": False,
        "stdin": docker["OpenStdin"],
        "terminal": docker["Tty"],
        "labels": docker["Labels"],
        "remove": host["AutoRemove"],
        "stop_signal": 9,
        "log_configuration": {"driver": host["LogConfig"]["Type"]},
        "healthconfig": docker["Healthcheck"],
        "systemd": "false",
        "sdnotifyMode": "ignore",
        "pidns": {"nsmode": host["PidMode"] or "private"},
        "utsns": {"nsmode": host["UTSMode"] or "private"},
        "ipcns": {"nsmode": host["IpcMode"]},
        "cgroupns": {"nsmode": host["CgroupnsMode"]},
        "netns": {"nsmode": host["NetworkMode"]},
        # No files of the engine's in /etc.
        "manage_password": False,
        "use_image_hosts": True,
        "use_image_resolve_conf": True,
        "read_only_filesystem": host["ReadonlyRootfs"],
        "read_write_tmpfs": False,
        "image_volume_mode": "ignore",
        "privileged": host["Privileged"],
        "no_new_privileges": "no-new-privileges" in host["SecurityOpt"],
        "cap_add": host["CapAdd"],
        "cap_drop": host["CapDrop"],
        "seccomp_profile_path": profile,
        "mask": masks(host["MaskedPaths"]),
        "shm_size": host["ShmSize"],
        "mounts": [
            _tmpfs("/dev/shm", f"rw,nosuid,nodev,noexec,size={host['ShmSize']},mode=1777"),  # noqa: S108
            *(_tmpfs(path, options) for path, options in host["Tmpfs"].items()),
            *map(_disk, host["Mounts"]),
        ],
        "r_limits": limits,
        "umask": "0022",
        "oom_score_adj": host["OomScoreAdj"],
    }
    if limited:
        processors = {"cpus": host["CpusetCpus"]} if host["CpusetCpus"] else {}
        body["resource_limits"] = {
            "memory": {"limit": host["Memory"], "swap": host["MemorySwap"]},
            "cpu": {"period": host["CpuPeriod"], "quota": host["CpuQuota"], **processors},
            "pids": {"limit": host["PidsLimit"]},
        }
    return body


def masks(paths: Iterable[str]) -> list[str]:
    """Return what is masked: no folder below /proc/sys, which crun would cover by one that everybody can write to.

    It closes what it mounts at the end, by when its copy of /proc/sys lies above the mask. A masked file is no mount of
    crun's own, and stays as it is.
    """
    return [path for path in paths if path not in FOLDERS_BELOW_READONLY]


def _tmpfs(path: str, options: str) -> dict[str, Any]:
    """Podman's own takes neither a number of files nor an owner, but for "U", which is the container's user.

    Podman 5 would mount its own /dev/shm read-only, along with the root.
    """
    kept = [one for one in options.split(",") if not one.startswith(("nr_inodes=", "uid=", "gid="))]
    owned = ["U"] if "uid=" in options else []
    return {"destination": path, "type": "tmpfs", "source": "tmpfs", "options": [*kept, *owned, "notmpcopyup"]}


def _disk(docker: Mapping[str, Any]) -> dict[str, Any]:
    """The OCI runtime mounts it: a volume of Podman's would be given to the owner of the image's folder."""
    named = docker["VolumeOptions"]["DriverConfig"]["Options"]
    options = named["o"].split(",")
    return {"destination": docker["Target"], "type": named["type"], "source": named["device"], "options": options}
