"""What this plugin adds: what carries the connections of cells."""

from __future__ import annotations

from ..api import Plugin


def streams() -> object:
    """Return the class of a container's streams."""
    from .cell_streams import StreamCarrier

    return StreamCarrier


PLUGIN = Plugin(name="streams", page="docs/network.md", streams=streams)
