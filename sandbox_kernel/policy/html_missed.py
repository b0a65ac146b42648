"""What the sanitiser takes from HTML and is worth a word, by the looks of the source: a note missed costs nothing else.

Pure; imports html_cost, codes and verdict.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import islice

from ..core.codes import OutputCode
from .html_cost import NO_PART_OF_TABLES
from .verdict import Notes, named

_WITH_ATTRIBUTES = re.compile(r"<[a-zA-Z][^\s\"'/<>]*+[\s\"'/][^<>]*")
_IN_QUOTES = r"=\s{0,9}(?:\"[^\"<>]*+\"|'[^'<>]*+')"
_VALUE = re.compile(_IN_QUOTES)
"""The value of an attribute: words in it are no attributes, though they look so, and stay where they are."""

_HANDLER = re.compile(
    r"<[^<>]{0,500}[\s\"'/](on(?:error|load|click|dblclick|auxclick|mouse[a-z]+|pointer[a-z]+|key[a-z]+"
    r"|focus[a-z]*|blur|toggle|begin|end|start|animation[a-z]+|transition[a-z]+"
    r"|scroll[a-z]*|wheel|input|change|submit|copy|cut|paste|drag[a-z]*|drop|touch[a-z]+|before[a-z]+|resize|message|hashchange|page[a-z]+|unload)|data-commandlinker-\w{1,40}|srcset"
    r"|formaction)=",
    re.IGNORECASE,
)
"""For the notes only: which of the attributes that go is worth a word."""

_MISSED = re.compile(
    rf"<{NO_PART_OF_TABLES}(applet|base|button|canvas|embed|form|frame|frameset|iframe|input|link|math|meta|object|portal"
    r"|script|select|svg|template|textarea)(?![\w:-])",
    re.IGNORECASE,
)
"""Tags whose removal is said; others (a comparison like a<b, for one) go as a browser would let them go."""

_RELATIVE = re.compile(
    r"<(img|audio|video|source|a)\b(?>" + _IN_QUOTES + r"|[^<>]){0,2000}?\s(?:src|href)\s{0,9}=\s{0,9}"
    r"(?![\"']?\s{0,9}(?:[a-z][a-z0-9+.-]{0,30}:|#))(?:\"([^\"<>]{1,300})\"|'([^'<>]{1,300})'|([^\s\"'<>]{1,300}))",
    re.IGNORECASE,
)
"""Addresses without a scheme, for the notes only: the sanitiser takes each of them away."""
_ELSEWHERE = re.compile(r"//|/(?!(?:mnt/data|home/user|tmp)/)|[^&:\\\x00-\x1f]*[&:\\\x00-\x1f]", re.IGNORECASE)
"""What is no plain name of a file in the sandbox: with the scheme of the page, of its server, or not what it looks."""
_LOADING = defaultdict(lambda: OutputCode.HTML_SOURCE, a=OutputCode.HTML_LINK)
_FILES = defaultdict(lambda: OutputCode.FILE_NOT_THERE, a=OutputCode.LINK_TO_FILE, img=OutputCode.PICTURE_NOT_THERE)


def note(source: str, notes: Notes) -> None:
    """Say what of `source` is not shown."""
    for tag in sorted({name.lower() for name in _MISSED.findall(source)}):
        notes.add(OutputCode.HTML_TAG, tag=tag[:20])
    tags = "".join(_WITH_ATTRIBUTES.findall(source)) if "=" in source else ""
    names = _HANDLER.findall(_VALUE.sub('=""', tags))
    for name in sorted({name.lower() for name in names}):
        notes.add(OutputCode.HTML_HANDLER, attribute=name[:20])
    for found in islice(_RELATIVE.finditer(tags), 20):
        tag, address = found[1].lower(), (found[2] or found[3] or found[4]).strip()
        loads = _ELSEWHERE.match(address) is not None
        notes.add((_LOADING if loads else _FILES)[tag], tag=tag, name=named(address))
