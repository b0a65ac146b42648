"""What an SVG costs to draw: each element with all that it refers to, as often as it refers to it.

Two kilobytes of `<use>` in `<use>` are a billion shapes, and keep a browser busy for minutes; patterns, masks, clips
and markers nest in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

from . import raster
from .blocks import blocks

MAX_MARKUP = 2_500_000
"""Characters of a page's markup, its scripts aside, if it holds SVG that refers to itself."""
MAX_DEPTH = 80
"""Elements that lie in each other, and references that lead on to others."""
MAX_COST = 150_000
"""What one output may draw, in shapes: about two seconds of a browser's time."""

SHAPES = frozenset("path rect circle ellipse line polyline polygon text image use".split())  # noqa: SIM905
DRAWN = SHAPES | {"svg", "g", "a", "tspan", "textpath", "switch"}
DEFINED = frozenset(
    "defs symbol clippath mask pattern marker lineargradient radialgradient stop style".split()  # noqa: SIM905
)
LOCAL = re.compile(r"\s*#([A-Za-z_][\w:.-]{0,200})\s*")
URL = re.compile(r"\s*url\(\s*[\"']?#([A-Za-z_][\w:.-]{0,200})[\"']?\s*+\)\s*+(?:none|currentColor|[#\w]{1,30})?\s*+")
REFERS = ("fill", "stroke", "clip-path", "mask", "marker", "marker-start", "marker-mid", "marker-end")
MARKERS = frozenset(("marker", "marker-start", "marker-mid", "marker-end"))
LINES = frozenset(("path", "line", "polyline", "polygon"))
"""Elements that may have markers: others hand them on to all that they hold."""
_NUMBER = re.compile(r"[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]{1,3})?")
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


@dataclass(slots=True)
class Element:
    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)
    cost: int | None = None


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
        charge(root, Allowance())
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


def charge(root: Element, left: Allowance) -> None:
    named: dict[str, Element] = {}
    pending = [root]
    rules = 0
    elements = 0
    while pending:
        element = pending.pop()
        elements += 1
        rules += sum(str(child).count("{") for child in element.children) if element.tag == "style" else 0
        children = [child for child in element.children if isinstance(child, Element)]
        pending += reversed(children)
        named.setdefault(element.attributes.get("id", ""), element)
    cost = _children(root, named, 0) + elements // 4 + rules * elements // 50
    if cost > left.cost:
        raise CostlyError("it would be larger than a browser bears, once expanded")
    left.cost -= cost


def _children(element: Element, named: dict[str, Element], depth: int) -> int:
    total = 0
    for child in element.children:
        if isinstance(child, str):
            total += len(child) // 20
        elif child.tag in DRAWN or child.tag == "stop":
            total += _cost(child, named, depth + 1)
    return min(total, MAX_COST + 1)


def _cost(element: Element, named: dict[str, Element], depth: int) -> int:
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
    drawn = _children(element, named, depth)
    total = 1 + len(shape) // 150 + drawn + 20 * (element.tag == "image")
    style = dict(declarations(element.attributes.get("style", "")))
    values = {**element.attributes, **style}
    for name, target, times in _references(values, element.tag, shape):
        total += {"use": 2, "mask": 500, "fill": 5, "stroke": 5}.get(name, 1)
        if target in named:
            inside = _cost(named[target], named, depth + 1)
            drawn += inside if name == "use" else 0
            total += inside * (max(times, drawn) if name in ("fill", "stroke") else times)
    if dashes := values.get("stroke-dasharray"):
        total += _dashes(dashes, shape, values)
    element.cost = min(total, MAX_COST + 1)
    return element.cost


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


def _dashes(dashes: str, shape: str, values: dict[str, str]) -> int:
    """Return about how many hundreds of dashes a line has: none is longer than the sum of its coordinates."""
    lengths = [float(number) for number in _NUMBER.findall(dashes)]
    around = [values.get(name, "") for name in ("x1", "x2", "y1", "y2", "r", "rx", "ry", "width", "height")]
    length = sum(min(float(number), 1e9) for number in _NUMBER.findall(f"{shape} {' '.join(around)}"))
    return int(min(7 * length / max(sum(lengths), 1e-6) / 100, MAX_COST))
