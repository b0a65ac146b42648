"""HTML as the page may show it: sanitised if it is only markup, in a frame of its own if it is a program.

Formulas are looked for after the sanitiser, in the text between the tags that it wrote: no formula ever meets markup.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import partial
from html import escape as _escape
from html import unescape

from ...core.codes import OutputCode
from .. import css, frame, lines, tex
from ..blocks import contents
from ..budget import of_text
from ..combining_marks import MAX_TURNS, MAX_WORD, bounded, has_marks, lighter, parted, quicken, sought, turns
from ..packed import Packer
from ..verdict import Notes
from . import bounds
from .sanitiser import CLASS, CONTROLS, clean, cleared, note_removed

MAX_TEXT = 100_000
_MUCH = "too much markup to check"
MAX_STYLES = 2_000_000
"""Characters of style sheets that are confined to their output, in half a second; a larger one is shown in a frame."""
_ACTIVE = re.compile(
    rf"<{bounds.NO_PART_OF_TABLES}\s*(?:script|svg|canvas|button|input|select|textarea|iframe[^<>]{{0,500}}\ssrcdoc)\b",
    re.IGNORECASE,
)
"""What makes HTML a program (or more than a page should take in). Missing one costs looks, never safety."""
_SPECIAL = re.compile(r"[<>&$\\\xa0]|[\ud800-\udfff]")
_TAGS_AND_TEXT = re.compile(r"(<(?:\"[^\"]*\"|[^\">])*>)")
_SVG = re.compile(r"<use\b|data:image/svg|url\(\s{0,8}[\"']?#", re.IGNORECASE)
_CODE_START, _CODE_END = re.compile(r"<(?:pre|code)\b"), re.compile(r"</(?:pre|code)\b")
_BREAK = re.compile(r"<w?br\b")

_MAP = re.compile(r"\bL\s{0,9}\.\s{0,9}map\(")  # leaflet, as of folium: nothing is in its frame without a network
_PAGE = re.compile(r"<iframe\s[^<>]{0,500}?srcdoc=\"([^\"]*)\"", re.IGNORECASE)
_SCOPE = re.compile(
    r'<div class="(sandbox-output-[0-9a-f]{16})" style="contain:paint">(?:<style>(.*?)</style>)?(.*)</div>', re.DOTALL
)

escape = partial(_escape, quote=False)  # for text between tags


def render(
    source: str,
    notes: Notes,
    *,
    frames: bool,
    leaves_out: Callable[[str], bool] | None = None,
    packer: Packer | None = None,
) -> str:
    """Return `source` as the page may show it; with `frames`, a program is kept, in a frame of its own.

    `leaves_out` says which libraries the page has already.
    """
    source = lighter(cleared(source))
    if not frames or _unwrap(source, Notes()):
        return sanitise(source, notes)
    if (body := frame.unwrapped(source)) is not None:
        return _as_text(body, notes, _MUCH) if bounds.is_crowded(body) or _is_costly_drawing(body) else source
    if not bounds.is_costly(source) and not bounds.is_crowded(source) and not _is_program(source):
        return _sanitised(source, notes)
    if page := _PAGE.search(source):  # folium: a whole page in a frame of its own, which ours replaces
        source = CONTROLS.sub("", lines.ended(unescape(page[1])))
    if frame.size(source) > bounds.MAX_RESULT or bounds.is_crowded(source) or _is_costly_drawing(source):
        return _as_text(source, notes, _MUCH)
    if frame.loads_scripts(source):
        notes.add(OutputCode.MAP_FROM_NETWORK if (is_map := _MAP.search(source)) else OutputCode.SCRIPT_FROM_NETWORK)
        if is_map:
            return ""
    return frame.wrap(source, leaves_out, packer)


def sanitise(source: str, notes: Notes) -> str:
    """Return `source` as inert markup that loads nothing; what looks the same says nothing in `notes`."""
    source = lighter(cleared(source))
    if bounds.is_costly(source) or bounds.is_crowded(source):
        return _as_text(source, notes, _MUCH)
    return _sanitised(source, notes)


def _sanitised(source: str, notes: Notes) -> str:
    """Do the same to a source of which it is known already that it has no controls, and that it can be parsed."""
    if not _SPECIAL.search(source) and turns(source) <= MAX_TURNS and not (size := bounds.extent(source)).excess:
        notes.work += size.work
        return lines.markup(parted(source))
    if unwrapped := _unwrap(source, notes):
        return unwrapped
    styles = contents(source, "style")
    return _shown(_markup(source, notes, styled=bool(styles)), styles, source, notes)


def _shown(kept: str, styles: str, source: str, notes: Notes) -> str:
    """Return markup as it leaves here, or its source as text if it is over the budget."""
    size = bounds.extent(kept)
    if why := size.excess or (bounds.is_turning(kept, source) and "too many changes of direction"):
        return _as_text(source, notes, why)
    notes.work += size.work
    return _scoped(kept, styles, notes)


def _as_text(source: str, notes: Notes, why: str) -> str:
    notes.add(OutputCode.HTML_AS_TEXT, why=why)
    notes.work += of_text(min(len(source), MAX_TEXT))
    return as_text(source[:MAX_TEXT])


def as_text(source: str) -> str:
    """Return markup that shows `source` as it is; filtering that once more changes nothing."""
    return _scoped(f"<pre>{escape(bounded(CONTROLS.sub('', source)))}</pre>", "", Notes())


def _is_costly_drawing(source: str) -> bool:
    """Return whether the SVGs of a frame would keep the browser busy: it may share the page's process."""
    if _SVG.search(source) is None:
        return False
    from .. import svg  # if it is needed: start-up time counts

    return svg.is_costly_page(source)


def _is_program(source: str) -> bool:
    return _ACTIVE.search(source) is not None or _needs_frame(contents(source, "style"), source)


def _needs_frame(styles: str, source: str) -> bool:
    """Return whether style sheets cannot be confined to their own output: they show as they should only in a frame."""
    if not styles or len(styles) > MAX_STYLES:
        return bool(styles)
    if css.is_costly(styles, source.count("<")):
        return False  # it would be as slow in a frame
    return css.stylesheet(styles, "x") is None or not all(CLASS.fullmatch(name) for name in css.classes(styles))


def _markup(source: str, notes: Notes, *, styled: bool) -> str:
    note_removed(source, notes)
    return _readable(clean(source, notes), notes, styled=styled)


def _readable(kept: str, notes: Notes, *, styled: bool) -> str:
    """Return what the sanitiser wrote as a page can show it: formulas set apart, and no text that takes long."""
    kept = _typeset(kept, notes)
    return kept if kept.isascii() else _quicker(kept, notes, styled=styled)


def _quicker(kept: str, notes: Notes, *, styled: bool) -> str:
    """Return markup that the sanitiser wrote without what a browser is slow to lay out, however the source wrote it."""
    if not has_marks(kept) and sought(kept) <= MAX_WORD:
        return kept
    pieces = _TAGS_AND_TEXT.split(kept)
    # A class may be one of the page's own, and hide what has it.
    notes.work += quicken(pieces, styled=styled or any(word in kept for word in ("style=", "class=", "hidden")))
    return "".join(pieces)


def _typeset(kept: str, notes: Notes) -> str:
    """Set formulas and their delimiters apart, in HTML that the sanitiser wrote: a finder reads one piece at a time.

    It reads over line breaks, and not in code. What it finds in one piece is a harmless formula, or nothing.
    """
    if not tex.has_marks(kept):
        return kept
    left = tex.Allowance()
    pieces = _TAGS_AND_TEXT.split(kept)
    in_code = 0
    for place, piece in enumerate(pieces):
        if place % 2:
            in_code += bool(_CODE_START.match(piece)) - bool(_CODE_END.match(piece))
        elif tex.has_marks(piece) and not in_code:
            around = pieces[max(0, place - 1) : place] + pieces[place + 1 : place + 2]
            alone = not any(_BREAK.match(tag) for tag in around)
            pieces[place] = tex.apart(unescape(piece), left, alone=alone, write=escape)
    notes.work += left.work
    return "".join(pieces)


def _scoped(kept: str, styles: str, notes: Notes) -> str:
    """Confine styles to the output: a class of its own before each selector, and paint that ends at its edges."""
    kept = lines.markup(kept)
    sheet, fits = "", len(styles) <= MAX_STYLES
    if fits and styles.strip() and not css.is_costly(styles, kept.count("<")):
        styles = lines.sheet(styles)
        sheet = css.stylesheet(styles, "") or ""
    if not sheet and (styles.strip() or not fits):
        notes.add(OutputCode.HTML_STYLE)
    if not sheet and "style=" not in kept:
        return kept
    scope = "sandbox-output-" + hashlib.sha256(f"{sheet}{kept}".encode("utf-8", "replace")).hexdigest()[:16]
    block = f"<style>{css.stylesheet(styles, scope)}</style>" if sheet else ""
    return f'<div class="{scope}" style="contain:paint">{block}{kept}</div>'


def _unwrap(source: str, notes: Notes) -> str | None:
    """Return `source` if it is exactly what `sanitise` makes of its own inside: filtering twice is filtering once."""
    match = _SCOPE.fullmatch(source)
    if not match or bounds.is_costly(source) or bounds.is_crowded(source):
        return None
    scope, styles, kept = match.groups()
    quiet = Notes()
    styles = (styles or "").replace(f".{scope} ", "")
    again = _scoped(_markup(kept, quiet, styled=bool(styles)), styles, quiet)
    if again != source or (size := bounds.extent(kept)).excess or bounds.is_turning(kept, source):
        return None
    notes.work += quiet.work + size.work
    return source
