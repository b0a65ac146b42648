"""Lists of sandboxes, some at a time, with and without `await`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ..core.errors import wrong_argument
from .values import SandboxInfo, SandboxQuery


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
            raise wrong_argument("order", why)
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


def asked_for(query: SandboxQuery | None, metadata: Mapping[str, str] | None) -> SandboxQuery | None:
    """Return a query that asks for metadata, too."""
    if metadata is None:
        return query
    query = query or SandboxQuery()
    return replace(query, metadata={**(query.metadata or {}), **metadata})
