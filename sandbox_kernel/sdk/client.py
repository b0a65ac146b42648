"""A sandbox in the caller's process, awaited. `Sandbox` in blocking.py is the same without `await`.

A session runs on the caller's event loop; there is no subprocess and no socket but the one into the container. Each
method is one call of a part of the sandbox; the parts share an `Instance`.

Public: plugins may import it.
"""

from __future__ import annotations

import asyncio
import builtins
import math
import os
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack, cast

from ..config.sources import from_keywords
from ..core.codes import EndCode, Survived
from ..core.errors import SandboxClosed, SandboxDied
from ..core.model import Message, Settings, format_bytes
from ..engines.abilities import Ability, abilities_of
from ..plugins import index
from ..plugins.api import Origin, SandboxHandle
from ..session.agent_messages import SandboxUsage
from . import environment_variables, snapshots
from .callbacks import Callback, Callbacks, Prompt
from .execution import Execution, ExecutionError, Result
from .files import AsyncFiles
from .instance import Instance
from .keywords import SettingKeywords
from .options import SandboxOptions
from .output_text import OutputMessage
from .ownership import keeper
from .values import (
    Context,
    InstalledPackage,
    Keywords,
    Missed,
    NetworkUsage,
    SandboxInfo,
    SandboxMetrics,
    SandboxQuery,
    Snapshot,
    State,
    found_by,
    seconds,
    seconds_within,
)

if TYPE_CHECKING:
    from ..core.screen_findings import Screened
    from ..plugins.commands.commands import (  # type: ignore[import-not-found, unused-ignore]
        AsyncCommands,
        AsyncPty,
    )


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.astimezone()


class AsyncSandbox:
    """A sandbox: a Python session in a container of its own, with variables and files that stay between calls.

    `async with AsyncSandbox(memory="1G") as sandbox` starts it and ends it; so do `create` and `kill`. It belongs to
    the event loop that it was started on. What a sandbox has lost (its container was killed, was idle for too long)
    is told by the error of one call; the next call has a new sandbox.
    """

    _known: ClassVar[weakref.WeakValueDictionary[str, AsyncSandbox]] = weakref.WeakValueDictionary()

    def __init__(self, settings: Settings | str | None = None, /, **keywords: Unpack[Keywords]) -> None:
        """Check the settings; nothing is started yet.

        Args:
            settings: The settings as one value, or the name of an image. Give either them or keywords.
            **keywords: The settings by their names, and `timeout`, `metadata`, `envs`, `tools`, `detached`, `lifetime`.

        Raises:
            ConfigurationError: A setting or an argument cannot be as it is given.
        """
        options = SandboxOptions.of(settings, keywords)
        self.settings = options.settings
        self.metadata, self.notebook_cell = options.metadata, options.notebook_cell
        self._instance = Instance(self, options)
        self._sample: tuple[float, float] | None = None
        """A moment, and the processor time that it had used by then."""
        self._known.setdefault(self.id, self)

    @classmethod
    async def create(cls, settings: Settings | str | None = None, /, **keywords: Unpack[Keywords]) -> Self:
        """Return a sandbox that has started. The arguments are those of the class.

        Raises:
            SandboxError: None can start. Nothing is left then.
        """
        return await cls(settings, **keywords).__aenter__()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.release()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.kill()

    def __repr__(self) -> str:
        limits, instance = self.settings.limits, self._instance
        state = "killed" if instance.is_killed else "not started" if instance.session.is_new else ""
        return (
            f"<{type(self).__name__} {self.id[:12]}{' ' if state else ''}{state}: {self.settings.image}, "
            f"{format_bytes(limits.memory)} of memory, {limits.cell_timeout:g} s a cell>"
        )

    async def start(self) -> None:
        """Start now what the first call would start.

        Raises:
            SandboxError: It cannot start.
        """
        await self._instance.ready(fresh=True)

    @cached_property
    def files(self) -> AsyncFiles:
        """Its files."""
        return AsyncFiles(self._instance)

    @cached_property
    def commands(self) -> AsyncCommands:
        """Its commands."""
        found: AsyncCommands = self._instance.part("commands").commands
        return found

    @cached_property
    def pty(self) -> AsyncPty:
        """Its shells with a terminal."""
        found: AsyncPty = self._instance.part("commands").pty
        return found

    # --- cells ---

    async def run_code(
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
        callbacks = Callbacks(
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_result=on_result,
            on_error=on_error,
            on_message=on_message,
            on_input=on_input,
        )
        none = timeout is None or (timeout == 0 and timeout is not False)
        limit = None if none else seconds_within(timeout, self.settings.limits)
        session = None
        if language is not None or context is not None:
            session = await self._instance.part("contexts").session(context, language)
        around = environment_variables.around(envs, self.settings if session is None else session.settings)
        execution = await self._instance.run(
            code, limit, stop_on_error, callbacks.wanted, callbacks.call, around=around, context=session
        )
        return callbacks.finish(execution)

    async def create_context(self, language: str | None = None, cwd: str | None = None) -> Context:
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
        found: Context = await self._instance.part("contexts").create(language, cwd)
        return found

    async def list_contexts(self, *, offered: bool = False) -> builtins.list[Context]:
        """Return the contexts: that of the sandbox's own kernel first, which is there without being made.

        Args:
            offered: Add one for each other language of the image. Its kernel starts with its first cell.
        """
        if offered:
            await self._instance.ready(fresh=True)
        self._instance.check()
        contexts = self._instance.part("contexts")
        found: builtins.list[Context] = await contexts.offered() if offered else contexts.all()
        return found

    async def restart_context(self, context: Context | str) -> None:
        """Start the kernel of a context again: its variables are gone. A cell that runs in it ends as `KernelDied`.

        Raises:
            ConfigurationError: There is no such context.
            SandboxError: It cannot start.
        """
        await self._instance.ready(fresh=True)
        await self._instance.part("contexts").restart(context)

    async def remove_context(self, context: Context | str) -> None:
        """End a context with all of its processes. A cell that runs in it ends as `KernelDied`.

        Raises:
            ConfigurationError: There is no such context, or it is that of the sandbox's own kernel.
        """
        self._instance.check()
        await self._instance.part("contexts").remove(context)

    def screen(self, code: str) -> Screened:
        """Return what the screen finds in a cell, whatever the setting `screen` says.

        Nothing is run or sent, and no sandbox is started. No finding does not mean that code is harmless.
        """
        found: Screened = self._instance.part("screen").preview(code)
        return found

    async def interrupt(self, context: Context | str | None = None) -> bool:
        """Raise KeyboardInterrupt in the cell that runs. One that waits for its start ends without having run.

        Args:
            context: The context whose cell that is. None is that of the sandbox's own kernel.

        Returns:
            Whether there was a cell to interrupt.
        """
        self._instance.check()
        session = None if context is None else await self._instance.part("contexts").session(context, None)
        return await self._instance.interrupt(session)

    async def restart(self) -> None:
        """Start Python again: variables are gone, files stay. A cell that runs ends as `KernelDied`."""
        await self._instance.ready(fresh=True)
        await self._instance.session.restart()
        await self._instance.ready(fresh=False, again=True)

    async def install(
        self, *packages: str | os.PathLike[str], progress: Callable[[str], object] | None = None
    ) -> builtins.list[InstalledPackage]:
        """Install packages and what they need.

        `await sandbox.install("humanize>=4", "dist/mine-1.0-py3-none-any.whl")`.
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
        found: builtins.list[InstalledPackage] = await self._instance.part("packages").install(packages, progress)
        return found

    # --- what it is, and uses ---

    @property
    def id(self) -> str:
        return self._instance.session.id

    @property
    def is_alive(self) -> bool:
        """Whether a container runs that was attested."""
        return self._instance.is_alive

    @property
    def is_new(self) -> bool:
        """Whether it was never started."""
        return self._instance.is_new

    @property
    def is_detached(self) -> bool:
        """Whether it outlives this process, until its lifetime is over."""
        return self._instance.ownership.is_detached

    @property
    def info(self) -> SandboxInfo:
        instance, settings = self._instance, self.settings
        language = instance.session.kernel_info.get("language_info", {})
        return SandboxInfo(
            id=self.id,
            image=settings.image,
            engine=instance.ownership.address,
            runtime=settings.runtime or "default",
            outputs=settings.outputs,
            network=settings.get("network", ()) or "none",
            secrets=tuple(secret.name for secret in settings.get("secrets", ())),
            tools=tools.tools.names if (tools := instance.prepared.of("tools")) is not None else (),
            limits=settings.limits,
            python=str(language["version"]) if "version" in language else None,
            metadata=dict(self.metadata),
            started_at=instance.lifetime.started,
            end_at=instance.lifetime.ends,
            state=self._state,
            detached=self.is_detached,
            busy=instance.runs_a_cell,
        )

    @property
    def _state(self) -> State:
        if self._instance.is_ended:
            return "ended"
        return "paused" if self.is_paused else "running" if self.is_alive else "not running"

    @property
    def network_usage(self) -> NetworkUsage:
        """What the connections of its cells came to until now."""
        network = self._instance.prepared.of("network")
        usage: NetworkUsage = NetworkUsage() if network is None else network.usage
        return usage

    async def usage(self) -> SandboxUsage:
        """Return what the sandbox uses now, by its own word.

        Raises:
            SandboxDied: It is gone.
        """
        await self._instance.ready(fresh=False)
        return await self._instance.session.usage()

    async def get_metrics(
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
        usage, now = await self.usage(), datetime.now(UTC)
        before, moment = self._sample, time.monotonic()
        limits, started = self.settings.limits, self._instance.lifetime.started or now
        cpu = usage.cpu_seconds or 0.0
        since = moment - before[0] if before is not None else (now - started).total_seconds()
        used = cpu - (before[1] if before is not None else 0.0)
        self._sample = moment, cpu
        row = SandboxMetrics(
            timestamp=now,
            cpu_count=math.ceil(limits.cpus),
            cpu_used_pct=round(100 * max(0.0, used) / max(since, 1e-3), 2),
            mem_used=usage.memory_bytes or 0,
            mem_total=limits.memory,
            disk_used=usage.scratch_bytes or 0,
            disk_total=limits.scratch_size,
        )
        asked = (start is None or _aware(start) <= now) and (end is None or now <= _aware(end))
        return [row] if asked else []

    # --- a pause ---

    @property
    def abilities(self) -> frozenset[Ability]:
        """Which of `pause`, `snapshot`, `fork` and `checkpoint` its engine has; the others raise `AbilityMissing`."""
        return abilities_of(self._instance.session.engine)

    @property
    def is_paused(self) -> bool:
        """Whether it stands still."""
        return self._instance.session.is_paused

    async def pause(self) -> bool:
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
        instance = self._instance
        instance.check(paused=True)
        instance.session.pauses.demand(Ability.PAUSE)
        if instance.session.is_paused:
            return False
        await instance.ready(fresh=False)
        return await instance.session.pauses.begin()

    async def resume(self) -> bool:
        """Let a paused sandbox go on where it was.

        Returns:
            Whether it was paused.

        Raises:
            SandboxDied: It has ended meanwhile.
            EngineError: It cannot go on, and stays paused.
        """
        self._instance.check(paused=True)
        return await self._instance.session.pauses.end()

    # --- checkpoints ---

    async def checkpoint(self, name: str | None = None) -> str:
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
        return await snapshots.of_checkpoint(self._instance, "checkpoint", name)

    async def restore(self, name: str) -> None:
        """Return to the variables of a checkpoint. Later checkpoints are gone, and files stay as they are.

        What was open is closed, and random numbers are new; a generator that the code made goes on as it was.

        Raises:
            AbilityMissing: The engine cannot do it.
            FileNotThere: There is no checkpoint of this name any more.
            FileRefused: A cell runs, or the name is improper.
            SandboxError: As `run_code`.
        """
        await snapshots.of_checkpoint(self._instance, "restore", name)

    # --- snapshots ---

    async def snapshot(self, name: str | None = None) -> str:
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
        return await snapshots.of(self._instance, Ability.SNAPSHOT).take(self._instance, name)

    async def fork(self, count: int = 1, *, timeout: float | None = None) -> builtins.list[Self]:
        """Return sandboxes that go on from where this one is, in this process. Either all are there, or none.

        Each draws random numbers of its own, as far as a module's own generator makes them; a generator that the code
        made goes on alike in all.

        Args:
            count: How many.
            timeout: Seconds that they may last. None is as long as they are used.

        Raises:
            SandboxError: As `snapshot`, and as `create` for the first that cannot start.
        """
        return await snapshots.forking(self._instance, count).fork(
            self._instance,
            count,
            lambda origin: self._of(origin, self.settings, timeout=timeout, metadata=self.metadata),
        )

    @classmethod
    async def from_snapshot(cls, name: str, **keywords: Any) -> Self:
        """Return a sandbox that goes on from a snapshot, in any process of this user, as often as is wanted.

        Every byte of the snapshot is checked first. The id is new. Random numbers are as in `fork`.

        Args:
            name: The snapshot's name.
            **keywords: Policies, as of a new sandbox. Image, engine, limits and variables are the snapshot's.

        Raises:
            FileNotThere: There is none of this name.
            FileRefused: It was changed, is not this user's alone, or does not fit this machine and version.
            SandboxError: As `create`.
        """
        made = await asyncio.to_thread(cls.prepared, name, **keywords)
        try:
            await made.start()
        except BaseException:
            await made.kill()
            raise
        return made

    @classmethod
    def prepared(cls, name: str, settings: Settings | None = None, **keywords: Any) -> Self:
        """Return the same, not started yet. Reads all of the snapshot, which may take seconds.

        `settings` are those of which policies are taken, in place of keywords.
        """
        options = SandboxOptions.of(settings, keywords)
        origin, settings = snapshots.provider().restored(name, keywords, options.settings, options.given)
        try:
            made = cls._of(origin, settings, timeout=options.seconds, metadata=options.metadata)
            made._instance.session.pauses.demand(Ability.SNAPSHOT)  # noqa: SLF001 (one of its own kind)
        except BaseException:
            origin.close()
            raise
        return made

    @classmethod
    def _of(cls, origin: Origin, settings: Settings, **keywords: Any) -> Self:
        make: Callable[..., Self] = cls
        made = make(settings, **keywords)
        made._instance.origin = origin  # noqa: SLF001 (one of its own kind)
        return made

    @staticmethod
    async def snapshots(settings: Settings | None = None) -> builtins.list[Snapshot]:
        """Return this user's snapshots, the newest first."""
        if not index.is_here(index.SNAPSHOTS):
            return []
        return [*await asyncio.to_thread(lambda: snapshots.provider().stored(settings or from_keywords()))]

    @staticmethod
    async def delete_snapshot(name: str, /) -> bool:
        """Remove a snapshot; return whether there was one."""
        return await asyncio.to_thread(lambda: snapshots.provider().delete(name, from_keywords()))

    # --- by its id, and beyond this process ---

    @classmethod
    async def list(
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
        here = [one.info for one in cls._known.values()]
        return found_by(query or SandboxQuery(), metadata, [*here, *await keeper().listed(settings)])

    @classmethod
    async def connect(
        cls, sandbox_id: str, *, timeout: float | None = None, take: bool = False, **settings: Any
    ) -> Self:
        """Return the sandbox with an id. One that is paused goes on.

        One of this process is the very same object. Else it is a detached one of this user's.

        Args:
            sandbox_id: The id.
            timeout: Seconds until it ends, as of `set_timeout`.
            take: Whether to take it from another owner.
            **settings: `engine` names the broker; `network`, `secrets`, `packages` and `tools` are what the new owner
                serves; settings that are each process's own.

        Raises:
            SandboxClosed: There is none of this id, or it has an owner.
            EngineError: The broker does not answer.
        """
        found: Any = cls._known.get(sandbox_id)
        if found is None:
            given, how = await keeper().described(sandbox_id, take=take, given=settings)
            found = await cls(given, **how).__aenter__()
        if found.is_paused:
            await found.resume()
        await found.start()
        if timeout is not None:
            await found.set_timeout(timeout)
        return cast("Self", found)

    @property
    def missed(self) -> Missed:
        """The dropped output of the cell that ran when this process took the sandbox over."""
        return self._instance.ownership.missed

    async def rejoin(
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
        cell = self._instance.take_resumed()
        if cell is None:
            return None
        callbacks = Callbacks(
            on_stdout=on_stdout, on_stderr=on_stderr, on_result=on_result, on_error=on_error, on_input=on_input
        )
        return await cell.follow(self._instance.cells, callbacks)

    async def detach(self) -> None:
        """Let go of a detached sandbox. It goes on, with the cell that runs; `connect` finds it by its id.

        Calls that wait for a cell end as `SandboxDied`.

        Raises:
            ConfigurationError: The sandbox is not detached.
        """
        self._instance.ownership.leave()
        self._instance.session.lose_cells(SandboxDied(EndCode.DETACHED_LEFT, kept=Survived.VARIABLES_AND_FILES))
        await self.kill()

    async def release(self) -> None:
        """Leave it if it is detached, else end it."""
        await (self.detach() if self.is_detached else self.kill())

    # --- its end ---

    async def set_timeout(self, timeout: float) -> None:
        """Have the sandbox end some seconds from now on (before the start: from there), in use or not.

        Args:
            timeout: Seconds.

        Raises:
            QuotaExceeded: The end is later than the broker allows.
            SandboxClosed: The sandbox was killed.
        """
        limit = seconds(timeout)
        if self._instance.is_ended and not self.is_detached:
            raise SandboxClosed(EndCode.SANDBOX_KILLED)
        await self._instance.ownership.extend(self._instance.session, limit)

    @classmethod
    async def set_timeout_by_id(cls, sandbox_id: str, timeout: float, **settings: Unpack[SettingKeywords]) -> None:
        """Do as `set_timeout` with a detached sandbox of this user's; `engine` names its broker."""
        await keeper().extended(sandbox_id, seconds(timeout), settings)

    async def kill(self) -> bool:
        """End the sandbox with its variables and files. Cells that run or wait end as `SandboxDied`. Idempotent.

        Returns:
            Whether there was one to end.
        """
        if self._known.get(self.id) is self:
            del self._known[self.id]
        return await self._instance.end()

    @classmethod
    async def kill_by_id(cls, sandbox_id: str, **settings: Unpack[SettingKeywords]) -> bool:
        """Do as `kill` with a sandbox of this process, or a detached one of this user's; `engine` names its broker."""
        found = cls._known.get(sandbox_id)
        return await (keeper().ended(sandbox_id, settings) if found is None else found.kill())


def handle_of(sandbox: AsyncSandbox) -> SandboxHandle:
    """Return a sandbox as plugins know it that do more with it than its callers."""
    return sandbox._instance  # noqa: SLF001 (a part of the class that its users need not see)
