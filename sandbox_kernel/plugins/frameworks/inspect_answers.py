"""What inspect_ai asks of a command, as a cell, and what the answer of `inspect_commands` means to it.

Imports the framework, and is imported by its adapter only.
"""

from __future__ import annotations

import base64
import errno
import re
import shlex
from pathlib import Path
from typing import Any

from inspect_ai.util import ExecResult, SandboxUnavailableError

from ...files.file_rules import printable
from . import inspect_commands

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
