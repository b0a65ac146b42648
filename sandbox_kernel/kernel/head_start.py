"""What a kernel process loads, and when: the engine is asked for its container first, and works meanwhile.

Both take about as long. Nothing here is needed for a start: without it the session asks, and meets what is wrong.
Imports the keeper and the engine's spec; neither asyncio nor what does.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import SandboxError
from ..engines.select import ask_ahead
from ..engines.shipping import new_spec
from . import keeper

if TYPE_CHECKING:
    from types import ModuleType

    from ..core.model import Settings
    from ..engines.base import Ahead

SWITCH_SECONDS = 0.0005
"""How long a thread that imports may keep the loop waiting, each time."""


def head_start(connection_file: str, settings: Settings) -> Ahead | None:
    """Ask for the first container; None if one may have been left by the kernel process before, or it cannot be."""
    try:
        connection = json.loads(Path(connection_file).read_text(encoding="utf-8"))
        if keeper.left(keeper.place(connection_file, str(connection.get("key", "")))):
            return None
        return ask_ahead(settings, new_spec(settings))
    except (OSError, ValueError, AttributeError, SandboxError):
        return None


async def import_meanwhile(name: str) -> ModuleType:
    """Import a module in a thread. The loop has short turns, and the engine waits for each of them."""
    import asyncio

    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        return await asyncio.to_thread(importlib.import_module, name)
    finally:
        sys.setswitchinterval(usual)
