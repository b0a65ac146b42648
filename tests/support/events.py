"""Events for tests that care for some of their fields."""

from __future__ import annotations

from typing import Any, TypeVar

from sandbox_kernel.core.events import SessionEvent

E = TypeVar("E", bound=SessionEvent)


def an(kind: type[E], **given: Any) -> E:
    """Return an event of a kind; what it must have, and is not given, is any text."""
    must = {name: "x" for name in kind._names if not hasattr(kind, name)}  # noqa: SLF001 (as the class itself does)
    return kind(**must | given)
