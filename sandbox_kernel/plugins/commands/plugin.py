"""What this plugin adds: `commands` and `pty` of a sandbox of the SDK."""

from __future__ import annotations

from typing import Any

from ..api import Plugin, SandboxHandle
from .codes import CommandCode


def sdk(sandbox: SandboxHandle) -> Any:
    """Return the commands of one sandbox."""
    from .command_parts import CommandParts

    return CommandParts(sandbox)


PLUGIN = Plugin(name="commands", page="docs/sdk.md", codes={"Commands": CommandCode}, sdk=sdk)
