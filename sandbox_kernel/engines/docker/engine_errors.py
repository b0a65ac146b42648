"""What an engine refuses, and how it fails, as errors of ours: whose fault it is and what to do. Here and nowhere else.

Imports errors only.
"""

from __future__ import annotations

from ...core.codes import EndCode, Survived
from ...core.errors import EngineError, EngineUnavailable, ImageMissing
from ..image_names import build_command

OF_OTHERS = "build or load it, as it is never pulled"


class NoSuchContainer(EngineError):
    """The container is gone."""


class BeingRemoved(EngineError):
    """Somebody else removes the container just now."""


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
    if status == 404 and "no such container" in text:
        return NoSuchContainer(EndCode.CONTAINER_GONE, kept=Survived.NOTHING)
    if status == 409 and "removal" in text:
        return BeingRemoved(EndCode.CONTAINER_BEING_REMOVED, kept=Survived.NOTHING)
    host = body.get("HostConfig", {}) if isinstance(body, dict) else {}
    if status == 404 and ("image" in text or "manifest" in text):
        image = body.get("Image", "") if isinstance(body, dict) else ""
        command = build_command(str(image))
        return ImageMissing(
            EndCode.IMAGE_MISSING,
            f"there is no image {image!r}: {f'build it with: {command}' if command else OF_OTHERS}",
            setting="image",
        )
    if "runtime" in text and ("unknown" in text or "not found" in text or "invalid" in text) and host.get("Runtime"):
        return EngineError(
            EndCode.ENGINE_LACKS_RUNTIME,
            f"the engine has no runtime {host['Runtime']!r}: add it to /etc/docker/daemon.json and restart the engine",
            setting="runtime",
        )
    if "seccomp profile" in text or "unknown mount option" in text:
        return EngineError(
            EndCode.ENGINE_LACKS_PROTECTION,
            "this engine does not take all protections of a sandbox over Docker's API (nor do Podman 4 and 5): use "
            f"Docker Engine 20.10 or later (it said: {message.strip()[:100]})",
            setting="engine",
        )
    return EngineError(EndCode.ENGINE_FAILED, f"the container engine refused ({status}): {message.strip()[:500]}")


def unavailable(path: str, error: OSError) -> EngineUnavailable:
    """Translate what the system says of a socket into what a person can do about it."""
    if isinstance(error, FileNotFoundError):
        code = EndCode.ENGINE_NOT_FOUND
        why = f"there is no container engine at {path}: start it (systemctl start docker), or name its socket"
    elif isinstance(error, PermissionError):
        code = EndCode.ENGINE_FORBIDDEN
        why = f"{path} may not be opened by this user: join its group (usermod -aG docker USER), log in again"
    elif isinstance(error, ConnectionRefusedError):
        code = EndCode.ENGINE_UNAVAILABLE
        why = f"nothing answers at {path}: start the container engine (systemctl start docker)"
    else:
        code = EndCode.ENGINE_LOST
        why = f"the connection to the container engine at {path} was lost ({error})"
    return EngineUnavailable(code, why, setting="engine")
