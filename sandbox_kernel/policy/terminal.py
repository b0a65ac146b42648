r"""Text for a terminal without the power to do anything but show text in colours.

What may pass: printable text, tab, newline, carriage return and backspace, colours (SGR), erasing the current line
(EL), and the cursor moving up over lines that the same cell has printed (nested tqdm bars). Everything else goes:
titles, the clipboard (OSC 52), links (OSC 8), device control strings, other cursor moves, C1 controls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .slow_text import EndlessWords, Marks, lighter, parted

_COLOURS = (
    r"(?=[0-9;:]{0,64}m)(?:(?:0*[34]8;0*(?:5;[0-9]+|2;[0-9]*;[0-9]*;[0-9]*)|(?!0*[34]8[;m])[0-9:]*)(?:;|(?=m)))*m"
)
"""Colours by number, and those of the large palettes with all that these need: nbconvert fails at half a one."""
_KEPT = rf"\x1b\[(?:{_COLOURS}|[0-2]?K)"
_ESCAPE = re.compile(
    rf"(?P<keep>{_KEPT})"
    r"|\x1b\[(?P<up>[0-9]{0,3})A"
    r"|\x1b\[[0-?]{0,256}[ -/]{0,16}[@-~]"  # other control sequences
    r"|\x1b[\]PX^_][^\x07\x1b\x9c\n]{0,4096}(?:\x07|\x1b\\|\x9c)"  # OSC, DCS, SOS, PM, APC: to the terminator
    r"|\x1b[\]PX^_]"  # ... or, if there is none, only the introducer: the rest is harmless text
    r"|\x1b[ -/]{0,16}[0-~]"
    r"|[\x00-\x07\x0b-\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]"
)
_KEEP = re.compile(_KEPT)
_CUT = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,4})?\Z")
"""A control sequence that the end of a message cuts in two."""
_SUSPECT = re.compile(r"[\x00-\x07\x0b-\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_CONTROLS = bytes(c for c in range(0x20) if c not in b"\b\t\n\r") + b"\x7f"
PIECE = 1 << 16
"""Characters looked at in one step."""
MAX_OVER = 1_000
"""Cells that ended, or wait for others, in the middle of a line: one that is drawn over, or one with marks."""
CROWDED = 4096
"""Characters from which on it counts how many controls there are."""


def is_plain(text: str) -> bool:
    """Return whether there is nothing to remove. Runs at memory speed: this is every line ever printed."""
    if len(text) > PIECE:
        # Piece by piece: a text of 90 MB is not copied twice, and a piece stays in the processor's cache.
        return all(is_plain(text[start : start + PIECE]) for start in range(0, len(text), PIECE))
    try:
        raw = text.encode()
    except UnicodeEncodeError:  # half of a pair
        return False
    if len(raw.translate(None, _CONTROLS)) < len(raw):
        return False
    # The other controls are among the signs whose bytes begin with this one.
    return b"\xc2" not in raw or _SUSPECT.search(text) is None


def clean(text: str) -> str:
    """Return `text` with colours and line erasure, and nothing else that a terminal would obey."""
    if is_plain(text):
        return parted(lighter(text))
    pieces = (
        piece if coloured else _ESCAPE.sub(lambda match: match["keep"] or "", piece)
        for piece, coloured in _pieces(text)
    )
    return parted(lighter("".join(pieces)))


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Yield text that is not plain in pieces, at ends of lines where there are any: no sequence goes over one.

    With each comes whether it holds nothing but what may stay.
    What is made of controls mostly loses them all here: taking out each by itself would take seconds.
    """
    start = 0
    while start < len(text):
        end = start + PIECE
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        piece = text[start:end]
        bare = _KEEP.sub("", piece)
        coloured = is_plain(bare)
        if not coloured and len(piece) >= CROWDED and len(_SUSPECT.findall(bare)) > len(piece) // 32:
            piece = _SUSPECT.sub("", piece)
        yield piece, coloured
        start = end


_TAG = re.compile(
    r"<(?=(?:\x1b\[[0-9;:]*[mK])*[A-Za-z/!?])"
    r"(?!(?:module|lambda|listcomp|dictcomp|setcomp|genexpr|locals|string|stdin|unknown|timed exec"
    r"|frozen [\w.]{1,80}|cell line: [0-9]{1,9}|ipython-input-[\w-]{1,80}|class '[\w.]{1,200}')>)"
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*[mK]")
_PLACES = tuple(
    tuple(map(re.compile, parts))
    for parts in ((r"File\s", ":[0-9]"), ("Cell", "In", r"\[[0-9]+\]", "line [0-9]"), (r"Input\s", r"In\s*\[[0-9]"))
)
"""What a front end may take for the place of an error, and make a link of: these, in this order, colours aside.

One expression each, as one for all of them would read hostile text again and again.
"""
_ODD_PLACE = re.compile(r"'|File\s+[A-Za-z][\w+.-]+:[^0-9]|\A\s*\S.*(?:Cell|Input\s)", re.DOTALL)
"""One that would leave the address of its link, or give it a scheme."""
_PLACE_WORD = re.compile(r"File|Cell|Input")
INERT = "\x1b[29m"
"""A colour that changes nothing (not crossed out)."""


def traceback(line: str) -> str:
    """Return a line of a traceback, clean, in which no front end finds HTML: some look for links in it.

    A tag is cut in two by a colour that changes nothing, which is where they cut before they look. It reads the same.
    Some take colours of backgrounds away before, so the cut is made ahead of any colour. And some write the place of an
    error into the address of a link, between single quotes: an odd place is none to them.
    """
    text = clean(line)
    if "\x1b" in text or _PLACE_WORD.search(text):
        text = "\n".join(map(_without_link, text.split("\n")))
    return _TAG.sub(f"<{INERT}", text)


def _has(text: str, parts: tuple[re.Pattern[str], ...]) -> bool:
    """Return whether all parts are in the text, one after the other."""
    position = 0
    for part in parts:
        if (found := part.search(text, position)) is None:
            return False
        position = found.end()
    return True


def _without_link(line: str) -> str:
    if _PLACE_WORD.search(bare := _COLOUR.sub("", line) if "\x1b" in line else line) is None:
        return line
    if not any(_has(bare, parts) for parts in _PLACES) or _ODD_PLACE.search(bare) is None:
        return line
    return _PLACE_WORD.sub("\\g<0>\u2060", bare)  # without colours, which could stand within a word


_READ = re.compile(r"<(?=[A-Za-z/!])|\](?=[\[({:])|`|(?:\A|(?<=\r))[^\S\r\n]*+\.(?=\.)")
"""Where a tag, the address of a link, code or a directive would begin."""
_BEGUN = re.compile(r"[<\]]\Z|\r[^\S\r\n]*\.?\Z")
"""What the next message could go on with."""


class Screen:
    """The streams of a session: knows how far up the cursor may go, and holds a sequence that was cut in two."""

    def __init__(self) -> None:
        self._over: dict[tuple[str, str], str] = {}
        """Cell and stream whose line is drawn over, and what of it may begin something: cells may take turns."""
        self._parent = ""
        self._row = 0
        self._cut: dict[str, str] = {}
        self._marks: dict[tuple[str, str], tuple[Marks, EndlessWords]] = {}
        """Those of each cell and stream, whose messages a front end joins, whatever comes between them."""

    def feed(self, stream: str, parent: str, text: str) -> str:
        """Return what may be shown of `text`, printed on `stream` by the cell `parent`."""
        if parent != self._parent:
            self._parent, self._row, self._cut = parent, 0, {}
        held = self._cut.pop(stream, "")
        if not held and (is_plain(text) or is_plain(_KEEP.sub("", text))):
            self._row += text.count("\n")
            return self._drawn(stream, self._lighter(stream, text))
        text = held + text
        if match := _CUT.search(text):
            self._cut[stream] = match[0]
            text = text[: match.start()]
        return self._drawn(
            stream, self._lighter(stream, "".join("".join(self._shown(piece)) for piece, _ in _pieces(text)))
        )

    def _drawn(self, stream: str, text: str) -> str:
        r"""Return text in which nothing is read as Markdown, HTML or RST where a line is drawn over.

        A front end may write a return into a notebook as it came. Some exports take it for an end of line, and what
        follows for a part of the document. It looks the same: a letter without a width keeps the signs apart.
        """
        output = self._parent, stream
        if output not in self._over and "\r" not in text:
            return text
        begun = self._over.pop(output, None)
        lines = text.split("\n")
        for place, line in enumerate(lines):
            before = line.find("\r") if begun is None else 0
            if before >= 0:
                begun = begun or ""
                drawn = begun + line[before:]
                lines[place] = line[:before] + _READ.sub("\\g<0>\u2060", drawn)[len(begun) :]
                if place == len(lines) - 1:
                    self._over[output] = match[0] if (match := _BEGUN.search(drawn[-80:])) else "x"
            begun = None
        if len(self._over) > MAX_OVER:
            del self._over[next(iter(self._over))]
        return "\n".join(lines)

    def _lighter(self, stream: str, text: str) -> str:
        output = self._parent, stream
        if text.isascii() and output not in self._marks:
            return text
        marks, words = self._marks[output] = self._marks.pop(output, (Marks(), EndlessWords()))
        if len(self._marks) > MAX_OVER:
            del self._marks[next(iter(self._marks))]
        return words.feed(marks.feed(text))

    def _shown(self, text: str) -> list[str]:
        pieces = []
        position = 0
        for match in _ESCAPE.finditer(text):
            before = text[position : match.start()]
            self._row += before.count("\n")
            pieces.append(before)
            position = match.end()
            if match["keep"]:
                pieces.append(match[0])
            elif match["up"] is not None:
                # Never above the first line of this cell: what other cells have shown stays as it was.
                rows = min(int(match["up"] or 1), self._row)
                self._row -= rows
                if rows:
                    pieces.append(match[0] if rows == int(match["up"] or 1) else f"\x1b[{rows}A")
        self._row += text.count("\n", position)
        pieces.append(text[position:])
        return pieces
