"""For whom a call is made, however many tasks it goes through."""

from __future__ import annotations

from contextvars import ContextVar

caller: ContextVar[str] = ContextVar("caller", default="")
"""Who asks, where one process serves several: a way of asking, a space, and a name. Written down with each cell."""
works_for: ContextVar[str | None] = ContextVar("sandbox_works_for", default=None)
"""The session for which a tool works: what it did in a cell of that session would wait for itself."""
