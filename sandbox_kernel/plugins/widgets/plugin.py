"""What this plugin adds: the comms that may pass."""

from __future__ import annotations

from ..api import Plugin


def comms() -> object:
    """Return the class of a kernel's comms."""
    from .comms import Widgets

    return Widgets


PLUGIN = Plugin(name="widgets", page="docs/outputs.md", comms=comms)
