"""A code executor for AutoGen: `CodeExecutorAgent("coder", code_executor=SandboxCodeExecutor(memory="1G"))`.

Blocks run as cells of one kernel, so variables last. An image or a page that a block shows becomes a file of the output
folder, under a name chosen here.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.answer_allowance import at_most
from ...core.codes import UsageCode
from ...core.errors import AnswerError, ConfigurationError
from ...files.host_paths import open_folder
from . import code_of, failure, missing, printed, timed_out, told

try:
    from autogen_core import CancellationToken, Component
    from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
    from pydantic import BaseModel, Field
except ImportError as error:
    raise missing("autogen-core", error) from error

if TYPE_CHECKING:
    from ...core.screen_findings import Finding
    from ...sdk.client import AsyncSandbox
    from ...sdk.execution import Execution, Result

TIMEOUT_EXIT_CODE = 124
"""As with the framework's own executors of commands."""
_MAGIC = {"python": "", "py": "", "python3": "", "ipython": "", "": "", "bash": "%%bash\n", "sh": "%%sh\n"}
_MAGIC["shell"] = _MAGIC["sh"]


@dataclass
class SandboxCodeResult(CodeResult):
    """The result of some blocks, and the files of what they showed."""

    output_files: list[Path]
    error_code: str | None = None
    """Why the sandbox ended a block, as docs/codes.md lists it; None for an exception of the block's own."""
    findings: list[Finding] = field(default_factory=list)
    """What the screen found in the blocks; a line is one of its block."""


class WrongTimeout(ConfigurationError, ValueError):
    """The error of the framework's own executors for the same."""


class SandboxCodeExecutorConfig(BaseModel):
    """What a component file says of an executor."""

    output_dir: str | None = None
    timeout: float | None = None
    settings: dict[str, Any] = Field(default_factory=dict)


class SandboxCodeExecutor(CodeExecutor, Component[SandboxCodeExecutorConfig]):
    """Executes blocks of Python and shell in a sandbox, which lives from `start` to `stop` (or as long as a `with`).

    Settings are those of `AsyncSandbox` (`memory="1G"`, `cell_timeout=30`, ...). `timeout` is for one block, in
    seconds. `output_dir` is a folder of this host for what blocks show, and for the files that they make (unless
    `downloads` is another); without it, a temporary one lasts until `stop`. `sandbox` is the `AsyncSandbox` behind it,
    for files for instance.
    """

    component_config_schema = SandboxCodeExecutorConfig
    component_provider_override = "sandbox_kernel.plugins.frameworks.autogen.SandboxCodeExecutor"

    def __init__(self, *, output_dir: Path | str | None = None, timeout: float | None = None, **settings: Any) -> None:
        from ...config.sources import from_keywords

        checked = from_keywords(**settings)  # a mistake is told here, and not at the first block
        longest = checked.limits.cell_timeout
        if timeout is not None and timeout <= 0:
            raise WrongTimeout(
                UsageCode.WRONG_ARGUMENT, "timeout must be positive", value=f"{timeout:g} s", setting="timeout"
            )
        if timeout is not None and timeout > longest:
            raise WrongTimeout(
                UsageCode.WRONG_ARGUMENT,
                "timeout is longer than a block may run",
                limit=f"up to {longest:g} s",
                value=f"{timeout:g} s",
                setting="cell_timeout",
            )
        self._output_dir = Path(output_dir) if output_dir is not None else None
        self._timeout = timeout
        self._settings: dict[str, Any] = {
            name: str(value) if isinstance(value, Path) else value for name, value in settings.items()
        }
        self._sandbox: AsyncSandbox | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._turn = asyncio.Lock()

    @property
    def output_dir(self) -> Path:
        """The folder of what blocks show and make; a temporary one that lasts until `stop`, if none was named."""
        if self._output_dir is not None:
            return self._output_dir
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="sandbox-kernel-")
        return Path(self._temporary.name)

    @property
    def sandbox(self) -> AsyncSandbox:
        """The sandbox of an executor that has started."""
        if self._sandbox is None:
            raise RuntimeError("the executor has not started: call start() or use it in an `async with`")
        return self._sandbox

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> SandboxCodeResult:
        """Run blocks until one fails. Cancelled, the running cell is interrupted and `CancelledError` raised.

        An exit code of 1 is an error of the code or of a limit, and 124 a block whose time was up: both are told in
        the output, for a model to read. A sandbox that cannot run anything is an exception.
        """
        outputs: list[str] = []
        files: list[Path] = []
        findings: list[Finding] = []
        exit_code = 0
        code: str | None = None
        async with self._turn:
            for block in code_blocks:
                magic = _MAGIC.get(block.language.strip().lower())
                if magic is None:
                    outputs.append(f"blocks of {block.language!r} cannot be executed, only python and sh")
                    exit_code = 1
                    break
                task = asyncio.ensure_future(self.sandbox.run_code(magic + block.code, timeout=self._timeout))
                cancellation_token.link_future(task)
                execution = await task
                try:
                    exit_code, code = self._collect(execution, outputs, files), code_of(execution)
                except AnswerError as error:
                    outputs.append(str(error))
                    exit_code, code = 1, error.code.code
                findings += execution.findings
                if exit_code:
                    break
        return SandboxCodeResult(
            exit_code=exit_code,
            output="\n".join(outputs),
            output_files=files,
            error_code=code,
            findings=findings,
        )

    async def start(self) -> None:
        """Start the sandbox."""
        from ...sdk.client import AsyncSandbox

        if self._sandbox is None:
            with open_folder(self.output_dir, make=True) as folder:
                downloads = str(folder.path)
            self._sandbox = await AsyncSandbox.create(**({"downloads": downloads} | self._settings))

    async def stop(self) -> None:
        """End the sandbox, and remove the output folder if it was a temporary one."""
        sandbox, self._sandbox = self._sandbox, None
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            temporary.cleanup()
        if sandbox is not None:
            await sandbox.kill()

    async def restart(self) -> None:
        """Forget all variables; files in the sandbox stay."""
        await self.sandbox.restart()

    def _collect(self, execution: Execution, outputs: list[str], files: list[Path]) -> int:
        if text := printed(execution):
            outputs.append(text)
        for result in execution.results:
            self._show(result, outputs, files)
        if execution.error is None:
            return 0
        outputs.append(failure(execution) or "")
        return TIMEOUT_EXIT_CODE if timed_out(execution) else 1

    def _show(self, result: Result, outputs: list[str], files: list[Path]) -> None:
        for kind, data in result.pictures:
            suffix = "." + kind.removeprefix("image/").replace("jpeg", "jpg")
            try:
                self._save(base64.b64decode(data), suffix, files)
            except binascii.Error:
                outputs.append("[an image that cannot be read]")
        if result.html:
            self._save(result.html.encode("utf-8", "replace"), ".html", files)
        if text := told(result):
            outputs.append(text)

    def _save(self, data: bytes, suffix: str, files: list[Path]) -> None:
        at_most(len(files) + 1, self.sandbox.settings.limits.folder_files, "files", "folder_files")
        with open_folder(self.output_dir, make=True) as place, place.create(f"{uuid.uuid4().hex}{suffix}") as file:
            file.write(data)
            files.append(place.path / file.commit())

    def _to_config(self) -> SandboxCodeExecutorConfig:
        return SandboxCodeExecutorConfig(
            output_dir=str(self._output_dir) if self._output_dir is not None else None,
            timeout=self._timeout,
            settings=self._settings,
        )

    @classmethod
    def _from_config(cls, config: SandboxCodeExecutorConfig) -> SandboxCodeExecutor:
        return cls(output_dir=config.output_dir, timeout=config.timeout, **config.settings)
