r"""HTML so plain that it is known what the sanitiser would make of it: the tables of data frames, and little around.

To parse a table and to write it anew takes ten times as long as to see that nothing would change. So this is no second
sanitiser, and nothing is taken out here: a document is of the grammar below, from its first character to its last, or
it is none of ours (None) and goes the long way. `tests/unit/policy/test_plain.py` compares both ways.

Whatever a parser does apart from the obvious has no place in the grammar: each element is closed by its own tag, none
is implied but the body of a table, each is where HTML wants it, no attribute comes twice, and each value is written as
the sanitiser writes it. What is returned was read by the grammar itself, so nothing else can leave here, whatever the
source was. Pure, imports css, html_cost and marks.

No group captures within one that repeats, and only single characters are possessive: some versions of Python lose count
of the others.
"""

from __future__ import annotations

import re

from . import css, html_cost
from .marks import MAX_TURNS, turns

_SHOWN = "\x01"
"""Stands for an element that was read already, where text may be."""
_TEXT = r"[^<>&\x00-\x08\x0b-\x1f\x7f-\xa0\ud800-\udfff\ufeff]*+"
"""Characters that the sanitiser writes as they are: a hard space it writes as an entity."""
_QUOTES = {"&quot;": '"', "&#34;": '"', "&#39;": "'", "&#x27;": "'"}
"""It writes these as they are too, in text."""
_WORDS = rf"{_TEXT}(?:(?:{_SHOWN}|&(?:amp|lt|gt|nbsp|quot|#34|#39|#x27);|<br>){_TEXT})*"
_SPACE = r"[ \n\t]*+"
_NUMBER = r"[1-9][0-9]{0,4}"
_STYLE = r" style=\"[A-Za-z0-9_ #%.,:;()!-]{1,500}+\""
_CLASS = r" class=\"[A-Za-z0-9_ -]{1,500}+\""

_NAME = r"[a-z0-9]{1,20}+(?:-[a-z0-9]{1,20}+){0,2}"
_URL = rf"https?://(?:{_NAME}\.){{1,3}}[a-z]{{2,12}}(?:/[A-Za-z0-9._~/=+%-]{{0,1000}}+)?"
"""No user, no port, no number for an address, and no name that is read as something else (`xn--`)."""
_QUERY = r"[A-Za-z0-9._~/=+%-]{1,20}+"
_LINK = rf"{_URL}(?:[?](?:{_QUERY}|&amp;){{0,100}})?"
_LOOSE = rf"{_URL}(?:[?](?:{_QUERY}|&amp;|&[A-Za-z0-9]{{1,40}}+=){{0,100}})?"
"""As pandas writes it: before a word and `=`, an ampersand in a value is no entity, whatever the word."""
_LINKED = re.compile(rf"<a href=\"({_LOOSE})\"(?: target=\"_blank\")?(?: rel=\"noopener noreferrer\")?>")
_AMPERSAND = re.compile(r"&(?!amp;)")
_ADDED = ' target="_blank" rel="noopener noreferrer"'

_SHEET = re.compile(r"<style(?: scoped(?:=\"\")?| type=\"text/css\")?>[^<]*+</style>")
_FIRST_ROW = re.compile(rf"(<table[^<>]*+>{_SPACE})(?=<tr[ >])")
_LAST_ROW = re.compile(rf"(</tr>{_SPACE})(?=</table>)")
_STYLES = re.compile(_STYLE.replace("[", "([").replace("+", "+)"))
_CLASSES = re.compile(_CLASS.replace("[", "([").replace("+", "+)"))
"""Neither goes over the end of a tag, so what looks the same in text hides none."""
_QUOTED = re.compile("|".join(_QUOTES))
_DIV = re.compile(r"<(/?)div\b")
_PART = re.compile(r"<(/?t(?:head|body|foot))>")


_LOOKS = rf"(?:{_CLASS})?(?:{_STYLE})?"
_IDENT = r"(?: id=\"T_[A-Za-z0-9_-]{1,80}+\")?"
_SPANS = rf"(?: colspan=\"{_NUMBER}\")?(?: rowspan=\"{_NUMBER}\")?"
_SIDES = r"(?: halign=\"(?:left|center|right)\")?(?: valign=\"(?:top|middle|bottom)\")?"
_OF_CELL = rf"(?:>|(?= ){_IDENT}(?:{_CLASS})?{_SPANS}{_SIDES}(?:{_STYLE})?>)"
"""Written so that there is one way to read it: otherwise what comes to nothing were read in all of them."""
_CELL = rf"(?:<td{_OF_CELL}{_WORDS}</td>|<th{_OF_CELL}{_WORDS}</th>)"
_ROW = rf"<tr{_LOOKS}>{_SPACE}(?:{_CELL}{_SPACE})*</tr>"
_PARTS = rf"(?:<t(?:head|body|foot)>{_SPACE}(?:{_ROW}{_SPACE})*</t(?:head|body|foot)>{_SPACE})*"
_CAPTION = rf"(?:<caption>{_WORDS}</caption>{_SPACE})?"
_TABLE = rf"<table(?: border=\"{_NUMBER}\")?{_IDENT}{_LOOKS}>{_SPACE}{_CAPTION}{_PARTS}</table>"
_BLOCK = rf"(?:<div{_LOOKS}>|</div>|<p(?:{_STYLE})?>{_WORDS}</p>|{_TABLE})"
_DOCUMENT = re.compile(rf"{_WORDS}(?:{_BLOCK}{_WORDS})*")
_FORMAT = re.compile(rf"<(b|code|em|i|s|small|strong|sub|sup|u)>{_WORDS}</\1>|<span{_LOOKS}>{_WORDS}</span>")
_ANCHOR = re.compile(rf"<a href=\"{_LINK}\"{_ADDED}>{_WORDS}</a>")


class Grammar:
    """The documents whose classes are some, an expression for one of them."""

    def __init__(self, classes: re.Pattern[str]) -> None:
        self._is_class = classes.fullmatch

    def read(self, source: str) -> str | None:
        """Return what the sanitiser makes of a source without controls, style sheets aside; None if that is not known.

        Where it is, the source is neither costly nor crowded, no program, and nothing of it is worth a note.
        """
        opened = source.count("<")
        elements = opened - source.count("</")
        # What is in a table is flat; of the rest there may be as many as a parser bears in one another.
        if elements - source.count("<t") + source.count("<table") > html_cost.MAX_NESTING:
            return None
        if not elements or elements > html_cost.MAX_TAGS or html_cost.is_much(source, opened):
            return None
        if _SHOWN in source or turns(source) > MAX_TURNS:
            return None
        kept = _SHEET.sub(_SHOWN, source) if "<style" in source else source
        kept = kept.replace('" >', '">')  # as a Styler ends its tags
        if "<a " in kept:
            kept = _LINKED.sub(lambda link: f'<a href="{_AMPERSAND.sub("&amp;", link[1])}"{_ADDED}>', kept)
        kept = kept.replace("<table><tr>", "<table><tbody><tr>").replace("</tr></table>", "</tr></tbody></table>")
        kept = _LAST_ROW.sub(r"\1</tbody>", _FIRST_ROW.sub(r"\1<tbody>", kept))
        if not _reads(kept) and ((bare := _without_formats(kept)) is kept or not _reads(bare)):
            return None
        if not all(css.declarations(style)[1] for style in set(_STYLES.findall(kept))):
            return None
        if not all(map(self._is_class, set(" ".join(_CLASSES.findall(kept) or ["a"]).split(" ")))):
            return None
        if "&quot;" in kept or "&#" in kept:
            kept = _QUOTED.sub(lambda quote: _QUOTES[quote[0]], kept)
        return kept.replace(_SHOWN, "")


def _without_formats(kept: str) -> str:
    """Return a document without the formats and links in its text, from the inside out; the very same if it has none.

    Links go once, so that one in another stays, which is none; and a format may be in a link or around it.
    """
    seen = _FORMAT.sub(_SHOWN, kept)
    if "<a " in seen:
        seen = _ANCHOR.sub(_SHOWN, seen)
    return seen if seen is kept else _FORMAT.sub(_SHOWN, seen)


def _reads(document: str) -> bool:
    if _DOCUMENT.fullmatch(document) is None:
        return False
    parts = _PART.findall(document)  # one that opens and one that closes in turn, as the expression has it
    if any("/" + opens != closes for opens, closes in zip(parts[::2], parts[1::2], strict=True)):
        return False
    if "<div" not in document and "</div" not in document:
        return True
    depth = 0
    for closing in _DIV.findall(document):
        depth += -1 if closing else 1
        if depth < 0:
            return False
    return depth == 0
