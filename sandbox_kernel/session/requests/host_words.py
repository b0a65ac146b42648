"""What the host itself says of a request: its error, its reply in place of the kernel's, and where its outputs belong.

Pure functions of a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.codes import EndCode
from ...core.errors import OutputLimit, SandboxError
from ...core.model import Message
from ...plugins.api import CellFailure
from ...policy.frame_libraries import CellRun
from .queue import PendingRequest, parent_of

MAX_CELL_ID = 1000
"""Characters; VS Code's name the file."""
MAX_GONE = 100
"""Cells of which one request says that they were deleted."""
EXITS = frozenset(("exit", "exit()", "quit", "quit()"))
"""What a person writes to leave a console; IPython knows no others."""


def place_of(request: PendingRequest | None) -> CellRun | None:
    """Return the cell of a notebook that a request runs, as JupyterLab and VS Code say it, or its batch."""
    if request is None or not request.is_execute:
        return None
    if request.batch is not None:
        return CellRun(request.id, request.id, notebook=request.batch)
    cell, gone = request.message.metadata.get("cellId"), request.message.metadata.get("deletedCells")
    if not isinstance(cell, str) or not 0 < len(cell) <= MAX_CELL_ID:
        return None
    gone = gone[:MAX_GONE] if isinstance(gone, list) else ()
    return CellRun(cell, request.id, tuple(one for one in gone if isinstance(one, str)))


def error_content(request: PendingRequest, error: SandboxError) -> dict[str, object]:
    """Return the content of an error that the host writes, behind what the kernel itself said of it."""
    first, *rest = error.lines()
    return {
        "ename": error.name,
        "evalue": str(error),
        "traceback": [*request.traceback, f"\x1b[0;31m{error.name}\x1b[0m: {first}", *rest],
    }


def error_reply(request: PendingRequest, error: SandboxError) -> Message:
    """Return the reply that the host writes in place of the kernel's."""
    content = {"status": "error", **error_content(request, error)}
    if request.is_execute:
        content |= {"execution_count": request.execution_count, "user_expressions": {}, "payload": []}
    kind = request.reply_type or "error_reply"
    return Message(
        channel=request.message.channel, header={"msg_type": kind}, parent=parent_of(request), content=content
    )


def plain_error(error: SandboxError) -> dict[str, object]:
    """Return the content of an error with none but our own words in it."""
    return {"status": "error", "ename": error.name, "evalue": error.code.text, "traceback": []}


def aborted(request: PendingRequest) -> Message:
    """Return the reply of a cell that does not run, since one before it failed."""
    content = {"status": "aborted", "execution_count": 0, "user_expressions": {}, "payload": []}
    return Message(channel="shell", header={"msg_type": "execute_reply"}, parent=parent_of(request), content=content)


def too_much() -> OutputLimit:
    return OutputLimit(EndCode.OUTPUT_TOO_LARGE.note(who="cell"))


def leaves(request: PendingRequest) -> bool:
    """Return whether a person wrote what ends a console, and nothing else.

    Of a kernel's own wish to end a front end nothing passes: this is of the request, which no cell can write.
    """
    content = request.message.content
    return content.get("allow_stdin") is True and str(content.get("code", "")).strip() in EXITS


def failed_in_silence(request: PendingRequest) -> bool:
    """Return whether a kernel says a cell's failure in its reply alone, as Deno does of a syntax error.

    IPython writes a wrong use of a magic to stderr, and publishes no error.
    """
    if request.reply is None or not request.is_execute or request.showed_error:
        return False
    content: Mapping[str, Any] = request.reply.content
    return content.get("status") in ("error", "abort") and content.get("ename") != "UsageError"


def failure_of(request: PendingRequest) -> CellFailure | None:
    """Return the exception in a cell's own reply, if there is one."""
    reply = request.reply
    if reply is None or not request.is_execute or reply.content.get("status") != "error":
        return None
    content = reply.content
    said = content.get("traceback")
    lines = [line for line in said if isinstance(line, str)] if isinstance(said, (list, tuple)) else []
    return CellFailure(str(content.get("ename", "")), str(content.get("evalue", "")), lines)
