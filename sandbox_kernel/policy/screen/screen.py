"""The screen of one session: cells in their order, what each leaves for the next, and what was read before.

Pure: no I/O and no clock. The same cell after the same cells is found among those that were read.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import NamedTuple

from .book import Book, usual
from .desk import State
from .finding import Screened
from .notes import Notes
from .reader import Reader
from .value import Value

MOST_KEPT = 512
MOST_KEPT_CHARACTERS = 20_000
"""Of a cell whose findings are kept."""
_ALLOWS = re.compile(
    r"#\s*sandbox:\s*allow\s+([a-z0-9-]+(?:\s*,\s*[a-z0-9-]+)*)\s+(?:—|–|--|-)\s*(\S[^\n]{0,200})",  # noqa: RUF001 (people's dashes)
)


class _Kept(NamedTuple):
    """What came of a cell: its findings, what it asked of earlier cells, and what it leaves for later ones."""

    screened: Screened
    reads: dict[str, Value | None]
    names: dict[str, Value]


class Screen:
    """Screens the cells of a session, or of a notebook, one after another."""

    def __init__(self, book: Book | None = None, *, overrides: bool = True) -> None:
        """`overrides`: whether a comment in a cell may allow what was found in it."""
        self._book = book or usual()
        self._overrides = overrides
        self._state = State()
        self._kept: OrderedDict[int, _Kept] = OrderedDict()

    def forget(self) -> None:
        """Forget the names of the cells that ran: another kernel has none of them."""
        self._state = State()

    def look(self, code: str, expressions: tuple[str, ...] = (), *, runs: bool = True) -> Screened:
        """Return what is found in a cell and in the expressions that come with it.

        With `runs`, the next cell is read with what this one leaves; call `ran` otherwise, once it is known.
        """
        found = self._look(code)
        if runs:
            self._state.learn(found.names)
        findings = {one.code: one for one in found.screened.findings}
        for expression in expressions:
            for one in self._look(expression).screened.findings:
                findings.setdefault(one.code, one)
        whole = Screened(tuple(findings.values()))
        return whole.allowing(allowed(code)) if self._overrides else whole

    def ran(self, code: str) -> None:
        """Note that a cell which was looked at runs now."""
        self._state.learn(self._look(code).names)

    def _look(self, code: str) -> _Kept:
        key = hash(code)
        kept = self._kept.get(key)
        if kept is not None and all(self._state.names.get(name) == value for name, value in kept.reads.items()):
            self._kept.move_to_end(key)
            return kept
        reader = Reader(Notes(self._book), self._state)
        screened = reader.read(code, frozenset(self._state.names))
        found = _Kept(screened, reader.reads, reader.names)
        if len(code) <= MOST_KEPT_CHARACTERS:
            self._kept[key] = found
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return found


def allowed(code: str) -> dict[str, str]:
    """Return what comments in a cell allow: the reason for each code."""
    if "sandbox:" not in code:
        return {}
    return {one.strip(): match[2].strip() for match in _ALLOWS.finditer(code) for one in match[1].split(",")}
