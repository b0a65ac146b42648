"""The codes of what a cell asks of its caller's tools: how each call ended. Imports code only."""

from __future__ import annotations

from enum import unique

from ...core.code import Code

_CALL = "Call the functions of the module sandbox_tools; whoever else speaks to the host has to speak as they do."
_SMALLER = "Pass less, or raise the limit (Tools(limit_bytes=...))."


@unique
class ToolCode(Code):
    """How the call of a tool ended, and why there is none."""

    TOOL_CALLED = "notice", "the tool {name} was called", "Nothing: it was allowed."
    TOOL_FAILED = "notice", "the tool {name} raised {error}", "See what the tool says, and what it was called with."
    TOOL_STOPPED = "notice", "the call of the tool {name} was given up: {why}", "Nothing: nobody waits for it any more."
    TOOL_ARGUMENTS_WRONG = (
        "notice",
        "the arguments of the tool {name} do not fit: {why}",
        "Call it as its signature says.",
    )
    TOOL_RESULT_WRONG = (
        "notice",
        "the tool {name} returned what does not fit: {why}",
        "Have it return JSON of the type that it names.",
    )
    TOOL_UNKNOWN = "violation", "there is no tool of that name", _CALL
    TOOL_CALL_IMPROPER = "violation", "what came is no call of a tool: {why}", _CALL
    TOOL_WITHOUT_CELL = (
        "violation",
        "no cell runs, and tools are for cells",
        "Wait in the cell for the threads that call tools.",
    )
    TOOL_ARGUMENTS_LARGE = "limit", "the arguments of a tool are larger than {limit} bytes", _SMALLER
    TOOL_RESULT_LARGE = "limit", "the result of the tool {name} is larger than {limit} bytes", _SMALLER
    TOOL_TIMEOUT = "limit", "the tool {name} took longer than {limit} s", "Raise the time limit (Tools(seconds=...))."
    TOOLS_BUSY = (
        "limit",
        "{limit} calls of tools are under way, and none of them ended for {seconds} s",
        "Call fewer at once, or raise the limit (Tools(at_once=...)).",
    )
    TOOL_CALLS = (
        "limit",
        "a cell calls tools {limit} times at most",
        "Ask for more at a time, or raise the limit (Tools(calls=...)).",
    )
    TOOL_UNFIT = "failure", "a tool cannot be offered to cells", "Give functions with types that JSON has."
