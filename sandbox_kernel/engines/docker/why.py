"""Why a start failed, where the engine's answer does not say it. Imports errors, and what the engine says of itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ...core.codes import EndCode
from ...core.errors import EngineError


async def why(error: EngineError, request: Callable[[str, str], Awaitable[Any]]) -> EngineError | None:
    """Return a better error, None if there is none: a runtime says of a user id that it lacks "invalid argument"."""
    if error.code != EndCode.ENGINE_FAILED:
        return None
    from .documents import users

    try:
        found = users(await request("GET", "/info"))
    except EngineError:
        return None
    if not found:
        return None
    return EngineError(
        EndCode.ENGINE_LACKS_USERS,
        f"this engine is {found}: its containers have a few user ids that are not the machine's, and the one that a "
        f"sandbox gets for itself is not among them (it said: {error.message[:300]})",
        setting="engine",
    )
