"""What a kernel says of itself to front ends: its language and its limits (`kernel_info`), and how its sandbox stands.

Names of rules and secrets are in it, and nothing of where a secret is found. Asking starts nothing and counts as no
use, so that whoever looks on keeps no sandbox alive. docs/jupyter-server.md describes the state message.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ...core.errors import SandboxError
from ...core.model import PYTHON_KERNEL, format_bytes
from ...core.version import __version__
from ...engines import attachment
from ...engines.select import provider
from ...files.file_rules import FileLimits
from ...policy import protocol
from ...policy.handshake import language_of
from ..session import Session

HELP_LINKS = [
    {"text": "Python Reference", "url": "https://docs.python.org/3"},
    {"text": "IPython Reference", "url": "https://ipython.org/documentation.html"},
]


VERSION = 1
SCREEN = "screen"
"""The plugin that reads code before it runs, where the settings want that."""
LONGEST_PROBLEM = 2000
"""Characters of the reason why there is no sandbox."""


def kernel_info(session: Session, engine: str, *, file_messages: dict[str, Any]) -> dict[str, Any]:
    """Return the reply to a kernel_info_request.

    The version of the implementation is that of the kernel, where it is known: clients that read it compare it with
    IPython's, as ipykernel's own tests do. This package's is beside it, in `sandbox`.

    `engine` is the address of what makes the sandboxes, "" if there are no settings to speak of.
    """
    described = session.kernel_info
    features = described.get("supported_features", [])
    about: dict[str, Any] = {} if session.failure is None else {"problem": str(session.failure)}
    about |= {"state_message": {"version": VERSION}, "version": __version__}
    if engine:
        about |= _about(session) | {"engine": engine, "file_messages": file_messages}
        if session.part(SCREEN) is not None:
            about["screen_message"] = {"version": VERSION}
    return {
        "protocol_version": protocol.PROTOCOL_VERSION,
        "implementation": "sandbox_kernel",
        "implementation_version": described.get("implementation_version") or __version__,
        "language_info": described.get("language_info", language_of(session.settings.kernel)),
        "banner": f"sandbox_kernel {__version__}: {_banner(session, engine)}",
        "help_links": HELP_LINKS if session.settings.kernel == PYTHON_KERNEL else [],
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
    name = "IPython" if session.settings.kernel == PYTHON_KERNEL else session.settings.kernel
    data = "".join(f"\nData: {one}." for one in attachment.told(session.settings))
    caveat = f"\n{said}" if engine and (said := provider(engine).caveat) else ""
    return f"{name} {version} in a container {where}, on {_wall(session, engine)}.\n{_limits(session)}{data}{caveat}"


def _limits(session: Session) -> str:
    """Say what is limited, and by whom; that the machine enforces it is known once there is a sandbox."""
    limits = session.limits
    memory, cpus = f"{format_bytes(limits.memory)} of memory", f"{limits.cpus:g} CPUs"
    where = "on a disk, in" if limits.scratch == "disk" else "in"
    others = f"{format_bytes(limits.scratch_size)} of files {where} /mnt/data, {limits.cell_timeout:g} s a cell."
    if session.settings.limits_kept == "enforced" or session.held:
        return f"Limits: {memory}, {cpus}, {others}"
    if session.held is None:
        return f"Limits, as far as they go: {memory}, {cpus}, {others}"
    if limits.scratch == "disk":
        return (
            f"Limits: {memory}, {cpus}, {others} Not all of them are enforced by this machine (limits = best-effort): "
            "memory, processes and files are looked at, and the sandbox ends once it is seen to have more; "
            "processors may not be limited."
        )
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
    files = FileLimits.of(settings.limits)
    return {
        "image": settings.image,
        "kernel": settings.kernel,
        "runtime": settings.runtime or "default",
        "limits_kept": settings.limits_kept,
        "limits_held": session.held,
        "outputs": settings.outputs,
        "network": list(settings.get("network", ())) or "none",
        "secrets": [secret.name for secret in settings.get("secrets", ())],
        "packages": list(settings.get("packages", ())) or "none",
        "data": {one.path: "rw" if one.writable else "ro" for one in attachment.of(settings)} or "none",
        "limits": asdict(settings.limits) | {"file_limit": files.file_bytes, "folder_limit": files.total_bytes},
    }


async def state(session: Session) -> dict[str, Any]:
    """Return the content of a `sandbox_state_reply`. What the sandbox says of its use is held to its limits."""
    limits = session.settings.limits
    used: dict[str, Any] = dict.fromkeys(("memory_bytes", "scratch_bytes", "processes"))
    if session.is_open:
        try:
            usage = await session.usage()
        except SandboxError:
            pass  # it is ending
        else:
            used["memory_bytes"] = _at_most(usage.memory_bytes, limits.memory)
            used["scratch_bytes"] = _at_most(usage.scratch_bytes, limits.scratch_size)
            used["processes"] = _at_most(usage.processes, limits.pids)
    return {
        "version": VERSION,
        "state": _name(session),
        "problem": str(session.failure)[:LONGEST_PROBLEM] if session.failure is not None else "",
        "idle_seconds": _rounded(session.idle_left),
        "cell_seconds": _rounded(session.requests.seconds_left()),
        **used,
    }


def _name(session: Session) -> str:
    if session.is_new or session.is_gone or session.is_closed:
        return "none"
    if not session.is_open:
        return "starting"
    return "busy" if any(session.requests.queue.running_cells()) else "idle"


def _at_most(value: int | None, limit: int) -> int | None:
    return None if value is None else min(value, limit)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
