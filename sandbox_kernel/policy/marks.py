r"""Text that is slow to lay out: a letter under thousands of marks, and thousands of changes of direction.

A browser's time grows with the square of both: 80,000 accents on one letter, or 200,000 Latin letters between as many
Hebrew ones, keep a tab busy for half a minute and more. Pure, imports nothing of this package.
"""

from __future__ import annotations

import re
import unicodedata

MAX_MARKS = 64
"""Marks in a row that are kept. No script needs ten; Unicode's own bound for streams is thirty."""
MAX_TURNS = 20_000
"""Runs of letters from right to left in one cell, or one output: a second of a browser's time."""

_SIGNS = r"\u2010-\u2027\u2030-\u205e\u20a0-\u20cf\u2100-\u2bff\u3000-\u3029\u3030-\u303f\uff00-\uffef"
_MARK = rf"[^\w\x00-\x7f\xa0-\xff{_SIGNS}]"
"""What may be a mark: no letter, and none of the signs that stand in rows in tables and drawings."""
_COLOUR = r"\x1b\[[0-9;:]{0,64}[mK]"
_ROW = re.compile(rf"(?:{_MARK}(?:{_COLOUR})*+){{{MAX_MARKS + 1},}}+")
_PARTS = re.compile(rf"{_COLOUR}|.", re.DOTALL)
_LEFTWARD = re.compile(
    r"[\u0590-\u08ff\u200f\u202b\u202e\u2067\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]+"
)
_COLOURS, _MARKS = re.compile(_COLOUR), re.compile(_MARK)


def lighter(text: str) -> str:
    """Return text in which no letter has more than `MAX_MARKS` marks; the very same text if none has."""
    if text.isascii() or _ROW.search(text) is None:
        return text
    return _ROW.sub(_few, text)


def _few(row: re.Match[str]) -> str:
    kept, marks = [], 0
    for part in _PARTS.findall(row[0]):
        if len(part) == 1:
            marks = marks + 1 if unicodedata.category(part)[0] == "M" else 0
        if marks <= MAX_MARKS or len(part) > 1:
            kept.append(part)
    return "".join(kept)


def turns(text: str) -> int:
    """Return how many runs of letters from right to left are in a text."""
    return 0 if text.isascii() else sum(1 for _ in _LEFTWARD.finditer(text))


def before_turn(text: str, most: int = MAX_TURNS) -> int:
    """Return how much of a text goes by with `most` such runs."""
    if not text.isascii():
        for run in _LEFTWARD.finditer(text):
            if most <= 0:
                return run.start()
            most -= 1
    return len(text)


def bounded(text: str) -> str:
    """Return a text by itself as a page can lay it out at once."""
    text = lighter(text)
    return text if (end := before_turn(text)) == len(text) else text[:end]


def _has_marks(text: str) -> bool:
    return any(unicodedata.combining(one) for one in _MARKS.findall(text))


class Lines:
    """The marks of a stream, whose messages a front end joins."""

    def __init__(self) -> None:
        self._end = ""
        """The end of what came, as far as marks may follow it."""
        self._marked = False
        """Whether the line has a mark: whoever steps back over letters then could bring two rows of marks together."""

    def feed(self, text: str) -> str:
        """Return what follows the text that was fed before."""
        if text.isascii() and not self._marked:
            return text
        marked = self._marked or _has_marks(text)
        if marked and "\b" in text:
            text = text.replace("\b", "")
        shown = lighter(self._end + text)[len(self._end) :]
        _, end, line = shown.rpartition("\n")
        self._marked = marked and (not end or _has_marks(line))
        self._end = (("" if end else self._end) + _COLOURS.sub("", line))[-4 * MAX_MARKS :] if self._marked else ""
        return shown
