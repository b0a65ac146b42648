"""What HTML costs: the time of our parser, and that of a browser which lays it out. Pure; imports marks.

Each limit is a second or two of an ordinary machine.
"""

from __future__ import annotations

import re
from collections import Counter

from .marks import MAX_TURNS, beyond_ascii, turns

MAX_TAGS = 50_000
"""Elements that a page takes in within two seconds; a table of 2,000 rows and 20 columns has 44,000."""
MAX_ROWS = 200_000
"""Rows over which the cells of an output go, each counted by itself: for half a second. Others go over no more than
their table has."""
MAX_SHOWN = 500_000
"""Characters of text that a page lays out within four seconds, whatever their style: slowest is one in each line."""
MOST_OF_A_LETTER = 5
"""Times as much as another that a letter may count."""
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
_WHOLE_TAG = re.compile(r"<[^\">]*+(?:\"[^\"]*+\"[^\">]*+)*>")
_COMMON = re.compile(r"[\x00-@\[-`{-\xbf\u2000-\u206f\u3000-\u303f]+")
"""What is drawn in whatever font is around it."""
_SLOWER = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2000-\u2fff\ue000-\uf8ff\U00010000-\U0010ffff]+")
"""Letters whose words are sought in a dictionary, signs, and all that is two units of UTF-16."""
_WIDE = re.compile(r"[\U00010000-\U0010ffff]+")
_SCRIPT = re.compile(
    r"[A-Za-z\xc0-\u058f]++|[\u0590-\u08ff\ufb1d-\ufeff]++|[\u0900-\u0dff]++|[\u0e00-\u10ff]++|[\u1100-\u11ff\u2e80-\u9fff"
    r"\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef]++|[\u1200-\u1dff]++|[\u1e00-\u1fff]++|[\u2000-\u2e7f]++|[\U00010000-\U0010ffff]++"
)
"""Letters of one font, about: each time that another is looked for costs as much as a character."""
_BLOCK = re.compile(r"<(?:p|div|td|th|li)\b", re.IGNORECASE)
_ROWS = re.compile(r" rowspan=\"\s*+\+?([0-9]+)")


def _count_signs(source: str) -> int:
    return sum(piece.encode("utf-8", "surrogatepass").count(b"\xc2") for piece in beyond_ascii(source))


def is_crowded(source: str) -> bool:
    """Return whether there are more elements than a person's browser bears, in a frame or not."""
    if source.count("<") > MAX_TAGS and len(TAG.findall(source)) > MAX_TAGS:
        return True
    return is_turning(source, source)


def is_turning(text: str, styles: str) -> bool:
    """Return whether the text of markup changes its direction more often than a browser bears.

    Each block of a page is laid out by itself, unless a style makes it no block.
    """
    if turns(text) <= MAX_TURNS:
        return False
    return "display" in styles.lower() or any(turns(block) > MAX_TURNS for block in _BLOCK.split(text))


def is_long(kept: str) -> bool:
    """Return whether the text between the tags that the sanitiser wrote is longer than a page lays out at once."""
    return len(kept) * (1 if kept.isascii() else MOST_OF_A_LETTER) > MAX_SHOWN and _text(kept) > MAX_SHOWN


def work(kept: str) -> int:
    """Return the microseconds in which a browser lays out what the sanitiser wrote, formulas and images aside."""
    return LETTER * _text(kept) + ELEMENT * (kept.count("<") // 2)


def _text(kept: str) -> int:
    """Return how many characters are between the tags, those that are slower counted more than once."""
    # No text of the sanitiser's has a tag in it; in the value of an attribute, one goes with the tag around it.
    text = _WHOLE_TAG.sub("", kept.replace("</td>", "").replace("<td>", ""))
    if text.isascii():
        return len(text)
    letters = _COMMON.sub("", text)
    slower = sum(map(len, _SLOWER.findall(letters))) + 2 * sum(map(len, _WIDE.findall(letters)))
    return len(text) + slower + len(_SCRIPT.findall(letters))


def is_spread(kept: str) -> bool:
    """Return whether the cells of tables that the sanitiser wrote lie over more rows than a page lays out at once."""
    return "rowspan" in kept and sum(int(rows[:6]) for rows in _ROWS.findall(kept)) > MAX_ROWS


def is_much(source: str, opened: int) -> bool:
    """Return whether a source with so many `<` is too long, or becomes too long, to be parsed."""
    # What is not markup becomes entities of up to six characters.
    longer = 3 * (opened + source.count(">")) + 4 * source.count("&") + 5 * (source.count('"') + source.count("\xa0"))
    if len(source) + longer > MAX_RESULT or opened > MAX_OPENED:
        return True
    return (source.count("&") + 4 * _count_signs(source)) * len(source) > MAX_ENTITIES


def is_costly(source: str) -> bool:
    """Return whether parsing could take long, or make much of little: elements that nest, formats that are repeated."""
    opened = source.count("<")
    if is_much(source, opened):
        return True
    if opened <= MAX_NESTING // 100:
        return False
    if opened - source.count("</") <= MAX_NESTING and not _FORMAT.search(source):
        return False
    tags = Counter(TAG.findall(source))
    nesting = sum(count for tag, count in tags.items() if tag.lower() not in _FLAT)
    formats = len(set(_FORMAT.findall(source)))
    return nesting > MAX_NESTING or formats * tags.total() > 10 * MAX_NESTING
