"""Where Podman listens."""

from __future__ import annotations

import os
import sys

from ...core.home_folder import home_folder
from ...engines.docker import api_version, discovery

_OF_A_DARWIN_USER = 65537
"""`_CS_DARWIN_USER_TEMP_DIR` of confstr(3): the folder of temporary files, by the system and no variable."""


def socket_path(address: str) -> str:
    """Return the path of the socket in an address; for "podman" the first where Podman listens, else the first."""
    if address.startswith(discovery.OF_PODMAN):
        return address.removeprefix(discovery.OF_PODMAN)
    there = sockets()
    return next(filter(listens, there), there[0])


def listens(path: str) -> bool:
    """Return whether Podman answers at a socket, and this user may ask it."""
    try:
        return api_version.product(path, discovery.ANSWER_SECONDS) == discovery.PODMAN
    except OSError:
        return False


def sockets() -> list[str]:
    """Return where Podman may listen for this user, best first: its own service, its machine, root's service."""
    runtime, home = f"/run/user/{os.getuid()}", home_folder() or "/nonexistent"
    machine = "podman/podman-machine-default-api.sock"
    own = [f"{os.confstr(_OF_A_DARWIN_USER) or ''}{machine}"] if sys.platform == "darwin" else []
    return [
        f"{runtime}/podman/podman.sock",
        *own,
        f"{runtime}/{machine}",
        f"{home}/.local/share/containers/podman/machine/podman.sock",
        "/run/podman/podman.sock",
        discovery.socket_path(None),  # the package podman-docker has a link of this name
    ]


def answers() -> bool:
    return any(map(listens, sockets()))
