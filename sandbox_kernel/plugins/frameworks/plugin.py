"""What this plugin adds: modules that programs import, and no command."""

from __future__ import annotations

from ..api import Plugin

PLUGIN = Plugin(name="frameworks", page="docs/integrations.md")
