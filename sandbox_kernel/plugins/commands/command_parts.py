"""What a sandbox of the SDK has for commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..api import SandboxHandle
from .commands import AsyncCommands, AsyncPty

if TYPE_CHECKING:
    from ...sdk.blocking_base import Caller
    from .blocking_commands import Commands, Pty


class CommandParts:
    """The commands of one sandbox, and its shells with a terminal: with `await`, and as methods return them without."""

    def __init__(self, sandbox: SandboxHandle) -> None:
        self.commands = AsyncCommands(sandbox)
        self.pty = AsyncPty(self.commands.requests)

    def blocking_commands(self, call: Caller) -> Commands:
        from .blocking_commands import Commands

        return Commands(self.commands, call)

    def blocking_pty(self, call: Caller) -> Pty:
        from .blocking_commands import Pty

        return Pty(self.pty, call)
