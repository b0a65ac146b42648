"""HTML as the page may show it: sanitised if it is only markup, in a frame of its own if it is a program.

Formulas are looked for after the sanitiser, in the text between the tags that it wrote: no formula ever meets markup.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from html import escape as _escape
from html import unescape
from itertools import islice
from typing import Any

from ..core.codes import Note, OutputCode
from . import css, frame, line_ends, media, tex
from .allowance import MAX_ELEMENTS, ExcessError, of_formulas, of_images, of_markup, of_text
from .frame_libraries import Packer
from .html_blocks import contents
from .slow_text import (
    MAX_TURNS,
    MAX_WORD,
    beyond_ascii,
    bounded,
    has_marks,
    lighter,
    parted,
    quicken,
    scripts,
    sought,
    turns,
)
from .verdict import Notes, named, noted

# --- how much there may be: elements, cells of tables, depth and text, and what our own parser bears ---
#
# What a person's browser bears is not modelled. Whatever multiplies is counted as often as it says (a cell by its
# spans, a table as rows times columns), or the sanitiser takes it away. Each limit at its edge is drawn in about two
# seconds.

CELLS, PLACES, SOUGHT = 2, 40, 2
"""Cells as their spans say, rows times columns, letters of scripts without spaces: so many count as an element.

A browser keeps the borders of each place of a table, used or not, and looks for words of such scripts in a dictionary,
again for each line that they fill.
"""
_WEIGHTS = {"audio": 50, "video": 50, "details": 4}
"""Elements that a browser builds of many others."""
_DEPTHS = {"ruby": 20}
"""Elements that are laid out several times for each that they lie in."""

MAX_ENTITIES = 200_000_000_000
"""Ampersands, hard spaces and signs whose bytes begin like a hard space's, times the characters of a source: the parser
copies a text again for each, for a second."""
MAX_OPENED = 1_000_000
"""Angle brackets of all kinds that are looked at."""
MAX_RESULT = 60_000_000
"""Characters that a source may become: a video of 45 MB as base64, or a tenth as many quotes in a frame."""
MAX_DECLARATIONS = 80_000
"""Semicolons of a source with styles. Each declaration is judged by itself, so many in a third of a second."""
MAX_NESTING = 10_000
"""Tags that may nest: the parser needs 0.4 s if each lies in the one before, four times as long for twice as many."""
_EMPTY = frozenset(("br", "col", "hr", "img", "source", "wbr"))
_FLAT = _EMPTY | frozenset(("caption", "colgroup", "tbody", "td", "tfoot", "th", "thead", "tr"))
NO_PART_OF_TABLES = "(?!/|t[abdhr])"
"""Behind an angle bracket, lets a search for tags go over those of tables quickly: there are thousands."""
_FORMAT = re.compile(
    rf"<{NO_PART_OF_TABLES}(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)\s[^>]{{0,200}}", re.IGNORECASE
)
"""Formats that a parser opens again in every paragraph, once for each way they are written."""
_NAMES = re.compile(r"<([a-zA-Z][\w:-]{0,40})")
_WRITTEN = re.compile(r"<(/?)([a-z][a-z0-9]*)([^\">]*+(?:\"[^\"]*+\"[^\">]*+)*)>")
"""A tag as the sanitiser writes it."""
_SPANS = re.compile(r" (col|row|)span=\"([0-9]+)\"")
_GAP = re.compile(r">(?:\n {0,40}| {1,40})(?=<)")
"""What indents a tag, and is not drawn."""
_CELL = len("<td></td>")
_BLOCK = re.compile(r"<(?:p|div|td|th|li)\b", re.IGNORECASE)


class _Table:
    """The rows and columns of one table, as its tags come."""

    def __init__(self) -> None:
        self.rows = self.columns = self._covered = 0
        self._ends: dict[int, int] = {}
        """Row -> the columns whose cell has ended there."""

    def row(self) -> None:
        self.rows += 1
        self._covered -= self._ends.pop(self.rows, 0)

    def cell(self, columns: int, rows: int) -> None:
        self._covered += columns
        end = self.rows + rows
        self._ends[end] = self._ends.get(end, 0) + columns
        self.columns = max(self.columns, self._covered)


@dataclass(slots=True)
class Extent:
    """How large a document of the sanitiser's is."""

    elements: int = 0
    cells: int = 0
    grid: int = 0
    depth: int = 0
    letters: int = 0
    bytes: int = 0
    scripts: int = 0
    sought: int = 0


def extent(kept: str) -> Extent:
    """Return how large a document is that the sanitiser wrote. None of its texts has a tag in it."""
    kept = _GAP.sub(">", kept)
    size = Extent()
    # A row of cells without attributes is counted at once, and becomes one tag that says how many they are.
    first, *rows = kept.split("<tr")
    rest = [first]
    for row in rows:
        inner, end, after = row.partition("</tr>")
        count = inner.count("<td>") + inner.count("<th>")
        if count and end and '"' not in inner and 2 * count == inner.count("<"):  # each of them is closed, too
            rest += f"<row {count}>", after
            size.letters += len(inner) - len(">") - count * _CELL
        else:
            rest += "<tr", row
    _walk("".join(rest), size)
    size.bytes = size.letters
    if not kept.isascii():
        text = _WRITTEN.sub("", kept)
        size.bytes = len(text.encode("utf-8", "surrogatepass"))
        size.sought = sought(text)
        size.scripts = scripts(text)
    return size


def _walk(kept: str, size: Extent) -> None:
    """Add to a size what each tag says, in order, and the text between them."""
    depth = 0
    tables: list[_Table] = []
    for closing, name, attributes in _WRITTEN.findall(kept):
        if closing:
            depth -= _DEPTHS.get(name, 1)
            if name == "table" and tables:
                size.grid += tables[-1].rows * tables.pop().columns
            continue
        if name == "row":
            count = int(attributes)
            size.elements += 1 + count
            size.cells += count
            size.depth = max(size.depth, depth + 2)
            if tables:
                tables[-1].row()
                tables[-1].cell(count, 1)
            continue
        size.elements += _WEIGHTS.get(name, 1)
        if name not in _EMPTY:
            depth += _DEPTHS.get(name, 1)
            size.depth = max(size.depth, depth)
        if name == "table":
            tables.append(_Table())
        elif name == "tr" and tables:
            tables[-1].row()
        elif name in ("td", "th", "col", "colgroup"):
            spans = {what: int(often) for what, often in _SPANS.findall(attributes)} if "span" in attributes else {}
            columns, rows = spans.get("col", spans.get("", 1)), spans.get("row", 1)
            size.cells += columns * rows
            if tables and name in ("td", "th"):
                tables[-1].cell(columns, rows)
            elif tables:
                tables[-1].columns = max(tables[-1].columns, columns)
    size.letters += len(_WRITTEN.sub("", kept))


def taken(kept: str, notes: Notes) -> str | None:
    """Count what the sanitiser wrote, by what there is most of; return why that may not be shown, if it may not."""
    size, left = extent(kept), of_markup()
    most = max(size.elements, size.cells / CELLS, size.grid / PLACES, size.scripts, size.sought / SOUGHT)
    try:
        left.charge(most, characters=size.letters, bytes=size.bytes, depth=size.depth)
    except ExcessError as error:
        return str(error)
    notes.work += max(left.work, of_text(size.letters))
    return None


def is_crowded(source: str) -> bool:
    """Return whether there are more elements than a person's browser bears, in a frame or not."""
    if source.count("<") > MAX_ELEMENTS and len(_NAMES.findall(source)) > MAX_ELEMENTS:
        return True
    return is_turning(source, source)


def is_turning(text: str, styles: str) -> bool:
    """Return whether the text of markup changes its direction more often than a browser bears.

    Each block of a page is laid out by itself, unless a style makes it no block.
    """
    if turns(text) <= MAX_TURNS:
        return False
    return "display" in styles.lower() or any(turns(block) > MAX_TURNS for block in _BLOCK.split(text))


def is_costly(source: str) -> bool:
    """Return whether parsing could take long, or make much of little: elements that nest, formats that are repeated."""
    opened = source.count("<")
    # What is not markup becomes entities of up to six characters.
    longer = 3 * (opened + source.count(">")) + 4 * source.count("&") + 5 * (source.count('"') + source.count("\xa0"))
    if len(source) + longer > MAX_RESULT or opened > MAX_OPENED:
        return True
    signs = sum(piece.encode("utf-8", "surrogatepass").count(b"\xc2") for piece in beyond_ascii(source))
    if (source.count("&") + 4 * signs) * len(source) > MAX_ENTITIES:
        return True
    if source.count(";") > MAX_DECLARATIONS + source.count("&") and "style" in source.lower():
        return True
    if opened <= MAX_NESTING // 100:
        return False
    if opened - source.count("</") <= MAX_NESTING and not _FORMAT.search(source):
        return False
    tags = Counter(_NAMES.findall(source))
    nesting = sum(count for tag, count in tags.items() if tag.lower() not in _FLAT)
    formats = len(set(_FORMAT.findall(source)))
    return nesting > MAX_NESTING or formats * tags.total() > 10 * MAX_NESTING


# --- what is kept of it ---

TAGS = frozenset(
    """a abbr audio b bdi bdo big blockquote br caption center cite code col colgroup dd del details dfn div dl dt em
    figcaption figure font footer h1 h2 h3 h4 h5 h6 header hr i img ins kbd li mark ol p pre q rp rt ruby s samp section
    small source span strike strong sub summary sup table tbody td tfoot th thead time tr tt u ul var video wbr
    """.split()  # noqa: SIM905 (a list of words reads better as words)
)
SHORT = 200
"""Characters of a style whose judgement is kept: a table has the same one in each of its cells."""
_ATTRIBUTES = {
    "*": frozenset(("align", "class", "dir", "id", "lang", "style", "title")),
    "a": frozenset(("href",)),
    "audio": frozenset(("controls", "loop", "muted", "preload", "src")),
    "col": frozenset(("span", "width")),
    "colgroup": frozenset(("span",)),
    "details": frozenset(("open",)),
    "font": frozenset(("color", "face", "size")),
    "img": frozenset(("alt", "height", "src", "width")),
    "ol": frozenset(("start", "type")),
    "source": frozenset(("src", "type")),
    "table": frozenset(("bgcolor", "border", "cellpadding", "cellspacing", "width")),
    "td": frozenset(("bgcolor", "colspan", "halign", "height", "nowrap", "rowspan", "valign", "width")),
    "th": frozenset(("bgcolor", "colspan", "halign", "height", "nowrap", "rowspan", "scope", "valign", "width")),
    "time": frozenset(("datetime",)),
    "tr": frozenset(("bgcolor", "valign")),
    "video": frozenset(("controls", "height", "loop", "muted", "preload", "src", "width")),
}
_DROPPED_WITH_CONTENT = frozenset(("script", "style", "template", "noscript", "iframe", "object", "title", "xmp"))

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_ASCII_CONTROLS = bytes(code for code in range(0x20) if code not in b"\t\n") + b"\x7f"
"""Nothing that a terminal obeys is left: HTML is also read as text."""
CLASS = re.compile(
    r"dataframe|docutils|highlight(?:table)?|hll|linenos|linenodiv|normal|special|source|output_html|data|blank"
    r"|index_name|(?:row|col)_heading|(?:row|col|level)[0-9]+|true|false"
    r"|[a-z]{1,2}[a-z0-9]?|rich-\w+|pd-\w+"
)
"""Classes of tables and of highlighted code. Others may be JupyterLab's own: dialogs, overlays, buttons."""
_SPAN = re.compile(r"\s*\+?0*([1-9][0-9]{0,3})\s*", re.ASCII)
"""Written as a plain number: what is counted is what a browser reads."""
_ID = re.compile(r"T_[\w-]{1,80}")
_LINK = re.compile(r"(?:https?://|mailto:)[^\s\x00-\x1f]{1,4000}", re.IGNORECASE)
_LINK_TAG = re.compile(r"<a( [^>]*)>")
_ADDED = (' target="_blank"', ' rel="noopener noreferrer"')
_DRAWING = re.compile(r"<img src=\"data:image/svg\+xml;base64,[A-Za-z0-9+/=]*+\">")
"""What the policy makes of an SVG: nothing gives it another size than its own."""
_IMAGE = re.compile(r"data:image/(?:png|jpe?g|gif|webp|svg\+xml);base64,[A-Za-z0-9+/=\s]*", re.IGNORECASE)
_MEDIA = re.compile(
    r"data:(?:audio|video)/[\w.+-]{1,40}(?:;\s*codecs=[\w.,\"'-]{1,80})?;base64,([A-Za-z0-9+/=\s]*)", re.IGNORECASE
)

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
"""Tags whose removal is reported; others (such as a comparison like a<b) go as a browser would let them go."""

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


def clean(source: str, notes: Notes) -> str:
    """Return a source that is not costly to parse as markup that loads nothing and runs nothing."""
    sanitiser = _sanitiser()
    sanitiser.changed.clear()
    left = sanitiser.images = of_images()
    sanitiser.stretched = _DRAWING.fullmatch(source) is None
    try:
        kept = sanitiser.cleaner.clean(source)
    except UnicodeEncodeError:  # lone surrogates cannot be shown anyway
        kept = sanitiser.cleaner.clean(source.encode("utf-8", "replace").decode())
    for note in sorted(sanitiser.changed, key=str):
        notes.take(note)
    notes.work += left.work
    return cleared(_LINK_TAG.sub(_in_order, kept) if "<a " in kept else kept)


def note_removed(source: str, notes: Notes) -> None:
    """Say what of `source` is not shown, by its looks: a note that is missed costs nothing else."""
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


def cleared(source: str) -> str:
    """Return a source without controls, and find at memory speed that an ASCII one has none."""
    if source.isascii() and len(source.encode().translate(None, _ASCII_CONTROLS)) == len(source):
        return source
    return CONTROLS.sub("", source)


def _in_order(tag: re.Match[str]) -> str:
    """Put what the sanitiser adds to a link at its end: it does so in any order, and the same source must stay so."""
    attributes = tag[1]
    for added in _ADDED:
        attributes = attributes.replace(added, "")  # no value holds this text: quotes in values are escaped
    return f"<a{attributes}{''.join(_ADDED)}>"


_declarations = lru_cache(maxsize=256)(css.declarations)


class _Sanitiser(threading.local):
    """The sanitiser of one thread; its tables take as long to make as a small table takes to clean."""

    def __init__(self) -> None:
        import nh3

        self.changed: set[Note] = set()
        """What was removed from the last source."""
        self.images = of_images()
        """What the images of one output may come to together."""
        self.stretched = True
        """Whether the page may give them a size of its own."""
        self.cleaner: Any = nh3.Cleaner(
            tags=set(TAGS),
            clean_content_tags=set(_DROPPED_WITH_CONTENT),
            attributes={tag: set(names) for tag, names in _ATTRIBUTES.items()},
            attribute_filter=self._check,
            link_rel="noopener noreferrer",
            set_tag_attribute_values={"a": {"target": "_blank"}},
            url_schemes={"http", "https", "mailto", "data"},
            url_relative="deny",
        )

    def _check(self, tag: str, name: str, value: str) -> str | None:
        # Must never raise: the sanitiser would keep the attribute.
        if not value.isprintable():
            value = CONTROLS.sub("", value)
        if name == "style":
            kept, whole = _declarations(value) if len(value) <= SHORT else css.declarations(value)
            if not whole:
                self.changed.add(noted(OutputCode.CSS))
            return kept or None
        if name == "class":
            classes = [one for one in value.split() if CLASS.fullmatch(one)]
            return " ".join(classes) or None
        if name == "id":
            return value if _ID.fullmatch(value) else None
        if name in ("colspan", "rowspan", "span"):
            return found[1] if (found := _SPAN.fullmatch(value)) else None
        if name == "href":
            if _LINK.fullmatch(value.strip()):
                return value
            self.changed.add(noted(OutputCode.HTML_LINK))
            return None
        if name == "src":
            if tag == "img" and _IMAGE.fullmatch(value.strip()):
                return self._readdressed(value)
            found = _MEDIA.fullmatch(value.strip()) if tag != "img" else None
            if found and media.is_played_text(found[1]):
                return value
            self.changed.add(noted(OutputCode.HTML_SOURCE, tag=named(tag)))
            return None
        return value

    def _readdressed(self, value: str) -> str | None:
        from . import svg

        kept = svg.readdress(value, self.images, stretched=self.stretched)
        if kept is None:
            self.changed.add(noted(OutputCode.IMAGE_IN_HTML))
        return kept


@cache
def _sanitiser() -> _Sanitiser:
    return _Sanitiser()


# --- the markup that a page shows ---

MAX_TEXT = 100_000
_MUCH = "too much markup to check"
MAX_STYLES = 2_000_000
"""Characters of style sheets that are confined to their output, in half a second; a larger one is shown in a frame."""
_ACTIVE = re.compile(
    rf"<{NO_PART_OF_TABLES}\s*(?:script|svg|canvas|button|input|select|textarea|iframe[^<>]{{0,500}}\ssrcdoc)\b",
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

_IN_PLACE = re.compile(
    r" style=\"(?:\s*(?:(?:background-)?color:[\w #%.,()]{1,60}|font-family:[\w ,'-]{1,200}"
    r"|(?:text-align|vertical-align|white-space|font-weight|font-style|text-decoration):\s*[\w-]{1,20})(?:;|(?=\")))*\s*\""
)
"""Styles that paint nothing beyond their element: colours, letters and how they are set."""
_OF_TABLES = r"\s*\.dataframe[\w >:-]{0,100}(?:,\s*\.dataframe[\w >:-]{0,100}){0,5}"
_ALIGNS = re.compile(
    rf"<style(?: scoped)?>(?:{_OF_TABLES}\{{\s*(?:(?:text-align|vertical-align|white-space):\s*[a-z-]{{1,20}};\s*)"
    r"{1,3}\}){1,5}\s*</style>\n?"
)
"""The sheet of each table of pandas and polars: it aligns cells of such tables, wherever they are on the page."""

_DATA_CELL = r"      <t[hd]>(?:[ !\"#%'-;=?-\[\]-~]++|&(?:amp|lt|gt);)*+</t[hd]>\n"
_DATA_FRAME = re.compile(
    r"<div>\n<style scoped>\n    \.dataframe tbody tr th:only-of-type \{\n        vertical-align: middle;\n    \}\n\n"
    r"    \.dataframe tbody tr th \{\n        vertical-align: top;\n    \}\n\n"
    r"    \.dataframe thead th \{\n        text-align: right;\n    \}\n</style>\n"
    rf"<table border=\"1\" class=\"dataframe\">\n  <thead>\n"
    rf"(?:    <tr(?: style=\"text-align: right;\")?>\n(?:{_DATA_CELL.replace('[hd]', 'h')})++    </tr>\n){{1,9}}"
    rf"  </thead>\n  <tbody>\n"
    rf"(?:    <tr>\n(?:{_DATA_CELL.replace('[hd]', 'h')})*+(?:{_DATA_CELL.replace('[hd]', 'd')})*+    </tr>\n)*+"
    r"  </tbody>\n</table>\n(?:<p>[0-9]{1,9} rows \xd7 [0-9]{1,9} columns</p>\n)?</div>"
)
"""A table as pandas writes it. The sanitiser changes nothing of it, and takes ten times as long to find that out."""

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
    if not frames:
        return sanitise(source, notes)
    source = lighter(cleared(source))
    if _is_plain_frame(source, notes):
        return source
    if _unwrap(source, Notes()):
        return sanitise(source, notes)
    if (body := frame.unwrapped(source)) is not None:
        return _as_text(body, notes, _MUCH) if is_crowded(body) or _is_costly_drawing(body) else source
    if (
        not is_costly(source)
        and not is_crowded(source)
        and not (_ACTIVE.search(source) or _needs_frame(contents(source, "style"), source))
    ):
        return _sanitised(source, notes)
    if page := _PAGE.search(source):  # folium: a whole page in a frame of its own, which ours replaces
        source = CONTROLS.sub("", line_ends.ended(unescape(page[1])))
    if frame.size(source) > MAX_RESULT or is_crowded(source) or _is_costly_drawing(source):
        return _as_text(source, notes, _MUCH)
    if frame.loads_scripts(source):
        notes.add(OutputCode.MAP_FROM_NETWORK if (is_map := _MAP.search(source)) else OutputCode.SCRIPT_FROM_NETWORK)
        if is_map:
            return ""
    return frame.wrap(source, leaves_out, packer)


def sanitise(source: str, notes: Notes) -> str:
    """Return `source` as inert markup that loads nothing; what looks the same says nothing in `notes`."""
    source = lighter(cleared(source))
    if _is_plain_frame(source, notes):
        return source
    if is_costly(source) or is_crowded(source):
        return _as_text(source, notes, _MUCH)
    return _sanitised(source, notes)


def _is_plain_frame(source: str, notes: Notes) -> bool:
    """Return whether a source is a table as pandas writes it, of a size that a page bears; count it then."""
    if not source.startswith("<div>\n<style") or not _DATA_FRAME.fullmatch(source):
        return False
    rows = source.split("</tr>")
    cells = [row.count("</t") for row in rows]
    letters = len(source) - sum(cells) * len("      <td></td>\n") - len(rows) * len("    <tr>\n    </tr>\n")
    left = of_markup()
    most = max(len(rows) + sum(cells), len(rows) * max(cells) / PLACES)
    if not left.bears(most, characters=letters, bytes=letters + 1):
        return False
    notes.work += max(left.work, of_text(letters))
    return True


def _sanitised(source: str, notes: Notes) -> str:
    """Do the same to a source without controls that is known to be parsable."""
    if not _SPECIAL.search(source) and turns(source) <= MAX_TURNS and not taken(source, notes):
        return line_ends.markup(parted(source))
    if unwrapped := _unwrap(source, notes):
        return unwrapped
    styles = contents(source, "style")
    kept = _markup(source, notes, styled=bool(styles))
    if why := taken(kept, notes) or (is_turning(kept, source) and "too many changes of direction"):
        return _as_text(source, notes, why)
    return source if styles and _is_as_written(source, kept) else _scoped(kept, styles, notes)


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
    from . import svg  # if it is needed: start-up time counts

    return svg.is_costly_page(source)


def _needs_frame(styles: str, source: str) -> bool:
    """Return whether style sheets cannot be confined to their own output: they show as they should only in a frame."""
    if not styles or len(styles) > MAX_STYLES:
        return bool(styles)
    if css.is_costly(styles, source.count("<")):
        return False  # it would be as slow in a frame
    return css.stylesheet(styles, "x") is None or not all(CLASS.fullmatch(name) for name in css.classes(styles))


def _markup(source: str, notes: Notes, *, styled: bool) -> str:
    """Return a source as a page can show it: sanitised, formulas set apart, and no text that takes long."""
    note_removed(source, notes)
    kept = _typeset(clean(source, notes), notes)
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
    left = of_formulas()
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


def _is_as_written(source: str, kept: str) -> bool:
    """Return whether the sanitiser took nothing out but a sheet that may stay: stored outputs are compared."""
    sheet = _ALIGNS.search(source)
    if sheet is None or _is_placed(kept):
        return False
    before, after = source[: sheet.start()], source[sheet.end() :]
    if re.search(r"\n\s*\n", sheet[0]) and not (sheet[0].endswith("\n") and after.startswith("<table ")):
        return False  # Markdown's block of HTML ends at a blank line, and begins again at a table
    whole = before + ("\n" if sheet[0].endswith("\n") else "") + after
    return kept == whole and line_ends.markup(before + after) == before + after


def _is_placed(kept: str) -> bool:
    """Return whether an element may be painted over its neighbours."""
    return "style=" in kept and kept.count("style=") != len(_IN_PLACE.findall(kept))


def _scoped(kept: str, styles: str, notes: Notes) -> str:
    """Confine styles to the output: a class of its own before each selector, and paint that ends at its edges."""
    kept = line_ends.markup(kept)
    sheet, fits = "", len(styles) <= MAX_STYLES
    if fits and styles.strip() and not css.is_costly(styles, kept.count("<")):
        styles = line_ends.sheet(styles)
        sheet = css.stylesheet(styles, "") or ""
    if not sheet and (styles.strip() or not fits):
        notes.add(OutputCode.HTML_STYLE)
    if not sheet and not _is_placed(kept):
        return kept
    scope = "sandbox-output-" + hashlib.sha256(f"{sheet}{kept}".encode("utf-8", "replace")).hexdigest()[:16]
    block = f"<style>{css.stylesheet(styles, scope)}</style>" if sheet else ""
    return f'<div class="{scope}" style="contain:paint">{block}{kept}</div>'


def _unwrap(source: str, notes: Notes) -> str | None:
    """Return `source` if it is exactly what `sanitise` makes of its own inside: filtering twice is filtering once."""
    match = _SCOPE.fullmatch(source)
    if not match or is_costly(source) or is_crowded(source):
        return None
    scope, styles, kept = match.groups()
    quiet = Notes()
    styles = (styles or "").replace(f".{scope} ", "")
    again = _scoped(_markup(kept, quiet, styled=bool(styles)), styles, quiet)
    if again != source or taken(kept, notes) or is_turning(kept, source):
        return None
    notes.work += quiet.work
    return source
