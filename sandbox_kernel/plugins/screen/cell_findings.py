"""The findings of one cell while it is read: each code once, at its first line; and the texts to search at the end."""

from __future__ import annotations

import re
from bisect import bisect_right

from ...core.screen_findings import Finding, Screened
from .codes import ScreenCode
from .rule_index import RuleIndex, RuleRow

MAX_DETAIL = 120
MAX_SEARCHED = 1 << 16
"""Characters of texts that are searched for one cell."""
MAX_LINE = 2000
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
        self._found: dict[str, Finding] = {}
        self._texts: list[str] = []
        self._starts: list[int] = []
        self._lines: list[int] = []
        self._size = 0

    def add(self, code: ScreenCode, line: int, detail: str = "") -> None:
        """Note a finding, unless its rule is switched off."""
        row = self.index.rows.get(code.code)
        if row is not None:
            self.row(row, line, detail)

    def row(self, row: RuleRow, line: int, detail: str = "") -> None:
        known = self._found.get(row.code)
        if known is None or line < known.line:
            self._found[row.code] = Finding(
                row.code, row.family, row.weight, max(line, 1), row.reason, row.remedy, _cut(detail), row.cwe
            )

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
        self._lines.append(line)
        self._size += len(short) + len(_BETWEEN)

    def done(self) -> Screened:
        """Search the texts, each pattern once through all of them, and return all findings."""
        whole = _BETWEEN.join(self._texts)
        for pattern, row in self.index.text if whole else ():
            if row.code not in self._found and (match := pattern.search(whole)) is not None:
                number = bisect_right(self._starts, match.start()) - 1
                inside = self._texts[number].count("\n", 0, match.start() - self._starts[number])
                self.row(row, self._lines[number] + inside, match[0].strip(_BETWEEN))
        return Screened(tuple(sorted(self._found.values(), key=lambda one: (one.line, -one.weight, one.code))))


def _cut(text: str) -> str:
    text = " ".join("".join(sign if sign.isprintable() else " " for sign in text[: MAX_DETAIL * 4]).split())
    return text if len(text) <= MAX_DETAIL else text[: MAX_DETAIL - 1] + "…"
