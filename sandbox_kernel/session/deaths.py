"""The names of deaths: why a kernel or a whole sandbox ended, in words for whoever ran the cell. Pure."""

from __future__ import annotations

import signal

from ..core.errors import KernelDied, OutOfMemory, SandboxDied, SandboxError
from ..core.model import ExitReason, Limits, format_bytes
from ..files.names import printable
from .agent_words import Death


def out_of_memory(limit: int, survived: str) -> OutOfMemory:
    return OutOfMemory(
        "the cell used more memory than the sandbox has", limit=format_bytes(limit), setting="memory", survived=survived
    )


def restarted() -> KernelDied:
    return KernelDied("the kernel was restarted", survived="files, but no variables")


def too_slow(what: str, limits: Limits) -> SandboxDied:
    limit = f"{limits.start_seconds:g} s"
    return SandboxDied(f"{what} was not ready in time", limit=limit, setting="start_timeout")


def unused(limits: Limits) -> SandboxDied:
    limit = f"{limits.idle_seconds:g} s"
    return SandboxDied("the sandbox was idle and was ended", limit=limit, setting="idle_timeout", survived="nothing")


def no_kernel(image: str, death: Death, error: SandboxError) -> SandboxDied:
    """Name the end of a sandbox in which kernel after kernel ends; `error` is the last one's."""
    return SandboxDied(f"no kernel starts in image {image!r}: {_last_words(death.tail) or error.message}")


def of_kernel(death: Death, memory_bytes: int) -> SandboxError:
    """Name the reason of a kernel's death from what the agent saw."""
    if death.signal == signal.SIGKILL and death.ooms:
        return out_of_memory(memory_bytes, "files, but no variables")
    if death.signal is not None:
        try:
            how = f"was ended by signal {death.signal} ({signal.Signals(death.signal).name})"
        except ValueError:
            how = f"was ended by signal {death.signal}"
    else:
        how = f"ended itself with exit code {'unknown' if death.code is None else death.code}"
    return KernelDied(f"the kernel {how}", survived="files, but no variables")


def of_sandbox(reason: ExitReason, memory_bytes: int, link_failure: str | None) -> SandboxError:
    """Name the reason why a container's stream ended; `link_failure` says why its pipe was given up, if it was."""
    detail = _last_words(reason.detail)
    if reason.kind == "out_of_memory":
        return out_of_memory(memory_bytes, "nothing: the whole sandbox was ended")
    if reason.kind == "engine_lost":
        return SandboxDied(f"the container engine stopped: {detail}", survived="nothing")
    if link_failure is not None:
        return SandboxDied(link_failure, survived="nothing")
    how = "was killed" if reason.kind == "killed" else f"ended with exit code {reason.exit_code}"
    return SandboxDied(f"the sandbox {how}{': ' + detail if detail else ''}", survived="nothing")


def _last_words(text: str) -> str:
    return printable(text.strip()[-1000:], 1000)
