"""The codes of this plugin: what the MCP server refuses of its clients."""

from __future__ import annotations

from enum import unique

from ...core.codes import Code

_LIST = "Ask for the list of tools or resources."
_PARTS = "Send or read it in parts, with offset."


@unique
class McpCode(Code):
    """What the MCP server refuses of its clients."""

    NO_SUCH_TOOL = "failure", "there is no such tool", _LIST
    NO_SUCH_SESSION = "failure", "there is no such session", "Begin one with run_code or upload_file."
    NO_SUCH_RESOURCE = "failure", "there is no such resource", _LIST
    SESSION_NAME_IMPROPER = "failure", "that is not a valid session name", "Use letters, digits, dots and dashes."
    SESSION_BUSY = "limit", "too many calls run or wait in the session", "Wait for a call to end, or interrupt it."
    TOO_MANY_SESSIONS = "limit", "the limit of sessions is reached", "End one, or use an open one."
    CONNECTION_CLOSED = "failure", "the connection was closed, or the server stops", "Connect again."
    PART_MISPLACED = "failure", "a part of a file does not follow the one before", "Begin again with offset 0."
    RESOURCE_TOO_LARGE = "limit", "the resource is too large for one answer", _PARTS
    OUTPUT_NOT_KEPT = "limit", "an output is too large to be kept", "Show less, or write it to a file in /mnt/data."
    CALL_BYTES = "limit", "one call carries too much: send it in parts, with offset and final", _PARTS
