"""What this plugin adds: `commands` and `pty` of a sandbox of the SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..api import Plugin, SandboxHandle
from .codes import CommandCode

if TYPE_CHECKING:
    from ...sdk.blocking_base import Caller
    from .blocking_commands import Commands, Pty


class CommandParts:
    """The commands of one sandbox, and its shells with a terminal: with `await`, and as methods return them without."""

    def __init__(self, sandbox: SandboxHandle) -> None:
        from .commands import AsyncCommands, AsyncPty

        self.commands = AsyncCommands(sandbox)
        self.pty = AsyncPty(self.commands.requests)

    def blocking_commands(self, call: Caller) -> Commands:
        from .blocking_commands import Commands

        return Commands(self.commands, call)

    def blocking_pty(self, call: Caller) -> Pty:
        from .blocking_commands import Pty

        return Pty(self.pty, call)


PLUGIN = Plugin(name="commands", page="docs/sdk.md", codes={"Commands": CommandCode}, sdk=CommandParts)
