"""Tables of states and their transitions. A transition that is not in a table is a bug, and refused."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class ImpossibleError(Exception):
    """Something happened that cannot happen in that state: a defect of ours."""


def next_state(table: Mapping[S, Mapping[E, S]], state: S, event: E, of: str) -> S:
    """Return the state that follows in a table of a kind of things. Raises `ImpossibleError` for what is not in it."""
    try:
        return table[state][event]
    except KeyError:
        raise ImpossibleError(f"{event.name} cannot happen to a {of} that is {state.name}") from None
