"""Where an engine listens. Imports errors only, for a kernel process asks this first."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from ...core.codes import EndCode
from ...core.errors import ConfigurationError
from ...core.home_folder import home_folder

ANSWER_SECONDS = 1.0
OF_MACHINES = (".orbstack/run", ".colima/default", ".rd", ".lima/docker/sock", ".lima/default/sock")
"""Below the home folder: where OrbStack, Colima, Rancher Desktop and Lima put the socket of the machine they run."""


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
        raise ConfigurationError(
            EndCode.WRONG_SETTING,
            f"the engine must be behind a unix socket of this machine (unix:///path), not {url!r}: a connection over a "
            "network would have to be secured first; ssh -L can forward the socket of another machine",
            setting="engine",
        )
    there = sockets(f"/run/user/{os.getuid()}", home_folder() or "/nonexistent")
    return next((place for place in there if os.access(place, os.R_OK | os.W_OK)), there[0])


def answers() -> bool:
    """Return whether an engine listens where one is looked for, and this user may speak to it."""
    with socket.socket(socket.AF_UNIX) as way:
        way.settimeout(ANSWER_SECONDS)
        try:
            way.connect(socket_path(None))
        except OSError:
            return False
    return True


def sockets(runtime: str, home: str) -> list[str]:
    """Return where an engine may listen, best first, for a user with these two folders."""
    return [
        "/var/run/docker.sock",
        f"{runtime}/docker.sock",  # rootless Docker
        f"{home}/.docker/run/docker.sock",  # Docker Desktop
        f"{home}/.docker/desktop/docker.sock",
        *(f"{home}/{place}/docker.sock" for place in OF_MACHINES),
        f"{runtime}/podman/podman.sock",
        "/run/podman/podman.sock",
    ]


def addresses(environment: Mapping[str, str]) -> list[str]:
    """Return the addresses where an engine may be, best first; DOCKER_HOST, where it is set, is the only one.

    For those who set a machine up, whose environment is their own word.
    """
    if host := environment.get("DOCKER_HOST"):
        return [host]
    there = sockets(environment.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}", os.path.expanduser("~"))  # noqa: PTH111
    return [f"unix://{path}" for path in there if os.path.exists(path)] or [f"unix://{there[0]}"]  # noqa: PTH110
