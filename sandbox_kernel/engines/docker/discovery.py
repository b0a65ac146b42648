"""Where an engine listens. Imports errors only, for a kernel process asks this first."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from ...core.codes import EndCode
from ...core.errors import ConfigurationError
from ...core.home_folder import home_folder
from . import api_version

ANSWER_SECONDS = 1.0
OF_MACHINES = (".orbstack/run", ".colima/default", ".rd", ".lima/docker/sock", ".lima/default/sock")
"""Below the home folder: where OrbStack, Colima, Rancher Desktop and Lima put the socket of the machine they run."""
PODMAN = "Libpod"
OF_PODMAN = "podman://"
"""What addresses of its plugin begin with."""
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Podman's names of processors, which are Go's."""
NOT_LOCAL = (
    "the engine must be behind a unix socket of this machine (unix:///path), as a connection over a network would have "
    "to be secured first; ssh -L can forward the socket of another machine"
)


def socket_path(base_url: str | None) -> str:
    """Return the path of the engine's socket: what was asked for, else the first that is there.

    The environment is ignored: a caller that starts a kernel chooses it, and could name an engine that lies.
    `sandbox-kernel install` writes the engine that DOCKER_HOST names into the kernelspec.
    """
    url = base_url or ""
    if url.startswith("/"):
        return url
    if url.startswith("unix://"):
        return url.removeprefix("unix://")
    if url:
        raise ConfigurationError(EndCode.WRONG_SETTING, f"it is {url!r}: {NOT_LOCAL}", setting="engine")
    there = sockets(f"/run/user/{os.getuid()}", home_folder() or "/nonexistent")
    return next((place for place in there if os.access(place, os.R_OK | os.W_OK)), there[0])


def answers() -> bool:
    """Return whether Docker listens where one is looked for, this user may speak to it, and it is not too old."""
    path = socket_path(None)
    try:
        return api_version.product(path, ANSWER_SECONDS) != PODMAN and not api_version.is_too_old(path)
    except OSError:
        return False


def listening(address: str) -> str:
    """Return the address of the engine that listens at a socket: Podman has a plugin of its own.

    This takes 0.1 ms. The answer also has the version of the API, which a start asks for otherwise.
    """
    path = socket_path(address)
    with contextlib.suppress(OSError):
        if api_version.product(path, ANSWER_SECONDS) == PODMAN:
            return f"{OF_PODMAN}{path}"
    return address


def elsewhere() -> str:
    """Return in words what Docker's own command asks in place of what sessions ask; empty if that is the same.

    An engine that is too old is passed by, which is said before that.
    """
    path = socket_path(None)
    if api_version.is_too_old(path):
        return f"the one at {path} is older than Docker 20.10"
    try:
        own = named(os.environ)
    except ConfigurationError as error:
        return error.message
    here = f"unix://{path}"
    return "" if own is None or own[0] == here else f"{own[1]} names {own[0]}, which a session does not read"


def sockets(runtime: str, home: str) -> list[str]:
    """Return where an engine may listen, best first, for a user with these two folders."""
    return [
        "/var/run/docker.sock",
        f"{runtime}/docker.sock",  # rootless Docker
        f"{home}/.docker/run/docker.sock",  # Docker Desktop
        f"{home}/.docker/desktop/docker.sock",
        *(f"{home}/{place}/docker.sock" for place in OF_MACHINES),
    ]


def named(environment: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the address that Docker's own command asks here, and what names it; None if nothing does.

    That is DOCKER_HOST, DOCKER_CONTEXT, or `docker context use`. Raises `ConfigurationError` for an address of another
    machine, and for a context that is not there.
    """
    found = _named(environment)
    if found is not None and not found[0].startswith("unix://"):
        words = f"{found[1]} names {found[0]!r}: {NOT_LOCAL}"
        raise ConfigurationError(EndCode.WRONG_SETTING, words, setting=found[1])
    return found


def _named(environment: Mapping[str, str]) -> tuple[str, str] | None:
    if host := environment.get("DOCKER_HOST"):
        return host, "DOCKER_HOST"
    folder = environment.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")  # noqa: PTH111
    name, setting = environment.get("DOCKER_CONTEXT", ""), "DOCKER_CONTEXT"
    if not name:
        said, setting = _read(f"{folder}/config.json"), "`docker context use`"
        name = str(said.get("currentContext") or "")
    if name in {"", "default"}:
        return None
    about = _read(f"{folder}/contexts/meta/{hashlib.sha256(name.encode()).hexdigest()}/meta.json")
    try:
        return str(about["Endpoints"]["docker"]["Host"]), setting
    except (LookupError, TypeError):
        words = f"{setting} names the context {name[:64]!r}, of which {folder} says no host"
        raise ConfigurationError(EndCode.WRONG_SETTING, words, setting=setting) from None


def _read(path: str) -> dict[str, Any]:
    """Return a file of Docker's command; nothing where it is not there, or no object."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 (pathlib is slow to import)
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def addresses(environment: Mapping[str, str]) -> list[str]:
    """Return the addresses where an engine may be, best first; one that is `named` is the only one.

    For those who set a machine up, whose environment is their own word.
    """
    if (own := named(environment)) is not None:
        return [own[0]]
    there = sockets(environment.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}", os.path.expanduser("~"))  # noqa: PTH111
    return [f"unix://{path}" for path in there if os.path.exists(path)] or [f"unix://{there[0]}"]  # noqa: PTH110
