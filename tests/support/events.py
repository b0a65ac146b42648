"""Events for tests that care for some of their fields."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, TypeVar

from sandbox_kernel.core.events import SessionEvent

E = TypeVar("E", bound=SessionEvent)


def an(kind: type[E], **given: Any) -> E:
    """Return an event of a kind; what it must have, and is not given, is any text."""
    must = {one.name: "x" for one in fields(kind) if one.default is MISSING}  # type: ignore[arg-type]
    return kind(**must | given)
