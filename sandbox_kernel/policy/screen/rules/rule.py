"""What a rule is: a code, how much it weighs, and what it looks for. Imports codes only.

A family of rules is a module beside this one, with nothing but a tuple of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ....core.screen_codes import ScreenCode


class Weight(IntEnum):
    """How grave one finding is, in points. What a cell has adds up, to 100 at most."""

    LOW = 20
    MEDIUM = 40
    HIGH = 60
    CRITICAL = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row of a family. Names are dotted, as the library has them, whatever a cell calls them; `a.b.*` is all below.

    What is made by a call has `()` behind its name: the method of a socket is `socket.socket().connect`.
    """

    code: ScreenCode
    weight: Weight
    cwe: int | None = None
    """The number of the weakness in the Common Weakness Enumeration."""
    names: tuple[str, ...] = ()
    """Found wherever they are mentioned."""
    calls: tuple[str, ...] = ()
    """Found where they are called."""
    methods: tuple[str, ...] = ()
    """Found where they are called on something of which nothing is known."""
    attributes: tuple[str, ...] = ()
    """Found wherever they are asked for, whatever has them."""
    imports: tuple[str, ...] = ()
    """Modules, found where they are imported."""
    text: tuple[str, ...] = ()
    """Patterns, found in texts of the code, however these are composed, and in commands of a shell."""
    shell: tuple[str, ...] = ()
    """Patterns of one simple command of a shell: its words, without quotes, with one space between."""
    script: tuple[str, ...] = ()
    """Patterns of all that a shell is given at once: pipes, redirections, loops."""


def words(text: str) -> tuple[str, ...]:
    """Return what stands in `text`, split at spaces."""
    return tuple(text.split())
