"""Why a command of the SDK did not run, or was ended, as codes."""

from __future__ import annotations

from ...core.codes import Code


class CommandCode(Code):
    """Why a command did not run, or was ended."""

    COMMAND_TIMEOUT = (
        "limit",
        "the command ran longer than its time limit and was ended",
        "Do the work in smaller steps, or raise cell_timeout.",
    )
    COMMAND_NOT_STARTED = "failure", "the command could not be started: {why}", "Check cwd, and the limits."
    COMMAND_UNANSWERED = (
        "violation",
        "the sandbox gave no proper answer about a command",
        "Look at what the code does: it writes to the sandbox's own pipe.",
    )
