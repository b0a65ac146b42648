"""What an engine refuses, and how it fails, as errors of ours: whose fault it is and what to do. Here and nowhere else.

Imports errors, and where engines listen.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys

from ...core.codes import EndCode, Survived
from ...core.errors import ConfigurationError, EngineError, EngineUnavailable, ImageMissing
from ...core.remedies import as_root, confined, own_as_root, systemd_runs, without_docker
from ..attachment import unseen
from ..image_names import build_command
from . import discovery

OF_OTHERS = "build or load it, as it is never pulled"
_MOUNT = re.compile(r"(?:lowerdir=|mount )(/[^:]+)")
"""A folder or a device that was to be mounted, in what an engine says of it."""


class NoSuchContainer(EngineError):
    """The container is gone."""


class BeingRemoved(EngineError):
    """Somebody else removes the container just now."""


class OtherVersion(EngineError):
    """The engine was asked in a version of its API that it does not speak, or no longer."""


def silent(target: str, seconds: float) -> EngineUnavailable:
    """Translate that an engine said nothing for so long."""
    return EngineUnavailable(
        EndCode.ENGINE_SILENT,
        f"the container engine does not answer {target.partition('?')[0]}",
        limit=f"{seconds:.0f} s",
    )


def odd(what: str, error: Exception) -> EngineError:
    """Translate an answer that is JSON and has not what belongs there."""
    return EngineError(
        EndCode.ENGINE_UNKNOWN_ANSWER,
        f"the container engine gave an answer to {what} that is not understood: {error!r}",
    )


def refusal(status: int, message: str, body: object) -> EngineError:
    """Translate what the engine says into whose fault it is and what to do."""
    text = message.strip().lower()
    if status in {404, 500} and "no such container" in text:  # Podman: if it is removed in the midst of the request
        return NoSuchContainer(EndCode.CONTAINER_GONE, kept=Survived.NOTHING)
    if status == 409 and "removal" in text:
        return BeingRemoved(EndCode.CONTAINER_BEING_REMOVED, kept=Survived.NOTHING)
    host = body.get("HostConfig", {}) if isinstance(body, dict) else {}
    if (status == 404 and ("image" in text or "manifest" in text)) or "image not known" in text:
        image = body.get("Image", "") if isinstance(body, dict) else ""
        command = build_command(str(image))
        return ImageMissing(
            EndCode.IMAGE_MISSING,
            f"there is no image {image!r}: {f'build it with: `{command}`' if command else OF_OTHERS}",
            setting="image",
        )
    if "runtime" in text and ("unknown" in text or "not found" in text or "invalid" in text) and host.get("Runtime"):
        named = str(host["Runtime"])
        gets = "add it to /etc/docker/daemon.json and restart the engine"
        gets = f"`{own_as_root('setup --gvisor')}`" if named == "runsc" else gets
        return EngineError(
            EndCode.ENGINE_LACKS_RUNTIME, f"the engine has no runtime {named!r}: {gets}", setting="runtime"
        )
    if 'exec: "python3": executable file not found' in text:
        return EngineError(
            EndCode.NO_KERNEL_STARTS,
            "the image has no python3: one that cells run in needs Python 3.9 or newer and ipykernel",
            setting="image",
        )
    if "mount local volume" in text and (mount := _MOUNT.search(message)):
        return unseen(mount[1], f" (it said: {message.rpartition(':')[2].strip()[:100]})")
    if "seccomp profile" in text or "unknown mount option" in text:
        return EngineError(
            EndCode.ENGINE_LACKS_PROTECTION,
            "this engine does not take all protections of a sandbox over Docker's API: if it is Podman, set engine = "
            f"podman; else use Docker Engine 20.10 or later (it said: {message.strip()[:100]})",
            setting="engine",
        )
    return EngineError(EndCode.ENGINE_FAILED, f"the container engine refused ({status}): {message.strip()[:500]}")


def unavailable(path: str, error: OSError) -> EngineUnavailable:
    """Translate what the system says of a socket into what a person can do about it."""
    if isinstance(error, FileNotFoundError):
        code = EndCode.ENGINE_NOT_FOUND
        why = f"there is no container engine at {path}. {remedy(path)}"
    elif isinstance(error, PermissionError):
        code = EndCode.ENGINE_FORBIDDEN
        why = f"{path} may not be opened by this user. {remedy(path)}"
    elif isinstance(error, ConnectionRefusedError):
        code = EndCode.ENGINE_UNAVAILABLE
        why = f"nothing answers at {path}. {remedy(path)}"
    else:
        code = EndCode.ENGINE_LOST
        why = f"the connection to the container engine at {path} was lost ({error})"
    return EngineUnavailable(code, why, setting="engine")


def remedy(path: str) -> str:
    """Return what a person does here where no engine answers at a socket, or where this user may not ask it."""
    import shutil

    from ..select import PODMAN, names, provider

    there = discovery.socket_path(None)
    if there != path and discovery.answers():
        instead = f"leave the setting engine out, or set engine = unix://{there}"
        with contextlib.suppress(ConfigurationError):
            if (own := discovery.named(os.environ)) is not None and own[0] == f"unix://{path}":
                instead = "`unset DOCKER_HOST`" if own[1] == "DOCKER_HOST" else "use Docker's context default"
        return f"An engine answers at {there}: {instead}"
    if os.path.lexists(path) and not os.access(path, os.R_OK | os.W_OK):
        group = _group(path)
        joins = f"`{as_root(f'usermod -aG {group} $USER')}`" if group else "Have its owner let this user in"
        if confined():
            joins = f"Start this container with `--group-add {os.stat(path).st_gid}`"  # noqa: PTH116 (a string)
            return f"{joins} (who may use Docker is as good as root); {without_docker()}"
        return f"{joins}, and log in again (who may use Docker is as good as root); {without_docker()}"
    if confined():
        shares = f"Start this container with `--volume {path}:{path}`, the socket of the machine's engine"
        return f"{shares} (who may use Docker is as good as root); {without_docker()}"
    if sys.platform == "darwin":
        return "Start Docker Desktop, OrbStack, Colima or Rancher Desktop"
    if shutil.which("dockerd"):
        start = f", or `{as_root('systemctl start docker')}`" if systemd_runs() else ""
        return f"Start it: `{own_as_root('setup --yes')}`{start}; {without_docker()}"
    if shutil.which("podman") and PODMAN in names():
        return f"Start Podman in its place: {provider(PODMAN).remedy(PODMAN)}; {without_docker()}"
    if shutil.which("apt-get"):
        return f"Install and start it: `{own_as_root('setup --yes')}`; {without_docker()}"
    return f"Install Docker Engine of docker.com, and start it; {without_docker()}"


def _group(path: str) -> str | None:
    """Return the group that may use a socket, None if that is root's or nobody's."""
    import grp

    try:
        return None if (number := os.stat(path).st_gid) == 0 else grp.getgrgid(number).gr_name  # noqa: PTH116 (a string)
    except (OSError, KeyError):
        return "docker"
