"""How much of a cell's text goes onto the page of a person, whose browser bears far less than a program.

What stays on the page is counted, not what was sent: a bar that is drawn over itself a million times is one line.
Decides only; the caller keeps the rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from . import slow_text
from .allowance import Allowance
from .json_check import values
from .mime import JSON, MAX_EXPANDED

OVERWRITTEN = 32
"""How many times as much as stays on the page may go there and be overwritten or cleared: work for the browser too.

With the default settings, a progress bar that writes 100 bytes ten times a second can go on for nine hours.
"""
LINES_OF_A_DISPLAY = 10
"""A display counts as so many lines: it is an element with a frame of its own."""
DRAWN_ANEW = 8
"""How many times as much as stays on the page displays may come to that are updated or cleared."""
FREE_LINES = 100
"""Lines of a display that are not counted there: a tenth of a second is the end of nothing, however often it comes."""
CHARS_OF_A_LINE = 2
"""Characters of each end of a text that is shortened for its lines, times the lines of a page."""
ELEMENTS_OF_A_LINE = 5
"""Elements that count as a line: one full output, such as a table of 2,000 rows and 20 columns, nearly fills a page."""
MAX_ERRORS = 100
"""Errors of one cell; an honest one has one."""
END_OF_ERROR = 4_000
"""Characters of an error that are shown where there is no room for more."""
TAIL_LINES = 100
TAIL_CHARS = 16 << 10

_CUT_SEQUENCE = re.compile(r"\x1b\[?[0-9;]{0,40}\Z")


class Page:
    """What one cell has put onto the page, against the limits in lines and in characters."""

    def __init__(self, lines: int, chars: int) -> None:
        self._max_lines, self._max_chars = lines, chars
        self._lines = self._chars = 0
        self._column = 0
        """Characters of the line that is being written."""
        self._made, self._end = 0, ""
        """Elements that front ends make of that line, and its last characters: a link may come in pieces."""
        self._stream = ""
        self._turns = self._scripts = 0
        self._ever = Allowance(OVERWRITTEN * lines, characters=OVERWRITTEN * chars)
        """What streams may still write, whether it stays or not."""
        self._drawing = Allowance(DRAWN_ANEW * lines)
        """Lines of displays that may still be drawn, but for `FREE_LINES` of each."""
        self._spent = False
        """Whether one of these had less left than was asked of it."""
        self._named: dict[str, tuple[int, int, int]] = {}
        """Display id -> how often it is on the page, and the lines and the characters of each."""
        self._errors = 0
        self._error_texts = Allowance(lines, characters=chars)
        """What all errors but the first may still come to."""
        self.left_out = False
        """Whether anything was not shown."""
        self.full = False
        """Whether the page takes no more of this cell, unless the cell clears it."""

    def stream(self, name: str, text: str) -> tuple[str, str]:
        """Return the text that may go onto the page, and the rest of it."""
        if self.full:
            self.left_out = True
            return "", text
        if name != self._stream:  # a new output, below the last
            self._stream, self._column, self._made, self._end = name, 0, 0, ""
            self._lines += 1
        end = self._fitting(text[: self._turning(text)])
        self._spent |= not self._ever.bears(text.count("\n", 0, end), characters=end)
        if end == len(text) and not self._is_over():
            return text, ""
        self.full = self.left_out = True
        shown = text[:end]
        if cut := _CUT_SEQUENCE.search(shown[-50:]):
            end -= len(cut[0])
        return text[:end], text[end:]

    def display(self, content: Mapping[str, Any], work: int = 0, name: str | None = None) -> bool:
        """Count a display; return whether it may go onto the page, as the last of it may with all that it has.

        `work` is how many elements it counts as, `name` its display id: all of one id look the same.
        """
        if self.full:
            self.left_out = True
            return False
        self._stream = ""
        lines, chars = weight(content, work)
        self._lines += LINES_OF_A_DISPLAY
        self.full = self._is_over()
        if self.full or (name is not None and not self.bears(name, lines, chars)):
            self.left_out = True
            return False
        copies = 1
        if name is not None:
            self._replace(name, lines, chars)
            copies += self.copies(name)
            self._named[name] = (copies, lines, min(chars, self._max_chars))
        self._lines += lines - LINES_OF_A_DISPLAY
        self._chars += min(chars, self._max_chars)
        self._spent |= not self._drawing.bears(max(0, copies * lines - FREE_LINES))
        self.full = self._is_over()
        return True

    def copies(self, name: str) -> int:
        """Return how many displays of an id are on the page."""
        return self._named.get(name, (0, 0, 0))[0]

    def bears(self, name: str, lines: int, chars: int) -> bool:
        """Return whether all displays of an id may come to so much each: no more than now, or as much as fits.

        As with any display, the last of them may with all that it has.
        """
        copies, old_lines, old_chars = self._named.get(name, (0, 0, 0))
        chars = min(chars, self._max_chars)
        if not copies or (lines <= old_lines and chars <= old_chars):
            return True
        return (
            self._lines - copies * old_lines + (copies - 1) * lines < self._max_lines
            and self._chars - copies * old_chars + (copies - 1) * chars <= self._max_chars
        )

    def update(self, name: str, lines: int, chars: int) -> None:
        """Count what all displays of an id become; what they were is on the page no more."""
        self._replace(name, lines, chars)
        if not self.left_out:
            self.full = self._is_over()

    def draw(self, lines: int) -> bool:
        """Count what an update of displays or of widgets makes a browser draw; return whether it may still."""
        if lines <= FREE_LINES or self._drawing.bears(lines - FREE_LINES):
            return True
        self.left_out = True
        return False

    def error(self, text: str = "") -> bool:
        """Count an error; return whether it is shown whole: the first is, all others are no more than a page.

        Others show their end, which may be the host's own word, up to `MAX_ERRORS`.
        """
        self._stream = ""
        self._errors += 1
        if self._errors == 1:
            return True
        return self._errors <= MAX_ERRORS and self._error_texts.bears(text.count("\n"), characters=len(text))

    @property
    def has_many_errors(self) -> bool:
        """Whether not even the end of the last error is shown."""
        return self._errors > MAX_ERRORS

    def clear(self) -> None:
        """Note that the cell cleared what it had shown."""
        self._stream = ""
        self._lines = self._chars = self._column = self._turns = self._scripts = self._made = 0
        self._named.clear()
        self.full = self.left_out = self._is_over()

    def _replace(self, name: str, lines: int, chars: int) -> None:
        copies, old_lines, old_chars = self._named.get(name, (0, 0, 0))
        if copies:
            chars = min(chars, self._max_chars)
            self._lines += copies * (lines - old_lines)
            self._chars += copies * (chars - old_chars)
            self._named[name] = (copies, lines, chars)

    def shortened(self, text: str, *, paths: bool = False) -> str | None:
        """Return a text that stands for itself with its middle left out, None if it may stay as it is.

        `paths` says that front ends make links of the places of files in it, too.
        """
        ends = slow_text.before_turn(text) if slow_text.scripts(text) <= slow_text.MAX_SCRIPTS else 0
        lines = laid_out(text, paths=paths)
        if len(text) <= self._max_chars and lines < self._max_lines and ends == len(text):
            return None
        half = min(self._max_chars // 4, slow_text.MAX_TURNS if ends < len(text) else self._max_chars)
        if lines >= self._max_lines:
            half = min(half, CHARS_OF_A_LINE * self._max_lines)
        head = "".join(text[:half].splitlines(keepends=True)[: self._max_lines // 4])
        tail = tail_of(text[-half:])
        left_out = len(text) - len(head) - len(tail)
        return f"{head}\n[sandbox_kernel] {left_out:,} characters are left out here\n{tail}"

    def traceback(self, lines: Sequence[object]) -> list[str] | None:
        """Return the lines of a traceback with its middle left out, None if it may stay as it is."""
        whole = "\n".join(map(str, lines))
        short = self.shortened(whole, paths=True)
        return None if short is None else short.split("\n")

    def _is_over(self) -> bool:
        return self._spent or self._lines >= self._max_lines or self._chars > self._max_chars

    def _turning(self, text: str) -> int:
        """Count how often as much of the text as fits changes its direction or script, and return how much that is."""
        if text.isascii():
            return len(text)
        self._scripts += slow_text.scripts(text)
        if self._scripts > slow_text.MAX_SCRIPTS:
            return 0
        end = slow_text.before_turn(text, slow_text.MAX_TURNS - self._turns)
        self._turns += slow_text.turns(text[:end])
        return end

    def _fitting(self, text: str) -> int:
        """Count as much of the text as fits, and return how much that is."""
        made = slow_text.made_of(self._end + text)
        if not made and "\r" not in text and len(text) <= self._max_chars - self._chars:
            lines = text.count("\n")
            if self._lines + lines < self._max_lines:
                self._lines += lines
                self._chars += len(text)
                last = text.rfind("\n") + 1
                self._column = len(text) - last + (0 if lines else self._column)
                self._made = 0 if lines else self._made
                self._end = (text[last:] if lines else self._end + text)[-slow_text.LONGEST_SIGN :]
                return len(text)
        start = 0
        while start < len(text):
            end = text.find("\n", start)
            line = text[start : end if end >= 0 else len(text)]
            first, *over = line.split("\r")
            kept = max(self._column + len(first), *map(len, over)) if over else self._column + len(first)
            room = self._max_chars - self._chars
            if kept - self._column > room:
                return start + (room if not over else 0)
            self._chars += kept - self._column
            if self._mark(first, over) and self._lines >= self._max_lines:
                return start
            if end < 0:
                self._column = kept
                return len(text)
            self._lines, self._chars, self._column = self._lines + 1, self._chars + 1, 0
            self._made, self._end = 0, ""
            start = end + 1
            if self._lines >= self._max_lines:
                return start
        return start

    def _mark(self, first: str, over: Sequence[str]) -> bool:
        """Count what front ends make of a part of the line that is being written; return whether that is more lines."""
        made = self._made + slow_text.made_of(self._end + first) - slow_text.made_of(self._end)
        made = max(made, *map(slow_text.made_of, over)) if over else made
        more = max(0, made // slow_text.LINK - 1) - max(0, self._made // slow_text.LINK - 1)
        self._lines += more
        self._made = made
        self._end = (over[-1] if over else self._end + first)[-slow_text.LONGEST_SIGN :]
        return more > 0


def tail_of(text: str) -> str:
    """Return the last lines of a text."""
    cut = text[-TAIL_CHARS:]
    lines = cut.splitlines(keepends=True)
    if len(cut) < len(text) and len(lines) > 1:
        del lines[0]  # its beginning is not there
    return "".join(lines[-TAIL_LINES:])


def plain_text(content: Mapping[str, object]) -> str | None:
    """Return the text of a display that front ends show where they can show nothing else, None if there is none."""
    data = content.get("data")
    found = data.get("text/plain") if isinstance(data, Mapping) else None
    return found if isinstance(found, str) else None


def laid_out(text: str, *, paths: bool = False) -> int:
    """Return how many lines a text comes to, with what front ends make of it."""
    lines = text.count("\n")
    return max(lines, slow_text.made_of(text, paths=paths) // slow_text.LINK)


def is_long(value: object, chars: int) -> bool:
    """Return whether the texts of a JSON tree are longer, or change more often, than a page bears."""
    pending, turns, scripts = [value], 0, 0
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            chars -= len(one)
            turns += slow_text.turns(one)
            scripts += slow_text.scripts(one)
        elif isinstance(one, Mapping):
            pending += one
            pending += one.values()
        elif isinstance(one, (list, tuple)):
            pending += one
        if chars < 0 or turns > slow_text.MAX_TURNS or scripts > slow_text.MAX_SCRIPTS:
            return True
    return False


def weight(content: Mapping[str, Any], work: int) -> tuple[int, int]:
    """Return how many lines and characters of a page a display comes to, by what a front end shows of it.

    What is laid out and what it costs are two counts of the same: the larger one holds.
    """
    data, metadata = content.get("data"), content.get("metadata")
    lines = chars = 0
    if isinstance(data, Mapping):  # of the alternatives that a front end has, whichever comes to more
        page, tree, text = data.get("text/html"), data.get(JSON), plain_text(content) or ""
        lines, chars = laid_out(text), len(text)
        # A program has a frame, and a process, of its own.
        if isinstance(page, str) and not page.startswith("<iframe "):
            lines = max(lines, page.count("<") // 2 // ELEMENTS_OF_A_LINE)
        wishes = metadata.get(JSON) if isinstance(metadata, Mapping) else None
        if tree is not None and isinstance(wishes, Mapping) and wishes.get("expanded"):
            lines = max(lines, values(tree, MAX_EXPANDED))
    return max(lines, work // ELEMENTS_OF_A_LINE, LINES_OF_A_DISPLAY), chars
