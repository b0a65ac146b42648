"""What this plugin adds: the settings `datasets` and `volumes`."""

from __future__ import annotations

from ..api import Plugin

PLUGIN = Plugin(name="data", page="docs/large-data.md")
