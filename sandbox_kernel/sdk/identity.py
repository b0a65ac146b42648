"""What a sandbox is and uses, how long it lasts, and which there are in this process.

The half of `AsyncSandbox` that runs nothing.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from ..core.codes import EndCode, UsageCode
from ..core.errors import ConfigurationError, SandboxClosed, SandboxError
from ..core.model import Settings, format_bytes
from ..core.tasks import Tasks
from ..session.session import Session
from .network import Network
from .storing import Stores
from .values import NetworkUsage, SandboxInfo, SandboxMetrics, SandboxQuery, SandboxUsage, seconds

Closing = Callable[[], Coroutine[Any, Any, object]]


class Lifetime:
    """When a sandbox has to end, whoever uses it. It does not hold the sandbox, which people may drop."""

    def __init__(self, limit: float | None) -> None:
        self._seconds = limit
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._kill: weakref.WeakMethod[Closing] | None = None
        self._tasks = Tasks()
        self.started: datetime | None = None
        self.ends: datetime | None = None

    def begin(self, loop: asyncio.AbstractEventLoop, kill: Closing) -> None:
        """Let it run from now on, on this loop."""
        self._loop, self._kill, self.started = loop, weakref.WeakMethod(kill), datetime.now(UTC)
        if self._seconds is not None:
            self.set(self._seconds)

    def set(self, limit: float) -> None:
        """Have the sandbox end in so many seconds from now on."""
        self._seconds = limit
        if self._loop is None:
            return  # it counts from the start
        self.stop()
        self.ends = datetime.now(UTC) + timedelta(seconds=limit)
        self._timer = self._loop.call_later(limit, self._expire)

    def known(self, started: datetime | None, ends: datetime) -> None:
        """Note when it was started and when it ends, where that is somebody else's to see to."""
        self.started, self.ends = started, ends

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        kill = self._kill() if self._kill is not None else None
        if kill is not None:
            self._tasks.start(kill(), "the end of a sandbox whose time is up")


@dataclass(slots=True)
class _Sample:
    """The processor time of a sandbox at a moment."""

    moment: float
    cpu_seconds: float


class Identity(Stores):
    """What a sandbox is and uses."""

    settings: Settings
    metadata: dict[str, str]
    """What the caller wrote on it."""
    _session: Session
    _network: Network
    _engine: str
    _life: Lifetime
    _sample: _Sample | None = None

    async def _ready(self, *, fresh: bool, again: bool = False) -> None:
        raise NotImplementedError

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def sandbox_id(self) -> str:
        """The same as `id`, by the name of hosted interpreters."""
        return self._session.id

    @property
    def is_alive(self) -> bool:
        """Whether a container runs that was attested."""
        return self._session.is_open and self._pid == os.getpid()

    @property
    def is_new(self) -> bool:
        """Whether it was never started."""
        return self._loop is None

    async def is_running(self, request_timeout: float | None = None) -> bool:
        """Return whether a container runs that was attested. `request_timeout` has no effect: no server is asked."""
        return self.is_alive

    @property
    def info(self) -> SandboxInfo:
        language = self._session.kernel_info.get("language_info", {})
        ended = self._closing is not None or self._session.is_closed
        return SandboxInfo(
            id=self.id,
            image=self.settings.image,
            engine=self._engine,
            runtime=self.settings.runtime or "default",
            outputs=self.settings.outputs,
            network=self.settings.network or "none",
            secrets=tuple(secret.name for secret in self.settings.secrets),
            tools=self._network.tools,
            limits=self.settings.limits,
            python=str(language["version"]) if "version" in language else None,
            metadata=dict(self.metadata),
            started_at=self._life.started,
            end_at=self._life.ends,
            state="ended" if ended else self._state,
        )

    @property
    def _state(self) -> Literal["paused", "running", "not running"]:
        return "paused" if self.is_paused else "running" if self.is_alive else "not running"

    async def get_info(self, **service: Any) -> SandboxInfo:
        """Return `info`. What says how a hosted service is reached has no effect."""
        return self.info

    @property
    def network_usage(self) -> NetworkUsage:
        """What the connections of its cells came to until now."""
        return self._network.usage

    async def usage(self) -> SandboxUsage:
        """Return what the sandbox uses. Raises `SandboxDied` if it is gone."""
        await self._ready(fresh=False)
        said = await self._session.usage()
        return SandboxUsage(
            memory_bytes=said.memory_bytes,
            cpu_seconds=said.cpu_seconds,
            processes=said.processes,
            scratch_bytes=said.scratch_bytes,
        )

    async def get_metrics(
        self,
        start: datetime | None = None,
        end: datetime | None = None,
        **service: Any,
    ) -> list[SandboxMetrics]:
        """Return what the sandbox uses now, as one row, if that is between `start` and `end`: no rows are kept.

        The share of the processors counts from the last call on, and from the start at first. The sandbox says it
        itself; a cell can make it lie. Raises `SandboxDied` if it is gone.
        """
        usage, now = await self.usage(), datetime.now(UTC)
        before, moment = self._sample, time.monotonic()
        limits, started = self.settings.limits, self._life.started or now
        cpu = usage.cpu_seconds or 0.0
        since = moment - before.moment if before is not None else (now - started).total_seconds()
        used = cpu - (before.cpu_seconds if before is not None else 0.0)
        self._sample = _Sample(moment, cpu)
        row = SandboxMetrics(
            timestamp=now,
            cpu_count=math.ceil(limits.cpus),
            cpu_used_pct=round(100 * max(0.0, used) / max(since, 1e-3), 2),
            mem_used=usage.memory_bytes or 0,
            mem_total=limits.memory_bytes,
            disk_used=usage.scratch_bytes or 0,
            disk_total=limits.scratch_bytes,
        )
        asked = (start is None or _aware(start) <= now) and (end is None or now <= _aware(end))
        return [row] if asked else []

    async def set_timeout(self, timeout: float, **service: Any) -> None:
        """Have the sandbox end `timeout` seconds from now on (before the start: from there), in use or not."""
        limit = seconds(timeout)
        if self._closing is not None or self._session.is_closed:
            raise SandboxClosed(EndCode.SANDBOX_KILLED)
        self._life.set(limit)

    def __repr__(self) -> str:
        limits = self.settings.limits
        state = "killed" if self._closing is not None else "not started" if self._session.is_new else ""
        return (
            f"<{type(self).__name__} {self.id[:12]}{' ' if state else ''}{state}: {self.settings.image}, "
            f"{format_bytes(limits.memory_bytes)} of memory, {limits.cell_seconds:g} s a cell>"
        )


class Page:
    """Sandboxes of this process, some at a time; iterating goes through what is left."""

    def __init__(
        self,
        sandboxes: Iterable[SandboxInfo],
        query: SandboxQuery | None,
        limit: int | None,
        next_token: str | None,
        order: str | None = None,
        *,
        more: Callable[[], Awaitable[list[SandboxInfo]]] | None = None,
    ) -> None:
        """`more` returns further ones, which are asked for with the first page."""
        if order not in {None, "asc", "desc"}:
            why = f'order must be "asc" (the oldest first) or "desc", not {order!r}'
            raise ConfigurationError(UsageCode.WRONG_ARGUMENT, why, setting="order")
        self._query, self._order, self._more, self._most = query, order, more, limit
        self._rows: list[SandboxInfo] = []
        self._add(sandboxes)
        self._at = int(next_token) if next_token and next_token.isdecimal() else 0

    def _add(self, sandboxes: Iterable[SandboxInfo]) -> None:
        query, here = self._query, {info.id for info in self._rows}
        states = query is not None and query.state is not None
        running = [
            info for info in sandboxes if (states or info.state in {"running", "paused"}) and info.id not in here
        ]
        rows = self._rows + [info for info in running if query is None or query.matches(info)]
        newest = self._order != "asc"
        self._rows = sorted(rows, key=lambda info: info.started_at or datetime.now(UTC), reverse=newest)
        self._limit = max(1, self._most or len(self._rows) or 1)

    async def _complete(self) -> None:
        more, self._more = self._more, None
        if more is not None:
            self._add(await more())

    @property
    def has_next(self) -> bool:
        """Whether there may be more."""
        return self._more is not None or self._at < len(self._rows)

    @property
    def next_token(self) -> str | None:
        """What a later `list` goes on with."""
        return str(self._at) if self.has_next else None

    def _take(self) -> list[SandboxInfo]:
        rows = self._rows[self._at : self._at + self._limit]
        self._at += len(rows)
        return rows


class SandboxPaginator(Page):
    """See `Page`."""

    def next_items(self, **service: Any) -> list[SandboxInfo]:
        """Return the next ones, in the order of their starts; empty at the end."""
        return self._take()

    def __iter__(self) -> SandboxPaginator:
        return self

    def __next__(self) -> SandboxInfo:
        if not self.has_next:
            raise StopIteration
        self._limit = 1
        return self._take()[0]


class AsyncSandboxPaginator(Page):
    """See `Page`."""

    async def next_items(self, **service: Any) -> list[SandboxInfo]:
        """Return the next ones, in the order of their starts; empty at the end."""
        await self._complete()
        return self._take()

    def __aiter__(self) -> AsyncSandboxPaginator:
        return self

    async def __anext__(self) -> SandboxInfo:
        await self._complete()
        if not self.has_next:
            raise StopAsyncIteration
        self._limit = 1
        return self._take()[0]


def unknown(identity: str) -> SandboxError:
    """Return the error for an id that no open sandbox of this process has."""
    return SandboxClosed(EndCode.SANDBOX_NOT_HERE.note(id=identity[:64]))


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.astimezone()
