r"""Text that is slow to lay out: a letter under thousands of marks, thousands of changes of direction, endless words.

A browser's time grows with the square of each: 80,000 accents on one letter, 200,000 Latin letters between as many
Hebrew ones, or 500,000 Thai letters without a space keep a tab busy for half a minute and more. Pure, imports nothing
of this package.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

MAX_MARKS = 64
"""Marks in a row that are kept. No script needs ten; Unicode's own bound for streams is thirty."""
MAX_TURNS = 20_000
"""Runs of letters from right to left in one cell, or one output: a second of a browser's time."""

MAX_WORD = 1_000
"""Letters without a space of a script whose words are found in a dictionary: Thai, Lao, Khmer, Burmese and their like.
For 80,000 of them a browser needs 4 s, in a table twice as long, and for twice as many four times as long."""
MAX_HIDDEN = 20_000
"""Such letters in an output with styles, which may hide the spaces between them: 2 s of a browser's time in a table."""
BREAK = "\u200b"
"""Where a line may break. It has no width."""

_SIGNS = r"\u2010-\u2027\u2030-\u205e\u20a0-\u20cf\u2100-\u2bff\u3000-\u3029\u3030-\u303f\uff00-\uffef"
_MARK = rf"[^\w\x00-\x7f\xa0-\xff{_SIGNS}]"
"""What may be a mark: no letter, and none of the signs that stand in rows in tables and drawings."""
_COLOUR = r"\x1b\[[0-9;:]{0,64}[mK]"
_ROW = re.compile(rf"(?:{_MARK}(?:{_COLOUR})*+){{{MAX_MARKS + 1},}}+")
_PARTS = re.compile(rf"{_COLOUR}|.", re.DOTALL)
_LEFTWARD = re.compile(
    r"[\u0590-\u08ff\u200f\u202b\u202e\u2067\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]+"
)
_SOUGHT = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\ua9e0-\ua9ff\uaa60-\uaadf"
    r"\U00011700-\U0001174f"
)
"""The blocks of letters that Unicode calls "complex context": where their words end, no rule says."""
_SOUGHT_LETTER = re.compile(f"[{_SOUGHT}]")
_SPACES = f" \t\n\r\f{BREAK}"
_SOUGHT_OR_SPACE = re.compile(rf"[{_SPACES}]|[{_SOUGHT}]{{1,{MAX_WORD}}}+")
_COLOURS, _MARKS = re.compile(_COLOUR), re.compile(_MARK)


_PIECE = 1 << 16
_ASCII = bytes(range(0x80))


def beyond_ascii(text: str) -> Iterator[str]:
    """Yield all that is not ASCII, piece by piece: much less to look at in a table, and joined as it never was."""
    if text.isascii():
        return
    for start in range(0, len(text), _PIECE):
        piece = text[start : start + _PIECE]
        if not piece.isascii():
            yield piece.encode("utf-8", "surrogatepass").translate(None, _ASCII).decode("utf-8", "surrogatepass")


def lighter(text: str) -> str:
    """Return text in which no letter has more than `MAX_MARKS` marks; the very same text if none has."""
    if not any(map(_MARKS.search, beyond_ascii(text))) or _ROW.search(text) is None:
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
    if not any(map(_LEFTWARD.search, beyond_ascii(text))):
        return 0
    return sum(1 for _ in _LEFTWARD.finditer(text))


def before_turn(text: str, most: int = MAX_TURNS) -> int:
    """Return how much of a text goes by with `most` such runs."""
    if not text.isascii():
        for run in _LEFTWARD.finditer(text):
            if most <= 0:
                return run.start()
            most -= 1
    return len(text)


class Words:
    """Parts endless words, over pieces of text that a front end joins."""

    def __init__(self) -> None:
        self._letters = 0
        """Letters of such scripts since the last space."""

    def feed(self, text: str) -> str:
        """Return the text with a place to break after each `MAX_WORD` letters; the very same text if it needs none."""
        if not any(map(_SOUGHT_LETTER.search, beyond_ascii(text))):
            if self._letters and any(space in text for space in _SPACES):
                self._letters = 0
            return text
        parts: list[str] = []
        position = 0
        for found in _SOUGHT_OR_SPACE.finditer(text):
            if found[0] in _SPACES:
                self._letters = 0
                continue
            start, end = found.span()
            while self._letters + end - start > MAX_WORD:
                start += MAX_WORD - self._letters
                parts += text[position:start], BREAK
                position, self._letters = start, 0
            self._letters += end - start
        return "".join((*parts, text[position:])) if parts else text


def sought(text: str) -> int:
    """Return how many letters of scripts without spaces are in a text."""
    return sum(len(_SOUGHT_LETTER.findall(piece)) for piece in beyond_ascii(text))


def parted(text: str) -> str:
    """Return a text by itself, without markup, in which no word of such a script is endless."""
    return text if text.isascii() else Words().feed(text)


def parted_pieces(pieces: list[str], *, styled: bool) -> int:
    """Part endless words in what is between tags: every second piece. Tags end no word.

    With styles, what is between two pieces may be hidden or elsewhere, and a space in it part nothing. So each piece
    begins a word where there are many letters. Returns the microseconds of a browser's that fewer may come to then.
    """
    letters = sum(map(sought, pieces[::2]))
    if letters <= MAX_WORD:
        return 0
    each = styled and letters > MAX_HIDDEN
    words = Words()
    for place in range(0, len(pieces), 2):
        piece = pieces[place]
        if each and _SOUGHT_LETTER.search(piece):
            words = Words()
            piece = piece if piece.startswith(BREAK) else BREAK + piece
        pieces[place] = words.feed(piece)
    return letters * letters // 200 if styled and not each else 0


def bounded(text: str) -> str:
    """Return a text by itself as a page can lay it out at once."""
    text = parted(lighter(text))
    return text if (end := before_turn(text)) == len(text) else text[:end]


def _has_marks(text: str) -> bool:
    return any(unicodedata.combining(one) for piece in beyond_ascii(text) for one in set(_MARKS.findall(piece)))


class Lines:
    """The marks of a stream, whose messages a front end joins."""

    def __init__(self) -> None:
        self._end = ""
        """The end of what came, as far as marks may follow it."""
        self._words = Words()
        self._marked = False
        """Whether the line has a mark: whoever steps back over letters then could bring two rows of marks together."""

    def feed(self, text: str) -> str:
        """Return what follows the text that was fed before."""
        return self._words.feed(self._lighter(text))

    def _lighter(self, text: str) -> str:
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
