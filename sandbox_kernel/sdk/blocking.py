"""The SDK without `await`: the same on an event loop in another thread. Written by `make blocking`.

Public: plugins may import it.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast, overload

from ..core.model import Message, Settings
from ..engines.abilities import Ability
from ..session.agent_messages import SandboxUsage
from .blocking_base import Caller, FilesBase, SandboxBase, in_a_loop
from .callbacks import Callback, Prompt
from .client import AsyncSandbox
from .execution import Execution, ExecutionError, Result
from .file_copies import Progress
from .files import Data
from .folder_entries import Entries, EntryInfo, FileInfo, FileList
from .keywords import SettingKeywords
from .output_text import OutputMessage
from .sandbox_paths import Name
from .values import Context, InstalledPackage, Missed, NetworkUsage, SandboxInfo, SandboxMetrics, SandboxQuery, Snapshot

if TYPE_CHECKING:
    from ..core.screen_findings import Screened


class Files(FilesBase):
    """The files of a blocking sandbox. Methods raise `FileRefused` with the reason."""

    def write(
        self,
        path: Name,
        data: Data,
        *,
        progress: Callback[Progress] | None = None,
        sha256: str | None = None,
    ) -> FileInfo:
        """Write a file as a whole, with the folders above it.

        Args:
            path: Where, relative to /mnt/data.
            data: Its text, bytes, a `Path` to copy, or an open file. A file is read piece by piece.
            progress: Called with a `Progress` as the file goes in. What it raises ends the copy.
            sha256: What the content must have; anything else is refused, and does not appear.

        Raises:
            FileRefused: The name, the size (`file_limit`) or the room does not allow it.
        """
        return self._followed(self._inner.writing(path, data, sha256), progress)

    @overload
    def read(self, path: Name, format: Literal["text"] = "text") -> str: ...
    @overload
    def read(self, path: Name, format: Literal["bytes"]) -> bytes: ...
    @overload
    def read(self, path: Name, format: Literal["stream"]) -> Iterator[bytes]: ...
    def read(
        self,
        path: Name,
        format: Literal["text", "bytes", "stream"] = "text",  # noqa: A002 (the name people know)
    ) -> bytes | str | Iterator[bytes]:
        """Return a file: its text (UTF-8), its bytes, or its pieces of at most 1 MiB.

        What is no text is refused as such: `read(path, "bytes")`. As text or bytes a file may have 256 MiB, which are
        all in memory; a larger one is read as a stream, or copied with `download`.
        """
        return cast("bytes | str | Iterator[bytes]", self._call(cast(Any, self._inner.read), path, format))

    def read_part(self, path: Name, offset: int, size: int) -> tuple[bytes, int]:
        """Read a piece of a file.

        Args:
            path: Which file, relative to /mnt/data.
            offset: Where to begin, in bytes.
            size: How many bytes at most.

        Returns:
            The bytes, and the size of the whole file.

        Raises:
            FileRefused: It is no regular file, changes meanwhile, or more than 256 MiB are asked for of it.
        """
        return self._call(self._inner.read_part, path, offset, size)

    def upload(
        self,
        local: str | os.PathLike[str],
        path: Name | None = None,
        *,
        progress: Callback[Progress] | None = None,
        sha256: str | None = None,
        resume: bool = False,
    ) -> FileList:
        """Copy a file of this machine, or a folder with all its regular files. Links in a folder are left out.

        Args:
            local: The file or folder here.
            path: Its path in the sandbox. None is its own name.
            progress: Called with a `Progress` as each file goes in. What it raises ends the copy.
            sha256: What a file must have; anything else is refused, and does not appear. Not for a folder.
            resume: Go on with what a call with `resume` has left that lost its sandbox or its process. Of a file that
                has changed here meanwhile, all goes in again.

        Raises:
            FileRefused: A file is refused, or there are more than `folder_files`.
        """
        return self._followed(self._inner.uploading(local, path, sha256, resume=resume), progress)

    def download(
        self,
        path: Name,
        local: str | os.PathLike[str] | None = None,
        *,
        progress: Callback[Progress] | None = None,
        sha256: str | None = None,
        resume: bool = False,
    ) -> Path:
        """Copy a file to this machine. A file or a link of that name is replaced.

        Args:
            path: The file in the sandbox.
            local: The file, or the folder it goes into. None is the current folder.
            progress: Called with a `Progress` as the file comes out. What it raises ends the copy.
            sha256: What the file must have; anything else is refused, and does not appear.
            resume: Leave what has come in a hidden file beside `local` if the sandbox or this process is lost, and go
                on with that of an earlier call. Of a file that has changed in the sandbox meanwhile, all comes again.

        Returns:
            Where it is now.

        Raises:
            FileRefused: It is too large, no regular file, or has a name that tools act upon and that `local` does
                not say.
        """
        return self._followed(self._inner.downloading(path, local, sha256, resume=resume), progress)

    def write_files(self, files: Sequence[Mapping[str, Any]]) -> FileList:
        """Write several files, one after another: `[{"path": "a.txt", "data": "text"}, ...]`."""
        return self._call(self._inner.write_files, files)

    @overload
    def list(self, path: Name = "", depth: None = None) -> FileList: ...
    @overload
    def list(self, path: Name = "", *, depth: int) -> Entries: ...
    @overload
    def list(self, path: Name, depth: int) -> Entries: ...
    def list(self, path: Name = "", depth: int | None = None) -> FileList | Entries:
        """Return what lies in a folder, in the order of the paths.

        Without a `depth`, the regular files in it and in all folders below it; with one, files, folders and links,
        so many levels deep. A name that is no text, or has characters that nobody sees, is there by one that stands
        for it (`_m~1a2b3c4d.csv`), which reads, writes and moves the same file. `complete` says whether these are all.
        """
        return cast("FileList | Entries", self._call(cast(Any, self._inner.list), path, depth))

    def exists(self, path: Name) -> bool:
        """Return whether there is a regular file, or a folder, of that name."""
        return self._call(self._inner.exists, path)

    def get_info(self, path: Name) -> EntryInfo:
        """Return what a file, a folder or a link is, as the sandbox says. Raises `FileNotThere` for nothing."""
        return self._call(self._inner.get_info, path)

    def rename(self, old_path: Name, new_path: Name) -> EntryInfo:
        """Move a file or a folder, with the folders above the new place; a file there is replaced.

        Between two file systems of the sandbox, such as /mnt/data and /tmp, only a file is moved.
        """
        return self._call(self._inner.rename, old_path, new_path)

    def remove(self, path: Name, *, recursive: bool = False) -> None:
        """Remove a file or an empty folder; with `recursive`, a folder with all that is in it."""
        self._call(self._inner.remove, path, recursive=recursive)

    def make_folder(self, path: Name) -> None:
        """Make a folder and those above it; that it is there already is fine."""
        self._call(self._inner.make_folder, path)

    def make_dir(self, path: Name) -> bool:
        """Make a folder and those above it; return whether it was not there already."""
        return self._call(self._inner.make_dir, path)


class Sandbox(SandboxBase):
    """A sandbox: a Python session in a container of its own, with variables and files that stay between calls.

    `with Sandbox(memory="1G") as sandbox` starts it and ends it; so do the first call and `kill`. It may be used from
    several threads; their cells run one after another. Callbacks are called in the thread that made the call, while it
    waits. Ctrl-C cancels a call, and so interrupts the cell.
    """

    def start(self) -> None:
        """Start now what the first call would start.

        Raises:
            SandboxError: It cannot start.
        """
        self._call(self._inner.start)

    @cached_property
    def files(self) -> Files:
        """Its files."""
        return Files(self._inner.files, Caller(self._call))

    def run_code(
        self,
        code: str,
        *,
        timeout: float | None = None,
        on_stdout: Callback[OutputMessage] | None = None,
        on_stderr: Callback[OutputMessage] | None = None,
        on_result: Callback[Result] | None = None,
        on_error: Callback[ExecutionError] | None = None,
        on_message: Callback[Message] | None = None,
        on_input: Callable[[Prompt], Awaitable[str] | str] | None = None,
        stop_on_error: bool = False,
        envs: Mapping[str, str] | None = None,
        language: str | None = None,
        context: Context | str | None = None,
    ) -> Execution:
        """Run a cell. Code that fails, or meets a limit, gives `Execution.error` and no exception.

        Calls of one context run one after another, in the order of the calls. Cancelling a call interrupts its cell.
        The callbacks are called while the cell runs, in the order of its messages. One that raises is not called again;
        the cell runs on to its end, and then `CallbackFailed` is raised.

        Args:
            code: A cell of a notebook: Python, or what the kernel or the context takes.
            timeout: Seconds from the moment the cell runs, up to `cell_timeout`. 0 and None are `cell_timeout`.
            on_stdout: Called with each piece of text on stdout.
            on_stderr: Called with each piece of text on stderr.
            on_result: Called with each display and with the value of the last line.
            on_error: Called with the exception of the code, or the limit that ended it.
            on_message: Called with each message of Jupyter's protocol, updates of displays included.
            on_input: Answers `input()`, which raises StdinNotImplementedError without it. If it fails, the cell is
                interrupted.
            stop_on_error: Whether a failure ends the calls that wait behind this one.
            envs: Variables of the environment for this call, in Python, R, JavaScript, TypeScript and Bash.
            language: Run it in the context of this language, which is made with the first such call.
            context: Run it in this context, by itself or its id.

        Returns:
            Text, results and displays of the cell, its error, and what it used.

        Raises:
            ConfigurationError: `timeout` is over `cell_timeout`, or an argument is not of its type.
            EngineError: No sandbox can be started.
            SandboxClosed: The sandbox was killed by this process.
            CallbackFailed: A callback raised. It has the execution.
        """
        return self._call(
            self._inner.run_code,
            code,
            timeout=timeout,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_result=on_result,
            on_error=on_error,
            on_message=on_message,
            on_input=on_input,
            stop_on_error=stop_on_error,
            envs=envs,
            language=language,
            context=context,
        )

    def create_context(self, language: str | None = None, cwd: str | None = None) -> Context:
        """Start one more kernel in the sandbox: with variables of its own, and the same files, limits and connections.

        What ends a kernel ends its context's cells alone. All of them end with the sandbox.

        Args:
            language: "python", or one for which the image has a kernel: its name, or that of its kernelspec. None is
                that of the sandbox.
            cwd: The folder in which it begins, made if it is not there. None is the one of cells.

        Returns:
            What `run_code` takes as `context`.

        Raises:
            ConfigurationError: The image has no such kernel, or an argument is not of its type.
            SandboxError: It cannot start.
        """
        return self._call(self._inner.create_context, language, cwd)

    def list_contexts(self, *, offered: bool = False) -> builtins.list[Context]:
        """Return the contexts: that of the sandbox's own kernel first, which is there without being made.

        Args:
            offered: Add one for each other language of the image. Its kernel starts with its first cell.
        """
        return self._call(self._inner.list_contexts, offered=offered)

    def restart_context(self, context: Context | str) -> None:
        """Start the kernel of a context again: its variables are gone. A cell that runs in it ends as `KernelDied`.

        Raises:
            ConfigurationError: There is no such context.
            SandboxError: It cannot start.
        """
        self._call(self._inner.restart_context, context)

    def remove_context(self, context: Context | str) -> None:
        """End a context with all of its processes. A cell that runs in it ends as `KernelDied`.

        Raises:
            ConfigurationError: There is no such context, or it is that of the sandbox's own kernel.
        """
        self._call(self._inner.remove_context, context)

    def screen(self, code: str) -> Screened:
        """Return what the screen finds in a cell, whatever the setting `screen` says.

        Nothing is run or sent, and no sandbox is started. No finding does not mean that code is harmless.
        """
        return self._inner.screen(code)

    def interrupt(self, context: Context | str | None = None) -> bool:
        """Raise KeyboardInterrupt in the cell that runs. One that waits for its start ends without having run.

        Args:
            context: The context whose cell that is. None is that of the sandbox's own kernel.

        Returns:
            Whether there was a cell to interrupt.
        """
        return self._call(self._inner.interrupt, context)

    def restart(self) -> None:
        """Start Python again: variables are gone, files stay. A cell that runs ends as `KernelDied`."""
        self._call(self._inner.restart)

    def install(
        self, *packages: str | os.PathLike[str], progress: Callable[[str], object] | None = None
    ) -> builtins.list[InstalledPackage]:
        """Install packages and what they need.

        `sandbox.install("humanize>=4", "dist/mine-1.0-py3-none-any.whl")`.
        Wheels only, for the sandbox's Python and platform. What it has already keeps its version. Nothing of a package
        runs on this machine. They are there until the sandbox ends.

        Args:
            *packages: Requirements for the index that this machine's pip uses, or paths of wheels.
            progress: Called with one line of text at a time.

        Returns:
            What came, with version and SHA-256.

        Raises:
            ConfigurationError: It cannot be, for the reason that its code says.
        """
        return self._call(self._inner.install, *packages, progress=progress)

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def is_alive(self) -> bool:
        """Whether a container runs that was attested."""
        return self._inner.is_alive

    @property
    def is_detached(self) -> bool:
        """Whether it outlives this process, until its lifetime is over."""
        return self._inner.is_detached

    @property
    def info(self) -> SandboxInfo:
        return self._inner.info

    @property
    def network_usage(self) -> NetworkUsage:
        """What the connections of its cells came to until now."""
        return self._inner.network_usage

    def usage(self) -> SandboxUsage:
        """Return what the sandbox uses now, by its own word.

        Raises:
            SandboxDied: It is gone.
        """
        return self._call(self._inner.usage)

    def get_metrics(
        self,
        start: datetime | None = None,
        end: datetime | None = None,
    ) -> builtins.list[SandboxMetrics]:
        """Return what the sandbox uses now, as one row: no history is kept.

        The share of the processors counts from the last call on, and from the start at first. The sandbox reports it
        itself; a cell can make it lie.

        Args:
            start: Without a row before this time.
            end: Without a row after this time.

        Raises:
            SandboxDied: The sandbox is gone.
        """
        return self._call(self._inner.get_metrics, start, end)

    @property
    def abilities(self) -> frozenset[Ability]:
        """Which of `pause`, `snapshot`, `fork` and `checkpoint` its engine has; the others raise `AbilityMissing`."""
        return self._inner.abilities

    @property
    def is_paused(self) -> bool:
        """Whether it stands still."""
        return self._inner.is_paused

    def pause(self) -> bool:
        """Freeze the sandbox with all that runs in it, so that it uses no processor.

        A cell that runs is frozen with its clock, and goes on with `resume`; the code sees that the time of day has
        moved on. Until then every other call raises `SandboxPaused`. Its lifetime counts on, `kill` ends it, and it
        ends as unused `idle_timeout` seconds after the pause. Its memory is kept: there, or with the engine qemu after
        `pause_memory` seconds in a file that is gone with this process.

        Returns:
            Whether it ran until now.

        Raises:
            AbilityMissing: The engine cannot do it.
            SandboxPaused: A cell is being ended, or a kernel is starting.
            EngineError: The engine failed.
            SandboxDied: The sandbox is gone.
        """
        return self._call(self._inner.pause)

    def resume(self) -> bool:
        """Let a paused sandbox go on where it was.

        Returns:
            Whether it was paused.

        Raises:
            SandboxDied: It has ended meanwhile.
            EngineError: It cannot go on, and stays paused.
        """
        return self._call(self._inner.resume)

    def checkpoint(self, name: str | None = None) -> str:
        """Keep the variables as they are, in the sandbox, which goes on. Files are not kept.

        The oldest checkpoints make room for new ones, and all end with the sandbox.

        Args:
            name: Up to 64 letters, digits, ".", "-" and "_"; an older one of the same name is replaced. None makes one
                up.

        Returns:
            The checkpoint's name.

        Raises:
            AbilityMissing: The engine cannot do it.
            FileRefused: A cell runs, or the name is improper.
            SandboxError: As `run_code`.
        """
        return self._call(self._inner.checkpoint, name)

    def restore(self, name: str) -> None:
        """Return to the variables of a checkpoint. Later checkpoints are gone, and files stay as they are.

        What was open is closed, and random numbers are new; a generator that the code made goes on as it was.

        Raises:
            AbilityMissing: The engine cannot do it.
            FileNotThere: There is no checkpoint of this name any more.
            FileRefused: A cell runs, or the name is improper.
            SandboxError: As `run_code`.
        """
        self._call(self._inner.restore, name)

    def snapshot(self, name: str | None = None) -> str:
        """Write the sandbox down with variables, files and processes. It is paused meanwhile, and goes on.

        The file has all that the sandbox has in memory. It lies in this user's data folder, readable for nobody else.

        Args:
            name: Up to 64 letters, digits, ".", "-" and "_". None makes one up.

        Returns:
            The snapshot's name.

        Raises:
            AbilityMissing: The engine cannot do it.
            SandboxPaused: It is paused.
            FileRefused: A cell runs, the name is taken or improper, there is no room (`snapshots_size`), or the
                sandbox has connections or folders of the host, or a screen that blocks.
        """
        return self._call(self._inner.snapshot, name)

    @staticmethod
    def snapshots(settings: Settings | None = None) -> builtins.list[Snapshot]:
        """Return this user's snapshots, the newest first."""
        return in_a_loop(AsyncSandbox.snapshots(settings))

    @staticmethod
    def delete_snapshot(name: str, /) -> bool:
        """Remove a snapshot; return whether there was one."""
        return in_a_loop(AsyncSandbox.delete_snapshot(name))

    @classmethod
    def list(
        cls,
        query: SandboxQuery | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        **settings: Unpack[SettingKeywords],
    ) -> builtins.list[SandboxInfo]:
        """Return the sandboxes of this process that run, and detached ones of this user, the newest first.

        Args:
            query: Which of them.
            metadata: Texts that they have; short for a query.
            **settings: `engine` names another broker than that of the settings.
        """
        return in_a_loop(AsyncSandbox.list(query, metadata=metadata, **settings))

    @property
    def missed(self) -> Missed:
        """The dropped output of the cell that ran when this process took the sandbox over."""
        return self._inner.missed

    def rejoin(
        self,
        *,
        on_stdout: Callback[OutputMessage] | None = None,
        on_stderr: Callback[OutputMessage] | None = None,
        on_result: Callback[Result] | None = None,
        on_error: Callback[ExecutionError] | None = None,
        on_input: Callable[[Prompt], Awaitable[str] | str] | None = None,
    ) -> Execution | None:
        """Return the cell that ran when the previous owner was gone, once it has ended. It is taken once.

        Its output begins with the cell's start, for the callbacks too; what was not kept is counted in `missed`.
        Cancelling the call interrupts the cell. The callbacks are those of `run_code`.

        Returns:
            The execution. None if no cell ran.
        """
        return self._call(
            self._inner.rejoin,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_result=on_result,
            on_error=on_error,
            on_input=on_input,
        )

    def set_timeout(self, timeout: float) -> None:
        """Have the sandbox end some seconds from now on (before the start: from there), in use or not.

        Args:
            timeout: Seconds.

        Raises:
            QuotaExceeded: The end is later than the broker allows.
            SandboxClosed: The sandbox was killed.
        """
        self._call(self._inner.set_timeout, timeout)

    @classmethod
    def set_timeout_by_id(cls, sandbox_id: str, timeout: float, **settings: Unpack[SettingKeywords]) -> None:
        """Do as `set_timeout` with a detached sandbox of this user's; `engine` names its broker."""
        in_a_loop(AsyncSandbox.set_timeout_by_id(sandbox_id, timeout, **settings))
