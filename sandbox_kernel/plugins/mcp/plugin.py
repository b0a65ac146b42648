"""What this plugin adds: the command `mcp`, and its codes."""

from __future__ import annotations

from ..api import Command, Plugin
from . import command
from .codes import McpCode

PLUGIN = Plugin(
    name="mcp",
    page="docs/mcp.md",
    extra="mcp",
    codes={"MCP server": McpCode},
    commands=(
        Command(
            name="mcp",
            run=command.serve,
            add_options=command.add_options,
            group="Running code without a front end",
            examples={
                "sandbox-kernel mcp": "over stdin and stdout, for a host that starts it on this machine",
                "sandbox-kernel mcp --http --token-file mcp-token --memory 1G": "over HTTP, as `sandbox-kernel serve`",
            },
        ),
    ),
)
