"""The server, without its transport: tools and resources for whoever is connected.

Who that is, the transport knows and nobody can choose: the one process at the other end of stdio, or a connection over
HTTP, known by the random id that the server gave it. The newest protocol has no connections over HTTP, so that clients
could not be told apart there: over HTTP it is not offered, and clients fall back to the one with a handshake.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    UNSUPPORTED_PROTOCOL_VERSION,
    BlobResourceContents,
    CallToolRequestParams,
    CallToolResult,
    DiscoverResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    RequestParams,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ... import __version__
from ...core.codes import Code, UsageCode
from ...core.errors import SandboxError
from ...core.model import MIB, Settings, format_bytes
from . import tool_descriptions, tool_functions
from .answer_writer import AnswerLimits
from .clients import McpClient, RefusedCall, ServerLimits
from .codes import McpCode
from .output_store import Address, file_address, output_address, parse
from .schemas import plain_schema

Run = Callable[[tool_functions.ToolCall, Any], Awaitable[CallToolResult]]


@dataclass(frozen=True, slots=True)
class ToolHandler:
    """A tool, what it takes, and the function behind it."""

    tool: Tool
    arguments: type[tool_functions.Arguments]
    run: Run


def handlers(settings: Settings, limits: ServerLimits) -> list[ToolHandler]:
    """Return all tools, with the figures of the settings in their descriptions."""

    def handler(name: str, title: str, description: str, *, hints: ToolAnnotations, output: Any = None) -> ToolHandler:
        arguments, run = _BEHIND[name]
        tool = Tool(
            name=name,
            title=title,
            description=description,
            input_schema={"required": [], **plain_schema(arguments), "additionalProperties": False},
            output_schema=output,
            annotations=hints.model_copy(update={"title": title}),
        )
        return ToolHandler(tool, arguments, run)

    words = tool_descriptions
    installs = [
        handler("install_packages", "Install packages", words.install_packages(settings), hints=_CHANGES_MORE),
    ]
    return [
        handler("run_code", "Run Python code", words.run_code(settings, limits), hints=_CHANGES),
        *(installs if settings.get("packages", ()) else ()),
        handler("upload_file", "Upload a file", words.upload_file(settings), hints=_CHANGES, output=_UPLOADED),
        handler("download_file", "Download a file", words.DOWNLOAD_FILE, hints=_READS),
        handler("list_files", "List files", words.LIST_FILES, hints=_READS, output=_FILES),
        handler("list_sessions", "List sessions", words.LIST_SESSIONS, hints=_READS, output=_SESSIONS),
        handler("interrupt", "Interrupt", words.INTERRUPT, hints=_STOPS),
        handler("reset", "Reset a session", words.RESET, hints=_ENDS),
        handler("end_session", "End a session", words.END_SESSION, hints=_ENDS),
    ]


_BEHIND: dict[str, tuple[type[tool_functions.Arguments], Run]] = {
    "run_code": (tool_functions.RunCode, tool_functions.run_code),
    "install_packages": (tool_functions.InstallPackages, tool_functions.install_packages),
    "upload_file": (tool_functions.UploadFile, tool_functions.upload_file),
    "download_file": (tool_functions.DownloadFile, tool_functions.download_file),
    "list_files": (tool_functions.ListFiles, tool_functions.list_files),
    "list_sessions": (tool_functions.Nothing, tool_functions.list_sessions),
    "interrupt": (tool_functions.OfSession, tool_functions.interrupt),
    "reset": (tool_functions.OfSession, tool_functions.reset),
    "end_session": (tool_functions.OfSession, tool_functions.end_session),
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


RESOURCE_BYTES = 64 * MIB
"""What one reading of a resource gives; more is read in parts."""
RESOURCES_PER_PAGE = 500
HTTP_ANSWER_BYTES = 950_000
"""The answer of a cell: after a notification of progress it is an event, and clients take events of up to 1 MiB."""
Context = ServerRequestContext[Any, Any]
ClientOf = Callable[[Context], McpClient]
"""Says whose call something is, as the transport knows it. Raises `RefusedCall` for a connection that was closed."""


def make_server(settings: Settings, limits: ServerLimits, client_of: ClientOf, *, http: bool) -> Server[Any]:
    """Return the server for one of the transports."""
    service = _Service(settings, limits, client_of, http=http)
    server: Server[Any] = Server(
        "sandbox-kernel",
        version=__version__,
        title="Python in a sandbox",
        instructions=tool_descriptions.instructions(settings, limits),
        # No header of a request repeats an argument, so there is nothing to compare.
        get_tool_input_schema=(lambda _: None) if http else None,
        on_list_tools=service.list_tools,
        on_call_tool=service.call_tool,
        on_list_resources=service.list_resources,
        on_list_resource_templates=service.list_templates,
        on_read_resource=service.read_resource,
    )

    async def discover(context: Context, params: RequestParams) -> DiscoverResult:
        return DiscoverResult(
            supported_versions=list(HANDSHAKE_PROTOCOL_VERSIONS),
            capabilities=server.get_capabilities(protocol_version=context.protocol_version),
            instructions=server.instructions,
        )

    if http:
        server.add_request_handler("server/discover", RequestParams, discover)
        server.middleware.append(_refuse_without_connection)
    return server


async def _refuse_without_connection(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Refuse what comes outside of a connection; only the question what the server speaks is answered."""
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and ctx.method != "server/discover":
        raise MCPError(
            UNSUPPORTED_PROTOCOL_VERSION,
            "sessions belong to a connection: over HTTP, start with the initialize handshake",
            {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": ctx.protocol_version},
        )
    return await call_next(ctx)


class _Service:
    def __init__(self, settings: Settings, limits: ServerLimits, client_of: ClientOf, *, http: bool) -> None:
        self._client = client_of
        most = HTTP_ANSWER_BYTES if http else AnswerLimits().answer_bytes
        self._answers = AnswerLimits(text_characters=limits.text_characters, answer_bytes=most)
        self._handlers = {handler.tool.name: handler for handler in handlers(settings, limits)}

    async def list_tools(self, context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[handler.tool for handler in self._handlers.values()])

    async def call_tool(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        handler = self._handlers.get(params.name)
        if handler is None:
            raise MCPError(INVALID_PARAMS, f"there is no tool {params.name!r}", _said(McpCode.NO_SUCH_TOOL))
        try:
            given = handler.arguments.model_validate(params.arguments or {})
        except ValidationError as error:
            # Of an error of the protocol a framework tells its model nothing, or ends.
            return _failed(UsageCode.WRONG_ARGUMENT, f"{params.name}: {_first_mistake(error)}")
        try:
            call = tool_functions.ToolCall(self._client(context), self._answers, context.session.report_progress)
            return await handler.run(call, given)
        except (RefusedCall, SandboxError) as error:
            return _failed(error.code, _text_of(error))

    async def list_resources(self, context: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        start = _page(params)
        found: list[Resource] = []
        for session in (one for one in self._client(context).alive() if one.started):
            for output in reversed(session.outputs.all()):
                uri = output_address(session.name, output.name)
                title = f"output {output.name} of session {session.name}"
                found.append(Resource(uri=uri, name=output.name, title=title, mime_type=output.mime, size=output.size))
            try:
                files = await session.sandbox.files.list()
            except SandboxError:
                continue  # it ended just now
            found += [
                Resource(
                    uri=file_address(session.name, file.path),
                    name=file.path,
                    title=f"{file.path} of session {session.name}",
                    mime_type=tool_functions.mime_of(file.path),
                    size=file.size,
                )
                for file in files
            ]
        end = start + RESOURCES_PER_PAGE
        return ListResourcesResult(resources=found[start:end], next_cursor=str(end) if end < len(found) else None)

    async def list_templates(
        self, context: Context, params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        files = "A file of a session, with its folders. `?offset=0&length=1048576` after it reads a part."
        outputs = "What a cell printed or displayed and was too long for the answer, which gives the address."
        return ListResourceTemplatesResult(
            resource_templates=[
                ResourceTemplate(uri_template="sandbox://{session}/files/{+path}", name="file", description=files),
                ResourceTemplate(uri_template="sandbox://{session}/outputs/{name}", name="output", description=outputs),
            ]
        )

    async def read_resource(self, context: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        address = parse(params.uri)
        if address is None:
            raise MCPError(
                INVALID_PARAMS, "this is no address of a resource", _said(McpCode.NO_SUCH_RESOURCE, uri=params.uri)
            )
        try:
            mime, data, mark = await self._read(self._client(context), address)
        except (RefusedCall, SandboxError) as error:
            raise MCPError(INVALID_PARAMS, _text_of(error), _said(error.code, uri=params.uri)) from None
        uri = params.uri
        text = _text(data, mime) if isinstance(data, bytes) else data
        if text is not None:
            return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=mime, text=text, _meta=mark)])
        assert isinstance(data, bytes)  # noqa: S101 (what is text has been returned)
        blob = base64.b64encode(data).decode()
        return ReadResourceResult(contents=[BlobResourceContents(uri=uri, mime_type=mime, blob=blob, _meta=mark)])

    async def _read(self, client: McpClient, address: Address) -> tuple[str, str | bytes, dict[str, Any] | None]:
        async with client.use(address.session, make=False) as (session, _):
            if address.kind == "outputs":
                output = session.outputs.get(address.name)
                if output is None:
                    raise RefusedCall(
                        McpCode.NO_SUCH_RESOURCE,
                        f"There is no output {address.name!r} any more in session {address.session!r}.",
                    )
                start, end = address.offset, None if address.length is None else address.offset + address.length
                return output.mime, output.data[start:end], None
            length = RESOURCE_BYTES if address.length is None else min(address.length, RESOURCE_BYTES)
            data, size = await session.sandbox.files.read_part(address.name, address.offset, length)
        if address.length is None and address.offset + len(data) < size:
            most = format_bytes(RESOURCE_BYTES)
            raise RefusedCall(
                McpCode.RESOURCE_TOO_LARGE,
                f"{address.name} is larger than {most}: read it in parts, with ?offset=0&length={MIB}.",
            )
        return tool_functions.mime_of(address.name), data, {"sandbox-kernel/size": size}


def _failed(code: Code, text: str) -> CallToolResult:
    """Return the answer for a call that cannot be done, for the model to read."""
    return CallToolResult(content=[TextContent(text=text)], is_error=True, _meta={"sandbox-kernel/code": code.code})


def _first_mistake(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])


def _said(code: Code, **more: str) -> dict[str, str]:
    """Return what an error of the protocol carries for programs."""
    return {"code": code.code, **more}


def _text_of(error: RefusedCall | SandboxError) -> str:
    if isinstance(error, RefusedCall):
        return str(error)
    return f"{error.name}: {error}"


def _text(data: bytes, mime: str) -> str | None:
    """Return a file as text if it is text by its name and by its content."""
    textual = mime.startswith("text/") or mime.endswith(("json", "xml", "yaml", "javascript", "python", "sql", "toml"))
    if not textual:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _page(params: PaginatedRequestParams | None) -> int:
    cursor = params.cursor if params is not None else None
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 9:
        raise MCPError(INVALID_PARAMS, "this cursor is none of ours", _said(UsageCode.WRONG_ARGUMENT))
    return int(cursor)
