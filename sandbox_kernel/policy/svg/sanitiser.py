"""SVG images: parsed here and rebuilt from an allow-list of elements and attributes.

An SVG is shown in `<img>`, where nothing runs and nothing loads. What no honest drawing needs to look as it does is
left out all the same: filters, animations, entities, other documents, and addresses.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from html import unescape
from itertools import groupby, islice
from typing import Any
from urllib.parse import unquote
from xml.parsers import expat  # with what it would expand or load refused below

from .. import css, raster, slow_text
from ..allowance import Allowance, ExcessError, of_images
from . import repeats
from .repeats import LINES, LOCAL, MARKERS, REFERS, URL, Element, charge, declarations, length

MAX_SOURCE = 10_000_000
"""Characters of one SVG."""
MAX_ELEMENTS = 60_000
MAX_LENGTH = 20_000
"""CSS pixels of a side."""
MAX_RULES = 200
MAX_TILE = 256.0
"""User units of a side of a pattern's tile: a browser paints all of it, seen or not, for each shape that it fills."""
MAX_ADDRESSES = 300
"""SVGs in addresses of data that are looked at in one page; all together are no longer than one may be."""

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
HTML = "http://www.w3.org/1999/xhtml"
_ELEMENTS = {
    name.lower(): name
    for name in """svg g a defs symbol use path rect circle ellipse line polyline polygon text tspan image
    clipPath pattern marker linearGradient radialGradient stop style""".split()  # noqa: SIM905
}
_SILENT = frozenset(("metadata", "title", "desc"))
"""Elements that draw nothing: their absence is not worth a word."""
_PROPERTIES = frozenset(
    """alignment-baseline baseline-shift clip-path clip-rule color color-interpolation color-rendering direction display
    dominant-baseline fill fill-opacity fill-rule font font-family font-size font-size-adjust font-stretch font-style
    font-variant font-weight image-rendering letter-spacing marker marker-end marker-mid marker-start opacity
    overflow paint-order shape-rendering stop-color stop-opacity stroke stroke-dasharray stroke-dashoffset
    stroke-linecap stroke-linejoin stroke-miterlimit stroke-opacity stroke-width text-anchor text-decoration
    text-rendering transform-origin unicode-bidi visibility white-space word-spacing writing-mode
    """.split()  # noqa: SIM905
)
_ATTRIBUTES = _PROPERTIES | frozenset(
    """x y width height viewBox preserveAspectRatio d points cx cy r rx ry x1 y1 x2 y2 dx dy rotate textLength
    lengthAdjust transform gradientTransform gradientUnits spreadMethod fx fy fr offset patternUnits
    patternContentUnits patternTransform clipPathUnits markerWidth markerHeight markerUnits
    refX refY orient id class style version href
    """.split()  # noqa: SIM905
)
_ID = re.compile(r"[A-Za-z_][\w:.-]{0,200}")
_DATA = re.compile(r"\s*data:(image/(?:png|jpe?g|gif|webp));base64,([A-Za-z0-9+/=\s]*)", re.IGNORECASE)
_TURNED = re.compile(r"(?:\s*(?:rotate|translate)\s*\([^()]*\))*+\s*", re.IGNORECASE)
_SHARE = re.compile(r"\s*+[0-9]{1,3}(?:\.[0-9]{0,12})?\s*+%\s*+")
_SELECTOR = re.compile(r"[\w.*#-]{1,100}(?:\s+[\w.*#-]{1,100})?")
_ADDRESS = re.compile(r"([\"'(=]?)\s{0,8}data:image/svg\+xml([;\w=-]{0,40}),", re.IGNORECASE)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class ImproperSVG(ValueError):
    """The SVG may not be shown; the text says why."""


def clean(source: str, left: Allowance | None = None, *, stretched: bool = False) -> tuple[str, bool]:
    """Return a rebuilt SVG, and whether something visible is missing. Raises `ImproperSVG` or `ExcessError`.

    `stretched`: a page may show it larger than it is.
    """
    left = left or of_images()
    parser = _Parser(left)
    root = parser.parse(source)
    charge(root, left, stretched=stretched)
    return "".join(_written(root, top=True)), parser.missed


def address(source: str) -> str:
    """Return the address of an SVG for `<img>`."""
    return "data:image/svg+xml;base64," + base64.b64encode(source.encode("utf-8", "replace")).decode("ascii")


def readdress(value: str, left: Allowance, *, stretched: bool = True) -> str | None:
    """Return the address of an image in data as it may stand in a page, None if it may not."""
    kind, _, data = "".join(value.split()).partition(";base64,")
    if kind.lower() != "data:image/svg+xml":
        return value if raster.bears(left, data) else None
    try:
        return address(clean(base64.b64decode(data).decode("utf-8", "replace"), left, stretched=stretched)[0])
    except ValueError:
        return None


def is_costly_page(source: str) -> bool:
    """Return whether the SVGs of a page that goes into a frame expand to more than a browser bears."""
    source = repeats.without_scripts(source)
    left = of_images()
    size = 0
    for number, match in enumerate(_ADDRESS.finditer(source)):
        quote, encoding = match[1], match[2].lower()
        end = source.find(quote, match.end()) if quote in ("'", '"') else -1
        if end < 0:
            end = _first(source, ">", match.end(), _first(source, ")", match.end(), len(source)))
        size += end - match.end()
        if number >= MAX_ADDRESSES or size > MAX_SOURCE:
            return True
        data = unquote(unescape(source[match.end() : end]))
        try:
            drawing = base64.b64decode(data).decode("utf-8", "replace") if "base64" in encoding else data
            clean(drawing, left, stretched=True)
        except ExcessError:
            return True
        except ValueError:
            continue  # no image, then
    return repeats.is_costly_markup(source)


def _first(text: str, mark: str, start: int, end: int) -> int:
    """Return where the first `mark` between two places of a text is, or else the second of them."""
    found = text.find(mark, start, end)
    return end if found < 0 else found


class _Parser:
    """Builds the tree of what is allowed."""

    def __init__(self, left: Allowance) -> None:
        self.missed = False
        self._left = left
        self._stack: list[Element] = []
        self._root: Element | None = None
        self._skipped = 0
        self._count = 0
        self._turns = 0
        self._marks = slow_text.Marks()
        self._said = False
        """Whether it has text that is not ASCII."""

    def parse(self, source: str) -> Element:
        if len(source) > MAX_SOURCE:
            raise ImproperSVG(f"it is larger than {MAX_SOURCE // 1_000_000} MB")
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._text
        parser.StartDoctypeDeclHandler = lambda name, system, public, has_subset: has_subset and _entity()
        parser.EntityDeclHandler = parser.UnparsedEntityDeclHandler = _entity
        parser.ExternalEntityRefHandler = _entity
        try:
            parser.Parse(_CONTROLS.sub("", source).strip(), True)
        except expat.ExpatError as error:
            raise ImproperSVG("it is not well-formed") from error
        if self._root is None:
            raise ImproperSVG("it has no <svg>")
        return self._root

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > MAX_ELEMENTS:
            raise ExcessError(MAX_ELEMENTS, "elements")
        space, _, tag = name.rpartition(" ")
        tag = tag.lower()
        if self._skipped or space not in (SVG, "") or tag not in _ELEMENTS:
            self.missed |= not self._skipped and space in (SVG, HTML, "") and tag not in _SILENT
            self._skipped += 1
            return
        self._left.charge(depth=len(self._stack) + 1)
        element = Element("g" if tag == "a" else tag, {})
        if self._root is None and tag != "svg":
            raise ImproperSVG("it does not begin with <svg>")
        for key, value in attributes.items():
            self._attribute(element, key, value)
        if tag == "pattern" and not _is_tile(element.attributes):
            self.missed = True
            element.attributes.pop("width", None)  # without a size it draws nothing
        if self._stack:
            self._stack[-1].children.append(element)
        else:
            self._root = element
        self._stack.append(element)

    def _attribute(self, element: Element, name: str, value: str) -> None:
        space, _, key = name.rpartition(" ")
        if (space and (space != XLINK or key != "href")) or key not in _ATTRIBUTES:
            return
        value = re.sub(r"\s", " ", value)
        if key == "style":
            # Sizes and shapes are counted where they stand as attributes: a style has none.
            kept = "; ".join(
                f"{one}: {of}"
                for one, of in declarations(value)
                if (one in _PROPERTIES or one == "transform") and _is_allowed(element.tag, one, of)
            )
        elif key == "href":
            kept = self._href(element.tag, value)
        elif key == "id":
            kept = value if _ID.fullmatch(value) else ""
        elif key in ("width", "height") and element.tag == "svg":
            pixels = length(value)
            fits = pixels <= MAX_LENGTH if pixels is not None else _SHARE.fullmatch(value)
            kept = value if fits else ""
        else:
            kept = value if _is_allowed(element.tag, key, value) else ""
        if kept:
            element.attributes[key] = kept

    def _href(self, tag: str, value: str) -> str:
        if tag == "image":
            data = _DATA.fullmatch(value)
            if data and raster.bears(self._left, re.sub(r"\s", "", data[2])):
                return value
            self.missed = True
            return ""
        local = LOCAL.fullmatch(value) if tag != "pattern" else None  # its size is its own
        if local or tag in ("g", "a"):
            return f"#{local[1]}" if local and tag not in ("g", "a") else ""
        self.missed = True
        return ""

    def _end(self, name: str) -> None:
        if self._skipped:
            self._skipped -= 1
            return
        element = self._stack.pop()
        if element.tag == "style":
            element.children = [_sheet("".join(str(child) for child in element.children))]
        elif self._said:
            element.children = list(self._lighter(element.children))

    def _lighter(self, children: list[Element | str]) -> Iterator[Element | str]:
        """Yield children with each text in one piece: as letters, which it may not have been in the source."""
        for is_text, group in groupby(children, lambda child: isinstance(child, str)):
            if not is_text:
                yield from group
                continue
            text = slow_text.parted(self._marks.feed_apart("".join(map(str, group))))
            self._turns += slow_text.turns(text)
            if self._turns > slow_text.MAX_TURNS:
                raise ExcessError(slow_text.MAX_TURNS, "changes of direction")
            yield text

    def _text(self, text: str) -> None:
        if self._stack and not self._skipped and self._stack[-1].tag in ("text", "tspan", "style"):
            self._stack[-1].children.append(text)
            self._said |= not text.isascii()


def _entity(*_: Any) -> int:
    raise ExcessError(0, "entities")


def _is_allowed(tag: str, name: str, value: str) -> bool:
    if name not in _ATTRIBUTES or "\\" in value or "/*" in value or "@" in value or "{" in value or "}" in value:
        return False
    if name in MARKERS and tag not in LINES:
        return False
    if name == "patternTransform":
        return _TURNED.fullmatch(value) is not None
    if name == "stroke-dasharray" and "%" in value:
        return False  # of a size that is not known here
    if name.startswith("font") and css.SLOW_VALUE.search(value):
        return False
    if "(" in value and "url" in value.lower():
        return name in REFERS and URL.fullmatch(value) is not None
    return ":" not in value or name not in _PROPERTIES


def _is_tile(attributes: Mapping[str, str]) -> bool:
    """Return whether the tile of a pattern is small, or no larger than what it fills."""
    most = MAX_TILE if attributes.get("patternUnits") == "userSpaceOnUse" else 1.0
    for name in ("width", "height"):
        size, share, _ = attributes.get(name, "0").partition("%")
        if not (found := length(size)) or found > (100.0 if share else most):
            return False
    return True


def _sheet(text: str) -> str:
    """Return the rules that colour elements by name or class."""
    text = re.sub(r"/\*[^*]*\*/", "", text)
    if len(text) > 100_000 or "@" in text or "\\" in text or "/*" in text:
        return ""
    kept = []
    for selectors, body in islice(_rules(text), MAX_RULES):
        parts = [part.strip() for part in selectors.split(",")]
        inside = [f"{name}: {value}" for name, value in declarations(body) if _in_sheet(name, value)]
        if inside and all(_SELECTOR.fullmatch(part) for part in parts):
            kept.append(f"{', '.join(parts)} {{{'; '.join(inside)}}}")
    return "\n".join(kept)


def _rules(text: str) -> Iterator[tuple[str, str]]:
    """Yield selectors and declarations of each rule, with what is no rule left out."""
    for rule in text.split("}")[:-1]:
        before, brace, body = rule.rpartition("{")
        if brace:
            yield before.rpartition("{")[2], body


def _in_sheet(name: str, value: str) -> bool:
    """What refers to another element, or is drawn in many small pieces, is counted where it stands: not in a sheet."""
    return (
        name in _PROPERTIES
        and name != "stroke-dasharray"
        and "(" not in value.lower().replace("rgb(", "").replace("rgba(", "")
        and _is_allowed("g", name, value)
    )


# --- writing ----------------------------------------------------------------------------------------------------------


def _written(element: Element, *, top: bool = False) -> Iterator[str]:
    yield f"<{_ELEMENTS[element.tag]}"
    if top:
        yield f' xmlns="{SVG}"'
    for name, value in element.attributes.items():
        yield f' {name}="{_escaped(value)}"'
    if not element.children:
        yield "/>"
        return
    yield ">"
    for child in element.children:
        if isinstance(child, str):
            yield _escaped(child)
        else:
            yield from _written(child)
    yield f"</{_ELEMENTS[element.tag]}>"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
