"""What HTML costs: the time of our parser, and that of a browser which lays it out. Pure; imports marks.

Each limit is a second or two of an ordinary machine.
"""

from __future__ import annotations

import re
from collections import Counter

from .marks import MAX_TURNS, turns

MAX_TAGS = 50_000
"""Elements that a page takes in within two seconds; a table of 2,000 rows and 20 columns has 44,000."""
MAX_ROWS = 200_000
"""Rows over which the cells of an output go, each counted by itself: for half a second. Others go over no more than
their table has."""
MAX_SHOWN = 500_000
"""Characters of text that a page lays out within four seconds, whatever their style: slowest is one in each line."""
LETTER, ELEMENT = 8, 40
"""Microseconds of a browser for a character of text, and for an element."""
MAX_ENTITIES = 200_000_000_000
"""Ampersands, hard spaces and signs whose bytes begin like a hard space's, times the characters of a source: the parser
copies a text anew for each, for a second."""
MAX_OPENED = 1_000_000
"""Angle brackets of all kinds that are looked at."""
MAX_RESULT = 60_000_000
"""Characters that a source may become: a video of 45 MB as base64, or a tenth as many quotes in a frame."""
MAX_NESTING = 10_000
"""Tags that may nest: the parser needs 0.4 s if each lies in the one before, four times as long for twice as many."""
_FLAT = frozenset(
    "br caption col colgroup hr img source tbody td tfoot th thead tr wbr".split()  # noqa: SIM905
)
_FORMAT = re.compile(r"<(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)\s[^>]{0,200}", re.IGNORECASE)
"""Formats that a parser opens again in every paragraph, once for each way they are written."""
TAG = re.compile(r"<([a-zA-Z][\w:-]{0,40})")
_WHOLE_TAG = re.compile(r"<(?:\"[^\"]*\"|[^\">])*>")
_SIGNS = re.compile(r"[\x80-\xbf]+")
_BLOCK = re.compile(r"<(?:p|div|td|th|li)\b", re.IGNORECASE)
_ROWS = re.compile(r" rowspan=\"\s*+\+?([0-9]+)")


def _count_signs(source: str) -> int:
    return 0 if source.isascii() else len(source) - len(_SIGNS.sub("", source))


def is_crowded(source: str) -> bool:
    """Return whether there are more elements than a person's browser bears, in a frame or not."""
    if source.count("<") > MAX_TAGS and len(TAG.findall(source)) > MAX_TAGS:
        return True
    if turns(source) <= MAX_TURNS:
        return False
    # Each block of a page is laid out by itself, unless a style makes it no block.
    return "display" in source.lower() or any(turns(block) > MAX_TURNS for block in _BLOCK.split(source))


def is_long(kept: str) -> bool:
    """Return whether the text between the tags that the sanitiser wrote is longer than a page lays out at once."""
    return len(kept) > MAX_SHOWN and _text(kept) > MAX_SHOWN


def work(kept: str) -> int:
    """Return the microseconds in which a browser lays out what the sanitiser wrote, formulas and images aside."""
    return LETTER * _text(kept) + ELEMENT * (kept.count("<") // 2)


def _text(kept: str) -> int:
    """Return how many characters are between the tags."""
    return len(_WHOLE_TAG.sub("", kept))


def is_spread(kept: str) -> bool:
    """Return whether the cells of tables that the sanitiser wrote lie over more rows than a page lays out at once."""
    return "rowspan" in kept and sum(int(rows[:6]) for rows in _ROWS.findall(kept)) > MAX_ROWS


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
    tags = Counter(TAG.findall(source))
    nesting = sum(count for tag, count in tags.items() if tag.lower() not in _FLAT)
    formats = len(set(_FORMAT.findall(source)))
    return nesting > MAX_NESTING or formats * tags.total() > 10 * MAX_NESTING
