"""What this plugin adds: a module that the nucleus ships to each kernel (`index.INSIDE`)."""

from __future__ import annotations

from ..api import Plugin

PLUGIN = Plugin(name="inlining", page="docs/outputs.md")
