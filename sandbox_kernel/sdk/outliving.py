"""What there is of a sandbox beyond its caller: lists of sandboxes, leaving one to its broker, and its last cell.

Imports `keeping` where a sandbox is detached.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ..core.codes import EndCode, Survived, UsageCode
from ..core.errors import ConfigurationError, SandboxDied
from .callbacks import Callback, Callbacks, Prompt
from .execution import Execution, ExecutionError, Result
from .identity import AsyncSandboxPaginator, Identity
from .said import OutputMessage
from .values import SandboxInfo, SandboxQuery, seconds

if TYPE_CHECKING:
    import weakref

    from ..core.model import Settings
    from .cell import Cell
    from .keeping import Detached, Missed


class Outliving(Identity):
    """See the module."""

    _cells: dict[str, Cell]
    _known: ClassVar[weakref.WeakValueDictionary[str, Any]]
    _detached: Detached | None = None

    @property
    def is_detached(self) -> bool:
        """Whether it outlives this process, until its lifetime is over."""
        return self._detached is not None

    @property
    def info(self) -> SandboxInfo:
        from dataclasses import replace

        return replace(super().info, detached=self.is_detached, busy=self._runs_a_cell)

    @property
    def _runs_a_cell(self) -> bool:
        return any(self._session.router.requests.running_cells())

    @property
    def missed(self) -> Missed:
        """What the cell that ran when this process took the sandbox over had sent, and nobody kept."""
        from .keeping import Missed

        return Missed() if self._detached is None else self._detached.missed

    @classmethod
    def list(
        cls,
        query: SandboxQuery | None = None,
        limit: int | None = None,
        next_token: str | None = None,
        order: Literal["asc", "desc"] | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        **service: Any,
    ) -> AsyncSandboxPaginator:
        """Return the sandboxes that run, of this process and detached ones of this user, or those of `query`.

        `metadata` are texts that they have; `limit` a page, the newest first. `engine` names another broker than that
        of the settings.
        """
        query = asked_for(query, metadata)
        here = [one.info for one in cls._known.values()]

        return AsyncSandboxPaginator(here, query, limit, next_token, order, more=lambda: detached_ones(service))

    async def detach(self) -> None:
        """Let go of a detached sandbox, which goes on, and so does the cell that runs: `connect` finds it by its id.

        Calls that wait for a cell end as `SandboxDied`. Raises `ConfigurationError` for a sandbox that is not detached.
        """
        if self._detached is None:
            raise ConfigurationError(UsageCode.NOT_DETACHED)
        self._detached.leave()
        self._session.router.sandbox_died(SandboxDied(EndCode.DETACHED_LEFT, kept=Survived.VARIABLES_AND_FILES))
        await self.kill()

    async def kill(self) -> bool:
        raise NotImplementedError

    async def release(self) -> None:
        """Leave it if it is detached, else end it."""
        await (self.kill() if self._detached is None else self.detach())

    async def rejoin(
        self,
        *,
        on_stdout: Callback[OutputMessage] | None = None,
        on_stderr: Callback[OutputMessage] | None = None,
        on_result: Callback[Result] | None = None,
        on_error: Callback[ExecutionError] | None = None,
        on_input: Callable[[Prompt], Awaitable[str] | str] | None = None,
    ) -> Execution | None:
        """Return what the cell brings that ran when the owner before was gone, once it has ended; None without one.

        Its output begins with the cell; callbacks are called for that, too. What was not kept is in `missed`. It is
        taken once. Cancelling the call interrupts the cell.
        """
        cell = None if self._detached is None else self._detached.take_cell()
        if cell is None:
            return None
        callbacks = Callbacks(
            on_stdout=on_stdout, on_stderr=on_stderr, on_result=on_result, on_error=on_error, on_input=on_input
        )
        try:
            while (event := await cell.events.get()) is not None:
                if event[0] == "input":
                    await cell.ask(callbacks.call(*event))
                elif event[0] in callbacks.wanted:
                    await callbacks.call(*event)
        except BaseException:
            cell.give_up()
            raise
        finally:
            self._cells.pop(cell.id, None)
        return callbacks.finish(await cell.finish())

    async def set_timeout(self: Outliving | str, timeout: float, **service: Any) -> None:
        """Have the sandbox end `timeout` seconds from now on (before the start: from there), in use or not.

        `AsyncSandbox.set_timeout(sandbox_id, timeout)` is for a detached one. Raises `QuotaExceeded` for an end that is
        later than its broker allows.
        """
        from . import keeping

        limit = seconds(timeout)
        if isinstance(self, str):
            await keeping.extended(self, limit, service)
            return
        if self._detached is None:
            await Identity.set_timeout(self, limit)
            return
        if self.is_new:
            raise ConfigurationError(UsageCode.NOT_TOGETHER, "a detached sandbox that has not started has a lifetime")
        left = await self._detached.engine.extend(self.id, limit)
        self._life.known(self._life.started, datetime.now(UTC) + timedelta(seconds=left))

    async def _start_session(self) -> None:
        """Start the session, or take over that of another owner."""
        if self._detached is None:
            await self._session.started()
        elif not self._session.is_open:
            self._life.known(*await self._detached.started(self._session, self._cells))
        else:
            await self._session.started()


async def detached_ones(service: Mapping[str, Any]) -> list[SandboxInfo]:
    """Return the detached sandboxes of this user."""
    from .keeping import listed

    return await listed(service)


async def opening_of(name: str, take: bool, service: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
    """Return with which arguments a sandbox is made that takes a detached one over. Raises `SandboxError`."""
    from .keeping import described

    return await described(name, take=take, service=service)


def asked_for(query: SandboxQuery | None, metadata: Mapping[str, str] | None) -> SandboxQuery | None:
    """Return a query that asks for metadata, too."""
    from dataclasses import replace

    if metadata is None:
        return query
    query = query or SandboxQuery()
    return replace(query, metadata={**(query.metadata or {}), **metadata})


def in_a_loop(work: Any) -> Any:
    """Run a coroutine for a caller that does not wait for one; it may be one that runs a loop."""
    import threading

    found: builtins.list[Any] = []

    def run() -> None:
        try:
            found.append((asyncio.run(work), None))
        except BaseException as error:
            found.append((None, error))

    thread = threading.Thread(target=run, name="sandbox_kernel list")
    thread.start()
    thread.join()
    [(value, error)] = found
    if error is not None:
        raise error
    return value
