"""Sandboxes as E2B lists them: by its names, and some at a time."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ...core.errors import wrong_argument
from ...sdk import values


class SandboxInfo(values.SandboxInfo):
    """See `sandbox_kernel.SandboxInfo`."""

    __slots__ = ()

    @classmethod
    def of(cls, info: values.SandboxInfo) -> SandboxInfo:
        return cls(**{name: getattr(info, name) for name in values.SandboxInfo.__dataclass_fields__})

    @property
    def sandbox_id(self) -> str:
        return self.id

    @property
    def template_id(self) -> str:
        """The image."""
        return self.image

    @property
    def name(self) -> str:
        """The image."""
        return self.image

    @property
    def cpu_count(self) -> int:
        return math.ceil(self.limits.cpus)

    @property
    def memory_mb(self) -> int:
        """MiB."""
        return self.limits.memory >> 20

    @property
    def allow_internet_access(self) -> bool:
        """Never: there are hosts that cells may reach (`network`), or none."""
        return False


@dataclass(frozen=True, slots=True)
class SandboxQuery(values.SandboxQuery):
    """See `sandbox_kernel.SandboxQuery`."""

    template: str | None = None
    """The image."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "image", self.image or self.template)


class HostedPage:
    """Sandboxes, some at a time; iterating goes through what is left."""

    def __init__(self, ask: Callable[[], Any], limit: int | None, next_token: str | None, order: str | None) -> None:
        if order not in {None, "asc", "desc"}:
            raise wrong_argument("order", f'order must be "asc" (the oldest first) or "desc", not {order!r}')
        self._ask, self._limit, self._oldest_first = ask, limit, order == "asc"
        self._at = int(next_token) if next_token and next_token.isdecimal() else 0
        self._rows: list[SandboxInfo] | None = None

    def _fill(self, found: list[values.SandboxInfo]) -> None:
        rows = [SandboxInfo.of(info) for info in found]
        self._rows = rows[::-1] if self._oldest_first else rows

    @property
    def has_next(self) -> bool:
        """Whether there may be more."""
        return self._rows is None or self._at < len(self._rows)

    @property
    def next_token(self) -> str | None:
        """What a later `list` goes on with."""
        return str(self._at) if self.has_next else None

    def _take(self, limit: int | None) -> list[SandboxInfo]:
        rows = (self._rows or [])[self._at :][: None if limit is None else max(1, limit)]
        self._at += len(rows)
        return rows


class SandboxPaginator(HostedPage, Iterator[SandboxInfo]):
    """See `HostedPage`."""

    def __init__(self, ask: Callable[[], Any], *page: Any) -> None:
        super().__init__(ask, *page)
        self._fill(ask())

    def next_items(self, **service: Any) -> list[SandboxInfo]:
        """Return the next ones; empty at the end."""
        return self._take(self._limit)

    def __next__(self) -> SandboxInfo:
        for info in self._take(1):
            return info
        raise StopIteration


class AsyncSandboxPaginator(HostedPage, AsyncIterator[SandboxInfo]):
    """See `HostedPage`."""

    async def _filled(self) -> None:
        if self._rows is None:
            self._fill(await self._ask())

    async def next_items(self, **service: Any) -> list[SandboxInfo]:
        """Return the next ones; empty at the end."""
        await self._filled()
        return self._take(self._limit)

    async def __anext__(self) -> SandboxInfo:
        await self._filled()
        for info in self._take(1):
            return info
        raise StopAsyncIteration
