"""Containers that lack a protection, for the positive controls: each is thrown away, and none has a way to a network.

Some attacks are stopped by several layers; their alteration takes them all away. Root never meets the host's processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandbox_kernel.core.model import SCRATCH

NO_LIMIT_OF_SOCKETS = "no limit of sockets"
"""What the host sets beside an engine: `tools.run` has it left out."""

Body = dict[str, Any]
Given = dict[str, Any]
Alteration = Callable[[Body, Given], None]


def host(**fields: Any) -> Alteration:
    """Change settings of the container's host part."""
    return lambda body, _: body["HostConfig"].update(fields)


def no_filter(body: Body, _: Given) -> None:
    options = body["HostConfig"]["SecurityOpt"]
    body["HostConfig"]["SecurityOpt"] = [o for o in options if not o.startswith("seccomp=")] + ["seccomp=unconfined"]


def root(*capabilities: str) -> Alteration:
    def change(body: Body, given: Given) -> None:
        body["User"] = "0:0"
        body["HostConfig"]["CapAdd"] = ["DAC_OVERRIDE", *capabilities]
        scratch = body["HostConfig"]["Tmpfs"][SCRATCH].rpartition(",uid=")[0]
        body["HostConfig"]["Tmpfs"][SCRATCH] = scratch

    return change


def both(*changes: Alteration) -> Alteration:
    def change(body: Body, given: Given) -> None:
        for each in changes:
            each(body, given)

    return change


def network(mode: str) -> Alteration:
    def change(body: Body, given: Given) -> None:
        body["NetworkDisabled"] = False
        body["HostConfig"]["NetworkMode"] = mode

    return change


def tmpfs(option: str, value: str) -> Alteration:
    """Give all temporary file systems another value of an option."""

    def change(body: Body, given: Given) -> None:
        for path, options in body["HostConfig"]["Tmpfs"].items():
            body["HostConfig"]["Tmpfs"][path] = ",".join(
                f"{option}={value}" if part.startswith(option + "=") else part for part in options.split(",")
            )

    return change


def secret(body: Body, given: Given) -> None:
    body["Env"].append(f"SECRET={given['session']}")


def folder(body: Body, given: Given) -> None:
    body["HostConfig"]["Binds"] = [f"{given['folder']}:{given['folder']}:ro"]


MASKED_LESS = host(MaskedPaths=[], ReadonlyPaths=[])


def nothing(body: Body, _: Given) -> None:
    """Change nothing: PID 1 is then the driver of the attacks, which does not protect itself as the agent does."""
    assert body["User"] != "0:0"


ALTERATIONS: dict[str, Alteration] = {
    "a process like any other": nothing,
    "no filter": no_filter,
    "the host's network": network("host"),
    "the host's processes": host(PidMode="host"),
    "the host's IPC": host(IpcMode="host"),
    "nothing masked": MASKED_LESS,
    "root, nothing masked": both(root("SYS_ADMIN", "SYSLOG", "SYS_RAWIO"), MASKED_LESS),
    "root and a writable root": both(root(), host(ReadonlyRootfs=False)),
    "root and NET_ADMIN": root("NET_ADMIN"),
    "root, NET_RAW and NET_ADMIN, no filter": both(root("NET_RAW", "NET_ADMIN"), no_filter),
    "root and MKNOD": root("MKNOD"),
    "root and SETUID": root("SETUID", "SETGID"),
    "root and SYS_NICE": root("SYS_NICE", "SYS_ADMIN"),
    "root and SYS_ADMIN": root("SYS_ADMIN"),
    "root and SYS_ADMIN, no filter": both(
        root("SYS_ADMIN", "SYS_CHROOT", "DAC_READ_SEARCH", "SYSLOG", "IPC_LOCK"), no_filter
    ),
    "root and the host's control groups": both(
        root(), host(Binds=["/sys/fs/cgroup:/sys/fs/cgroup"], CgroupnsMode="host", ReadonlyPaths=[])
    ),
    "root and a device": both(
        root(),
        host(Devices=[{"PathOnHost": "/dev/fuse", "PathInContainer": "/dev/fuse", "CgroupPermissions": "rw"}]),
    ),
    "a folder of the host": folder,
    "a secret in the environment": secret,
    "more memory": host(Memory=640 << 20, MemorySwap=640 << 20),
    "no process limit": host(PidsLimit=0),
    "more open files": host(Ulimits=[{"Name": "nofile", "Soft": 4096, "Hard": 4096}]),
    "larger file systems": both(tmpfs("size", str(64 << 20)), host(ShmSize=64 << 20)),
    "no limit of files": tmpfs("nr_inodes", "0"),
    NO_LIMIT_OF_SOCKETS: both(),
}
