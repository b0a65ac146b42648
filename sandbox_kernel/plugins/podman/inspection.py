"""Is a container of Podman's what was asked for? Its documents are compared with the spec in libpod's words. Pure.

What no document shows is excused by name, in the table of the provider.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...core.model import SandboxSpec
from ...engines.attestation import as_list, at
from ...engines.base import AttestationCheck, Inspection
from ...engines.docker.arguments import container_arguments
from ...engines.docker.container import ENGINE_EMPTY, configured, equal, plain
from .create_body import filter_of, libpod_body, masks

SAME = (
    *("AutoRemove", "NetworkMode", "ReadonlyRootfs", "Privileged", "CapAdd", "GroupAdd", "Devices", "OomScoreAdj"),
    *("Memory", "MemorySwap", "CpuPeriod", "CpuQuota", "CpusetCpus", "PidsLimit", "ShmSize"),
)
"""Settings that both engines call the same."""
OWN_VARIABLES = frozenset({"HOME", "HOSTNAME", "TERM", "container"})
"""Set by Podman in each container."""
OWN_MASKS = frozenset({"/sys/dev/block", "/sys/fs/selinux"})
"""What Podman covers besides."""
NOT_SHOWN = "not shown"
LIBPOD, RUNTIME = "Libpod", "OCIRuntimeConfig"


def witness(spec: SandboxSpec, inspected: object, image_environment: object) -> Inspection:
    """Compare Podman's documents on a container with `spec`; the image's own environment may be there too.

    `inspected` is the answer of `GET /containers/ID/json`, with that of libpod's API as `LIBPOD` and with what the OCI
    runtime was given as `RUNTIME`, which is None where its file cannot be read.
    """
    found = inspected if isinstance(inspected, Mapping) else {}
    libpod = found.get(LIBPOD)
    own = libpod if isinstance(libpod, Mapping) else {}
    variables = (str(entry).partition("=")[0] for entry in as_list(at(found, "Config", "Env")))
    lines = (
        *configured(spec, found, image_environment, OWN_VARIABLES),
        *_host(spec, own),
        *_given(spec, found.get(RUNTIME)),
    )
    return Inspection(lines, frozenset(variables), OWN_MASKS)


def _host(spec: SandboxSpec, own: Mapping[str, Any]) -> Iterator[AttestationCheck]:
    """Compare what Podman says of its own setting of the container."""
    asked = container_arguments(spec)
    docker, body = asked["HostConfig"], libpod_body(asked, "", "")
    for name in SAME:
        yield equal(f"engine: {name}", plain(docker[name]), plain(at(own, "HostConfig", name)))
    for name in ENGINE_EMPTY:
        yield equal(f"engine: {name}", None, at(own, "HostConfig", name))
    ipc, folders = at(own, "HostConfig", "IpcMode"), at(own, "HostConfig", "Tmpfs")
    limits = [
        {"Name": f"RLIMIT_{one['type'].upper()}", "Soft": one["soft"], "Hard": one["hard"]} for one in body["r_limits"]
    ]
    tmpfs = {one["destination"]: one["options"] for one in body["mounts"] if one["type"] == "tmpfs"}
    shown = folders if isinstance(folders, Mapping) else {}
    words = {
        "LogConfig": ("none", at(own, "HostConfig", "LogConfig", "Type")),
        "RestartPolicy": ("no", at(own, "HostConfig", "RestartPolicy", "Name") or "no"),
        # Podman calls one "shareable" that is nobody else's, unless somebody makes another container that joins it.
        "IpcMode": ("private", "private" if ipc == "shareable" else ipc),
        "PidMode": ("private", at(own, "HostConfig", "PidMode")),
        "UTSMode": ("private", at(own, "HostConfig", "UTSMode")),
        "CgroupMode": ("private", at(own, "HostConfig", "CgroupMode")),
        "SecurityOpt": (["no-new-privileges"], at(own, "HostConfig", "SecurityOpt")),
        "EffectiveCaps": ([], own.get("EffectiveCaps", NOT_SHOWN)),
        "BoundingCaps": ([], own.get("BoundingCaps", NOT_SHOWN)),
        "Passwd": (["no"], ["no" if at(own, "Config", "Passwd") is False else NOT_SHOWN]),
        "Ulimits": (limits, at(own, "HostConfig", "Ulimits")),
        "Tmpfs": (
            {path: _options(options, spec.uid) for path, options in tmpfs.items()},
            {path: _options(str(options).split(","), spec.uid) for path, options in shown.items()},
        ),
        "mounted": ([], own.get("Mounts", NOT_SHOWN)),
    }
    for name, (expected, found) in words.items():
        yield equal(f"engine: {name}", plain(expected), plain(found))


def _options(options: list[str], uid: int) -> list[str]:
    """Return the options of a tmpfs as Podman hands them on: "U" is its user, and copying and propagation no option."""
    owned = [f"uid={uid}", f"gid={uid}"] if "U" in options else []
    return [*owned, *(one for one in options if one not in {"U", "notmpcopyup", "rprivate"})]


def _given(spec: SandboxSpec, runtime: object) -> Iterator[AttestationCheck]:
    """Compare what only the OCI runtime's own document shows."""
    asked = container_arguments(spec)
    wanted_masks = sorted(masks(asked["HostConfig"]["MaskedPaths"]))
    rules = json.loads(filter_of(asked))
    linux = at(runtime, "linux")
    masked = [one for one in wanted_masks if one in as_list(at(linux, "maskedPaths"))]
    filtered = [at(linux, "seccomp", name) for name in ("defaultAction", "defaultErrnoRet", "syscalls")]
    expected = [rules[name] for name in ("defaultAction", "defaultErrnoRet", "syscalls")]
    for name, wanted, found in (("MaskedPaths", wanted_masks, masked), ("system call filter", expected, filtered)):
        line = equal(f"engine: {name}", plain(wanted), plain(found))
        yield line if isinstance(linux, Mapping) else replace(line, found=NOT_SHOWN)
