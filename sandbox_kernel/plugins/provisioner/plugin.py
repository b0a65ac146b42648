"""What this plugin adds: an entry point for jupyter_client, and no command."""

from __future__ import annotations

from ..api import Plugin

PLUGIN = Plugin(name="provisioner", page="docs/jupyterlab.md")
