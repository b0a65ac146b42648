r"""Text as an entry point hands it to a person, a model or a log: no terminal or log service obeys it.

The output policy cleans what it passes; with `outputs = trusted` it passes all, and paths, reasons and names come by
other ways. So each entry point asks here, at its last step.

Public: plugins may import it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from . import line_ends, terminal
from .json_check import mapped

_COLOURS = re.compile(r"\x1b\[[0-9;:]{0,64}m|\x1b\[[0-2]?K")
_OTHERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_HIDING = re.compile(r"[\r\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""What makes a line read otherwise than it is, or as two."""

LINE = 320
"""Characters of a line that are remembered for what follows it."""
_SPACE = r"(?:[^\S\r\n]|[\ufeff\u180e\u200b-\u200f\u2060])"
"""Without the ends of lines: from each of them on the same would be looked at again."""
_BEFORE = re.compile(rf"^{_SPACE}+")
_COMMANDS = (
    re.compile(rf"((?:^|[\r\n]){_SPACE}*:)(?=:)"),  # GitHub: ::set-env name=a::b, after any space
    re.compile(r"(##[\w.-]{0,80})(?=\[)"),  # GitHub, Azure, TeamCity, Octopus: ##[a], ##vso[a], anywhere in a line
    re.compile(r"((?:section|travis)_[a-z]{3,8})(?=:)"),  # GitLab, Travis: section_start:1:a
)
_BUILDKITE = re.compile(r"((?:^|[\r\n])(?:---|\+\+\+|~~~|\^\^\^))(?= )")
_MARKS = ("::", "##", "section_", "travis_")


def coloured(text: str) -> str:
    """Return text that may have colours, and nothing else that a terminal would obey."""
    return terminal.clean(line_ends.ended(text))


class PrintedStream:
    """What cells print: colours, and the cursor going up over its own lines, as nested progress bars need it."""

    def __init__(self) -> None:
        self._screen = terminal.Screen()

    def feed(self, name: str, text: str, cell: str = "") -> str:
        """Return what may be printed of `text`, which a cell has printed on the stream `name`."""
        return self._screen.feed(name, cell, line_ends.ended(text, returns=True))


def plain(text: str) -> str:
    """Return text as it stands when all is printed, without colours, and without any control but tab and newline."""
    return line_ends.settled(_bare(line_ends.ended(text, returns=True)))


def _bare(text: str) -> str:
    if terminal.is_plain(text) and "\b" not in text:
        return text
    return _OTHERS.sub("", _COLOURS.sub("", terminal.clean(text)))


def ours(text: str) -> str:
    """Return lines of our own, which may quote what a cell chose: in plain text that reads as it is."""
    return _HIDING.sub(lambda match: match[0].encode("unicode_escape").decode(), _bare(text))


def tree(value: Any) -> Any:
    """Return JSON in which each text, also of a key, may have colours and nothing else. No deeper than JSON may be."""
    return mapped(value, coloured)


class LogLines:
    """A stream on its way into a log that somebody else reads for commands: its lines are none, and look nearly so.

    A space is put where each kind of command would be told from text (`: :add-mask::`, `##vso [`). What was written
    stays as it was, so a command that comes in pieces is none either.
    """

    def __init__(self, *, buildkite: bool = False) -> None:
        self._line = ""
        """What the line holds by now; if that is long, its end behind a character that stands for the rest."""
        self._buildkite = buildkite

    def feed(self, text: str, *, act: bool = True) -> str:
        """Return what to write of `text`, which follows what was fed before; without `act`, it is only remembered."""
        whole = self._line + text
        if act and (self._buildkite or any(mark in whole for mark in _MARKS)):
            for command in _COMMANDS:
                whole = command.sub(r"\1 ", whole)
            if self._buildkite:
                whole = _BUILDKITE.sub(r"\1:", whole)
        shown = whole[len(self._line) :]
        line = whole[max(whole.rfind("\n"), whole.rfind("\r")) + 1 :]
        if len(line) > LINE:
            line = _BEFORE.sub(" ", line)  # after any number of spaces, a line still begins
        if len(line) > LINE:
            line = "x" + line[-LINE + 1 :]
        self._line = line
        return shown


def columns(rows: Sequence[Mapping[str, str]]) -> str:
    """Return a table of rows with the same names for a terminal, below these names in capitals."""
    header = list(rows[0])
    cells = [
        [name.upper().replace("_", " ") for name in header],
        *([ours(str(row[name])) for name in header] for row in rows),
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(header))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in cells)
