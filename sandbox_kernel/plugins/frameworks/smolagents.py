"""An executor for the code agents of smolagents: `CodeAgent(tools, model, executor=SandboxExecutor(memory="1G"))`.

Tools and variables go into the sandbox as source and JSON, as with the framework's own remote executors, and answers
come back as JSON: nothing is ever unpickled. A sandbox that lost its kernel gets tools and variables again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...core.answer_allowance import AnswerAllowance
from ...core.errors import AnswerError
from ...policy.safe_text import plain
from ..tools.tools import Tool as HostTool
from . import code_of, failure, missing, printed
from .answers import image, read

try:
    from smolagents import AgentLogger, LogLevel, Tool
    from smolagents.local_python_executor import CodeOutput
    from smolagents.remote_executors import RemotePythonExecutor
    from smolagents.tools import validate_tool_arguments
    from smolagents.utils import AgentError
except ImportError as error:
    raise missing("smolagents", error) from error

if TYPE_CHECKING:
    from ...core.screen_findings import Finding
    from ...sdk.blocking import Sandbox
    from ...sdk.execution import Execution

_MARK = "_sandbox_is_prepared"
_FIND = """
def _absent(names):
    import importlib.metadata, importlib.util, json
    installed = {{name.lower() for names in importlib.metadata.packages_distributions().values() for name in names}}
    known = lambda name: name.lower() in installed or importlib.util.find_spec(name.split(".")[0])
    print(json.dumps([name for name in names if not known(name)]))

_absent({names!r})
del _absent
"""


class StepFailed(AgentError):  # type: ignore[misc] # the framework is untyped
    """A step that failed; `code` is why the sandbox ended it (docs/codes.md), None for an exception of its own.

    `findings` is what the screen found in it.
    """

    def __init__(self, message: str, logger: AgentLogger, code: str | None, findings: Sequence[Finding] = ()) -> None:
        super().__init__(message, logger)
        self.code, self.findings = code, tuple(findings)


def host_tool(tool: Tool) -> HostTool:
    """Return what a tool of an agent is to cells that call it on this machine, in a thread."""
    kinds: dict[str, dict[str, Any]] = {"any": {}, "image": {}, "audio": {}}
    properties = {name: kinds.get(one["type"], {"type": one["type"]}) for name, one in tool.inputs.items()}
    needed = [name for name, one in tool.inputs.items() if not one.get("nullable")]

    def check(given: Mapping[str, Any]) -> Mapping[str, Any]:
        validate_tool_arguments(tool, dict(given))
        return given

    return HostTool.described(
        tool.name,
        tool.description,
        {"properties": properties, "required": needed},
        lambda given: tool(**given),
        arguments=check,
        in_thread=True,
    )


class SandboxExecutor(RemotePythonExecutor):  # type: ignore[misc] # the framework is untyped
    """Runs an agent's code in a sandbox, which lasts until `cleanup()` (or the agent's, or the end of a `with`).

    Settings are those of `Sandbox` (`memory="1G"`, `cell_timeout=30`, ...). `additional_imports` are packages that the
    image must have: nothing can be installed in a sandbox, so a package that is not there is an error at once.
    `sandbox` uses one that exists, and leaves it running. `host_tools` are those of the agent's tools that run in this
    process, where the network and your files are: cells call them, and the rest goes into the sandbox as source.
    """

    def __init__(
        self,
        additional_imports: Sequence[str] = (),
        logger: AgentLogger | None = None,
        allow_pickle: bool = False,
        *,
        sandbox: Sandbox | None = None,
        host_tools: Sequence[Tool] = (),
        **settings: Any,
    ) -> None:
        if allow_pickle:
            raise ValueError("what comes out of a sandbox is never unpickled: allow_pickle must be False")
        if sandbox is not None and (settings or host_tools):
            raise ValueError(f"the sandbox exists and has its settings: {', '.join(settings) or 'host_tools'}")
        super().__init__(list(additional_imports), logger or AgentLogger(level=LogLevel.ERROR), allow_pickle=False)
        self._tools: dict[str, Tool] = {}
        self._on_host = frozenset(tool.name for tool in host_tools)
        self._variables: dict[str, Any] = {}
        self._own = sandbox is None
        if sandbox is None:
            from ...sdk.blocking import Sandbox as New

            if host_tools:
                settings["tools"] = [host_tool(tool) for tool in host_tools]
            sandbox = New.create(**settings)
        self.sandbox = sandbox
        try:
            self.installed_packages = self.install_packages(list(additional_imports))
        except BaseException:
            self.cleanup()
            raise

    def __call__(self, code_action: str) -> CodeOutput:
        """Run one step of an agent."""
        note = self._restore()
        try:
            output = super().__call__(code_action)
        except AgentError as error:
            # A step that failed may well have failed for that.
            error.message = note + error.message
            error.args = (error.message,)
            raise
        output.logs = note + output.logs
        return output

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        """Run a cell. Raises `StepFailed`, an `AgentError` whose text is for the model to read."""
        execution = self.sandbox.run_code(code)
        logs = printed(execution)
        if execution.error is None:
            return CodeOutput(output=self._output(execution), logs=logs, is_final_answer=False)
        if execution.error.name == self.FINAL_ANSWER_EXCEPTION and not execution.error.from_sandbox:
            answer = self._deserialize_final_answer(execution.error.value)
            return CodeOutput(output=answer, logs=logs, is_final_answer=True)
        said = f"{logs}\n{failure(execution)}".lstrip()
        raise StepFailed(said, self.logger, code_of(execution), execution.findings)

    def send_tools(self, tools: dict[str, Tool]) -> None:
        """Define tools in the sandbox; `final_answer` ends a run."""
        for name, tool in tools.items():
            if not isinstance(tool, Tool):
                raise TypeError(f"{name} is an agent; only tools can be sent into a sandbox")
        super().send_tools({name: tool for name, tool in tools.items() if name not in self._on_host})
        self._tools |= tools
        if there := sorted(self._on_host & tools.keys()):
            self.sandbox.run_code(f"from sandbox_tools import {', '.join(there)}")
        self.sandbox.run_code(f"{_MARK} = True")

    def send_variables(self, variables: dict[str, Any]) -> None:
        """Set variables in the sandbox. Raises the framework's `SerializationError` for what is not JSON."""
        super().send_variables(variables)
        self._variables |= variables

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Return the packages, which must be in the image: there is no network to install them from."""
        names = [re.split(r"[^\w.-]", name, maxsplit=1)[0] for name in additional_imports if name != "*"]
        if names:
            found = self.sandbox.run_code(_FIND.format(names=names))
            absent = [name for name in names if f'"{name}"' in "".join(found.logs.stdout)]
            if found.error is not None or absent:
                raise ValueError(
                    f"not in the image: {', '.join(absent or names)}; packages are built into one beforehand "
                    "(`sandbox-kernel build --requirements FILE`), and its name is the setting image"
                )
        return additional_imports

    def cleanup(self) -> None:
        """End the sandbox, unless it was given."""
        if self._own:
            self.sandbox.kill()

    delete = cleanup

    def __enter__(self) -> SandboxExecutor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.cleanup()

    def _restore(self) -> str:
        """Send tools and variables again if the kernel is another one; return what the model is to know of it."""
        if not self._tools:
            return ""
        probe = self.sandbox.run_code(f"{_MARK!r} in globals()")
        said = printed(probe)  # of what was lost: it is said to the first cell behind it, which is ours
        if probe.text == "True":
            return said
        self.send_variables(self._variables)
        self.send_tools(self._tools)
        return f"{said}[the kernel was replaced: the variables of earlier steps are gone]\n"

    def _patch_final_answer_with_exception(self, final_answer_tool: Tool) -> None:
        if not hasattr(final_answer_tool, "_forward"):  # patched twice, it fails; agents send it with every run
            super()._patch_final_answer_with_exception(final_answer_tool)

    def _output(self, execution: Execution) -> Any:
        for result in execution.results:
            if result.is_main_result:
                picture = (result.png or result.jpeg) if result.is_picture else None
                return self._read(image, picture) if picture else None if result.text is None else plain(result.text)
        return None

    def _deserialize_final_answer(self, encoded_value: str, allow_pickle: bool = False) -> Any:
        return self._read(read, encoded_value)

    def _read(self, reader: Callable[[str, AnswerAllowance], Any], answer: str) -> Any:
        try:
            return reader(answer, AnswerAllowance(self.sandbox.settings.limits))
        except AnswerError as error:
            raise StepFailed(str(error), self.logger, error.code.code) from error
