"""What this plugin adds: the comms that may pass."""

from __future__ import annotations

from ..api import Plugin
from .codes import WidgetCode


def comms() -> object:
    """Return the class of a kernel's comms."""
    from .comms import Widgets

    return Widgets


PLUGIN = Plugin(name="widgets", page="docs/outputs.md", codes={"Widgets": WidgetCode}, comms=comms)
