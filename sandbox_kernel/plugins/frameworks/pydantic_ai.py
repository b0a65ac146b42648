"""Code mode for pydantic-ai: `Agent(model, toolsets=[CodeMode(toolset, memory="1G")])`.

The model gets one tool, which runs Python in a sandbox; the tools of the toolset are functions there. Calls go through
the toolset, so its validation, approvals and wrappers count.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..tools.tools import Tool, Tools, proper_name
from . import as_text, missing

try:
    from pydantic_ai import RunContext
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.toolsets import WrapperToolset
    from pydantic_ai.toolsets.abstract import ToolsetTool
    from pydantic_core import SchemaValidator, core_schema
except ImportError as error:
    raise missing("pydantic-ai-slim", error) from error

if TYPE_CHECKING:
    from ...sdk.client import AsyncSandbox

DESCRIPTION = (
    "Runs Python in a sandboxed Jupyter kernel and returns what it prints, the value of the last expression, and "
    "errors. Variables last from call to call. These functions can be imported with `from sandbox_tools import *`:\n"
)
_CODE = core_schema.typed_dict_schema({"code": core_schema.typed_dict_field(core_schema.str_schema())})
_SCHEMA = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}


@dataclass
class _State:
    """What runs of the framework share: it copies toolsets."""

    sandbox: AsyncSandbox | None = None
    context: RunContext[Any] | None = None
    tools: dict[str, ToolsetTool[Any]] = field(default_factory=dict)


class CodeMode(WrapperToolset[Any]):  # type: ignore[misc, unused-ignore] # where the framework is not there, it is Any
    """See the module. Settings are those of `Sandbox`; the sandbox ends with the toolset's context, or `close`."""

    def __init__(self, wrapped: Any, *, name: str = "run_python", **settings: Any) -> None:
        super().__init__(wrapped)
        self._name, self._settings, self._state = name, settings, _State()

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the one tool."""
        self._state.tools = await self.wrapped.get_tools(ctx)
        shown = "\n".join(_shown(one.tool_def) for one in self._state.tools.values())
        definition = ToolDefinition(
            name=self._name, description=DESCRIPTION + shown, parameters_json_schema=_SCHEMA, sequential=True
        )
        tool = ToolsetTool(toolset=self, tool_def=definition, max_retries=1, args_validator=SchemaValidator(_CODE))
        return {self._name: tool}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Run a cell; return what it brought, for the model to read."""
        state = self._state
        state.context = ctx
        if state.sandbox is None:
            from ...sdk.client import AsyncSandbox

            state.sandbox = AsyncSandbox(tools=Tools(map(self._tool, state.tools)), **self._settings)
        return as_text(await state.sandbox.run_code(tool_args["code"]))

    async def __aexit__(self, *args: Any) -> bool | None:
        await self.close()
        result: bool | None = await super().__aexit__(*args)
        return result

    async def close(self) -> None:
        """End the sandbox; the next call starts a new one."""
        sandbox, self._state.sandbox = self._state.sandbox, None
        if sandbox is not None:
            await sandbox.kill()

    def _tool(self, name: str) -> Tool:
        definition = self._state.tools[name].tool_def

        def check(given: Mapping[str, Any]) -> Mapping[str, Any]:
            checked: Mapping[str, Any] = self._state.tools[name].args_validator.validate_python(dict(given))
            return checked

        async def work(given: Mapping[str, Any]) -> Any:
            return await self.wrapped.call_tool(name, dict(given), self._state.context, self._state.tools[name])

        return Tool.described(
            proper_name(name), definition.description or "", definition.parameters_json_schema, work, arguments=check
        )

    def visit_and_replace(self, visitor: Any) -> Any:
        """Wrap what a visitor makes of the toolset within."""
        new = CodeMode(self.wrapped.visit_and_replace(visitor), name=self._name, **self._settings)
        new._state = self._state
        return new

    async def for_run(self, ctx: RunContext[Any]) -> Any:
        """Go on with what the toolset within is in a run."""
        return self._with(await self.wrapped.for_run(ctx))

    async def for_run_step(self, ctx: RunContext[Any]) -> Any:
        """Go on with what the toolset within is in a step."""
        return self._with(await self.wrapped.for_run_step(ctx))

    def _with(self, wrapped: Any) -> CodeMode:
        if wrapped is self.wrapped:
            return self
        new = CodeMode(wrapped, name=self._name, **self._settings)
        new._state = self._state
        return new


def _shown(definition: ToolDefinition) -> str:
    """Return a tool's signature and what it is for."""
    tool = Tool.described(proper_name(definition.name), "", definition.parameters_json_schema, dict)
    return f"{tool.signature}: {inspect.cleandoc(definition.description or '')}"
