"""Exit reasons: why a kernel or a whole sandbox ended, in words for whoever ran the cell. Pure."""

from __future__ import annotations

import signal

from ..core.codes import EndCode, Note, Survived
from ..core.errors import KernelDied, OutOfMemory, SandboxDied, SandboxError
from ..core.model import ExitReason, Limits, format_bytes
from ..files.file_rules import printable
from .agent_words import Death

OF_A_BROKER = {
    "taken": EndCode.DETACHED_TAKEN,
    "expired": EndCode.LIFETIME_OVER,
    "flooded": EndCode.NOBODY_READ,
    "broker_ended": EndCode.BROKER_ENDED,
}


def out_of_memory(limit: int, kept: Survived, because: str | None = None) -> OutOfMemory:
    return OutOfMemory(EndCode.OUT_OF_MEMORY, limit=format_bytes(limit), setting="memory", kept=kept, because=because)


def restarted() -> KernelDied:
    return KernelDied(EndCode.KERNEL_RESTARTED, kept=Survived.FILES)


def too_slow(what: str, limits: Limits) -> SandboxDied:
    limit = f"{limits.start_timeout:g} s"
    return SandboxDied(EndCode.START_TOO_SLOW.note(what=what), limit=limit, setting="start_timeout")


def unused(limits: Limits) -> SandboxDied:
    limit = f"{limits.idle_timeout:g} s"
    return SandboxDied(EndCode.SANDBOX_IDLE, limit=limit, setting="idle_timeout", kept=Survived.NOTHING)


def no_kernel(image: str, death: Death, error: SandboxError) -> SandboxDied:
    """Name the end of a sandbox in which kernel after kernel ends; `error` is the last one's."""
    return SandboxDied(EndCode.NO_KERNEL_STARTS.note(image=image, why=_last_words(death.tail) or error.message))


def of_kernel(death: Death, memory_bytes: int) -> SandboxError:
    """Name the reason of a kernel's death from what the agent saw."""
    if death.signal == signal.SIGKILL and death.ooms:
        return out_of_memory(memory_bytes, Survived.FILES)
    if death.signal is not None:
        try:
            how = f"was ended by signal {death.signal} ({signal.Signals(death.signal).name})"
        except ValueError:
            how = f"was ended by signal {death.signal}"
    else:
        how = f"ended itself with exit code {'unknown' if death.code is None else death.code}"
    return KernelDied(EndCode.KERNEL_DIED, f"the kernel {how}", kept=Survived.FILES)


def of_sandbox(reason: ExitReason, limits: Limits, link_failure: Note | None) -> SandboxError:
    """Name the reason why a container's stream ended; `link_failure` says why its pipe was given up, if it was."""
    detail = _last_words(reason.detail)
    if reason.kind == "out_of_memory":
        return out_of_memory(limits.memory, Survived.NOTHING, "the whole sandbox was ended")
    if reason.kind == "out_of_processes":
        return SandboxDied(EndCode.OUT_OF_PROCESSES, limit=f"{limits.pids}", setting="pids", kept=Survived.NOTHING)
    if reason.kind == "engine_lost":
        return SandboxDied(EndCode.ENGINE_STOPPED.note(why=detail), kept=Survived.NOTHING)
    if (code := OF_A_BROKER.get(reason.kind)) is not None:
        return SandboxDied(code, kept=Survived.NOTHING)
    if link_failure is not None:
        return SandboxDied(link_failure, kept=Survived.NOTHING)
    how = "was killed" if reason.kind == "killed" else f"ended with exit code {reason.exit_code}"
    return SandboxDied(
        EndCode.SANDBOX_DIED, f"the sandbox {how}{': ' + detail if detail else ''}", kept=Survived.NOTHING
    )


def _last_words(text: str) -> str:
    return printable(text.strip()[-1000:], 1000)
