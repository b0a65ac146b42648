"""The budget of HTML: elements, cells of tables, depth and text, counted in what the sanitiser wrote; and our parser's.

What a person's browser bears is not modelled. Whatever multiplies is counted as often as it says (a cell by its spans,
a table as rows times columns), or the sanitiser takes it away. Each limit at its edge is drawn in about two seconds.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from ..budget import MAX_ELEMENTS, of_text
from ..combining_marks import MAX_SCRIPTS, MAX_TURNS, beyond_ascii, scripts, sought, turns

MAX_CELLS = 100_000
"""Cells of one output, each counted as often as its spans say."""
MAX_GRID = 2_000_000
"""Rows times columns of all tables of one output: a browser keeps the borders of each place, used or not."""
MAX_DEPTH = 60
"""Elements that lie in each other."""
MAX_LETTERS, MAX_BYTES = 500_000, 1_000_000
"""Characters of text of one output, and bytes of it in UTF-8."""
MAX_SOUGHT = 100_000
"""Letters of scripts without spaces: their words are looked for in a dictionary, again for each line that they fill."""
_WEIGHTS = {"audio": 50, "video": 50, "details": 4}
"""Elements that a browser builds of many others."""
_DEPTHS = {"ruby": 20}
"""Elements that are laid out several times for each that they lie in."""

MAX_ENTITIES = 200_000_000_000
"""Ampersands, hard spaces and signs whose bytes begin like a hard space's, times the characters of a source: the parser
copies a text anew for each, for a second."""
MAX_OPENED = 1_000_000
"""Angle brackets of all kinds that are looked at."""
MAX_RESULT = 60_000_000
"""Characters that a source may become: a video of 45 MB as base64, or a tenth as many quotes in a frame."""
MAX_NESTING = 10_000
"""Tags that may nest: the parser needs 0.4 s if each lies in the one before, four times as long for twice as many."""
_EMPTY = frozenset(("br", "col", "hr", "img", "source", "wbr"))
_FLAT = _EMPTY | frozenset(("caption", "colgroup", "tbody", "td", "tfoot", "th", "thead", "tr"))
NO_PART_OF_TABLES = "(?!/|t[abdhr])"
"""Behind an angle bracket, lets a search for tags go over those of tables quickly: there are thousands."""
_FORMAT = re.compile(
    rf"<{NO_PART_OF_TABLES}(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)\s[^>]{{0,200}}", re.IGNORECASE
)
"""Formats that a parser opens again in every paragraph, once for each way they are written."""
_TAG = re.compile(r"<([a-zA-Z][\w:-]{0,40})")
_WRITTEN = re.compile(r"<(/?)([a-z][a-z0-9]*)([^\">]*+(?:\"[^\"]*+\"[^\">]*+)*)>")
"""A tag as the sanitiser writes it."""
_SPAN = re.compile(r" (col|row|)span=\"([0-9]+)\"")
_GAP = re.compile(r">(?:\n {0,40}| {1,40})(?=<)")
"""What indents a tag, and is not drawn."""
_CELL = len("<td></td>")
_BLOCK = re.compile(r"<(?:p|div|td|th|li)\b", re.IGNORECASE)


class _Table:
    """The rows and columns of one table, as its tags come."""

    def __init__(self) -> None:
        self.rows = self.columns = self._covered = 0
        self._ends: dict[int, int] = {}
        """Row -> the columns whose cell has ended there."""

    def row(self) -> None:
        self.rows += 1
        self._covered -= self._ends.pop(self.rows, 0)

    def cell(self, columns: int, rows: int) -> None:
        self._covered += columns
        end = self.rows + rows
        self._ends[end] = self._ends.get(end, 0) + columns
        self.columns = max(self.columns, self._covered)


@dataclass(slots=True)
class Extent:
    """How large a document of the sanitiser's is."""

    elements: int = 0
    cells: int = 0
    grid: int = 0
    depth: int = 0
    letters: int = 0
    bytes: int = 0
    scripts: int = 0
    sought: int = 0

    @property
    def excess(self) -> str | None:
        """Say what of it is over the budget, with the limit and the value; None if nothing is."""
        for value, limit, what in (
            (self.elements, MAX_ELEMENTS, "elements"),
            (self.cells, MAX_CELLS, "cells with their spans"),
            (self.grid, MAX_GRID, "rows times columns"),
            (self.depth, MAX_DEPTH, "elements in each other"),
            (self.letters, MAX_LETTERS, "characters"),
            (self.bytes, MAX_BYTES, "bytes of text"),
            (self.scripts, MAX_SCRIPTS, "changes of script"),
            (self.sought, MAX_SOUGHT, "letters of scripts without spaces"),
        ):
            if value > limit:
                return f"{value:,} {what}, at most {limit:,}"
        return None

    @property
    def work(self) -> int:
        """Elements of a page that it counts as, by what there is most of: a full output fills a page."""
        parts = self.elements, self.cells // 2, self.grid // 50, of_text(self.letters), self.scripts, self.sought // 4
        return max(parts)


def extent(kept: str) -> Extent:
    """Return how large a document is that the sanitiser wrote. None of its texts has a tag in it."""
    kept = _GAP.sub(">", kept)
    size = Extent()
    # A row of cells without attributes is counted at once, and becomes one tag that says how many they are.
    first, *rows = kept.split("<tr")
    rest = [first]
    for row in rows:
        inner, end, after = row.partition("</tr>")
        count = inner.count("<td>") + inner.count("<th>")
        if count and end and '"' not in inner and 2 * count == inner.count("<"):  # each of them is closed, too
            rest += f"<row {count}>", after
            size.letters += len(inner) - len(">") - count * _CELL
        else:
            rest += "<tr", row
    _walk("".join(rest), size)
    size.bytes = size.letters
    if not kept.isascii():
        text = _WRITTEN.sub("", kept)
        size.bytes = len(text.encode("utf-8", "surrogatepass"))
        size.sought = sought(text)
        size.scripts = scripts(text)
    return size


def _walk(kept: str, size: Extent) -> None:
    """Add to a size what each tag says, in order, and the text between them."""
    depth = 0
    tables: list[_Table] = []
    for closing, name, attributes in _WRITTEN.findall(kept):
        if closing:
            depth -= _DEPTHS.get(name, 1)
            if name == "table" and tables:
                size.grid += tables[-1].rows * tables.pop().columns
            continue
        if name == "row":
            count = int(attributes)
            size.elements += 1 + count
            size.cells += count
            size.depth = max(size.depth, depth + 2)
            if tables:
                tables[-1].row()
                tables[-1].cell(count, 1)
            continue
        size.elements += _WEIGHTS.get(name, 1)
        if name not in _EMPTY:
            depth += _DEPTHS.get(name, 1)
            size.depth = max(size.depth, depth)
        if name == "table":
            tables.append(_Table())
        elif name == "tr" and tables:
            tables[-1].row()
        elif name in ("td", "th", "col", "colgroup"):
            spans = {what: int(often) for what, often in _SPAN.findall(attributes)} if "span" in attributes else {}
            columns, rows = spans.get("col", spans.get("", 1)), spans.get("row", 1)
            size.cells += columns * rows
            if tables and name in ("td", "th"):
                tables[-1].cell(columns, rows)
            elif tables:
                tables[-1].columns = max(tables[-1].columns, columns)
    size.letters += len(_WRITTEN.sub("", kept))


def is_crowded(source: str) -> bool:
    """Return whether there are more elements than a person's browser bears, in a frame or not."""
    if source.count("<") > MAX_ELEMENTS and len(_TAG.findall(source)) > MAX_ELEMENTS:
        return True
    return is_turning(source, source)


def is_turning(text: str, styles: str) -> bool:
    """Return whether the text of markup changes its direction more often than a browser bears.

    Each block of a page is laid out by itself, unless a style makes it no block.
    """
    if turns(text) <= MAX_TURNS:
        return False
    return "display" in styles.lower() or any(turns(block) > MAX_TURNS for block in _BLOCK.split(text))


def _count_signs(source: str) -> int:
    return sum(piece.encode("utf-8", "surrogatepass").count(b"\xc2") for piece in beyond_ascii(source))


def is_costly(source: str) -> bool:
    """Return whether parsing could take long, or make much of little: elements that nest, formats that are repeated."""
    opened = source.count("<")
    # What is not markup becomes entities of up to six characters.
    longer = 3 * (opened + source.count(">")) + 4 * source.count("&") + 5 * (source.count('"') + source.count("\xa0"))
    if len(source) + longer > MAX_RESULT or opened > MAX_OPENED:
        return True
    if (source.count("&") + 4 * _count_signs(source)) * len(source) > MAX_ENTITIES:
        return True
    if opened <= MAX_NESTING // 100:
        return False
    if opened - source.count("</") <= MAX_NESTING and not _FORMAT.search(source):
        return False
    tags = Counter(_TAG.findall(source))
    nesting = sum(count for tag, count in tags.items() if tag.lower() not in _FLAT)
    formats = len(set(_FORMAT.findall(source)))
    return nesting > MAX_NESTING or formats * tags.total() > 10 * MAX_NESTING
