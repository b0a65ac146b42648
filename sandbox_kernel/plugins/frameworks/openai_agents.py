"""A sandbox client for the OpenAI Agents SDK: `SandboxRunConfig(client=SandboxKernelClient(memory="1G"))`.

A `SandboxAgent` then has its workspace and its commands in a sandbox. The workspace is /mnt/data. An ordinary `Agent`
takes `sandbox-kernel mcp` (docs/integrations.md).
"""

from __future__ import annotations

import io
import secrets
import shlex
import tarfile
import uuid
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from ...config.sources import from_keywords
from ...core.errors import CellTimeout, CommandExitException, FileNotThere, SandboxError
from ...sdk.client import AsyncSandbox
from . import missing

try:
    from agents.sandbox.errors import (
        ExecTimeoutError,
        ExecTransportError,
        WorkspaceArchiveReadError,
        WorkspaceArchiveWriteError,
        WorkspaceReadNotFoundError,
        WorkspaceWriteTypeError,
    )
    from agents.sandbox.manifest import Manifest
    from agents.sandbox.session import SandboxSession, SandboxSessionState
    from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
    from agents.sandbox.session.sandbox_client import BaseSandboxClient
    from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
    from agents.sandbox.types import ExecResult, User
    from agents.sandbox.util.tar_utils import validate_tarfile
except ImportError as error:
    raise missing("openai-agents", error) from error

ROOT = "/mnt/data"


class SandboxKernelSessionState(SandboxSessionState):
    """What is kept of a session. Its files are in the snapshot, if there is one; settings are the client's alone."""

    type: Literal["sandbox_kernel"] = "sandbox_kernel"


class SandboxKernelSession(BaseSandboxSession):
    """One workspace in one sandbox, which starts with the first use and lasts until `shutdown`."""

    state: SandboxKernelSessionState

    def __init__(self, state: SandboxKernelSessionState, **settings: Any) -> None:
        self.state = state
        self.sandbox = AsyncSandbox(**settings)
        """For `run_code`, whose variables last as long as the session."""

    async def running(self) -> bool:
        return bool(self.sandbox.is_alive)

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        """Run a command, for `timeout` seconds or `cell_timeout`, whichever is less: models choose the first."""
        words, longest = [str(part) for part in command], self.sandbox.settings.limits.cell_timeout
        limit = min(timeout or longest, longest)
        envs = await self.state.manifest.environment.resolve()
        try:
            done = await self.sandbox.commands.run(shlex.join(words), envs=envs, timeout=limit)
        except CommandExitException as error:
            stderr = (error.stderr or "") + (error.error or "")
            return _result(error.stdout or "", stderr, error.exit_code)
        except CellTimeout as error:
            raise ExecTimeoutError(command=words, timeout_s=limit, cause=error) from error
        except SandboxError as error:
            raise ExecTransportError(command=words, cause=error, message=str(error)) from error
        return _result(done.stdout or "", done.stderr or "", done.exit_code)

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """Return a file of the workspace. Raises `WorkspaceReadNotFoundError`, `WorkspaceArchiveReadError`."""
        self._check_user("read", user)
        name = await self._validate_path_access(path)
        try:
            return io.BytesIO(await self.sandbox.files.read(PurePosixPath(name), "bytes"))
        except FileNotThere as error:
            raise WorkspaceReadNotFoundError(path=name, cause=error) from error
        except SandboxError as error:
            raise WorkspaceArchiveReadError(path=name, cause=error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        """Write a file of the workspace. Raises `WorkspaceArchiveWriteError`, `WorkspaceWriteTypeError`."""
        self._check_user("write", user)
        name = await self._validate_path_access(path, for_write=True)
        content = _content(name, data)
        try:
            await self.sandbox.files.write(PurePosixPath(name), content)
        except SandboxError as error:
            raise WorkspaceArchiveWriteError(path=name, cause=error, message=str(error)) from error

    async def persist_workspace(self) -> io.IOBase:
        """Return the workspace as a tar archive, which is made in the workspace for a moment."""
        root, name = self._workspace_root_path(), f"workspace-{secrets.token_hex(8)}.tar"
        leave_out = [f"--exclude=./{path.as_posix()}" for path in sorted(self._persist_workspace_skip_relpaths())]
        command = ("tar", "cf", name, "--no-wildcards", f"--exclude=./{name}", *leave_out, ".")
        try:
            result = await self._exec_internal(*command)
            if result.exit_code != 0:
                raise WorkspaceArchiveReadError(path=root, context={"stderr": result.stderr.decode()})
            return io.BytesIO(await self.sandbox.files.read(name, "bytes"))
        except SandboxError as error:
            raise WorkspaceArchiveReadError(path=root, cause=error) from error
        finally:
            await self._exec_internal("rm", "-f", name)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Fill the workspace from a tar archive, none of whose members may lie or point outside of it."""
        root, name = self._workspace_root_path(), f"workspace-{secrets.token_hex(8)}.tar"
        content = _content(root, data)
        try:
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                validate_tarfile(archive, allow_external_symlink_targets=False)
            await self.sandbox.files.write(name, content)
            result = await self._exec_internal("tar", "xf", name, "--no-same-owner")
            await self._exec_internal("rm", "-f", name)
        except (SandboxError, tarfile.TarError, ValueError) as error:
            raise WorkspaceArchiveWriteError(path=root, cause=error) from error
        if result.exit_code != 0:
            raise WorkspaceArchiveWriteError(path=root, context={"stderr": result.stderr.decode()})

    async def _shutdown_backend(self) -> None:
        await self.sandbox.kill()

    def _prepare_exec_command(
        self, *command: str | Path, shell: bool | list[str], user: str | User | None
    ) -> list[str]:
        self._check_user("exec", user)
        words: list[str] = super()._prepare_exec_command(*command, shell=shell, user=None)
        return words

    @staticmethod
    def _check_user(op: str, user: str | User | None) -> None:
        name = user.name if isinstance(user, User) else user
        if name is not None:
            raise ValueError(f"{op}: a process of the sandbox is its own user, and never becomes {name!r}")


class SandboxKernelClient(BaseSandboxClient[None]):
    """Makes sandboxes. Settings are those of `AsyncSandbox` (`memory="1G"`, `cell_timeout=30`, ...)."""

    backend_id = "sandbox_kernel"
    supports_default_options = True

    def __init__(self, **settings: Any) -> None:
        from_keywords(**settings)  # a mistake is told here, and not at the first run
        self._settings = settings

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: None = None,
    ) -> SandboxSession:
        """Return a session with a sandbox of its own. Raises `SandboxError` if none can start."""
        identity = uuid.uuid4()
        state = SandboxKernelSessionState(
            session_id=identity,
            manifest=_rooted(manifest),
            snapshot=resolve_snapshot(snapshot, str(identity)),
        )
        self._validate_manifest_for_create(state.manifest)
        inner = SandboxKernelSession(state, **self._settings)
        await inner.sandbox.start()
        return self._wrap_session(inner)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """End the sandbox of a session."""
        await session._inner.shutdown()  # noqa: SLF001 (the framework's own clients have no other way)
        return session

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Return a session with a new sandbox, whose files come from the snapshot of `state`."""
        if not isinstance(state, SandboxKernelSessionState):
            raise TypeError("the state is of another sandbox client")
        state.workspace_root_ready = False
        inner = SandboxKernelSession(state, **self._settings)
        await inner.sandbox.start()
        return self._wrap_session(inner)

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, SandboxKernelSessionState)


def _rooted(manifest: Manifest | None) -> Manifest:
    """Return a manifest whose workspace is /mnt/data. Raises `ValueError` for one that names another place or users."""
    if manifest is None:
        return Manifest(root=ROOT)
    if manifest.users or manifest.groups:
        raise ValueError("a sandbox has one user: leave `users` and `groups` out of the manifest")
    if manifest.root not in {ROOT, Manifest.model_fields["root"].default}:
        raise ValueError(f"the workspace is {ROOT}, and not {manifest.root}")
    return manifest.model_copy(update={"root": ROOT})


def _result(stdout: str, stderr: str, exit_code: int) -> ExecResult:
    return ExecResult(stdout=stdout.encode(), stderr=stderr.encode(), exit_code=exit_code)


def _content(path: Path, data: io.IOBase) -> bytes:
    content = data.read()
    if isinstance(content, str):
        return content.encode()
    if not isinstance(content, bytes | bytearray):
        raise WorkspaceWriteTypeError(path=path, actual_type=type(content).__name__)
    return bytes(content)
