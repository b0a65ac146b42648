"""What is known of a value without running anything: a name of a library, a constant, or where it came from.

Pure and frozen, so that a value may be carried from cell to cell.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple


class _Missing:
    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final[Any] = _Missing()
UNKNOWN_PART = "{}"
"""What stands in a text for a part of it that is not known."""
MOST_TEXT = 1 << 16
"""Characters or bytes of a constant that is composed or decoded here."""

NETWORK, SECRET, DECODED, SYSTEM, FILE, MADE, DATA = "network", "secret", "decoded", "system", "file", "made", "data"
"""Where a value came from: a connection, a credential, a decoder, the machine, a file, a composed name, a data set."""
FOUND = "found"
"""Of names that a search of a folder gave."""
FOUND_FILE = "found()"
"""What a loop over such names gives, as it is given: not a name that was made of it."""


class Value(NamedTuple):
    """What is known of a value; all of it may be nothing."""

    ref: str | None = None
    """The dotted name of what it is, with `()` behind what was called: `socket.socket()`."""
    const: Any = MISSING
    text: str | None = None
    """A text of which parts are not known, each of them `{}`."""
    taints: frozenset[str] = frozenset()
    built: bool = False
    """Whether the constant was composed or decoded, and does not stand in the code as it is."""

    @property
    def known(self) -> bool:
        return self.const is not MISSING

    @property
    def shown(self) -> str | None:
        """The text that it is, as far as it is known."""
        if isinstance(self.const, str):
            return self.const
        if isinstance(self.const, bytes):
            return self.const.decode("latin-1")
        return self.text


UNKNOWN = Value()


def weight(whole: Any, most: int = MOST_TEXT) -> int:
    """Return how many characters and items a constant has, all the way down; no more than `most` are counted.

    A list that has another one twice has it twice: so long would be its text, and a look through it.
    """
    found, waiting = 0, [whole]
    while waiting and found <= most:
        one = waiting.pop()
        if isinstance(one, str | bytes | bytearray):
            found += len(one)
        elif isinstance(one, dict):
            waiting.extend(one.keys())
            waiting.extend(one.values())
        elif isinstance(one, list | tuple | set | frozenset):
            waiting.extend(one)
        found += 1
    return found


def composed(parts: Iterable[str], between: str = "") -> str:
    """Return texts behind one another, cut where that becomes too long for a text."""
    kept, length = [], 0
    for part in parts:
        kept.append(part[: MOST_TEXT - length])
        length += len(kept[-1]) + len(between)
        if length >= MOST_TEXT:
            break
    return between.join(kept)[:MOST_TEXT]


def constant(value: Any, *, built: bool = True, taints: frozenset[str] = frozenset()) -> Value:
    """Return the value of a constant."""
    return Value(const=value, taints=taints, built=built)


def join(*values: Value) -> frozenset[str]:
    """Return where all of `values` came from."""
    found: frozenset[str] = frozenset()
    for value in values:
        if value.taints:
            found |= value.taints
    return found
