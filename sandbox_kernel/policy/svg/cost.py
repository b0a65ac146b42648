"""The budget of an SVG: what it comes to when it is expanded as a browser does, each reference as often as it is drawn.

Two kilobytes of `<use>` in `<use>` are a billion shapes; patterns, clips and markers nest in the same way. So the
drawing is walked as it is drawn, and the walk ends where the budget does: it never takes longer than that is large.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise
from math import ceil, hypot, sqrt

from .. import raster
from ..budget import MAX_ELEMENTS
from ..html_blocks import blocks

MAX_MARKUP = 2_500_000
"""Characters of a page's markup, its scripts aside, if it holds SVG that refers to itself."""
MAX_DEPTH = 80
"""Elements that lie in each other, and references that lead on to others."""
MAX_COST = 150_000
"""Elements that all drawings of one output may come to. What follows says what counts as one."""
CHARS, LETTERS, PIXELS, ROWS, DASHES = 150, 20, 33_000, 1_000, 10
"""Characters of a path, letters, painted pixels, rows of pixels that edges cross, dashes: so many count as one."""
USE = 3
"""Elements that a reference is, what it draws aside."""
OF_A_PAGE = 3 * MAX_COST // MAX_ELEMENTS
"""Elements of a drawing that count as one of a page: three full drawings fill it."""
GRADIENT, LAYER, STRETCHED, PATTERN = 5, 3, 4, 50
"""Times that a pixel is painted: a gradient; a layer that is made and blended; an image that is stretched; tiles."""
VIEW = (2_000.0, 4_000.0)
"""CSS pixels of a picture that a browser paints at once: what is far outside of the window waits."""
UNSAID = 1_500.0
"""Assumed side of an SVG without width or height, in CSS pixels."""
STRETCHED_TO = 500_000.0
"""CSS pixels of a picture that a page shows in a size of its own."""
MAX_DASHES = 1_000_000
"""Dashes of one line that browsers draw at most."""
SORTED_EDGES = 2_500
"""Edges of one path that take as long to be kept in order as to be drawn."""
ENDLESS = 1e12
"""A length that depends on something else: it covers the whole picture."""

SHAPES = frozenset("path rect circle ellipse line polyline polygon text image use".split())  # noqa: SIM905
TEXTS = frozenset(("text", "tspan", "textpath"))
DRAWN = SHAPES | TEXTS | {"svg", "g", "a", "switch"}
DEFINED = frozenset(
    "defs symbol clippath mask pattern marker lineargradient radialgradient stop style".split()  # noqa: SIM905
)
LOCAL = re.compile(r"\s*#([A-Za-z_][\w:.-]{0,200})\s*")
URL = re.compile(r"\s*url\(\s*[\"']?#([A-Za-z_][\w:.-]{0,200})[\"']?\s*+\)\s*+(?:none|currentColor|[#\w]{1,30})?\s*+")
MARKERS = frozenset(("marker", "marker-start", "marker-mid", "marker-end"))
CLIPS = ("clip-path", "mask")
INHERITED = ("fill", "stroke", *sorted(MARKERS))
REFERS = (*INHERITED, *CLIPS)
REFERS_AND_MOVES = frozenset(("clip-path", "style", "transform"))
PLACES = ("x", "y", "dx", "dy", "rotate")
"""Attributes of a text that may have a number for each letter, which is drawn by itself then: three elements."""
LINES = frozenset(("path", "line", "polyline", "polygon"))
"""Elements that may have markers: others hand them on to all that they hold."""
_IN_SHEET = re.compile(r"([a-z-]{1,40})\s{0,8}:([^;{}]{0,1000})")
_COMMENT = re.compile(r"<!--(?:[^<>-]|-(?!-)){0,10000}-->|<!doctype\b[^<>]{0,1000}>", re.IGNORECASE)
"""Comments that every parser takes for the same: nothing in them begins or ends anything."""
_DECLARED = re.compile(r"<[!?]")
_REFERENCE = re.compile(r"<use\b|url\(\s{0,8}[\"']?#", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]{1,3})?")
_LENGTH = re.compile(rf"\s*+({_NUMBER.pattern})(px|pt|pc|mm|cm|in|q)?\s*+", re.I)
_UNITS = {"": 1.0, "px": 1.0, "q": 1.0, "pt": 4 / 3, "pc": 16.0, "mm": 3.78, "cm": 37.8, "in": 96.0}
_STEP = re.compile(r"([A-Za-z]+)\s*+\(([^()]*)\)")
_PART = re.compile(r"([A-DF-Za-df-z])([^A-DF-Za-df-z]*+)")
MAX_FLATNESS = 100
"""Times that one radius of an arc may be the other, without being taken for endless."""
_WEIGHTS = frozenset(float(weight) for weight in range(100, 1000, 100))


Inherited = tuple[tuple[str, str], ...]
"""What shapes are filled, drawn and marked with by what they lie in, if that is another element."""


class RefusedError(ValueError):
    """The SVG may not be shown; the text says why."""


class CostlyError(RefusedError):
    """It is larger than the budget."""


@dataclass(slots=True)
class Allowance:
    """What is left of the images of one output."""

    cost: int = MAX_COST
    pixels: int = raster.MAX_PIXELS

    @property
    def work(self) -> int:
        """Elements of a page that count as much as all that was drawn."""
        return (MAX_COST - self.cost) // OF_A_PAGE + raster.work(raster.MAX_PIXELS - self.pixels)


@dataclass(slots=True)
class Element:
    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)
    values: Mapping[str, str] = field(default_factory=dict)
    """Its attributes and its style: the latter goes first."""
    inherited: dict[str, str] = field(default_factory=dict)
    """What all in it takes over."""
    clips: list[tuple[str, str]] = field(default_factory=list)
    scale: float = 1.0
    """How many times as large areas in it become."""
    own: float = 1.0
    """Elements that it counts as by itself."""
    known: dict[tuple[float, int, Inherited], float] = field(default_factory=dict)
    """What it comes to with all in it, by where it is: the same is not walked again."""
    shape: tuple[float, float, int] | None = None
    """Area, length of the outline and number of corners, once they are known."""


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
    """Return a page without its scripts: a script can draw, and hold up a frame's own process, without SVG."""
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
    """Take what an SVG comes to from what is left; raises `CostlyError` where that is not enough.

    `stretched`: a page may show it larger than it is. Without `painted`, only its elements are counted, not how large
    they are: those of a page in a frame, which has a process of its own.
    """
    left.cost -= ceil(_Walk(root, left.cost, stretched=stretched, painted=painted).cost)


class _Walk:
    """One drawing as it is drawn, within a budget."""

    def __init__(self, root: Element, budget: int, *, stretched: bool, painted: bool) -> None:
        self.cost = 0.0
        self._budget, self._painted = budget, painted
        self._named: dict[str, Element] = {}
        self._line, self._font, self._dash, self._layered = 1.0, 16.0, ENDLESS, False
        """The widest line, the largest font and the shortest dash of all: shapes take them over from any element."""
        rules = elements = 0
        pending = [root]
        while pending:
            element = pending.pop()
            elements += 1
            style = element.attributes.get("style")
            values = {**element.attributes, **dict(declarations(style))} if style else element.attributes
            if element is root:
                values = {**values, **dict(zip(("width", "height"), map(str, self._size(values)), strict=True))}
            element.values = values
            element.inherited = {name: values[name] for name in INHERITED if name in values}
            element.clips = [(name, values[name]) for name in CLIPS if name in values]
            element.scale = min(_scale(values) * (_fitted(values) if element.tag == "svg" else 1.0), ENDLESS)
            element.own = (USE if element.tag == "use" else 1) + len(
                values.get("d", "") + values.get("points", "")
            ) / CHARS
            if element.tag == "style":
                sheet = "".join(str(child) for child in element.children)
                rules += sheet.count("{")
                self._layered |= "opacity" in sheet
                self._see(_IN_SHEET.findall(sheet))
            pending += reversed([child for child in element.children if isinstance(child, Element)])
            if painted and element.tag == "pattern" and not _is_tile(element.values):
                raise CostlyError("a pattern of it is larger than any picture")
            self._named.setdefault(element.attributes.get("id", ""), element)
            self._see(element.values.items())
        self._picture = min(self._width, VIEW[0]) * min(self._height, VIEW[1])
        self._larger = max(1.0, STRETCHED_TO / max(self._picture, 1.0)) if stretched else 1.0
        self._add(elements / 4 + rules * elements / 50)
        self._draw(root, (), 1.0, 0, 0)

    def _size(self, values: Mapping[str, str]) -> tuple[float, float]:
        """Return width and height of the picture, in CSS pixels."""
        sizes = [_length(values, name) or ENDLESS for name in ("width", "height")]
        self._width, self._height = (UNSAID if size >= ENDLESS else size for size in sizes)
        return self._width, self._height

    def _add(self, cost: float) -> None:
        self.cost += cost
        if self.cost > self._budget:
            raise CostlyError(f"it would be larger than a browser bears (limit: {MAX_COST:,} shapes)")

    def _paint(self, pixels: float, times: float = 1) -> None:
        """Count pixels that are painted so many times; none beyond the edges of the picture."""
        if self._painted:
            self._add(times * min(pixels, self._picture) * self._larger / PIXELS)

    def _draw(self, element: Element, inherited: Inherited, scale: float, depth: int, layers: int) -> None:
        """Count an element with all that it holds and refers to; it lies in so many layers as large as the picture."""
        if element.inherited:
            both = {**dict(inherited), **element.inherited}
            inherited = tuple((name, value) for name, value in both.items() if "url" in value.lower())
        place = min(scale * element.scale, ENDLESS), layers, inherited
        if (known := element.known.get(place)) is not None:
            self._add(known)
            return
        before = self.cost
        self._draw_anew(element, inherited, place[0], depth, layers)
        element.known[place] = self.cost - before

    def _draw_anew(self, element: Element, inherited: Inherited, scale: float, depth: int, layers: int) -> None:
        if depth > MAX_DEPTH:
            raise CostlyError(f"its elements refer to each other more than {MAX_DEPTH} deep")
        values = element.values
        self._add(element.own)
        for name, value in element.clips:
            if (found := self._found(value)) is not None:
                if not (times := _clipped(found) if name == "clip-path" else LAYER):
                    self._add(1)
                    continue
                self._paint(ENDLESS, times * (layers + 1))
                self._inside(found, (), ENDLESS, depth + 1, layers)
                layers += 1
        if self._layered or values.get("opacity", "1").strip() not in ("1", "1.0", ""):
            if (area := self._single(element)) is not None:
                self._paint(area * scale, LAYER)
            else:
                self._paint(ENDLESS, LAYER * (layers + 1))
                layers += 1
        if element.tag == "use":
            self._use(values, inherited, scale, depth, layers)
        elif element.tag in SHAPES or element.tag in TEXTS:
            self._ink(element, scale)
            self._refer(element, inherited, scale, depth, layers)
        self._inside(element, inherited, scale, depth, layers)

    def _inside(self, element: Element, inherited: Inherited, scale: float, depth: int, layers: int) -> None:
        for child in element.children:
            if isinstance(child, str):
                self._add(len(child) / LETTERS)
            elif child.tag in DRAWN or child.tag == "stop":
                self._draw(child, inherited, scale, depth + 1, layers)

    def _use(self, values: Mapping[str, str], inherited: Inherited, scale: float, depth: int, layers: int) -> None:
        if (found := self._found(values.get("href"), LOCAL)) is None:
            return
        box = found.tag == "svg" or (found.tag == "symbol" and "viewBox" in found.values)
        draw = self._inside if found.tag == "symbol" else self._draw
        draw(found, inherited, ENDLESS if box else scale, depth + 1, layers)

    def _refer(self, element: Element, inherited: Inherited, scale: float, depth: int, layers: int) -> None:
        """Count what a shape is filled, drawn and marked with: it may have that from any element around it."""
        for name, value in inherited:
            found = self._found(value)
            if found is None or (name in MARKERS and element.tag not in LINES):
                continue
            if found.tag == "pattern":
                self._paint(ENDLESS, PATTERN * (layers + 1))
            elif name not in MARKERS:
                self._paint(self._shape(element)[0] * scale, GRADIENT)
            before = self.cost
            for _ in range(MAX_DEPTH):  # a gradient may have the stops of another
                self._add(1)
                self._inside(found, (), ENDLESS, depth + 1, layers)
                if (found := self._found(found.values.get("href"), LOCAL)) is None:
                    break
            if name in MARKERS:
                self._add((self.cost - before) * ((element.own - 1) * CHARS // 2 + 1))

    def _ink(self, element: Element, scale: float) -> None:
        """Count what a shape paints itself: its inside, its outline, dashes, and letters that each have a place."""
        values = element.values
        area, outline, corners = self._shape(element)
        if element.tag == "image":
            self._add(20)
            self._paint(area * scale, STRETCHED)
            return
        self._paint(area * scale)
        if element.tag in TEXTS:
            self._add(3 * sum(len(values[name].replace(",", " ").split()) - 1 for name in PLACES if name in values))
        elif outline:
            dashes = min(max(outline, _length(values, "pathLength")) / self._dash, MAX_DASHES)
            self._add(dashes / DASHES)
            self._paint((outline * self._line + (corners + dashes) * self._line**2) * scale)
        if self._painted and corners and outline:
            # The edges of one path are kept in order, each beside all others of its row.
            rows = (
                min(2 * outline / corners * sqrt(scale), self._height, VIEW[1]) * corners * (1 + corners / SORTED_EDGES)
            )
            self._add(rows * self._larger / ROWS)

    def _shape(self, element: Element) -> tuple[float, float, int]:
        if element.shape is None:
            text = "".join(child for child in element.children if isinstance(child, str))
            element.shape = _shape("text" if element.tag in TEXTS else element.tag, element.values, text, self._font)
        return element.shape

    def _single(self, element: Element) -> float | None:
        """Return the area of the only shape that an element draws, None if it may draw more than one."""
        scale = 1.0
        for _ in range(MAX_DEPTH):
            if element.tag == "use":
                inside = [self._found(element.values.get("href"), LOCAL)]
            elif element.tag in SHAPES or element.tag in TEXTS:
                return self._shape(element)[0] * scale
            else:
                inside = [child for child in element.children if isinstance(child, Element)]
            if element.tag not in ("use", "g", "a") or len(inside) != 1 or (only := inside[0]) is None:
                return None
            element = only
            scale = min(scale * element.scale, ENDLESS)
        return None

    def _found(self, value: str | None, form: re.Pattern[str] = URL) -> Element | None:
        found = form.fullmatch(value) if value else None
        return self._named.get(found[1]) if found else None

    def _see(self, values: Iterable[tuple[str, str]]) -> None:
        """Note the values of one element, or of a style sheet."""
        for name, value in values:
            if name == "stroke-width":
                self._line = max(self._line, abs(_size(value)))
            elif name in ("font-size", "font"):
                found = [_size(part) for part in re.split(r"[\s/]+", value) if part[:1].isdigit() or part[:1] in "+."]
                sizes = [0.0 if name == "font" and "." not in value and size in _WEIGHTS else size for size in found]
                self._font = max([self._font, *sizes])
            elif name == "stroke-dasharray" and value != "none":
                total = sum(map(abs, _numbers(value))) / (100 if "%" in value else 1)
                self._dash = min(self._dash, max(total, 1e-6)) if total else self._dash


def _clipped(clip: Element) -> int:
    """Return how often a clip paints the picture: a rectangle is none, and letters are cut out slowly."""
    shapes = [child for child in clip.children if isinstance(child, Element)]
    moved = {"transform", "rx", "ry", "style"}
    if [shape.tag for shape in shapes] == ["rect"] and not shapes[0].attributes.keys() & moved:
        return int(bool(clip.attributes.keys() & REFERS_AND_MOVES))
    return PATTERN if any(shape.tag in TEXTS or shape.tag == "use" for shape in shapes) else 1


def _numbers(text: str) -> list[float]:
    """Return the numbers of an attribute, none of them too large to reckon with."""
    return [max(-ENDLESS, min(float(number), ENDLESS)) for number in _NUMBER.findall(text)]


def _length(values: Mapping[str, str], name: str) -> float:
    """Return a length in user units."""
    return abs(_size(values[name])) if name in values else 0.0


def _size(value: str) -> float:
    found = _LENGTH.fullmatch(value)
    return min(float(found[1]), ENDLESS) * _UNITS[(found[2] or "").lower()] if found else ENDLESS


def _scale(values: Mapping[str, str]) -> float:
    """Return how many times as large areas become by a transform."""
    total = 1.0
    for name in ("transform", "patternTransform"):
        text = values.get(name, "").strip()
        if text in ("", "none"):
            continue
        steps = _STEP.findall(text)
        for name_of_step, arguments in steps:
            kind, of = name_of_step.lower(), _numbers(arguments)
            if kind in ("rotate", "translate", "translatex", "translatey", "skewx", "skewy"):
                continue
            if kind == "scale" and of:
                total *= abs(of[0] * of[1]) if len(of) > 1 else of[0] ** 2
            elif kind in ("scalex", "scaley") and of:
                total *= abs(of[0])
            elif kind == "matrix" and len(of) == 6:
                total *= abs(of[0] * of[3] - of[1] * of[2])
            else:
                return ENDLESS
        if not steps:
            return ENDLESS
    return total


def _fitted(values: Mapping[str, str]) -> float:
    """Return how many times as large areas become by a `viewBox`."""
    box = _numbers(values.get("viewBox", ""))
    if not box:
        return 1.0
    width, height = (_length(values, name) for name in ("width", "height"))
    if len(box) != 4 or min(*box[2:], width, height) <= 0:
        return ENDLESS
    return max(width / box[2], height / box[3]) ** 2


def _is_tile(values: Mapping[str, str]) -> bool:
    """Return whether the tile of a pattern is no larger than a picture: a browser draws all of it, seen or not."""
    by = _scale(values)
    for name, most in zip(("width", "height"), VIEW, strict=True):
        text = values.get(name, "0").strip()
        size = _numbers(text)
        limit = 100.0 if text.endswith("%") else most if values.get("patternUnits") == "userSpaceOnUse" else 1.0
        if len(size) != 1 or abs(size[0]) * sqrt(max(by, 1.0)) > limit:
            return False
    return True


def _shape(tag: str, values: Mapping[str, str], text: str, font: float) -> tuple[float, float, int]:
    """Return the area of a shape, the length of its outline and the number of its corners; `text` is what it says."""
    if tag in ("rect", "image"):
        width, height = _length(values, "width"), _length(values, "height")
        if tag == "image" and not (width and height):
            width = height = ENDLESS
        return width * height, width + height if width and height else 0.0, 4
    if tag in ("circle", "ellipse"):
        wide = _length(values, "r" if tag == "circle" else "rx")
        high = wide if tag == "circle" else _length(values, "ry")
        if tag == "ellipse" and not (wide and high):
            wide = high = max(wide, high)
        return 4 * wide * high, 4 * (wide + high), 8
    if tag == "line":
        across = [max(-ENDLESS, min(_size(values.get(name, "0")), ENDLESS)) for name in ("x1", "x2", "y1", "y2")]
        return 0.0, hypot(across[0] - across[1], across[2] - across[3]), 2
    if tag in ("polyline", "polygon"):
        found = _numbers(values.get("points", ""))
        return _covered(found[::2], found[1::2])
    if tag == "text":
        return font * font * len(text), 6 * font * len(text), len(text)
    return _path(values.get("d", ""))


def _covered(across: list[float], down: list[float], *, more: float = 0.0) -> tuple[float, float, int]:
    """Return area, length and corners of a line through points, with something around them that is so long."""
    if not down:
        return 0.0, 0.0, 0
    edges = sum(abs(a - b) for line in (across, down) for a, b in pairwise(line))
    area = (max(across) - min(across) + more) * (max(down) - min(down) + more)
    return area, edges + 2 * more, len(down)


def _path(text: str) -> tuple[float, float, int]:
    """Return the same for a path: what is relative may go on in one direction all the time.

    The points that steer a curve are no nearer to each other than it goes.
    """
    across, down = [0.0], [0.0]
    around, smooth = 0.0, False
    for command, arguments in _PART.findall(text):
        kind, of = command.upper(), _numbers(arguments)
        smooth |= kind in "ST"
        if kind == "A":
            if len(of) % 7:
                return ENDLESS**2, ENDLESS, len(text) // 2  # flags without spaces between them
            for radii in zip(map(abs, of[::7]), map(abs, of[1::7]), strict=True):
                # Radii that are too short for the way grow, both alike.
                around += ENDLESS if min(radii) * MAX_FLATNESS < max(radii) else 14 * max(radii)
            of = [one for place, one in enumerate(of) if place % 7 > 4]
        wide, high = (of if kind == "H" else of[::2], of[1::2]) if kind != "V" else ([], of)
        if command != kind:
            around += sum(map(abs, of))
        else:
            across += wide
            down += high
    area, edges, corners = _covered(across[1:] or across, down[1:] or down, more=around)
    corners = max(len(across), corners, len(_NUMBER.findall(text)) // 2)
    # Where the point that steers is the last one's mirror image, it is no farther than all the ways before.
    return (edges * edges if smooth else area), (5 if smooth else 1) * edges, corners
