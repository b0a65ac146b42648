"""Markdown as a page may show it: left alone if it is only text, else turned into sanitised HTML.

Imports html, tex and verdict, and markdown-it-py when it is needed. Markdown cannot be made safe as Markdown: what its
source means is decided by the front end's parser, and raw HTML, entities and escapes give every danger a dozen
spellings. So only source that has no means to be dangerous passes as it is; everything else is parsed here.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from . import html, tex
from .verdict import Notes

_NOT_JUST_TEXT = re.compile(r"[<&]|!\[|\]\((?!https?://)|\]:|mermaid|\x00", re.IGNORECASE)
"""Raw HTML and autolinks, entities, images, links to anything but http(s), definitions of links, diagrams."""
_SAID = re.compile(r"\n\n\[sandbox_kernel: [\w ,.:;+/@-]{1,2000}\]\Z", re.ASCII)

MAX_SOURCE = 100_000
"""Characters; more is a file, not an output, and would keep the parser busy for seconds."""

_MATH = re.compile(
    r"(?P<code>^ {0,3}(?P<fence>`{3,}|~{3,}).{0,5000}?^ {0,3}(?P=fence)"
    r"|(?P<tick>`+)[^`].{0,5000}?(?<!`)(?P=tick)(?!`))"
    r"|(?P<math>\$\$.{1,5000}?\$\$|(?<![\\$])\$(?=\S)[^$\n]{1,2000}?(?<=\S)\$(?!\d)|\\\\\(.{1,5000}?\\\\\)|\\\\\[.{1,5000}?\\\\\]"
    r"|\\begin\{(?P<name>\w+\*?)\}.{1,5000}?\\end\{(?P=name)\})",
    re.DOTALL | re.MULTILINE,
)
_HOLE = re.compile("\ue000([0-9]{1,6})\ue001")


def is_text(source: str) -> bool:
    """Return whether Markdown can be shown by any front end as it is."""
    said = _SAID.search(source)  # filtered before: the line at the end may name anything
    source = source[: said.start()] if said else source
    return _NOT_JUST_TEXT.search(source) is None and tex.clean(source) == source


def render(source: str, notes: Notes) -> str:
    """Return sanitised HTML for Markdown, formulas left for the page to typeset."""
    if len(source) > MAX_SOURCE:
        notes.add("showed Markdown as text: too much of it to check")
        return f"<pre>{tex.clean(html.escape(source[:MAX_SOURCE]))}</pre>"
    formulas: list[str] = []

    def cut(match: re.Match[str]) -> str:
        if match["math"] is None:
            return match[0]
        formulas.append(match[0])
        return f"\ue000{len(formulas) - 1}\ue001"

    def paste(match: re.Match[str]) -> str:
        number = int(match[1])
        return html.escape(formulas[number]) if number < len(formulas) else ""

    holes = _MATH.sub(cut, _HOLE.sub("", source))
    # Sanitised after the formulas are back: nothing is added to sanitised HTML.
    return html.sanitise(_HOLE.sub(paste, str(_parser().render(holes))), notes)


@cache
def _parser() -> Any:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
