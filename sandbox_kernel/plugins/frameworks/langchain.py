"""A tool for LangChain agents: `create_agent(model, tools=[SandboxTool(memory="1G")])`.

The content of a call is text for the model; its artifact is the `Execution`, with images and whatever else was shown.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from ...config.sources import SETTINGS, from_keywords
from ..tools.tools import Tool, Tools, proper_name
from . import as_text, missing, pictures

try:
    from langchain_core.callbacks import AsyncCallbackManagerForToolRun, CallbackManagerForToolRun
    from langchain_core.tools import BaseTool
    from pydantic import BaseModel, Field, PrivateAttr
except ImportError as error:
    raise missing("langchain-core", error) from error

if TYPE_CHECKING:
    from ...sdk.blocking import Sandbox
    from ...sdk.execution import Execution

    _Said = tuple[str | list[dict[str, str]], Execution]

FUNCTIONS = "These functions can be imported with `from sandbox_tools import *`:"
NO_NETWORK = "There is no network"
NO_INSTALLING = "nothing can be installed"
DESCRIPTION = (
    "Runs Python in a sandboxed Jupyter kernel and returns what it prints, the value of the last expression, and "
    "errors. Variables, imports and files in the working folder last from call to call. pandas, numpy, matplotlib and "
    f"other packages for data analysis are installed. {NO_NETWORK}, and {NO_INSTALLING}."
)


class SandboxInput(BaseModel):
    """What a model gives to the tool."""

    code: str = Field(description="Python code, as in a cell of a notebook: the last expression is shown.")


def host_tool(tool: BaseTool) -> Tool:
    """Return what a tool of LangChain's is to cells that call it on this machine."""
    schema: Any = tool.tool_call_schema

    def check(given: Mapping[str, Any]) -> Mapping[str, Any]:
        if not isinstance(schema, dict):
            schema.model_validate(given)
        return given

    return Tool.described(
        proper_name(tool.name),
        tool.description,
        schema if isinstance(schema, dict) else schema.model_json_schema(),
        lambda given: tool.ainvoke(dict(given)),
        arguments=check,
    )


class SandboxTool(BaseTool):
    """Runs a model's Python in a sandbox of its own, which starts with the first call and lasts until `close()`.

    Settings are those of `Sandbox` (`memory="1G"`, `cell_timeout=30`, ...), beside the fields of any tool. One tool is
    one session: give each conversation its own. With `show_images`, images are in the content as well, for models that
    take them from tools. A failing cell is text for the model, like any other; a machine without an engine raises.
    """

    name: str = "python_sandbox"
    description: str = DESCRIPTION
    args_schema: type[BaseModel] = SandboxInput
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    tools: list[Any] = Field(default_factory=list)
    """Tools of LangChain's, or functions, that the model's code calls; they run in this process."""
    settings: dict[str, Any] = Field(default_factory=dict)
    show_images: bool = False
    max_characters: int = Field(default=20_000, gt=0)
    """What a model reads of one call at most: the beginning and the end. The artifact has all of it."""

    _sandbox: Sandbox | None = PrivateAttr(default=None)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    def __init__(self, **values: Any) -> None:
        settings = {name: values.pop(name) for name in list(values) if name in SETTINGS}
        settings = {**values.pop("settings", {}), **settings}
        checked = from_keywords(**settings)  # a mistake is told here, and not at the first call
        described = DESCRIPTION
        if checked.reach is not None:
            described = described.replace(NO_NETWORK, f"It reaches {checked.reach} over HTTP")
        if packages := checked.get("packages", ()):
            shown = "any package" if "*" in packages else ", ".join(packages[:20])
            described = described.replace(NO_INSTALLING, f"%pip install brings {shown}")
        values.setdefault("description", described)
        if given := values.get("tools"):
            offered = Tools([host_tool(one) if isinstance(one, BaseTool) else one for one in given])
            listed = "\n".join(f"{one.signature}: {one.documentation}" for one in offered)
            values["description"] = f"{values.get('description', DESCRIPTION)}\n{FUNCTIONS}\n{listed}"
        super().__init__(settings=settings, **values)

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox of this tool, for files for instance; started if it is not there."""
        with self._lock:
            if self._sandbox is None:
                from ...sdk.blocking import Sandbox

                tools = [host_tool(one) if isinstance(one, BaseTool) else one for one in self.tools]
                self._sandbox = Sandbox(tools=tools or None, **self.settings)
            return self._sandbox

    def close(self) -> None:
        """End the sandbox; the next call starts a new one."""
        with self._lock:
            sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            sandbox.kill()

    def __enter__(self) -> SandboxTool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _run(self, code: str, run_manager: CallbackManagerForToolRun | None = None) -> _Said:
        return self._said(self.sandbox.run_code(code))

    async def _arun(self, code: str, run_manager: AsyncCallbackManagerForToolRun | None = None) -> _Said:
        from ...sdk.blocking_base import cell_of

        # The sandbox's loop runs in a thread, so that calls with and without await share one session.
        return self._said(await asyncio.wrap_future(cell_of(self.sandbox, code)))

    def _said(self, execution: Execution) -> _Said:
        """Return the content for the model, and the artifact."""
        content = as_text(execution, self.max_characters)
        images = [{"type": "image", "base64": data, "mime_type": kind} for kind, data in pictures(execution)]
        if self.show_images and images:
            return [{"type": "text", "text": content}, *images], execution
        return content, execution
