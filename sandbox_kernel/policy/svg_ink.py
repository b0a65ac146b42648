"""How much an SVG paints: the pixels that each shape covers, and the lines of pixels that its edges cross.

A shape of forty characters may cover the whole picture, 50,000 times. Kept as a histogram, since the same shape is
drawn at many sizes: how many shapes there are of about each size. A transform moves all of them to another place of it,
and what one shape covers ends at the edges of the picture. Pure; reads numbers and lengths, and imports nothing of this
package.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise

VIEW = (2_000.0, 4_000.0)
"""CSS pixels of a picture that a browser paints at once: what is far outside of the window waits."""
PIXELS_OF_A_UNIT = 33_000
"""Pixels that a browser paints half transparent in the time of one unit of cost, 13 microseconds."""
ROWS_OF_A_UNIT = 1_000
"""Rows of pixels that an edge crosses in the same time."""
UNSAID = 1_500.0
"""CSS pixels of a side that an SVG says nothing of."""
STRETCHED_TO = 500_000.0
"""CSS pixels of a picture that a page shows in a size of its own."""
MOST_DASHES = 1_000_000
"""Dashes of one line that browsers draw at most; a hundred of them cost a unit."""
SORTED_EDGES = 2_500
"""Edges of one path that take as long to be kept in order as to be drawn."""
LARGE = 64
"""The logarithm of a size that nothing in a picture has: it covers all of it."""
SMALL = -20
GRADIENT, LAYER, STRETCHED, PATTERN = 5, 3, 4, 50
"""Times as much as a plain colour: a gradient; a layer that is made and blended; pixels that are stretched; tiles."""

_NUMBER = re.compile(r"[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]{1,3})?")
_LENGTH = re.compile(
    r"\s*+([-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]{1,3})?)(px|pt|pc|mm|cm|in|q)?\s*+", re.I
)
_UNITS = {"": 1.0, "px": 1.0, "q": 1.0, "pt": 4 / 3, "pc": 16.0, "mm": 3.78, "cm": 37.8, "in": 96.0}
_STEP = re.compile(r"([A-Za-z]+)\s*+\(([^()]*)\)")
_PART = re.compile(r"([A-DF-Za-df-z])([^A-DF-Za-df-z]*+)")
_ARITY = {"M": 2, "L": 2, "T": 2, "H": 1, "V": 1, "C": 6, "S": 4, "Q": 4, "A": 7, "Z": 1}
"""Numbers of each command of a path."""


class Ink:
    """What is painted: shapes by the logarithm of their area, edges by that of their height."""

    __slots__ = ("areas", "edges")

    def __init__(self) -> None:
        self.areas: Counter[int] = Counter()
        self.edges: Counter[int] = Counter()

    def area(self, pixels: float, times: float = 1) -> None:
        """Add what covers so many square units, as often as that."""
        self.areas[_log(pixels)] += math.ceil(times)

    def edge(self, length: float, times: float = 1) -> None:
        """Add so many edges, each of which is as long as that."""
        self.edges[_log(length)] += math.ceil(times)

    def add(self, other: Ink, times: int = 1, scale: float | None = 1.0) -> None:
        """Add what another element paints, with a transform that makes areas so many times as large; None: unknown."""
        if scale == 1.0 and times == 1:
            self.areas.update(other.areas)
            self.edges.update(other.edges)
            return
        steps = LARGE if scale is None else math.ceil(math.log2(max(scale, 1e-9)))
        for size, count in other.areas.items():
            self.areas[min(size + steps, LARGE)] += count * times
        for size, count in other.edges.items():
            self.edges[min(size + math.ceil(steps / 2), LARGE)] += count * times

    def shapes(self) -> int:
        return sum(self.areas.values())

    def cost(self, width: float, height: float) -> int:
        """Return the cost in a picture of so many CSS pixels."""
        painted = sum(min(2.0**size, width * height) * count for size, count in self.areas.items())
        rows = sum(min(2.0**size, height) * count for size, count in self.edges.items())
        return int(min(painted / PIXELS_OF_A_UNIT + rows / ROWS_OF_A_UNIT, 1e12))


class Widest:
    """The widest line, the largest font and the smallest dash of a picture: shapes take them over from any element."""

    def __init__(self) -> None:
        self.line = 1.0
        self.font: float | None = 16.0
        self.dash = math.inf
        self.layered = False
        """Whether a style sheet may make a layer of each element."""

    def see(self, values: Iterable[tuple[str, str]], *, sheet: bool = False) -> None:
        """Note the values of one element, or of a style sheet."""
        for name, value in values:
            if name == "stroke-width":
                self.line = max(self.line, abs(_size(value)))
            elif name in ("font-size", "font"):
                found = [_size(part) for part in re.split(r"[\s/]+", value) if part[:1].isdigit() or part[:1] in "+."]
                sizes = [0.0 if name == "font" and "." not in value and size in _WEIGHTS else size for size in found]
                self.font = None if self.font is None or math.inf in sizes else max([self.font, *sizes])
            elif name == "stroke-dasharray" and value != "none":
                percent = 100 if "%" in value else 1
                total = sum(abs(number) for number in numbers(value)) / percent
                self.dash = min(self.dash, max(total, 1e-6)) if total else self.dash
            elif name == "opacity" and sheet:
                self.layered = True


_WEIGHTS = frozenset(float(weight) for weight in range(100, 1000, 100))


def _log(size: float) -> int:
    return max(SMALL, math.ceil(math.log2(min(size, 2.0**LARGE)))) if size > 0 else SMALL


def numbers(text: str) -> list[float]:
    """Return the numbers of an attribute, none of them too large to reckon with."""
    return [max(-1e12, min(float(number), 1e12)) for number in _NUMBER.findall(text)]


def length(values: Mapping[str, str], name: str) -> float:
    """Return a length in user units; one that depends on something else is endless."""
    return abs(_size(values[name])) if name in values else 0.0


def _size(value: str) -> float:
    found = _LENGTH.fullmatch(value)
    return min(float(found[1]), 1e12) * _UNITS[(found[2] or "").lower()] if found else math.inf


def scale(values: Mapping[str, str]) -> float | None:
    """Return how many times as large areas become by a transform, None if that is not known."""
    total = 1.0
    for name in ("transform", "patternTransform"):
        text = values.get(name, "").strip()
        steps = _STEP.findall(text)
        if text in ("", "none"):
            continue
        if not steps:
            return None
        for name_of_step, arguments in steps:
            kind, of = name_of_step.lower(), numbers(arguments)
            if kind in ("rotate", "translate", "translatex", "translatey", "skewx", "skewy"):
                continue
            if kind == "scale" and of:
                total *= abs(of[0] * of[1]) if len(of) > 1 else of[0] ** 2
            elif kind in ("scalex", "scaley") and of:
                total *= abs(of[0])
            elif kind == "matrix" and len(of) == 6:
                total *= abs(of[0] * of[3] - of[1] * of[2])
            else:
                return None
    return total


def fitted(values: Mapping[str, str], width: float, height: float) -> float | None:
    """Return how many times as large areas become by a `viewBox` that is shown in so many pixels."""
    box = numbers(values.get("viewBox", ""))
    if not box:
        return 1.0
    if len(box) != 4 or box[2] <= 0 or box[3] <= 0 or math.inf in (width, height):
        return None
    if width <= 0 or height <= 0:
        return None
    return float(max(width / box[2], height / box[3]) ** 2)


def copied(ink: Ink) -> Ink:
    result = Ink()
    result.add(ink)
    return result


def layer(ink: Ink) -> int:
    """Add the layer that an opacity makes of a single shape; of more, return how often the picture is painted."""
    if ink.shapes() > 2:  # its inside and its outline
        return LAYER
    ink.add(copied(ink), LAYER)
    return 0


def is_tile(values: Mapping[str, str]) -> bool:
    """Return whether the tile of a pattern is no larger than a picture: a browser draws all of it, seen or not."""
    by = scale(values)
    if by is None:
        return False
    for name, most in zip(("width", "height"), VIEW, strict=True):
        text = values.get(name, "0").strip()
        size = numbers(text)
        limit = 100.0 if text.endswith("%") else most if values.get("patternUnits") == "userSpaceOnUse" else 1.0
        if len(size) != 1 or abs(size[0]) * math.sqrt(max(by, 1.0)) > limit:
            return False
    return True


def placed(ink: Ink, values: Mapping[str, str], *, box: bool) -> Ink:
    """Return what an element paints in the units of what it lies in; `box`: it may have a `viewBox`."""
    sizes = [length(values, name) if name in values else math.inf for name in ("width", "height")]
    by = scale(values)
    fit = fitted(values, *sizes) if box else 1.0
    if by == fit == 1.0 or not ink.areas:
        return ink
    result = Ink()
    result.add(ink, scale=None if by is None or fit is None else by * fit)
    return result


def picture(values: Mapping[str, str], ink: Ink, *, stretched: bool) -> int:
    """Return what it costs to paint a whole picture, of the size that it says; `stretched`: it may be shown larger."""
    sizes = [length(values, name) or math.inf for name in ("width", "height")]
    sizes = [UNSAID if size == math.inf else size for size in sizes]
    whole = placed(ink, {**values, "width": str(sizes[0]), "height": str(sizes[1])}, box=True)
    width, height = min(sizes[0], VIEW[0]), min(sizes[1], VIEW[1])
    larger = max(1.0, STRETCHED_TO / (width * height)) if stretched else 1.0
    return int(min(whole.cost(width, height) * larger, 1e12))


def paint(ink: Ink, tag: str, values: Mapping[str, str], text: str, widest: Widest, *, filled: bool) -> int:
    """Add what a shape paints, and return what its dashes cost."""
    area, outline, corners = shape(tag, values, text, widest)
    if filled and area:
        ink.area(area * (STRETCHED if tag == "image" else 1))
    if tag == "image":
        return 0
    dashes = 0.0
    fixed = "vector-effect" in values
    if widest.dash < math.inf:
        dashes = min(max(outline, length(values, "pathLength")) / widest.dash, MOST_DASHES)
        dashes = max(dashes, MOST_DASHES / 5) if fixed else dashes
    if outline and tag != "text":
        ink.area((outline + widest.line) ** 2 if fixed else outline * widest.line + (corners + dashes) * widest.line**2)
    if corners and outline:
        # The edges of one path are kept in order, each beside all others of its row.
        ink.edge(2 * outline / corners, corners * (1 + corners / SORTED_EDGES))
    return int(dashes / 100 + (corners * min(widest.line, 1e6) ** 2 / PIXELS_OF_A_UNIT if fixed else 0))


def shape(tag: str, values: Mapping[str, str], text: str, widest: Widest) -> tuple[float, float, int]:
    """Return the area of a shape, the length of its outline and the number of its corners; `text` is what it says."""
    if tag in ("rect", "image"):
        width, height = length(values, "width"), length(values, "height")
        if tag == "image" and not (width and height):
            width = height = math.inf
        return width * height if width and height else 0.0, width + height, 4
    if tag in ("circle", "ellipse"):
        wide = length(values, "r" if tag == "circle" else "rx")
        high = wide if tag == "circle" else length(values, "ry")
        if tag == "ellipse" and not (wide and high):
            wide = high = max(wide, high)
        return 4 * wide * high, 4 * (wide + high), 8
    if tag == "line":
        across = [max(-1e12, min(_size(values.get(name, "0")), 1e12)) for name in ("x1", "x2", "y1", "y2")]
        return 0.0, math.hypot(across[0] - across[1], across[2] - across[3]), 2
    if tag in ("polyline", "polygon"):
        found = numbers(values.get("points", ""))
        return _covered(found[::2], found[1::2])
    if tag == "text":
        size = math.inf if widest.font is None else widest.font
        return size * size * len(text), 6 * size * len(text), len(text)
    return _path(values.get("d", ""))


def _covered(across: list[float], down: list[float], *, more: float = 0.0) -> tuple[float, float, int]:
    """Return area, length and corners of a line through points, with something around them that is so large."""
    if not down:
        return 0.0, 0.0, 0
    edges = sum(abs(a - b) for line in (across, down) for a, b in pairwise(line))
    area = (max(across) - min(across) + more) * (max(down) - min(down) + more)
    return area, edges, len(down)


def _path(text: str) -> tuple[float, float, int]:
    """Return the same for a path. The points that steer a curve are no nearer to each other than it goes."""
    across, down = [0.0], [0.0]
    more = around = 0.0
    began, smooth = 1, False
    for part in _PART.finditer(text):
        command, of = part[1], numbers(part[2])
        kind = command.upper()
        arity = _ARITY.get(kind)
        if arity is None or (kind != "Z" and (len(of) % arity or not of)):
            return math.inf, math.inf, len(text) // 2  # flags without spaces between them, or no path at all
        relative = command != kind
        smooth |= kind in "ST"
        if kind == "Z":
            across.append(across[began] if began < len(across) else 0.0)
            down.append(down[began] if began < len(down) else 0.0)
        elif kind == "M":
            began = len(across)
        for start in range(0, len(of), arity):
            x, y = (across[-1], down[-1]) if relative else (0.0, 0.0)
            if kind == "H":
                across.append(x + of[start])
                down.append(down[-1])
            elif kind == "V":
                across.append(across[-1])
                down.append(y + of[start])
            elif kind == "A":
                end = x + of[start + 5], y + of[start + 6]
                radii = abs(of[start]), abs(of[start + 1])
                far = math.hypot(end[0] - across[-1], end[1] - down[-1])
                # Radii that are too short for the way grow, both alike.
                size = max(*radii, far * max(radii) / min(radii)) if min(radii) > 0 else far
                more, around = max(more, 4 * size), around + 14 * size
                across.append(end[0])
                down.append(end[1])
            else:
                across += [x + of[place] for place in range(start, start + arity, 2)]
                down += [y + of[place] for place in range(start + 1, start + arity, 2)]
    del across[:1], down[:1]
    area, edges, corners = _covered(across, down, more=more)
    edges += around
    # Where the point that steers is the last one's mirror image, it is no farther than all the ways before.
    return (edges * edges if smooth else area), (5 if smooth else 1) * edges, corners
