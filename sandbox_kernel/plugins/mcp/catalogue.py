"""The table of tools: names, words, schemas and hints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from mcp_types import CallToolResult, Tool, ToolAnnotations

from ...core.model import Settings
from . import descriptions, tools
from .clients import ServerLimits

Run = Callable[[tools.Call, Any], Awaitable[CallToolResult]]


@dataclass(frozen=True, slots=True)
class ToolHandler:
    """A tool, what it takes, and the function behind it."""

    tool: Tool
    arguments: type[tools.Arguments]
    run: Run


def handlers(settings: Settings, limits: ServerLimits) -> list[ToolHandler]:
    """Return all tools, with the figures of the settings in their descriptions."""

    def handler(name: str, title: str, description: str, *, hints: ToolAnnotations, output: Any = None) -> ToolHandler:
        arguments, run = _BEHIND[name]
        tool = Tool(
            name=name,
            title=title,
            description=description,
            input_schema=_schema(arguments),
            output_schema=output,
            annotations=hints.model_copy(update={"title": title}),
        )
        return ToolHandler(tool, arguments, run)

    words = descriptions
    installs = [
        handler("install_packages", "Install packages", words.install_packages(settings), hints=_CHANGES_MORE),
    ]
    return [
        handler("run_code", "Run Python code", words.run_code(settings, limits), hints=_CHANGES),
        *(installs if settings.packages else ()),
        handler("upload_file", "Upload a file", words.upload_file(settings), hints=_CHANGES, output=_UPLOADED),
        handler("download_file", "Download a file", words.DOWNLOAD_FILE, hints=_READS),
        handler("list_files", "List files", words.LIST_FILES, hints=_READS, output=_FILES),
        handler("list_sessions", "List sessions", words.LIST_SESSIONS, hints=_READS, output=_SESSIONS),
        handler("interrupt", "Interrupt", words.INTERRUPT, hints=_STOPS),
        handler("reset", "Reset a session", words.RESET, hints=_ENDS),
        handler("end_session", "End a session", words.END_SESSION, hints=_ENDS),
    ]


_BEHIND: dict[str, tuple[type[tools.Arguments], Run]] = {
    "run_code": (tools.RunCode, tools.run_code),
    "install_packages": (tools.InstallPackages, tools.install_packages),
    "upload_file": (tools.UploadFile, tools.upload_file),
    "download_file": (tools.DownloadFile, tools.download_file),
    "list_files": (tools.ListFiles, tools.list_files),
    "list_sessions": (tools.Nothing, tools.list_sessions),
    "interrupt": (tools.OfSession, tools.interrupt),
    "reset": (tools.OfSession, tools.reset),
    "end_session": (tools.OfSession, tools.end_session),
}

_READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
_CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False)
_CHANGES_MORE = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=True
)
_STOPS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
_ENDS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


_TEXT, _NUMBER, _COUNT, _YES = {"type": "string"}, {"type": "number"}, {"type": "integer"}, {"type": "boolean"}
_UPLOADED = _object(session=_TEXT, path=_TEXT, size=_COUNT, complete=_YES)
_FILES = _object(
    session=_TEXT,
    files={"type": "array", "items": _object(path=_TEXT, size=_COUNT, uri=_TEXT)},
    complete=_YES,
)
_SESSIONS = _object(
    sessions={
        "type": "array",
        "items": _object(
            session=_TEXT, calls_running=_COUNT, cells_run=_COUNT, age_seconds=_NUMBER, idle_seconds=_NUMBER
        ),
    }
)


def _schema(arguments: type[tools.Arguments]) -> dict[str, Any]:
    """Return the schema of a tool's arguments as plainly as it can be said.

    Without the titles that repeat names, and without `anyOf` for what may be left out: not every host knows it.
    """
    schema = arguments.model_json_schema()
    properties = {}
    for name, one in schema.get("properties", {}).items():
        kinds = [kind for kind in one.pop("anyOf", ()) if kind != {"type": "null"}]
        said = one if not kinds else {key: value for key, value in one.items() if key != "default"} | kinds[0]
        properties[name] = {key: value for key, value in said.items() if key != "title"}
    return {
        "type": "object",
        "properties": properties,
        "required": schema.get("required", []),
        "additionalProperties": False,
    }
