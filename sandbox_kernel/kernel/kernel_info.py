"""What a kernel says of itself to front ends: its language, its limits, and what its cells may reach.

Names of rules and secrets, and nothing of where a secret is found. Imports the session's values.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..core.model import format_bytes
from ..core.version import __version__
from ..session import protocol
from ..session.handshake import LANGUAGE
from ..session.session import Session
from .state_message import VERSION as STATE_VERSION

HELP_LINKS = [
    {"text": "Python Reference", "url": "https://docs.python.org/3"},
    {"text": "IPython Reference", "url": "https://ipython.org/documentation.html"},
]


def kernel_info(session: Session, engine: str, *, file_messages: dict[str, Any]) -> dict[str, Any]:
    """Return the reply to a kernel_info_request.

    `engine` is the address of what makes the sandboxes, "" if there are no settings to speak of.
    """
    described = session.kernel_info
    features = described.get("supported_features", [])
    about: dict[str, Any] = {} if session.failure is None else {"problem": str(session.failure)}
    about |= {"state_message": {"version": STATE_VERSION}}
    if engine:
        about |= _about(session) | {"engine": engine, "file_messages": file_messages}
    return {
        "protocol_version": protocol.PROTOCOL_VERSION,
        "implementation": "sandbox_kernel",
        "implementation_version": __version__,
        "language_info": described.get("language_info", LANGUAGE),
        "banner": f"sandbox_kernel {__version__}: {_banner(session, engine)}",
        "help_links": HELP_LINKS,
        "supported_features": features,
        "debugger": "debugger" in features,
        "sandbox": about,
    }


def _banner(session: Session, engine: str) -> str:
    if session.failure is not None:
        return f"no sandbox is running.\n{session.failure.name}: {session.failure}"
    version = session.kernel_info.get("implementation_version", "")
    reach = session.settings.reach
    where = "without network" if reach is None else f"that reaches nothing but {reach}"
    return f"IPython {version} in a container {where}, on {_wall(session, engine)}.\n{_limits(session)}"


def _limits(session: Session) -> str:
    """Say what is limited, and by whom; that the machine enforces it is known once there is a sandbox."""
    limits = session.limits
    memory, cpus = f"{format_bytes(limits.memory)} of memory", f"{limits.cpus:g} CPUs"
    others = f"{format_bytes(limits.scratch_size)} of files in /mnt/data, {limits.cell_timeout:g} s a cell."
    if session.settings.limits_kept == "enforced" or session.held:
        return f"Limits: {memory}, {cpus}, {others}"
    if session.held is None:
        return f"Limits, as far as they go: {memory}, {cpus}, {others}"
    return (
        f"Limits: {others} Nothing of this machine enforces the others (limits = best-effort): {memory} and "
        f"{limits.pids} processes are looked at, and the sandbox ends once it is seen to have more; "
        "processors are not limited."
    )


def _wall(session: Session, engine: str) -> str:
    """Name the engine and its runtime, which differ in what they stop."""
    runtime = session.settings.runtime
    name = f"Docker ({engine})" if engine.startswith("unix://") else engine
    return f"{name} with {runtime}" if runtime else name


def _about(session: Session) -> dict[str, Any]:
    """The `sandbox` entry: what programs may want to know."""
    settings = session.settings
    return {
        "image": settings.image,
        "runtime": settings.runtime or "default",
        "limits_kept": settings.limits_kept,
        "limits_held": session.held,
        "outputs": settings.outputs,
        "network": list(settings.get("network", ())) or "none",
        "secrets": [secret.name for secret in settings.get("secrets", ())],
        "packages": list(settings.get("packages", ())) or "none",
        "limits": asdict(settings.limits),
    }
