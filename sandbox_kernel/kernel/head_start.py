"""What a kernel process loads, and when: the engine is asked for its container first, and works meanwhile.

Both take about as long. Nothing here is needed for a start: without it the session asks, and meets what is wrong.
Imports the keeper and the engine's spec; neither asyncio nor what does.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.errors import ConfigurationError, SandboxError
from ..engines.select import ask_ahead, make_engine
from ..engines.shipping import new_spec
from . import keeper

if TYPE_CHECKING:
    from types import ModuleType

    from ..core.model import Settings
    from ..engines.base import Ahead
    from ..gateway.opening import WayOut

SWITCH_SECONDS = 0.0005
"""How long a thread that imports may keep the loop waiting, each time."""


class HeadStart(NamedTuple):
    """What was begun: the first container, and the way out that its spec is for."""

    ahead: Ahead | None = None
    way_out: WayOut | None = None


NOTHING_BEGUN = HeadStart()


def head_start(connection_file: str, settings: Settings) -> HeadStart:
    """Ask for the first container; for none if the kernel process before may have left one, or it cannot be."""
    try:
        connection = json.loads(Path(connection_file).read_text(encoding="utf-8"))
        if keeper.left(keeper.place(connection_file, str(connection.get("key", "")))):
            return NOTHING_BEGUN
        way_out = way_out_of(settings)
        inside = way_out.inside if way_out is not None else None
        return HeadStart(ask_ahead(settings, new_spec(settings, inside=inside)), way_out)
    except (OSError, ValueError, AttributeError, SandboxError):
        return NOTHING_BEGUN


def run_kernel(connection_file: str, settings: Settings | ConfigurationError, begun: HeadStart = NOTHING_BEGUN) -> int:
    """Run a kernel until its shutdown; returns the process's exit code. Its first container may be asked for already.

    With an error in place of settings it starts nothing, and every cell is answered with that: where a person would
    else see a kernel that dies again and again.
    """
    import asyncio

    from .heap import share_arena

    share_arena()  # importing what comes next takes a thread
    connection = json.loads(Path(connection_file).read_text(encoding="utf-8"))

    async def run() -> int:
        engine = None
        if begun.ahead is not None and not isinstance(settings, ConfigurationError):
            engine = make_engine(settings, begun.ahead)  # which goes on, while the rest is loaded
        proxy = await import_meanwhile("sandbox_kernel.kernel.proxy")
        code: int = await proxy.Proxy(connection_file, connection, settings, begun, engine).run()
        return code

    return asyncio.run(run())


def way_out_of(settings: Settings, kept: dict[str, Any] | None = None) -> WayOut | None:
    """Return the way out that the settings ask for; `kept` is what the kernel process before knew of it.

    Raises `ConfigurationError`. Nothing of the gateway is loaded for settings that ask for none.
    """
    if not settings.is_served:
        return None
    from ..gateway.opening import WayOut

    return WayOut(settings, kept)


async def import_meanwhile(name: str) -> ModuleType:
    """Import a module in a thread. The loop has short turns, and the engine waits for each of them."""
    import asyncio

    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        return await asyncio.to_thread(importlib.import_module, name)
    finally:
        sys.setswitchinterval(usual)
