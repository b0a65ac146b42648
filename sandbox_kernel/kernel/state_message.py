"""How the sandbox stands, for front ends that show it: what it uses, how long it has, and why there is none.

Asking starts nothing and counts as no use, so that whoever looks on keeps no sandbox alive. docs/jupyter-server.md
describes the message. Imports the session's values.
"""

from __future__ import annotations

from typing import Any

from ..core.errors import SandboxError
from ..session.session import Session

VERSION = 1
LONGEST_PROBLEM = 2000
"""Characters of the reason why there is no sandbox."""


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
