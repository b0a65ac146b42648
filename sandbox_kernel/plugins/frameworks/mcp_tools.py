"""The tools of an MCP server as functions of cells: `Sandbox(tools=McpTools("my-server"))`.

The server is connected to when the tools are made, on a loop of its own in a thread, so that they serve blocking and
awaited sandboxes. Its descriptions of tools are untrusted text, and arguments are checked by their schema.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from ..tools.tool_types import MismatchError
from ..tools.tools import Tool, proper_name
from . import missing

try:
    import jsonschema
    from mcp import Client, StdioServerParameters
except ImportError as error:
    raise missing("mcp jsonschema", error) from error

START_SECONDS = 60.0
MAX_ERROR = 1000
"""Characters of what a tool says went wrong."""


class McpToolError(Exception):
    """A tool of a server failed; the text is the server's."""


class McpTools:
    """The tools of one server, connected until `close` or the end of a `with`.

    `McpTools("uvx", "my-server")` starts one over stdio, `McpTools("https://mcp.example.org/mcp")` connects to one, and
    a `Server` of the SDK's or a transport may be given as it is. `only` names those that cells get. `seconds` is the
    limit of one call, `stops_clock` as for `Tool.of`. Raises what the connection raises.
    """

    def __init__(
        self,
        server: Any,
        *arguments: str,
        only: tuple[str, ...] | None = None,
        env: Mapping[str, str] | None = None,
        seconds: float = 60.0,
        stops_clock: bool = False,
    ) -> None:
        if isinstance(server, str) and "://" not in server:
            server = StdioServerParameters(command=server, args=list(arguments), env=dict(env) if env else None)
        self._seconds, self._stops_clock, self._only = seconds, stops_clock, only
        self._ready: concurrent.futures.Future[list[Tool]] = concurrent.futures.Future()
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run, args=(server,), name="sandbox_kernel mcp tools", daemon=True)
        self._thread.start()
        try:
            self._tools = self._ready.result(START_SECONDS)
        except BaseException:
            self.close()
            raise

    def as_tools(self) -> list[Tool]:
        """Return them for a sandbox."""
        return list(self._tools)

    def close(self) -> None:
        """Leave the server; idempotent."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(START_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, server: Any) -> None:
        try:
            self._loop.run_until_complete(self._serve(server))
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
        finally:
            self._loop.close()

    async def _serve(self, server: Any) -> None:
        async with Client(server) as client:
            listed = (await client.list_tools()).tools
            chosen = [one for one in listed if self._only is None or one.name in self._only]
            self._ready.set_result([self._tool(client, one) for one in chosen])
            await self._end.wait()

    def _tool(self, client: Client, listed: Any) -> Tool:
        schema = listed.input_schema
        validator = jsonschema.validators.validator_for(schema)(schema)
        name = listed.name

        def check(given: Mapping[str, Any]) -> Mapping[str, Any]:
            wrong = next(iter(validator.iter_errors(dict(given))), None)
            if wrong is not None:
                raise MismatchError(f"{'.'.join(map(str, wrong.absolute_path)) or 'they'}: {wrong.message[:200]}")
            return given

        async def work(given: Mapping[str, Any]) -> Any:
            future = asyncio.run_coroutine_threadsafe(client.call_tool(name, dict(given)), self._loop)
            return _result(await asyncio.wrap_future(future))

        return Tool.described(
            proper_name(name),
            listed.description or listed.title or "",
            schema,
            work,
            arguments=check,
            seconds=self._seconds,
            stops_clock=self._stops_clock,
        )


def _result(said: Any) -> Any:
    """Return what a tool returned: its structured content, or its texts."""
    text = "\n".join(one.text for one in said.content if getattr(one, "type", None) == "text")
    if said.is_error:
        raise McpToolError(text[:MAX_ERROR])
    structured = said.structured_content
    if structured is None:
        return text
    return structured["result"] if isinstance(structured, dict) and structured.keys() == {"result"} else structured
