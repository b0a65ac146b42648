"""The findings of one cell while it is read: each code once, with its places; and the texts to search at the end."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from dataclasses import replace
from itertools import islice

from ...core.screen_findings import Finding, Place, Screened
from .codes import ScreenCode
from .rule_index import RuleIndex, RuleRow

MAX_DETAIL = 120
MAX_SEARCHED = 1 << 16
"""Characters of texts that are searched for one cell."""
MAX_LINE = 2000
MAX_PLACES = 50
"""Of one code in one cell. It counts once, however many it has."""
MAX_LINES = 100
"""Of one place. Of what is longer, the first line is shown."""
_ENDS = re.compile(r"\r\n?|\n")
_BETWEEN = "\n\x1f"
"""Stands between two texts that are searched at once."""
_WORD = re.compile(r"([\w+/=-]{160})[\w+/=-]+")
_SPACES = re.compile(r"[ \t]{3,}")


def squeezed(text: str) -> tuple[str, bool]:
    """Return a text without the middle of what is endlessly long in it, and whether more than that was left out.

    So no pattern has much to go back and forth in, whatever a cell holds.
    """
    if len(text) < MAX_LINE and "   " not in text:
        return text, False
    text = _SPACES.sub("  ", _WORD.sub(r"\1", text))
    if len(text) <= MAX_LINE:
        return text, False
    lines = text.split("\n")
    cut = any(len(line) > MAX_LINE for line in lines)
    return ("\n".join(line[:MAX_LINE] for line in lines) if cut else text), cut


class CellFindings:
    """The findings of one cell while it is read."""

    def __init__(self, index: RuleIndex) -> None:
        self.index = index
        self.node: ast.expr | ast.stmt | None = None
        """What is read now."""
        self.exact: frozenset[int] = frozenset()
        """The lines of the cell that were parsed as they stand there: columns of a node are the cell's."""
        self._code: list[str] = []
        self._found: dict[str, Finding] = {}
        self._places: dict[str, set[Place]] = {}
        self._texts: list[str] = []
        self._starts: list[int] = []
        self._origins: list[tuple[int, ast.expr | ast.stmt | None, frozenset[int]]] = []
        self._size = 0

    def begin(self, code: str) -> None:
        """Take the code of the cell."""
        self._code = _ENDS.split(code)

    def parsed(self, code: str, first: int = 1) -> None:
        """Take note of the code that nodes are of from now on, and of the line of the cell where it begins."""
        lines = zip(_ENDS.split(code), self._code[first - 1 :], strict=False)
        self.exact = frozenset(number for number, (one, other) in enumerate(lines, first) if one == other)

    def add(self, code: ScreenCode, line: int, detail: str = "") -> None:
        """Note a finding, unless its rule is switched off."""
        row = self.index.rows.get(code.code)
        if row is not None:
            self.row(row, line, detail)

    def row(self, row: RuleRow, line: int, detail: str = "") -> None:
        line = max(line, 1)
        known, places = self._found.get(row.code), self._places.setdefault(row.code, set())
        if known is None or line < known.line:
            self._found[row.code] = Finding(
                row.code, row.family, row.weight, line, row.reason, row.remedy, printable_line(detail), row.cwe
            )
        elif len(places) >= MAX_PLACES:
            return
        places.add(self._place(line))

    def _place(self, line: int) -> Place:
        """Return the place of what is read, or all of `line` where its columns are not known."""
        node, end = self.node, 0
        if node is not None and node.lineno == line and not hasattr(node, "body"):
            end = node.end_lineno or line
        if node is not None and line <= end < line + MAX_LINES and self.exact.issuperset(range(line, end + 1)):
            return Place(line, self._column(line, node.col_offset), end, self._column(end, node.end_col_offset or 0))
        text = self._code[line - 1] if line <= len(self._code) else ""
        begin = len(text) - len(text.lstrip())
        return Place(line, begin + 1, line, max(len(text.rstrip()), begin) + 1)

    def _column(self, line: int, offset: int) -> int:
        """Return the number of the character at an offset, which the parser counts in bytes."""
        text = self._code[line - 1]
        return (offset if text.isascii() else len(text.encode(errors="replace")[:offset].decode(errors="ignore"))) + 1

    def text(self, text: str, line: int) -> None:
        """Have a text searched at the end."""
        room = MAX_SEARCHED - self._size
        if len(text) < 3:
            return
        if room <= 0:
            self.add(ScreenCode.CELL_UNPARSED, line)
            return
        short, cut = squeezed(text[: MAX_SEARCHED * 4])
        if cut or len(short) > room:
            self.add(ScreenCode.CELL_UNPARSED, line)
            short = short[:room]
        self._texts.append(short)
        self._starts.append(self._size)
        self._origins.append((line, self.node, self.exact))
        self._size += len(short) + len(_BETWEEN)

    def done(self) -> Screened:
        """Search the texts, each pattern once through all of them, and return all findings."""
        whole = _BETWEEN.join(self._texts)
        for pattern, row in self.index.text if whole else ():
            for match in islice(pattern.finditer(whole), MAX_PLACES):
                number = bisect_right(self._starts, match.start()) - 1
                inside = self._texts[number].count("\n", 0, match.start() - self._starts[number])
                line, self.node, self.exact = self._origins[number]
                self.row(row, line + inside, match[0].strip(_BETWEEN))
        found = [replace(one, places=tuple(self._places[code])) for code, one in self._found.items()]
        found = [replace(one, places=tuple(place for place, _ in Screened((one,)).by_place())) for one in found]
        return Screened(tuple(sorted(found, key=lambda one: (one.line, -one.weight, one.code))))


def printable_line(text: str, most: int = MAX_DETAIL) -> str:
    """Return the beginning of a text of others as one line that reads as it is written."""
    text = " ".join("".join(sign if sign.isprintable() else " " for sign in text[: most * 4]).split())
    return text if len(text) <= most else text[: most - 1] + "…"
