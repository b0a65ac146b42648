"""What an SVG costs to draw: each element with all that it refers to, as often as it refers to it.

Two kilobytes of `<use>` in `<use>` are a billion shapes, and keep a browser busy for minutes; patterns, masks, clips
and markers nest in the same way. What all of it paints is in svg_ink.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

from . import raster, svg_ink
from .blocks import blocks

MAX_MARKUP = 2_500_000
"""Characters of a page's markup, its scripts aside, if it holds SVG that refers to itself."""
MAX_DEPTH = 80
"""Elements that lie in each other, and references that lead on to others."""
MAX_COST = 150_000
"""What one output may draw, in shapes: about two seconds of a browser's time."""
SHAPE = 13
"""Microseconds for a shape."""

SHAPES = frozenset("path rect circle ellipse line polyline polygon text image use".split())  # noqa: SIM905
DRAWN = SHAPES | {"svg", "g", "a", "tspan", "textpath", "switch"}
DEFINED = frozenset(
    "defs symbol clippath mask pattern marker lineargradient radialgradient stop style".split()  # noqa: SIM905
)
LOCAL = re.compile(r"\s*#([A-Za-z_][\w:.-]{0,200})\s*")
URL = re.compile(r"\s*url\(\s*[\"']?#([A-Za-z_][\w:.-]{0,200})[\"']?\s*+\)\s*+(?:none|currentColor|[#\w]{1,30})?\s*+")
REFERS = ("fill", "stroke", "clip-path", "mask", "marker", "marker-start", "marker-mid", "marker-end")
REFERS_AND_MOVES = frozenset(("clip-path", "style", "transform"))
MARKERS = frozenset(("marker", "marker-start", "marker-mid", "marker-end"))
TEXTS = frozenset(("text", "tspan", "textpath"))
PLACES = ("x", "y", "dx", "dy", "rotate")
"""Attributes of a text that may have a number for each letter, which is drawn by itself then."""
LINES = frozenset(("path", "line", "polyline", "polygon"))
"""Elements that may have markers: others hand them on to all that they hold."""
_IN_SHEET = re.compile(r"([a-z-]{1,40})\s{0,8}:([^;{}]{0,1000})")
_COMMENT = re.compile(r"<!--(?:[^<>-]|-(?!-)){0,10000}-->|<!doctype\b[^<>]{0,1000}>", re.IGNORECASE)
"""Comments that every parser takes for the same: nothing in them begins or ends anything."""
_DECLARED = re.compile(r"<[!?]")
_REFERENCE = re.compile(r"<use\b|url\(\s{0,8}[\"']?#", re.IGNORECASE)


class RefusedError(ValueError):
    """The SVG may not be shown; the text says why."""


class CostlyError(RefusedError):
    """It would keep a browser busy."""


@dataclass(slots=True)
class Allowance:
    """What is left of the images of one output."""

    cost: int = MAX_COST
    pixels: int = raster.MAX_PIXELS

    @property
    def work(self) -> int:
        """Microseconds that a browser needs for all that was drawn."""
        return SHAPE * (MAX_COST - self.cost) + raster.work(raster.MAX_PIXELS - self.pixels)


@dataclass(slots=True)
class Element:
    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)
    cost: int | None = None
    ink: svg_ink.Ink = field(default_factory=svg_ink.Ink)
    """What it paints, in the units of what it lies in."""
    levels: int = 0
    """How many clips and layers as large as the picture lie in each other there: each costs the more for it."""


@dataclass(slots=True)
class _Drawing:
    """What holds for all elements of an SVG."""

    named: dict[str, Element] = field(default_factory=dict)
    widest: svg_ink.Widest = field(default_factory=svg_ink.Widest)
    filled: bool = False
    """Whether a style sheet may fill what says that it is not."""


def is_costly_markup(source: str) -> bool:
    """Return whether the SVG elements in the markup of a page expand to more than a browser bears.

    Where a comment, a declaration or a CDATA section ends is not the same to each parser, and what one of them hides
    is drawn by another: all but the plainest are not read at all.
    """
    if _REFERENCE.search(source) is None:
        return False
    if len(source) > MAX_MARKUP or _DECLARED.search(source := _COMMENT.sub("", source)):
        return True
    root = Element("svg", {})
    stack = [root]

    class Page(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag in DRAWN or tag in DEFINED:
                stack.append(self._add(tag, attrs))

        def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag in DRAWN or tag in DEFINED:
                self._add(tag, attrs)

        def handle_endtag(self, tag: str) -> None:
            if any(one.tag == tag for one in stack[1:]):
                while stack.pop().tag != tag:
                    pass

        def _add(self, tag: str, attrs: list[tuple[str, str | None]]) -> Element:
            if len(stack) > MAX_DEPTH:
                raise CostlyError("its elements lie too deep")
            element = Element(tag, {name.removeprefix("xlink:"): value or "" for name, value in attrs})
            stack[-1].children.append(element)
            return element

    try:
        Page().feed(source)
        charge(root, Allowance(), painted=False)
    except CostlyError:
        return True
    return False


def without_scripts(source: str) -> str:
    """Return a page without its scripts: whoever has one can draw, and hold up a frame's own process, without SVG."""
    pieces, position = [], 0
    for block in blocks(source, "script"):
        pieces.append(source[position : block.start])
        position = block.end
    return "".join((*pieces, source[position:]))


def declarations(text: str) -> Iterator[tuple[str, str]]:
    for declaration in text.split(";"):
        name, colon, value = declaration.partition(":")
        if colon:
            yield name.strip().lower(), value.strip()


def charge(root: Element, left: Allowance, *, stretched: bool = False, painted: bool = True) -> None:
    """Take what an SVG costs from what is left; raises `CostlyError` where that is not enough.

    `stretched`: a page may show it larger than it is. Without `painted`, only its shapes are counted, not how large
    they are: those of a page in a frame, which has a process of its own.
    """
    drawing = _Drawing()
    pending = [root]
    rules = 0
    elements = 0
    while pending:
        element = pending.pop()
        elements += 1
        if element.tag == "style":
            sheet = "".join(str(child) for child in element.children)
            rules += sheet.count("{")
            drawing.filled |= "fill" in sheet
            drawing.widest.see(_IN_SHEET.findall(sheet), sheet=True)
        children = [child for child in element.children if isinstance(child, Element)]
        pending += reversed(children)
        if painted and element.tag == "pattern" and not svg_ink.is_tile(_values(element)):
            raise CostlyError("a pattern of it is larger than any picture")
        drawing.named.setdefault(element.attributes.get("id", ""), element)
        drawing.widest.see(_values(element).items())
    cost = _children(root, drawing, 0) + elements // 4 + rules * elements // 50
    if painted:
        cost += svg_ink.picture(_values(root), root.ink, stretched=stretched)
    if cost > left.cost:
        raise CostlyError("it would be larger than a browser bears, once expanded")
    left.cost -= cost


def _values(element: Element) -> dict[str, str]:
    """Return attributes and style of an element: the latter goes first."""
    style = element.attributes.get("style", "")
    return {**element.attributes, **dict(declarations(style))} if style else element.attributes


def _children(element: Element, drawing: _Drawing, depth: int) -> int:
    total = 0
    for child in element.children:
        if isinstance(child, str):
            total += len(child) // 20
        elif child.tag in DRAWN or child.tag == "stop":
            total += _cost(child, drawing, depth + 1)
            element.ink.add(child.ink)
            element.levels = max(element.levels, child.levels)
    return min(total, MAX_COST + 1)


def _cost(element: Element, drawing: _Drawing, depth: int) -> int:
    """Return what it costs to draw an element with all that it holds and refers to; the same element is counted once.

    Raises `RefusedError` for what refers to itself: that is an error in SVG.
    """
    if element.cost is not None:
        if element.cost < 0:
            raise CostlyError("it refers to itself")
        return element.cost
    if depth > MAX_DEPTH:
        raise CostlyError("its elements refer to each other too deep")
    element.cost = -1
    shape = element.attributes.get("d", "") or element.attributes.get("points", "")
    drawn = _children(element, drawing, depth)
    total = 1 + len(shape) // 150 + drawn + 20 * (element.tag == "image")
    values = _values(element)
    if element.tag in SHAPES or element.tag in TEXTS:
        total += _own(element, values, drawing)
    layers = 0
    for name, target, times in _references(values, element.tag, shape):
        total += {"use": 2, "mask": 500, "fill": 5, "stroke": 5}.get(name, 1)
        if (found := drawing.named.get(target)) is not None:
            inside = _cost(found, drawing, depth + 1)
            drawn += inside if name == "use" else 0
            often = max(times, drawn) if name in ("fill", "stroke") else times
            total += inside * often
            layers += _painted(element, name, found, often)
            element.levels = max(element.levels, found.levels)
    if values.get("opacity", "1").strip() not in ("1", "1.0", "") or drawing.widest.layered:
        layers += svg_ink.layer(element.ink)
    if layers:
        element.levels += 1
        element.ink.area(2.0**svg_ink.LARGE, layers * element.levels)
    element.ink = svg_ink.placed(element.ink, values, box=element.tag == "svg")
    element.cost = min(total, MAX_COST + 1)
    return element.cost


def _own(element: Element, values: dict[str, str], drawing: _Drawing) -> int:
    """Add what an element itself paints; return what it costs besides: dashes, and letters that each have a place."""
    text = "".join(child for child in element.children if isinstance(child, str))
    tag = "text" if element.tag in TEXTS else element.tag
    if tag == "use" or (tag == "text" and not text):
        return 0
    filled = drawing.filled or values.get("fill") != "none"
    dashes = svg_ink.paint(element.ink, tag, values, text, drawing.widest, filled=filled)
    if tag != "text":
        return dashes
    places = sum(len(values[name].replace(",", " ").split()) - 1 for name in PLACES if name in values)
    return dashes + 3 * places + len(text) * (element.tag == "textpath")


def _painted(element: Element, name: str, found: Element, times: int) -> int:
    """Add what is painted by a reference; return of how many layers as large as the picture it makes use."""
    ink = element.ink
    if name == "use":
        box = found.tag == "svg" or (found.tag == "symbol" and "viewBox" in found.attributes)
        ink.add(found.ink, scale=None if box else 1.0)
    elif name in ("fill", "stroke"):
        ink.add(svg_ink.copied(ink), svg_ink.GRADIENT)
        if found.tag == "pattern":
            ink.add(found.ink, times, None)
            return svg_ink.PATTERN
    elif name == "clip-path":
        shapes = [child for child in found.children if isinstance(child, Element)]
        if [shape.tag for shape in shapes] == ["rect"] and not shapes[0].attributes.keys() & {
            "transform",
            "rx",
            "ry",
            "style",
        }:
            return int(bool(found.attributes.keys() & REFERS_AND_MOVES))
        ink.add(found.ink, 1, None)
        return svg_ink.PATTERN if any(shape.tag in TEXTS or shape.tag == "use" for shape in shapes) else 1
    elif name == "mask":
        ink.add(found.ink, 1, None)
        return svg_ink.LAYER
    elif name in MARKERS:
        ink.add(found.ink, times, None)
    return 0


def _references(values: dict[str, str], tag: str, shape: str) -> Iterator[tuple[str, str, int]]:
    """Yield by what an element refers to another, to which, and how often that is drawn.

    What it is used for goes first: it takes over the pattern that its user is filled with.
    """
    if local := LOCAL.fullmatch(values.get("href", "")):
        yield ("use" if tag == "use" else "href"), local[1], 1
    vertices = len(shape) // 2 + 2
    for name in REFERS:
        if found := URL.fullmatch(values.get(name, "")):
            yield name, found[1], vertices if name in MARKERS else 1
