r"""Text that is slow to lay out: letters under thousands of marks, thousands of changes of direction, endless words.

A browser's time grows with the square of each: 80,000 accents on one letter, 200,000 Latin letters between as many
Hebrew ones, or 500,000 Thai letters without a space keep a tab busy for half a minute and more. Pure, imports nothing
of this package.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

MAX_MARKS = 64
"""Marks that a text may have beyond those of its letters."""
MARKS_OF_A_LETTER = 4
"""Marks that each visible letter, sign or space allows. Hebrew with cantillation and Tibetan stacks need three."""
MAX_OVERWRITTEN = 8
"""The same as `MAX_MARKS` in a line that a carriage return overwrites: a front end joins what is left of its parts."""
MAX_TURNS = 20_000
"""Runs of letters from right to left in one cell, or one output: a second of a browser's time."""
MAX_SCRIPTS = 50_000
"""Runs of letters of one script in one cell, or one output: for each, a browser looks for a font."""

MAX_WORD = 1_000
"""Letters without a space of a script whose words are found in a dictionary: Thai, Lao, Khmer, Burmese and their like.
For 80,000 of them a browser needs 4 s, in a table twice as long, and for twice as many four times as long."""
MAX_HIDDEN = 20_000
"""Such letters in an output with styles, which may hide the spaces between them: 2 s of a browser's time in a table."""
BREAK = "\u200b"
"""Where a line may break. It has no width."""

_SIGNS = r"\u2010-\u2027\u2030-\u205e\u20a0-\u20cf\u2100-\u2bff\u3000-\u3029\u3030-\u303f\uff00-\uff9f"
_INVISIBLE = "\u115f\u1160\u3164\uffa0"
"""Letters that are never drawn."""
_MODIFIERS = range(0x1F3FB, 0x1F400)
"""Colours of skin: 80,000 behind one another keep a tab busy for half a minute, as accents do."""
_MARK = re.compile(rf"[^\w\x00-\x7f\xa0-\xff{_SIGNS}]|[{_INVISIBLE}]")
"""What may be a mark: no letter, and none of the signs that stand in rows in tables and drawings."""
_MOVES = re.compile(rf"[^\w\x00-\x7f\xa0-\xff{_SIGNS}\u200b-\u200f\u2060-\u2064]|[\b\r\n\x1b]")
"""What may be a mark, or a control. Format characters, which we write into formulas ourselves, are neither."""
_COLOUR = re.compile(r"(\x1b\[[0-9;:]{0,64}[mK])")
_NO_LETTER = re.compile(r"[^bi]")
_LEFTWARD = re.compile(
    r"[\u0590-\u08ff\u200f\u202b\u202e\u2067\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]+"
)
_COMMON = re.compile(r"[\x00-@\[-`{-\xbf\u0300-\u036f\u2000-\u206f\u3000-\u303f]+")
"""What is drawn in whatever font is around it."""
_SCRIPT = re.compile(
    r"[\u0250-\u058f\u1f00-\u1fff]++|[\u0590-\u08ff\ufb1d-\ufeff]++|[\u0900-\u0dff]++|[\u0e00-\u10ff]++|[\u1100-\u11ff\u2e80-\u9fff"
    r"\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef]++|[\u1200-\u1dff]++|[\u2070-\u2e7f]++|[\ua000-\ua95f\ua980-\uabff]++"
    r"|[\ue000-\uf8ff]++|[\U00010000-\U0010ffff]++"
)
"""Letters of one font, about, but for Latin ones: between two runs of those is another one."""
_SOUGHT = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\ua9e0-\ua9ff\uaa60-\uaadf"
    r"\U00011700-\U0001174f"
)
"""The blocks of letters that Unicode calls "complex context": where their words end, no rule says."""
_SOUGHT_LETTER = re.compile(f"[{_SOUGHT}]")
_SPACES = f" \t\n\r\f{BREAK}"
_SOUGHT_OR_SPACE = re.compile(rf"[{_SPACES}]|[{_SOUGHT}]{{1,{MAX_WORD}}}+")

_PIECE = 1 << 16
_ASCII = bytes(range(0x80))


class _Kinds(dict[int, str]):
    """Characters by what they do to a row of marks: `m` adds to it, `b` ends it, `i` neither, controls are themselves.

    Only what is known to be drawn ends a row. So whatever is invisible, unassigned or new adds nothing to the marks
    that a text may have, without a list of such characters.
    """

    def __missing__(self, code: int) -> str:
        one = chr(code)
        kind = unicodedata.category(one)
        if kind[0] == "M" or code in _MODIFIERS:
            self[code] = "m"
        elif kind[0] in "LNPSZ" or kind == "Co":
            self[code] = "i" if one in _INVISIBLE else "b"
        else:
            self[code] = one if one in "\b\r\n\x1b" else "i"
        return self[code]


_KINDS = _Kinds()


class Marks:
    """Removes excess marks from a text, over pieces that a front end joins.

    The bound is a ratio and no look at what lies between two marks: each drawn character allows a few, and a text as
    a whole `MAX_MARKS` more. So nothing that is put between marks, drawn or not, makes a row of them longer.
    """

    def __init__(self) -> None:
        self._left = self._most = MAX_MARKS

    def feed(self, text: str) -> str:
        """Return what follows the text that was fed before, colours of a terminal aside."""
        if self._left == MAX_MARKS and not any(move in text for move in "\b\r\x1b") and not has_marks(text):
            return text
        if "\x1b" not in text:
            return self._fewer(text)
        return "".join(part if place % 2 else self._fewer(part) for place, part in enumerate(_COLOUR.split(text)))

    def feed_apart(self, text: str) -> str:
        """Return the same for the text of one element. It may be hidden, and then allows nothing to what follows."""
        before = self._left
        kept = self.feed(text)
        self._left = min(self._left, before)
        return kept

    def _fewer(self, text: str) -> str:
        if _MOVES.search(text) is None:
            for start in range(0, len(text), _PIECE):
                if self._left == self._most:
                    break
                self._allow(text[start : start + _PIECE].translate(_KINDS).count("b"))
            return text
        kinds = text.translate(_KINDS)
        parts: list[str] = []
        start = end = 0
        for found in _NO_LETTER.finditer(kinds):
            place, kind = found.start(), found[0]
            self._allow(kinds.count("b", end, place))
            end = place + 1
            if kind == "m":
                if self._left <= 0:
                    parts.append(text[start:place])
                    start = end
                self._left = max(0, self._left - 1)
            elif kind == "\b":  # the letter before it is gone
                self._left = max(0, self._left - MARKS_OF_A_LETTER)
            else:  # the end of a line, its beginning, or a cursor that moves elsewhere
                self._most = MAX_MARKS if kind == "\n" else MAX_OVERWRITTEN
                self._left = min(self._left, self._most)
        self._allow(kinds.count("b", end))
        return "".join((*parts, text[start:])) if parts else text

    def _allow(self, letters: int) -> None:
        self._left = min(self._most, self._left + MARKS_OF_A_LETTER * letters)


def has_marks(text: str) -> bool:
    """Return whether there may be a mark, or a letter that is not drawn."""
    return any(map(_MARK.search, beyond_ascii(text)))


def beyond_ascii(text: str) -> Iterator[str]:
    """Yield all that is not ASCII, piece by piece: much less to look at in a table, and joined as it never was."""
    if text.isascii():
        return
    for start in range(0, len(text), _PIECE):
        piece = text[start : start + _PIECE]
        if not piece.isascii():
            yield piece.encode("utf-8", "surrogatepass").translate(None, _ASCII).decode("utf-8", "surrogatepass")


def lighter(text: str) -> str:
    """Return a text by itself with no more marks than its letters bear; the very same text if it has none."""
    return text if text.isascii() else Marks().feed(text)


def scripts(text: str) -> int:
    """Return how many runs of letters of one script are in a text, Latin ones aside."""
    return 0 if text.isascii() else len(_SCRIPT.findall(_COMMON.sub("", text)))


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


_LINK = re.compile(r"(?:://|data:|www\.)(?=\S)")
_PATH = re.compile(r"(?:/[\w.-]*)+")
LINK = 5
"""Changes of colour that count as much as a link: each is an element, which costs less."""
LONGEST_SIGN = 5
"""Characters of the longest sign of a link."""


def made_of(text: str, *, paths: bool = False) -> int:
    """Return how many elements front ends make of a text: its changes of colour, and `LINK` for each link.

    In an error, `paths`, the places of files are links too.
    """
    colours = text.count("\x1b")
    links = len(_LINK.findall(text)) if ":" in text or "www." in text else 0
    return colours + LINK * (links + (len(_PATH.findall(text)) if paths and "/" in text else 0))


class EndlessWords:
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
    return text if text.isascii() else EndlessWords().feed(text)


def quicken(pieces: list[str], *, styled: bool) -> int:
    """Bound marks and words in what is between tags: every second piece. Tags end no word, and no row of marks.

    With styles, what is between two pieces may be hidden or elsewhere, and a space in it parts nothing. So each piece
    begins a word where there are many letters. Returns how many letters may be in one word all the same.
    """
    marks, words = Marks(), EndlessWords()
    letters = sum(map(sought, pieces[::2]))
    each = styled and letters > MAX_HIDDEN
    for place in range(0, len(pieces), 2):
        piece = pieces[place]
        if each and _SOUGHT_LETTER.search(piece):
            words = EndlessWords()
            piece = piece if piece.startswith(BREAK) else BREAK + piece
        pieces[place] = words.feed(marks.feed_apart(piece))
    return letters if styled and letters > MAX_WORD and not each else 0


def bounded(text: str) -> str:
    """Return a text by itself as a page can lay it out at once."""
    text = parted(lighter(text))
    if scripts(text) > MAX_SCRIPTS:
        text = text[:MAX_SCRIPTS]
    return text if (end := before_turn(text)) == len(text) else text[:end]
