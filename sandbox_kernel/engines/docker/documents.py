"""A Docker engine's documents as values of ours. Pure, but for the clock and the owners that `listed` looks at."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..about import EngineInfo, ImageInfo, Listed
from ..owner import Owner, host_name
from .arguments import LABEL

LIMITED = {"MemoryLimit": "memory", "SwapLimit": "swap", "CpuCfsQuota": "cpus", "PidsLimit": "pids"}
USERS = {"name=rootless": "rootless", "name=userns": "set to userns-remap"}
CONTENTS = f"{LABEL}.contents"
"""The label of an image of ours that says what went into it."""


NUMBERS = (f"{LABEL}.uid", f"{LABEL}.memory")
"""Labels that are numbers."""


def lines(found: Any) -> list[dict[str, Any]]:
    """Return the lines of the engine's list of containers (`GET /containers/json`).

    What is being removed has no name any more, and is left out: Docker 20.10 may list it for as long as Docker runs.
    Raises LookupError, TypeError or ValueError for what is no such list.
    """
    kept: list[dict[str, Any]] = []
    for line in found:
        names, labels = line["Names"], line["Labels"]
        texts = (line["Id"], line["State"], line["Image"], *(names or ()))
        if not (isinstance(labels, dict) and all(isinstance(text, str) for text in (*texts, *labels.values()))):
            raise TypeError(f"a container with {labels!r} and {texts!r}")
        for number in (line["Created"], *(labels.get(name) or 0 for name in NUMBERS)):
            int(number)
        if names:
            kept.append(line)
    return kept


def listed(found: Mapping[str, Any]) -> Listed:
    """Return what one of the lines says."""
    owner, labels = Owner.parse(found["Names"][0]), found["Labels"]
    here = labels.get(f"{LABEL}.host") == host_name()
    return Listed(
        session=labels.get(f"{LABEL}.session", ""),
        container=found["Id"][:12],
        owner_pid=owner.pid if owner else None,
        owner_alive=owner.alive() if owner and here else None,
        state=found["State"],
        age_seconds=max(0, int(time.time() - found["Created"])),
        image=found["Image"],
        memory_bytes=int(labels.get(f"{LABEL}.memory") or 0),
        version=labels.get(f"{LABEL}.version", ""),
    )


def memory_used(found: Mapping[str, Any] | None) -> int | None:
    """Return what a container uses (`GET /containers/ID/stats`), less the cache that the machine may take back.

    Of one that ends just then, the engine has nothing to say.
    """
    memory = (found or {}).get("memory_stats") or {}
    usage, details = memory.get("usage"), memory.get("stats") or {}
    if not isinstance(usage, int):
        return None
    return max(0, usage - int(details.get("inactive_file") or details.get("total_inactive_file") or 0))


def engine_info(version: Mapping[str, Any], info: Mapping[str, Any]) -> EngineInfo:
    """Return what an engine says of itself (`GET /version`, `GET /info`)."""
    return EngineInfo(
        version=str(version.get("Version")),
        api_version=str(version.get("ApiVersion")),
        architecture=str(info.get("Architecture", "")),
        runtimes=frozenset(map(str, info.get("Runtimes") or ())),
        default_runtime=str(info.get("DefaultRuntime", "unknown")),
        seccomp=any(str(option).startswith("name=seccomp") for option in info.get("SecurityOptions") or ()),
        limited=frozenset(what for key, what in LIMITED.items() if info.get(key)),
        cgroup_version=str(info.get("CgroupVersion", "1")),
        memory_bytes=int(info.get("MemTotal") or 0),
        folder=str(info.get("DockerRootDir") or ""),
        users=users(info),
        product=product(version),
    )


def product(version: Mapping[str, Any]) -> str:
    """Return what speaks Docker's language and is not Docker (`GET /version`); empty if it is."""
    names = (str(part.get("Name", "")) for part in version.get("Components") or ())
    return "Podman" if any("podman" in name.lower() for name in names) else ""


def users(info: Mapping[str, Any]) -> str:
    """Return why the user ids of its containers are not the machine's (`GET /info`); empty if they are."""
    options = {str(option).partition(",")[0] for option in info.get("SecurityOptions") or ()}
    return next((words for option, words in USERS.items() if option in options), "")


def image_info(found: Mapping[str, Any]) -> ImageInfo:
    """Return what an engine says of an image (`GET /images/NAME/json`)."""
    settings = found.get("Config") or {}
    variables = (str(line).partition("=") for line in settings.get("Env") or ())
    return ImageInfo(
        size_bytes=int(found.get("Size", 0)),
        made=str(found.get("Created"))[:10],
        contents=(settings.get("Labels") or {}).get(CONTENTS),
        variables=tuple((name, value) for name, _, value in variables),
        identity=str(found.get("Id", "")),
    )
