"""The codes of what a cell asks of its caller's tools: how each call ended. Imports code only."""

from __future__ import annotations

from enum import unique

from ...core.codes import Code

_SIGNATURE = "Call it as its signature says, or fix what it returns."
_CALL = "Use the functions of the module sandbox_tools."
_SMALLER = "Pass less, or raise the limit (Tools(limit_bytes=...))."
_LIMIT = "Raise the limit (Tools(seconds=..., at_once=..., calls=...)), or call less."


@unique
class ToolCode(Code):
    """How the call of a tool ended, and why there is none."""

    TOOL_CALLED = "notice", "the tool {name} was called", "Nothing: it was allowed."
    TOOL_FAILED = "notice", "the tool {name} raised {error}", "See what the tool says, and its arguments."
    TOOL_STOPPED = (
        "notice",
        "the call of the tool {name} was given up: {why}",
        "Nothing: the cell does not wait any more.",
    )
    TOOL_ARGUMENTS_WRONG = "notice", "the arguments of the tool {name} do not fit: {why}", _SIGNATURE
    TOOL_RESULT_WRONG = "notice", "the tool {name} returned what does not fit: {why}", _SIGNATURE
    TOOL_UNKNOWN = "violation", "there is no tool of that name", _CALL
    TOOL_CALL_IMPROPER = "violation", "not a call of a tool: {why}", _CALL
    TOOL_WITHOUT_CELL = (
        "violation",
        "no cell runs, and tools are for cells",
        "Wait in the cell for the threads that call tools.",
    )
    TOOL_ARGUMENTS_LARGE = "limit", "the arguments of a tool are larger than {limit} bytes", _SMALLER
    TOOL_RESULT_LARGE = "limit", "the result of the tool {name} is larger than {limit} bytes", _SMALLER
    TOOL_TIMEOUT = "limit", "the tool {name} took longer than {limit} s", _LIMIT
    TOOLS_BUSY = "limit", "{limit} calls of tools are under way, and none of them ended for {seconds} s", _LIMIT
    TOOL_CALLS = "limit", "a cell calls tools {limit} times at most", _LIMIT
    TOOL_UNFIT = "failure", "a tool cannot be offered to cells", _SIGNATURE
