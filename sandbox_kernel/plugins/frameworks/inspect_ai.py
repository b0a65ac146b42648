"""The sandbox as a sandbox environment of inspect_ai: `Task(..., sandbox="sandbox_kernel")`.

Commands are processes in the container of the sample, which the kernel there starts; files of any size go through
scratch. What this sandbox does not give: another user than its own (`SandboxUserUnsupportedError`), a writable
`/var/tmp` and with it the tools that inspect_ai installs there (`bash_session`, `text_editor`, `exec_remote`), ports,
and a command that outlives `cell_timeout`.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import os
import re
import secrets
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from ...core.answer_allowance import AnswerAllowance
from ...core.codes import Survived, UsageCode
from ...core.errors import AnswerError, ConfigurationError, FileRefused, SandboxError
from ...files.file_rules import printable
from . import failure, inspect_commands, missing

try:
    import anyio
    from inspect_ai.util import (
        ExecResult,
        OutputLimitExceededError,
        SandboxEnvironment,
        SandboxEnvironmentConfigType,
        SandboxEnvironmentLimits,
        SandboxUnavailableError,
        SandboxUserUnsupportedError,
        sandboxenv,
    )
    from pydantic import BaseModel, ConfigDict, model_validator
except ImportError as error:
    raise missing("inspect-ai", error) from error

if TYPE_CHECKING:
    from ...sdk.client import AsyncSandbox
    from ...sdk.execution import ExecutionError

MODULE = "_sandbox_commands"
"""The name of `inspect_commands` in the kernel."""
_MISSING = {"ENOENT", "ENOTDIR", "ELOOP", "ENAMETOOLONG", "EINVAL"}
_DENIED = {"EACCES", "EPERM", "EROFS"}
_SHELL = re.compile(r"(\S*/)?(bash|sh)")
_FROM_STDIN = re.compile(r"(\S*/)?python[\d.]*( -)?")


class CommandTimeout(TimeoutError):
    """A command ran out of time; what it had said by then is kept."""

    def __init__(self, message: str, truncated_output: str | None = None) -> None:
        super().__init__(message)
        self.truncated_output = truncated_output


def install() -> str:
    """Return what makes `inspect_commands` a module of the kernel."""
    source = Path(inspect_commands.__file__).read_text(encoding="utf-8")
    return (
        f"import types; {MODULE} = types.ModuleType({MODULE!r}); "
        f"exec(compile({source!r}, {MODULE!r}, 'exec'), {MODULE}.__dict__)\n"
    )


def as_cell(cmd: list[str], given: str | bytes | None) -> str:
    """Return what a command does as a cell, for the screen: a script for a shell, or Python that comes by stdin."""
    script = cmd[-1] if len(cmd) > 2 and _SHELL.fullmatch(cmd[0]) and cmd[-2] == "-c" else shlex.join(cmd)
    if given and _FROM_STDIN.fullmatch(script):
        return given if isinstance(given, str) else given.decode(errors="replace")
    return f"%%bash\n{script}"


def result_of(reply: dict[str, Any], cmd: list[str], limit: int, seconds: float) -> ExecResult[str]:
    """Return what a request said of a command. Raises what the contract has for it."""
    match reply:
        case {"gone": True}:
            return ExecResult(False, 137, "", "the command ended with the kernel that had started it\n")
        case {"not_started": int(code), "reason": str(reason)}:
            return ExecResult(False, code, "", f"{printable(reason)}\n")
        case {"errno": str(name), "reason": str(reason)} if name in _DENIED:
            raise PermissionError(errno.EACCES, printable(reason), cmd[0])
        case {"returncode": int(code), "timed_out": bool(timed_out), "stdout": str(out), "stderr": str(err)}:
            try:
                stdout, stderr = (base64.b64decode(text, validate=True)[-limit:] for text in (out, err))
            except ValueError:
                raise SandboxUnavailableError("the sandbox gave no proper answer") from None
            if timed_out:
                said = (stderr + stdout).decode(errors="replace")
                raise CommandTimeout(f"the command ran longer than {seconds:g} s", said)
            return ExecResult(code == 0, code, stdout.decode(errors="replace"), stderr.decode(errors="replace"))
    raise SandboxUnavailableError("the sandbox gave no proper answer")


def check(reply: dict[str, Any], file: str) -> dict[str, Any]:
    """Return the answer to a request for a file. Raises what the contract has for a refusal."""
    code, reason = reply.get("errno"), printable(str(reply.get("reason")))
    if code in _MISSING:
        raise FileNotFoundError(errno.ENOENT, reason, file)
    if code in _DENIED:
        raise PermissionError(errno.EACCES, reason, file)
    if code == "EISDIR":
        raise IsADirectoryError(errno.EISDIR, "it is a directory", file)
    if code is not None:
        raise OSError(errno.EIO, reason, file)
    return reply


FIRST_WAIT, LONGEST_WAIT, SHARED_WAIT = 0.2, 1.0, 0.05
"""Seconds a cell waits for a command: the first one, the later ones, and any while another request stands in line."""
REQUEST_SECONDS = 60.0
"""Most seconds of an internal cell; an honest sandbox needs milliseconds."""
DEFAULTS = {"idle_timeout": "24h"}
"""A model may think for longer than people do, and a sandbox that ended has lost the files of its sample."""


class SandboxKernelConfig(BaseModel):
    """Settings of the sandboxes of a task, by the names of `sandbox-kernel settings`."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @model_validator(mode="after")
    def check(self) -> SandboxKernelConfig:
        from ...config.sources import from_keywords

        try:
            from_keywords(**self.model_dump())
        except ConfigurationError as error:
            raise ValueError(str(error)) from error
        return self


class _Blocked(Exception):
    """The screen did not let a command through."""


class _KernelGone(Exception):
    """The kernel ended while it served a request; files are still there."""


@sandboxenv(name="sandbox_kernel")
class KernelSandboxEnvironment(SandboxEnvironment):
    """One sample's sandbox. `sandbox` is the `AsyncSandbox` behind it."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        super().__init__()
        self.sandbox = sandbox
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._lost: str | None = None
        self._said = ""
        """What the host said in the last request."""

    # --- commands ---

    async def exec(  # noqa: PLR0917 (as are its arguments)
        self,
        cmd: list[str],
        input: str | bytes | None = None,  # noqa: A002 (the base class names it so)
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command, for `cell_timeout` at most; commands run side by side.

        A stream over the limit keeps its end. A command is not tried again when its time was up. What the screen finds
        in a command, and in Python that it gets by stdin, is the first line of its stderr; one that is blocked has the
        code 126.
        """
        if user is not None:
            raise SandboxUserUnsupportedError(f"commands run as the sandbox's own user, and not as {user!r}")
        longest: float = self.sandbox.settings.limits.cell_timeout
        seconds = min(longest, timeout or longest)
        end = asyncio.get_running_loop().time() + seconds + REQUEST_SECONDS
        name, wait = secrets.token_hex(8), FIRST_WAIT
        stdin = await self._stage(input.encode() if isinstance(input, str) else input) if input else None
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        fields = {"cmd": cmd, "cwd": cwd or "", "env": env or {}, "stdin": stdin, "seconds": seconds, "limit": limit}
        try:
            reply = await self._ask("start", as_cell(cmd, input), id=name, wait=wait, **fields)
            said = self._said
            while reply.get("running") is True:
                if asyncio.get_running_loop().time() > end:
                    raise CommandTimeout("the sandbox does not say that the command has ended")
                wait = min(wait * 1.5, LONGEST_WAIT)
                reply = await self._ask("wait", id=name, wait=SHARED_WAIT if self._waiting else wait)
        except _KernelGone as error:
            return ExecResult(False, 137, "", f"{error}\n")
        except _Blocked as error:
            if stdin is not None:
                await self._unstage(stdin)
            return ExecResult(False, 126, "", f"{error}\n")
        except BaseException:
            if stdin is not None:
                await self._unstage(stdin)
            with anyio.CancelScope(shield=True), suppress(Exception):
                await self._ask("end", id=name)
            raise
        result = result_of(reply, cmd, limit, seconds)
        result.stderr = said + result.stderr
        return result

    # --- files ---

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file, with the folders above it."""
        staged = await self._stage(contents.encode() if isinstance(contents, str) else contents)
        try:
            check(await self._ask_for_file("store", path=file, staged=staged), file)
        except BaseException:
            await self._unstage(staged)
            raise

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Return the content of a file."""
        staged, limit = f".inspect-{secrets.token_hex(8)}", SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        size = check(await self._ask_for_file("fetch", path=file, staged=staged, limit=limit), file).get("size")
        if not isinstance(size, int) or size > limit:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        data = bytearray()
        try:
            async for piece in await self.sandbox.files.read(staged, "stream"):
                data += piece
                if len(data) > limit:
                    raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        except SandboxError as error:
            raise SandboxUnavailableError(f"{file}: {error}") from error
        finally:
            await self._unstage(staged)
        return data.decode() if text else bytes(data)

    async def _stage(self, data: bytes) -> str:
        """Leave bytes in scratch, under a name that the next request takes away."""
        self._check_there()
        staged = f".inspect-{secrets.token_hex(8)}"
        try:
            await self.sandbox.files.write(staged, data)
        except FileRefused as error:
            raise OSError(errno.ENOSPC, str(error)) from error
        except SandboxError as error:
            raise SandboxUnavailableError(str(error)) from error
        return staged

    async def _unstage(self, staged: str) -> None:
        with anyio.CancelScope(shield=True), suppress(SandboxError):
            await self.sandbox.files.remove(staged)

    # --- requests to the kernel ---

    async def _ask_for_file(self, op: str, **fields: Any) -> dict[str, Any]:
        try:
            return await self._ask(op, **fields)
        except _KernelGone as error:
            raise SandboxUnavailableError(str(error)) from error

    async def _ask(self, op: str, reads: str = "", **fields: Any) -> dict[str, Any]:
        code = f"{MODULE}.answer({json.dumps({'op': op, **fields})!r})"
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1
        try:
            # Not cut short: it takes a moment, and a command that has half started would be nobody's.
            with anyio.CancelScope(shield=True):
                text = await self._run(code, reads)
        finally:
            self._turn.release()
        try:
            return AnswerAllowance(self.sandbox.settings.limits).last_line([text])
        except AnswerError as error:
            raise SandboxUnavailableError(f"the sandbox gave no proper answer: {error}") from None

    def _check_there(self) -> None:
        """Raise `SandboxUnavailableError` once the sandbox was lost: another one would be empty."""
        if self._lost is None and not self.sandbox.is_alive:
            self._lost = "the sandbox of this sample has ended, with its files"
        if self._lost is not None:
            raise SandboxUnavailableError(self._lost)

    async def _run(self, code: str, reads: str) -> str:
        """Run an internal cell and return its output."""
        from ...sdk.client import handle_of

        self._check_there()
        for installed in (False, True):
            try:
                execution = await handle_of(self.sandbox).run_own(code, reads=reads, timeout=REQUEST_SECONDS)
            except SandboxError as error:
                raise SandboxUnavailableError(str(error)) from error
            self._said = "".join(execution.logs.stderr) if reads else ""
            if execution.error is None:
                return "".join(execution.logs.stdout)
            if execution.error.from_sandbox and execution.error.name == "ScreenBlocked":
                raise _Blocked(failure(execution))
            if installed or execution.error.name != "NameError":
                self._fail(execution.error)
            code = install() + code
        raise AssertionError

    def _fail(self, error: ExecutionError) -> NoReturn:
        if error.from_sandbox:
            if error.name == "OutputLimit":
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, None)
            if error.name == "CellTimeout":
                raise CommandTimeout(str(error))
            if error.fault == "platform" or error.kept is Survived.NOTHING:
                self._lost = str(error)  # the next cell would run in a new sandbox, without the files of this sample
            elif error.name in {"KernelDied", "OutOfMemory"}:
                raise _KernelGone(str(error))
        raise SandboxUnavailableError(str(error))

    # --- the life of a sample ---

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Start the sandbox of one sample."""
        from ...sdk.client import AsyncSandbox

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise ConfigurationError(UsageCode.WRONG_ARGUMENT, "sandbox_kernel runs on asyncio, not on trio") from None
        return {"default": cls(await AsyncSandbox.create(**DEFAULTS | _settings(config)))}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """End the sandbox of one sample."""
        for environment in environments.values():
            await environment.as_type(cls).sandbox.kill()

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:  # noqa: A002
        """Remove the sandboxes of evaluations that are gone; those of running ones stay."""
        from ...config.sources import from_keywords
        from ...engines.select import make_engine

        await make_engine(from_keywords()).reap()

    @classmethod
    def default_concurrency(cls) -> int | None:
        """Return how many samples may have a sandbox at a time."""
        return 2 * (os.cpu_count() or 1)

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """Return the settings from a log or a task file."""
        return SandboxKernelConfig(**config)


def _settings(config: SandboxEnvironmentConfigType | None) -> dict[str, Any]:
    if isinstance(config, str):  # as in --sandbox sandbox_kernel:settings.json
        config = SandboxKernelConfig.model_validate_json(Path(config).read_text(encoding="utf-8"))
    if config is not None and not isinstance(config, SandboxKernelConfig):
        what = type(config).__name__
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, f"it takes a SandboxKernelConfig, and no {what}")
    return config.model_dump() if config is not None else {}
