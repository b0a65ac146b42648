"""Plain JSON: a tree of bounded depth whose keys cannot reach into the objects of a browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import Any

from ..core.codes import OutputCode
from .verdict import RefusedError

MAX_DEPTH = 64
MAX_NODES = 1_000_000
"""Values in one message. A table of 100,000 rows in JSON has about as many."""

MAX_WRITTEN = 254
"""Levels of JSON that can be written again: of more, no front end is sent anything (`protocol.dumps`)."""

POISON = frozenset(("__proto__", "constructor", "prototype"))
"""Keys with which a front end that copies a path would change every object of the page."""


MAX_COUNT = (1 << 31) - 1

_HOLDERS = frozenset((dict, list))
_KINDS = _HOLDERS | {str, int, float, bool, type(None)}

_ID = re.compile(r"[0-9A-Za-z][\w.:-]{0,199}", re.ASCII)


class NotPlainError(RefusedError):
    """The value is too deep, too large, or holds something that JSON has not; `why` says it."""

    def __init__(self, why: str) -> None:
        super().__init__(OutputCode.NOT_PLAIN, type="a value", why=why)
        self.why = why


def plain(value: Any) -> Any:
    """Return `value` without poisonous keys; the very same object if there are none. Raises `NotPlainError`."""
    return value if _is_plain(value) else _plain(value, 0, [MAX_NODES])


def count(value: Any) -> int | None:
    """Return what may be the number of a cell, None for anything else: a notebook with another one is not valid."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT else None


def values(value: Any, most: int) -> int:
    """Return how many values are in a tree, itself included; counting ends beyond `most`."""
    pending, found = [value], 0
    while pending and found <= most:
        one = pending.pop()
        found += 1
        if isinstance(one, (dict, list, tuple)):
            pending += islice(one.values() if isinstance(one, dict) else one, most + 1)
    return found


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Return JSON in which each text, also of a key, is changed. It is no deeper than JSON may be."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(str(key)): mapped(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [mapped(item, change) for item in value]
    return value


def is_id(value: Any) -> bool:
    """Return whether a text may be the id of a widget: front ends and exports write those into scripts and objects."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None and value not in POISON


def _is_plain(value: Any) -> bool:
    """Return whether a tree is plain as it is; looked at level by level, in a tenth of the time of one by one."""
    level, left = [value], MAX_NODES
    for _ in range(MAX_DEPTH):
        inside: list[Any] = []
        for one in level:
            if type(one) is dict:
                if not (POISON.isdisjoint(one) and set(map(type, one)) <= {str}):
                    return False
                inside.extend(one.values())
            elif type(one) is list:
                inside.extend(one)
            else:
                return False
            if len(inside) > left:
                return False
        left -= len(inside)
        kinds = set(map(type, inside))
        if not kinds <= _KINDS or (float in kinds and any(type(one) is float and one - one != 0 for one in inside)):
            return False
        if kinds.isdisjoint(_HOLDERS):
            return True
        level = [one for one in inside if type(one) in _HOLDERS]
    return False


def _plain(value: Any, depth: int, left: list[int]) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if value - value != 0:
            raise NotPlainError("a number is not finite")
        return value
    if depth >= MAX_DEPTH:
        raise NotPlainError(f"nested deeper than {MAX_DEPTH} levels")
    left[0] -= len(value) if isinstance(value, (dict, list, tuple)) else 0
    if left[0] < 0:
        raise NotPlainError(f"more than {MAX_NODES} values")
    if isinstance(value, dict):
        if any(not isinstance(key, str) for key in value):
            raise NotPlainError("a key is not a string")
        kept = {key: _plain(item, depth + 1, left) for key, item in value.items() if key not in POISON}
        same = len(kept) == len(value) and all(kept[key] is value[key] for key in kept)
        return value if same else kept
    if isinstance(value, (list, tuple)):
        items = [_plain(item, depth + 1, left) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    raise NotPlainError(f"a {type(value).__name__} is not JSON")
