r"""Ends of lines: in what leaves the policy a line ends at `\n`, and nowhere else, for every reader.

Programs disagree on what ends a line. `str.splitlines`, and so docutils and all that exports through it, knows eleven
characters; parsers of Markdown know the carriage return. A printed line would leave its block there, and the rest of it
be read as a document. So every string of every message comes through `tree` before any filter sees it. Only streams
keep the carriage return, by which progress bars are drawn over themselves; what is written to a file is `settled`.

Markup is the one language whose parser makes characters out of others (`&#8232;`), so `markup` looks at what our
sanitiser wrote, and shapes it: without blank lines, which would end a block of HTML in Markdown, and without a
character that Markdown would read. The same characters are written as references, which only HTML reads.

Public: plugins may import it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .json_check import MAX_DEPTH, NotPlainError

_BECOME_ENDS = "\r\u2028\u2029"
_CONTROLS = "\x0b\x0c\x1c\x1d\x1e\x85"
"""They go, as all controls do."""
_SIGN = "\u2424"
"""The picture of a newline, which older parsers of Markdown take for one; that of a line feed looks the same."""
ENDS = _BECOME_ENDS + _CONTROLS + _SIGN
r"""All that some program takes for an end of line, but for `\n` itself."""

_TABLE = str.maketrans({**dict.fromkeys(_BECOME_ENDS, "\n"), **dict.fromkeys(_CONTROLS), _SIGN: "\u240a"})
_LIVE = {code: new for code, new in _TABLE.items() if code != ord("\r")}
_TEX = {code: new for code, new in _TABLE.items() if code not in (0x0B, 0x0C)}
r"""For LaTeX that somebody wrote without `r`: `\frac` begins with a form feed then. Its filter knows what to do."""
_ASCII = "".join(filter(str.isascii, ENDS))
LATEX = "text/latex"
SHORT = 4096
"""Characters of a string that is looked at together with others: a table has hundreds of thousands."""


def ended(text: str, *, returns: bool = False) -> str:
    r"""Return text whose lines end at `\n` only, the very same if they do; with `returns`, also at `\r`."""
    return _moved(text, _LIVE if returns else _TABLE)


def _moved(text: str, table: dict[int, Any]) -> str:
    for end in _ASCII if text.isascii() else ENDS:
        if end in text and ord(end) in table:
            break
    else:
        return text
    if ord("\r") in table:
        text = text.replace("\r\n", "\n")
    return text.translate(table)


def settled(text: str) -> str:
    r"""Return a stream as it stands when all is printed: of a line that was drawn over, what was drawn last."""
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def strings(value: Any) -> Iterator[str]:
    """Yield each string of some JSON, keys too."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            yield from one
            waiting += one.values()
        elif isinstance(one, (list, tuple)):
            waiting += one


def tree(value: Any, *, returns: bool = False) -> Any:
    """Return JSON in which each text, also of a key, is `ended`; the same object if it was. Raises `NotPlainError`."""
    table = _LIVE if returns else _TABLE
    short: list[str] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            if len(one) < SHORT:
                short.append(one)
            elif _moved(one, table) is not one:
                return _tree(value, table, 0)
        elif isinstance(one, dict):
            waiting += one
            waiting += one.values()
        elif isinstance(one, (list, tuple)):
            waiting += one
    whole = "\n".join(short)
    return value if _moved(whole, table) is whole else _tree(value, table, 0)


def _tree(value: Any, table: dict[int, Any], depth: int) -> Any:
    if isinstance(value, str):
        return _moved(value, table)
    if depth > MAX_DEPTH:
        raise NotPlainError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {
            _moved(key, table) if isinstance(key, str) else key: _tree(one, _TEX if key == LATEX else table, depth + 1)
            for key, one in value.items()
        }
    return [_tree(one, table, depth + 1) for one in value] if isinstance(value, (list, tuple)) else value


# --- markup -----------------------------------------------------------------------------------------------------------

_UNSEEN = "".join(
    chr(code)
    for first, last in (
        (0x09, 0x09), (0x20, 0x20), (0xA0, 0xA0), (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160),
        (0x1680, 0x1680), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2000, 0x200F), (0x202A, 0x202F), (0x205F, 0x206F),
        (0x2800, 0x2800), (0x3000, 0x3000), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0),
    )
    for code in range(first, last + 1)
)  # fmt: skip
"""Spaces of all kinds, and what else is not seen in a line. A line of nothing else is blank to some reader."""
_BLANK = re.compile(rf"\n([{_UNSEEN}]*+(?:&nbsp;[{_UNSEEN}]*+)*+)(?=\n|\Z)")
"""A line that is blank, with the end of the line before it."""
_BREAK = "&#10;"
_BLOCK = re.compile(
    r" {0,3}<(?:blockquote|caption|center|col|colgroup|dd|details|div|dl|dt|figcaption|figure|footer|h[1-6]|header|hr"
    r"|li|ol|p|section|summary|table|tbody|td|tfoot|th|thead|tr|ul)[ >]"
)
"""Tags after which Markdown reads HTML up to the next blank line. There is none."""
_LEADS = re.compile(r"^([^\S\n]*+)(?:([0-9]{1,9})([.)])(?!\S)|([-+*=_~#:|!%^@{}]))", re.MULTILINE)
r"""What begins a block of Markdown's, or of one of its dialects: headings, lists, tables, fences, directives."""
_MARKS = re.compile(r"`|\](?=\s*[({:])")
"""What is needed for code, and for whatever has an address: links, pictures, definitions, footnotes."""


def markup(kept: str) -> str:
    """Return markup that the sanitiser wrote, in which a reader of Markdown finds markup and text, and nothing else.

    A browser makes the same page of it. There is no blank line, also none within an attribute; where text is read as
    Markdown, no line begins a block; and nothing in a line is a link, a picture or code. It is stable: what is parsed
    and shaped again comes out the same.
    """
    rows = ended(kept).split("\n")
    last = next((place for place in range(len(rows), 0, -1) if not _is_blank(rows[place - 1])), 0)
    first = next((place for place in range(last) if not _is_blank(rows[place])), last)
    kept = joined("\n".join(rows[first:last])) + "\n" * (0 < last < len(rows))
    if kept[:4].isspace() or kept[:4].lstrip(" ")[:1] == "\t":
        kept = kept.lstrip(" \t")  # Markdown takes it for code, and a browser does not show it
    if _BLOCK.match(kept) is None:
        kept = _LEADS.sub(_led, kept)
    return _MARKS.sub(lambda mark: f"&#{ord(mark[0])};", kept) if "`" in kept or "]" in kept else kept


def joined(markup: str) -> str:
    r"""Return markup in which a blank line stands as `&#10;` at the end of the line before it."""
    return _BLANK.sub(rf"{_BREAK}\1", markup)


def sheet(text: str) -> str:
    """Return a style sheet without blank lines: no reference is read in it."""
    return "\n".join(row for row in ended(text).split("\n") if not _is_blank(row))


def _is_blank(row: str) -> bool:
    if row and row[0] != "&" and row[0] not in _UNSEEN:
        return False
    return not row.replace("&nbsp;", "").strip(_UNSEEN)


def _led(found: re.Match[str]) -> str:
    space, number, dot, sign = found.groups()
    return f"{space}{number}&#{ord(dot)};" if number else f"{space}&#{ord(sign)};"
