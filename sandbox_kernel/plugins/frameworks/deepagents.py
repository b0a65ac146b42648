"""A backend for Deep Agents: `create_deep_agent(model, backend=SandboxBackend(memory="1G"))`.

Its tools for files and for commands then work in a sandbox. Paths are whole ones of the sandbox.
"""

from __future__ import annotations

import threading
from typing import Any

from ...config.sources import from_keywords
from ...core.codes import FileCode
from ...core.errors import (
    CellTimeout,
    CommandExitException,
    EngineError,
    FileNotThere,
    OutputLimit,
    SandboxClosed,
    SandboxError,
)
from ...sdk.blocking import Sandbox
from . import missing

try:
    from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
    from deepagents.backends.sandbox import BaseSandbox
except ImportError as error:
    raise missing("deepagents", error) from error

INVALID = "invalid_path"
"""The framework's word for a path that is no whole one, or that no file can have."""
FAILED, TIMED_OUT = 1, 124
"""Exit codes of commands that the sandbox ended, or did not start."""


class SandboxBackend(BaseSandbox):
    """Files and commands of an agent, in a sandbox that lasts from the first of them to `close()`.

    Settings are those of `Sandbox` (`memory="1G"`, `cell_timeout=30`, ...). One backend is one sandbox: give each
    conversation its own. What fails is text for the model; a machine without an engine raises `EngineError`.
    """

    def __init__(self, **settings: Any) -> None:
        from_keywords(**settings)  # a mistake is told here, and not at the first command
        self._settings = settings
        self._lock = threading.Lock()
        self._sandbox: Sandbox | None = None

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox of this backend; made if it is not there."""
        with self._lock:
            if self._sandbox is None:
                self._sandbox = Sandbox(**self._settings)
            return self._sandbox

    @property
    def id(self) -> str:
        return self.sandbox.id

    def close(self) -> None:
        """End the sandbox with its files; the next use starts a new one."""
        with self._lock:
            sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            sandbox.kill()

    def __enter__(self) -> SandboxBackend:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a command of bash; return what it said and its exit code.

        `timeout` is in seconds; None and 0 are `cell_timeout`, and more than that is refused.
        """
        try:
            done = self.sandbox.commands.run(f"exec 2>&1\n{command}", timeout=timeout)
        except CommandExitException as error:
            return ExecuteResponse(output=(error.stdout or "") + (error.error or ""), exit_code=error.exit_code)
        except OutputLimit as error:
            return ExecuteResponse(output=f"{error.name}: {error}", exit_code=FAILED, truncated=True)
        except (EngineError, SandboxClosed):
            raise
        except SandboxError as error:
            code = TIMED_OUT if isinstance(error, CellTimeout) else FAILED
            return ExecuteResponse(output=f"{error.name}: {error}", exit_code=code)
        return ExecuteResponse(output=done.stdout or "", exit_code=0)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files where cells may write (/mnt/data, /tmp), with the folders above them."""
        return [FileUploadResponse(path=path, error=self._upload(path, data)) for path, data in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Read files that cells may read."""
        return [self._download(path) for path in paths]

    def _upload(self, path: str, data: bytes) -> str | None:
        if not path.startswith("/"):
            return INVALID
        try:
            self.sandbox.files.write(path, data)
        except (EngineError, SandboxClosed):
            raise
        except SandboxError as error:
            return _said(error)
        return None

    def _download(self, path: str) -> FileDownloadResponse:
        if not path.startswith("/"):
            return FileDownloadResponse(path=path, error=INVALID)
        try:
            return FileDownloadResponse(path=path, content=self.sandbox.files.read(path, "bytes"))
        except (EngineError, SandboxClosed):
            raise
        except SandboxError as error:
            return FileDownloadResponse(path=path, error=_said(error))


def _said(error: SandboxError) -> str:
    """Return the framework's word for it, where there is one."""
    if isinstance(error, FileNotThere):
        return "file_not_found"
    if not isinstance(code := error.code, FileCode):
        return str(error)
    if code.name.startswith(("NAME_", "PATH_")):
        return INVALID
    return {FileCode.IS_FOLDER: "is_directory", FileCode.DENIED: "permission_denied"}.get(code, str(error))
