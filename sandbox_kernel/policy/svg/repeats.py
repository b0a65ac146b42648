"""What an SVG comes to with its repeats: it is walked as it is drawn, each reference as often as it is followed.

Two kilobytes of `<use>` in `<use>` are a billion shapes; patterns, clips and markers nest in the same way. So the walk
ends where the allowance does. Nothing is measured: every shape may cover the whole picture, so what is counted is how
often that is painted. A picture that is too large for that is made smaller, where its size is the drawing's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise
from math import sqrt

from ..allowance import REPEATS, Allowance, ExcessError, of_images
from ..html_blocks import blocks

MAX_MARKUP = 2_500_000
"""Characters of a page's markup, its scripts aside, if it holds SVG that refers to itself."""
MAX_REFERENCES = 80
"""Gradients that lead on to others."""
OF_A_PAGE = 3
"""Elements of a drawing that count as one of a page: what is drawn is not laid out. 50,000 are about two seconds."""
PIXELS = 80_000
"""Painted pixels that count as an element of a drawing."""
GRADIENT, LAYER, CLIP, IMAGE, PATTERN = 10, 6, 4, 30, 30
"""How often each paints the picture, a shape being once: also a group that is blended, and an image that is turned."""
TILE = 10_000_000 // PIXELS
"""Elements that painting the whole tile of a pattern counts as: browsers make none larger."""
LETTERS, NUMBERS, DASHES, RULES = 20, 25, 3, 100
"""Letters, numbers of a path, dashes, elements times rules: so many count as an element, wherever they are."""
LETTERS_OF_A_PAINT, OUTLINE = 4, 6
"""Letters that take as long as painting the picture once, and how many times as long with an outline."""
FEW_TURNS, MANY_TURNS = 20, 20_000
"""Times that a path may cross the place it lies in, after which each counts as an element, and again if it is stroked;
and after which each counts twice, as edges are kept in order."""
COVERED = 8
"""Elements in each other that a layer or a clip counts as."""
MAX_DASHES = 20_000
"""Dashes of one line; it is drawn solid if it could have more, or if how long it is cannot be told."""
VIEW = (2_000.0, 4_000.0)
"""CSS pixels of a picture that a browser paints at once: what is far outside of the window waits."""
UNSAID = 1_500.0
"""Assumed side of an SVG without width or height, in CSS pixels."""
STRETCHED, SMALLEST = 500_000.0, 60_000.0
"""CSS pixels of a picture that a page shows in a size of its own, and that a picture is not made smaller than."""
ENDLESS = 1e12

OUTLINED = frozenset("path rect circle ellipse line polyline polygon".split())  # noqa: SIM905
TEXTS = frozenset(("text", "tspan", "textpath"))
DRAWN = OUTLINED | TEXTS | {"image", "use", "svg", "g", "a", "switch"}
DEFINED = frozenset(
    "defs symbol clippath mask pattern marker lineargradient radialgradient stop style".split()  # noqa: SIM905
)
SEEN = DRAWN | {"stop"}
LOCAL = re.compile(r"\s*#([A-Za-z_][\w:.-]{0,200})\s*")
URL = re.compile(r"\s*url\(\s*[\"']?#([A-Za-z_][\w:.-]{0,200})[\"']?\s*+\)\s*+(?:none|currentColor|[#\w]{1,30})?\s*+")
MARKERS = frozenset(("marker", "marker-start", "marker-mid", "marker-end"))
CLIPS = ("clip-path", "mask")
INHERITED = ("fill", "stroke", *sorted(MARKERS))
REFERS = (*INHERITED, *CLIPS)
PLACES = ("x", "y", "dx", "dy", "rotate")
"""Attributes of a text that may have a number for each letter, which is drawn by itself then."""
LINES = frozenset(("path", "line", "polyline", "polygon"))
"""Elements that may have markers: others hand them on to all that they hold."""
_SIZES = ("x1", "x2", "y1", "y2", "width", "height", "r", "rx", "ry")
_UNPLAIN = re.compile(r"[%a-df-z]", re.IGNORECASE)
_UNMEASURED, _RELATIVE, _CURVED = re.compile("[AaSsTt]"), re.compile("[HVchlmqv]"), re.compile("[ACQSTacqst]")
_STROKE = re.compile(r"stroke\s*:")
_COMMENT = re.compile(r"<!--(?:[^<>-]|-(?!-)){0,10000}-->|<!doctype\b[^<>]{0,1000}>", re.IGNORECASE)
"""Comments that every parser takes for the same: nothing in them begins or ends anything."""
_DECLARED = re.compile(r"<[!?]")
_REFERENCE = re.compile(r"<use\b|url\(\s{0,8}[\"']?#", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]{1,3})?")
_LENGTH = re.compile(r"\s*+([0-9]{1,8}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})\s*+(px|pt|pc|mm|cm|in|em|ex)?\s*+")
_UNITS = {"pt": 4 / 3, "pc": 16.0, "mm": 3.78, "cm": 37.8, "in": 96.0, "em": 16.0, "ex": 8.0}


Inherited = tuple[tuple[str, str], ...]
"""What shapes are filled, drawn and marked with by what they lie in, if that is another element."""


@dataclass(slots=True)
class Element:
    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)
    values: Mapping[str, str] = field(default_factory=dict)
    """Its attributes and its style: the latter goes first."""
    numbers: int = 0
    """Numbers that its path has."""
    own: tuple[float, float] = (0.0, 0.0)
    """Elements that it counts as by itself, and how often it paints the picture."""
    known: dict[Inherited, tuple[float, float, int]] = field(default_factory=dict)
    """The same with all in it, and how deep that lies, by what it takes over: the same is not walked again."""


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
    left = of_images()

    class Drawings(HTMLParser):
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
            left.charge(depth=len(stack))
            element = Element(tag, {name.removeprefix("xlink:"): value or "" for name, value in attrs})
            stack[-1].children.append(element)
            return element

    try:
        Drawings().feed(source)
        _Walk(root, left, 0)
    except ExcessError:
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


def length(value: str | None) -> float | None:
    """Return a length in CSS pixels, None for another text, and for a length that depends on something else."""
    found = _LENGTH.fullmatch(value) if value else None
    return float(found[1]) * _UNITS.get(found[2] or "px", 1.0) if found else None


def charge(root: Element, left: Allowance, *, stretched: bool = False) -> None:
    """Take what an SVG comes to; one that is painted too often for its size is made smaller.

    Raises `ExcessError` where that is not enough, or if it is `stretched`: a page shows it in a size of its own.
    """
    sides = length(root.attributes.get("width")), length(root.attributes.get("height"))
    width, height = (UNSAID if side is None else side for side in sides)
    picture = min(width, VIEW[0]) * min(height, VIEW[1])
    smallest = max(picture, STRETCHED) if stretched else min(picture, SMALLEST)
    walk = _Walk(root, left, smallest / PIXELS, mends=not stretched)
    most = PIXELS * (left.elements * OF_A_PAGE - walk.elements) / max(walk.paints, 1.0)
    if (picture := max(picture, smallest)) > most:
        if None not in sides:
            root.attributes.setdefault("viewBox", f"0 0 {width:g} {height:g}")
        else:
            width = height = UNSAID
        smaller = sqrt(most / (width * height))
        root.attributes |= {"width": str(int(width * smaller)), "height": str(int(height * smaller))}
        picture = most
    left.charge(min(left.elements, (walk.elements + walk.paints * picture / PIXELS) / OF_A_PAGE))


class _Walk:
    """One drawing as it is drawn, within an allowance; `each` is what painting the picture counts as.

    What `mends` draws solid the lines that have too many dashes.
    """

    def __init__(self, root: Element, left: Allowance, each: float, *, mends: bool = False) -> None:
        self.elements = self.paints = 0.0
        self._left, self._each, self._mends = left, each, mends
        self._named: dict[str, Element] = {}
        self._stroked = self._layered = False
        self._dash = ENDLESS
        """The shortest dash that a shape may take over."""
        rules = 0
        every = [root]
        for element in every:
            every += [child for child in element.children if isinstance(child, Element)]
        for element in reversed(every):
            self._named[element.attributes.get("id", "")] = element  # the first of a name holds
            style = element.attributes.get("style")
            element.values = {**element.attributes, **dict(declarations(style))} if style else element.attributes
            if element.tag == "style":
                sheet = "".join(map(str, element.children))
                rules += sheet.count("{")
                self._stroked |= _STROKE.search(sheet) is not None
                self._layered |= "opacity" in sheet
            elif element.tag not in OUTLINED:
                self._stroked |= element.values.get("stroke", "none") != "none"
                self._dash = min(self._dash, _dash(element.values))
        for element in every:
            element.own = self._alone(element)
        self._add(rules * len(every) / RULES)
        self._draw(root, (), 0)

    def _add(self, elements: float, paints: float = 0) -> None:
        self.elements += elements
        self.paints += paints
        if self.elements + self.paints * self._each > self._left.elements * OF_A_PAGE:
            raise ExcessError(self._left.elements * OF_A_PAGE, REPEATS)

    def _alone(self, element: Element) -> tuple[float, float]:
        """Return what an element counts as by itself, and how often it paints the picture."""
        values = element.values
        stroked = values["stroke"] != "none" if "stroke" in values else self._stroked
        if element.tag == "image":
            return 20, IMAGE
        if element.tag in TEXTS:
            letters = sum(len(child) for child in element.children if isinstance(child, str))
            places = sum(len(values[name].replace(",", " ").split()) - 1 for name in PLACES if name in values)
            return 1 + letters / LETTERS + places, letters * (OUTLINE if stroked else 1) / LETTERS_OF_A_PAINT
        if element.tag not in OUTLINED:
            return (1 if element.tag == "use" else 0.5), 0
        outline, turns, element.numbers = _outline(element)
        turns = max(0, turns - FEW_TURNS) * (1 + turns / MANY_TURNS) * (1 + stroked)
        paints = 2 if stroked and values.get("fill") != "none" else 1
        return max(1, element.numbers / NUMBERS) + turns + self._dashes(element, outline) / DASHES, paints

    def _dashes(self, element: Element, outline: float) -> float:
        dash = _dash(element.values) if "stroke-dasharray" in element.values else self._dash
        if not self._each or dash >= ENDLESS:
            return 0.0
        if (dashes := outline / dash) <= MAX_DASHES:
            return dashes
        if not self._mends:
            raise ExcessError(MAX_DASHES, "dashes in a line")
        style = declarations(element.attributes.pop("style", ""))
        if kept := "; ".join(f"{name}: {value}" for name, value in style if name != "stroke-dasharray"):
            element.attributes["style"] = kept
        element.attributes["stroke-dasharray"] = "none"
        return 0.0

    def _draw(self, element: Element, inherited: Inherited, depth: int) -> int:
        """Count an element with all that it holds and refers to, and return how deep that lies."""
        values = element.values
        if not values.keys().isdisjoint(INHERITED):
            both = {**dict(inherited), **{name: values[name] for name in INHERITED if name in values}}
            inherited = tuple((name, value) for name, value in both.items() if "url" in value.lower())
        elements, paints, below = element.known.get(inherited, (*element.own, 0))
        self._left.charge(depth=depth + below)
        before = self.elements, self.paints
        self._add(elements, paints)
        if inherited in element.known:
            return below
        clips = [clip for name in CLIPS if (clip := self._found(values.get(name))) and not _is_rectangle(clip)]
        covers = len(clips) + self._is_layer(element)
        if covers:
            self._add(len(clips), CLIP * len(clips) + LAYER * (covers - len(clips)))
        step = 1 + COVERED * covers
        inside = [(one, inherited) for one in element.children if isinstance(one, Element) and one.tag in SEEN]
        if element.tag == "use" and (found := self._found(values.get("href"), LOCAL)) is not None:
            inside.append((found, inherited))
        inside += [(clip, ()) for clip in clips]
        below = max((step + self._draw(one, taken, depth + step) for one, taken in inside), default=0)
        if element.tag in OUTLINED or element.tag in TEXTS:
            below = max(below, self._refer(element, inherited, depth + 1))
        element.known[inherited] = self.elements - before[0], self.paints - before[1], below
        return below

    def _is_layer(self, element: Element) -> bool:
        """Return whether what is in an element is blended as a whole: a single shape is as it is painted."""
        if not self._layered and element.values.get("opacity", "1").strip() in ("1", "1.0", ""):
            return False
        found = self._found(element.values.get("href"), LOCAL) if element.tag == "use" else element
        return found is not None and found.tag not in OUTLINED

    def _refer(self, element: Element, inherited: Inherited, depth: int) -> int:
        """Count what a shape is filled, drawn and marked with: it may have that from any element around it."""
        below = 0
        for name, value in inherited:
            found = self._found(value)
            if found is None or (name in MARKERS and element.tag not in LINES):
                continue
            times = (PATTERN if found.tag == "pattern" else GRADIENT) * (element.own[1] if element.tag in TEXTS else 1)
            before = self.elements, self.paints
            for _ in range(MAX_REFERENCES):  # a gradient may have the stops of another
                self._add(1)
                below = max(below, 1 + self._draw(found, (), depth))
                if (found := self._found(found.values.get("href"), LOCAL)) is None:
                    break
            elements, paints = self.elements - before[0], self.paints - before[1]
            if name in ("marker", "marker-mid"):
                self._add(elements * (element.numbers // 2), paints * (element.numbers // 2))
            elif name not in MARKERS:
                self.paints = before[1]
                self._add(TILE * paints if self._each else 0, times)
        return below

    def _found(self, value: str | None, form: re.Pattern[str] = URL) -> Element | None:
        found = form.fullmatch(value) if value else None
        return self._named.get(found[1]) if found else None


def _is_rectangle(clip: Element) -> bool:
    """Return whether a clip is a rectangle along the edges of the picture, which costs nothing."""
    shapes = [child for child in clip.children if isinstance(child, Element)]
    return (
        [shape.tag for shape in shapes] == ["rect"]
        and not shapes[0].attributes.keys() & {"transform", "rx", "ry", "style"}
        and not clip.attributes.keys() & {"clip-path", "style", "transform"}
    )


def _dash(values: Mapping[str, str]) -> float:
    """Return the shortest length after which dashes begin again, in the units of what they are on."""
    return sum(map(abs, _numbers(values.get("stroke-dasharray", "")))) or ENDLESS


def _outline(element: Element) -> tuple[float, float, int]:
    """Return how long the outline of a shape is at most, in its own units, how often it turns, and its numbers.

    Where a line turns it goes on in the place it lies in: one that is as long as many such places crosses itself.
    """
    values = element.values
    text = values.get("d", values.get("points"))
    if text is None:
        sizes = " ".join(values[name] for name in _SIZES if name in values).replace("px", "")
        way = sum(map(abs, _numbers(sizes))) * (1 if element.tag == "line" else 7)
        return ENDLESS if _UNPLAIN.search(sizes) else way, 0, 0
    numbers = _numbers(text)
    curves = 2 if _CURVED.search(text) else 1
    if _UNMEASURED.search(text) or _RELATIVE.search(text):
        way = ENDLESS if _UNMEASURED.search(text) else 4 * sum(map(abs, numbers))
        return way, curves * len(numbers) / 2, len(numbers)
    across, down = numbers[::2], numbers[1::2]
    place = max((max(line) - min(line) for line in (across, down) if line), default=0)
    way = sum(abs(a - b) for line in (across, down) for a, b in pairwise(line))
    closed = 2 if element.tag == "polygon" or "z" in text.lower() else 1
    return closed * way, curves * way / place if place else 0, len(numbers)


def _numbers(text: str) -> list[float]:
    """Return the numbers of an attribute, none of them too large to reckon with."""
    return [max(-ENDLESS, min(float(number), ENDLESS)) for number in _NUMBER.findall(text)]
