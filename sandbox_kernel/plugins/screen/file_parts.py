"""The code of a file in parts that are read as cells: a script, the parts of a script, the cells of a notebook.

Public: docs/screen.md shows `screened`.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ...core.codes import UsageCode
from ...core.errors import ConfigurationError
from ...core.screen_findings import Screened
from ...files.host_paths import fetch
from .screen import CellScreen

if TYPE_CHECKING:
    from .judges import Judges

_TEXT = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_MARKER = re.compile(r"^#\s*%%(?!%).*$", re.MULTILINE)


class FilePart(NamedTuple):
    """A piece of a file that is read as one cell."""

    code: str
    cell: int | None
    lines: tuple[int, ...]
    """The line of the file for each line of the code; the last one goes on."""
    columns: bool = True
    """Whether its columns are those of the file; a notebook is JSON."""

    def line(self, line: int) -> int:
        """Return the line of the file for a line of the code."""
        last = len(self.lines)
        return self.lines[line - 1] if line <= last else self.lines[-1] + line - last


class ReadPart(NamedTuple):
    """One part, and what was found in it."""

    file: str
    part: FilePart
    screened: Screened


def screened(
    name: str, text: str | None = None, *, screen: CellScreen | None = None, judges: Judges | None = None
) -> list[ReadPart]:
    """Return what is found in a file: of a notebook, in each of its code cells. Nothing of it is run.

    Args:
        name: Its path, which says whether it is a notebook, a script of a shell or Python; "-" is stdin.
        text: What stands in it, if it is not to be read.
        screen: With the names of earlier cells, or other rules.
        judges: Who else is asked about each part; that takes as long as they do.

    Raises:
        ConfigurationError: It cannot be read, or it is not a proper notebook.
    """
    screen = screen or CellScreen()
    if text is None:
        text = fetch(name).decode(errors="replace")
    if name.endswith((".sh", ".bash")):
        read = [ReadPart(name, FilePart(text, None, (1,)), screen.look(f"%%bash\n{text}").without_first(1))]
    else:
        read = [ReadPart(name, part, screen.look(part.code)) for part in _parts(name, text)]
    if judges is None:
        return read

    def judged(one: ReadPart) -> ReadPart:
        opinions = judges.opinions(one.part.code, one.screened)
        return one._replace(screened=screen.with_opinions(one.part.code, one.screened, opinions))

    return list(map(judged, read))


def _parts(name: str, text: str) -> Iterator[FilePart]:
    if name.endswith(".ipynb") or (name == "-" and text.lstrip().startswith("{") and '"cells"' in text):
        yield from _of_notebook(name, text)
    else:
        yield from _of_script(text)


def _of_script(text: str) -> Iterator[FilePart]:
    starts = [match.start() for match in _MARKER.finditer(text)]
    if not starts:
        yield FilePart(text, None, (1,))
        return
    edges = [0, *starts, len(text)]
    for number, (start, end) in enumerate(pairwise(edges)):
        if text[start:end].strip():
            yield FilePart(text[start:end], max(number, 1), (text.count("\n", 0, start) + 1,))


def _of_notebook(name: str, text: str) -> Iterator[FilePart]:
    try:
        book = json.loads(text)
        cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
        sources = [[cell["source"]] if isinstance(cell["source"], str) else [*cell["source"]] for cell in cells]
        codes = ["".join(pieces) for pieces in sources]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigurationError(UsageCode.NOT_A_NOTEBOOK, f"{name} is not a proper notebook") from None
    places = _lines_of_texts(text, {piece for pieces in sources for piece in pieces})
    line = 1
    for number, (pieces, code) in enumerate(zip(sources, codes, strict=True), 1):
        lines, begins = list[int](), True
        for piece in pieces:
            there = places.get(piece, [])
            # The first one that does not lie before what was found last; a text may stand in outputs as well.
            line = there[at] if (at := bisect_left(there, line)) < len(there) else line
            lines += [line] * (piece[:-1].count("\n") + begins)
            begins = piece.endswith("\n")
        # A lone half of a pair may stand in JSON, and in no text that is written again.
        yield FilePart(code.encode(errors="replace").decode(), number, tuple(lines or [line]), columns=False)


def _lines_of_texts(text: str, wanted: set[str]) -> dict[str, list[int]]:
    """Return the lines on which texts stand in JSON, however they are written there, in one walk."""
    found: dict[str, list[int]] = {}
    line, before = 1, 0
    for match in _TEXT.finditer(text):
        line += text.count("\n", before, match.start())
        before = match.start()
        if (value := json.loads(match[0]) if "\\" in match[0] else match[0][1:-1]) in wanted:
            found.setdefault(value, []).append(line)
    return found
