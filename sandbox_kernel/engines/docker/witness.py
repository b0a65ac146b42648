"""What a Docker engine says of a container: all that was asked for, and nothing that was not.

Its document is compared with the request that was sent, setting by setting. Fails closed: what is missing, unreadable
or of a strange type differs. Pure; imports model, attestation, base and the arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...core.model import SandboxSpec
from ..attestation import as_list, at, only, same, short
from ..base import Check, Witness
from .arguments import LABEL, container_arguments, digest

ENGINE_EMPTY = (
    *("VolumesFrom", "Links", "ExtraHosts", "PortBindings", "PublishAllPorts", "DeviceRequests", "DeviceCgroupRules"),
    *("Sysctls", "UsernsMode", "Cgroup", "OomKillDisable"),
)
"""Settings of the engine that arguments.py leaves alone, and that would open something."""


def witness(spec: SandboxSpec, inspected: object, image_environment: object) -> Witness:
    """Compare the engine's document on a container with `spec`; the image's own environment may be there too."""
    found = inspected if isinstance(inspected, Mapping) else {}
    variables = (str(entry).partition("=")[0] for entry in as_list(at(found, "Config", "Env")))
    return Witness(tuple(_compared(spec, found, image_environment)), frozenset(variables))


def _compared(spec: SandboxSpec, inspected: Mapping[str, Any], image_environment: object) -> Iterator[Check]:
    asked = container_arguments(spec)
    host = asked.pop("HostConfig")
    yield same("engine: spec", digest(spec), at(inspected, "Config", "Labels", f"{LABEL}.spec"))
    yield same("engine: running", True, at(inspected, "State", "Running"))
    for name in ("User", "Hostname", "WorkingDir", "Entrypoint", "Cmd", "OpenStdin", "StdinOnce", "Tty"):
        yield _equal(f"engine: {name}", asked[name], at(inspected, "Config", name))
    for name, expected in host.items():
        yield _equal(f"engine: {name}", _plain(expected), _plain(at(inspected, "HostConfig", name)))
    for name in ENGINE_EMPTY:
        yield _equal(f"engine: {name}", None, at(inspected, "HostConfig", name))
    yield _equal("engine: Mounts", [], inspected.get("Mounts", "nothing said"))
    networks = at(inspected, "NetworkSettings", "Networks")
    yield only("engine: networks besides none", {"none"}, list(networks) if isinstance(networks, Mapping) else networks)
    environment = at(inspected, "Config", "Env") or []
    allowed = {*map(str, asked["Env"]), *map(str, as_list(image_environment))}
    yield only("engine: environment besides the image's", allowed, environment)
    lost = set(asked["Env"]).difference(as_list(environment))
    yield Check("engine: environment that is lost", "none", ", ".join(sorted(lost)) or "none", not lost)
    profile = inspected.get("AppArmorProfile")
    yield Check(
        "engine: AppArmor", "not switched off", short(profile), isinstance(profile, str) and profile != "unconfined"
    )


def _equal(name: str, expected: object, found: object) -> Check:
    """Compare with an engine's document, in which null, false, zero and empty mean the same: not set."""
    return Check(name, short(expected), short(found), found == expected if expected or found else True)


def _plain(value: object) -> object:
    """Return a form of an engine's setting in which neither order nor what is not set counts."""
    if isinstance(value, Mapping):
        return sorted((str(key), _plain(item)) for key, item in value.items() if item)
    if isinstance(value, list):
        return sorted(str(_plain(item)) for item in value)
    return value
