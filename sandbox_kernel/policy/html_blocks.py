"""Elements whose content is not markup: where each begins and ends, in one pass.

Regular expressions that look ahead for the end of each would read hostile text again and again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

MAX_TAGS = 10_000
"""Tags of one name that are looked at: what lies behind them is no block, so its scripts do not run.

The largest pages of plot libraries have some dozens. Each script gets a guard of 1,800 bytes, and each tag takes some
microseconds, so that without a limit the smallest ones could take minutes and become ten times their size.
"""
_TAGS = {
    name: re.compile(rf"<(?:{name}\b([^<>]{{0,300}})>|(/){name}\b)", re.IGNORECASE) for name in ("script", "style")
}
_BEGUN = re.compile("<[sS\u017f]")
"""As both names begin, in any case."""


@dataclass(frozen=True, slots=True)
class Block:
    """The content `source[start:end]` of one element, and the attributes of its tag as they are written."""

    attributes: str
    start: int
    end: int


def blocks(source: str, name: str) -> Iterator[Block]:
    """Yield the elements `name` of `source` that are closed; as a browser does, an inner tag is part of the content."""
    if not _BEGUN.search(source):
        return
    opened: re.Match[str] | None = None
    for tag in islice(_TAGS[name].finditer(source), MAX_TAGS):
        if tag[2] is None:
            opened = opened or tag
        elif opened is not None:
            yield Block(opened[1], opened.end(), tag.start())
            opened = None


def contents(source: str, name: str) -> str:
    """Return what all elements `name` hold, line by line."""
    return "\n".join(source[block.start : block.end] for block in blocks(source, name))
