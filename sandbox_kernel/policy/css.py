"""CSS that colours and lays out its own output, loads nothing and reaches nothing else on the page.

Nothing is repaired: a declaration or rule that is not plainly harmless is left out. With no backslash and no comment
left, names in CSS cannot be spelled in another way.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator

from .slow_text import sought, turns

_PROPERTIES = frozenset(
    """align-content align-items align-self background background-color background-image background-position
    background-repeat background-size bar-color bottom box-sizing button-color caption-side clear color
    column-gap cursor description-width empty-cells float gap handle-color height justify-content
    justify-items justify-self left letter-spacing line-height list-style list-style-type max-height max-width
    min-height min-width object-fit object-position opacity order overflow overflow-wrap overflow-x overflow-y
    position right row-gap tab-size table-layout text-align text-decoration text-decoration-color
    text-decoration-line text-decoration-style text-indent text-overflow text-transform top vertical-align
    visibility white-space width word-break word-spacing word-wrap writing-mode z-index
    """.split()  # noqa: SIM905 (a list of words reads better as words)
)
_FAMILIES = ("border", "padding", "margin", "font", "flex")
_TILED = "border-image"
"""No grid, no columns, no tiles: what makes many of one is not there, rather than counted."""
_DISPLAY = re.compile(
    r"(?:none|block|inline|inline-block|flex|inline-flex|table|inline-table|list-item|flow-root|initial|inherit|unset)"
    r"(?:\s*!important)?"
)
"""No parts of a table: rows and columns are counted by their elements. No grid, whose places are not counted."""
_FUNCTIONS = frozenset(
    """rgb rgba hsl hsla linear-gradient radial-gradient conic-gradient repeating-linear-gradient calc min max
    clamp""".split()  # noqa: SIM905
)
_GRID = frozenset(
    """display grid-area grid-auto-columns grid-auto-flow grid-auto-rows grid-column grid-gap grid-row
    grid-template-areas grid-template-columns grid-template-rows""".split()  # noqa: SIM905
)
_TRACKS = frozenset(("repeat", "minmax", "fit-content"))
_MANY = re.compile(r"(?<![\w.#])[0-9]{3,}(?![\w.%])|dense|repeat.*repeat", re.DOTALL)
"""Too many lines and tracks of a grid of widgets, and places that are searched again and again."""
_NAME = re.compile(r"[a-z-]{1,60}")
_VALUE = re.compile(r"[\w\s#%.,()+*/'\"!-]{0,2000}", re.ASCII)
_NAMED = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
_STRING = re.compile(r"\"[^\"'\n]*\"|'[^\"'\n]*'")
SLOW_VALUE = re.compile(r"caps|unicase|phrase", re.IGNORECASE)
"""Small capitals: a browser cuts a text into pieces for them, and looks at all of these for each of them. Japanese that
is to break between phrases: 100,000 letters keep it busy for 22 s."""
_PLACES = {"static", "sticky"}
_PLACES_IN_SHEET = {"absolute", "relative"}
"""What a sheet places is painted within its output only (`contain: paint`), as a Styler's tooltips are."""
_SHIFT = re.compile(r"translate\(-?[0-9]{1,3}(px|em|%)(, ?-?[0-9]{1,3}(px|em|%))?\)")
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{1,6})[ \t\n]?")
"""As IRkernel writes the dots between the parts of each vector."""
_CONTENT = re.compile(r"\s*(?:\"([^\"'\\<>\n]{0,200})\"|'([^\"'\\<>\n]{0,200})'|none)\s*")
"""Words before or after an element."""
MAX_CONTENT = 500_000
"""Characters of all contents, if each element had the longest before it and after it. A change of direction, or a
letter of a script without spaces, counts for twenty more."""
_OFFSETS = frozenset(("top", "left", "right", "bottom", "z-index"))
_OFFSET = re.compile(r"[0-9]{1,3}(\.[0-9]+)?(px|em|%)?(\s*!important)?")
MAX_GRID, MAX_REPEATED = 2_000, 200
"""Characters of a value of a grid of widgets, and of one whose tracks are repeated."""
MAX_SHEET = 2_000_000
"""Characters of one style sheet; a Styler of 10,000 cells has about a million."""
MAX_SHEET_PARTS = 70_000
"""Selectors and declarations of one style sheet: each is looked at, and these take a third of a second. A Styler of
10,000 cells with bars has about 50,000."""
MAX_PLACED = 6_000
"""Tags of an output whose sheet may place elements over each other: 5,000 large cells in one place take 11 s."""
MAX_MATCHES = 2_000_000
"""Elements times the rules that a browser tries on each: about a second of its time."""
_ONE = (
    r"(?:[A-Za-z][\w-]{0,40}|\*|(?=[.#:\[]))(?:[.#]-?[A-Za-z_][\w-]{0,100}|\[[\w-]{1,40}(?:[|^$*]?=(?:\"[\w\s.-]{0,80}\"|'[\w\s.-]{0,80}'"
    r"|[\w-]{1,80}))?\]|::?(?:hover|focus|active|visited|link|empty|before|after"
    r"|(?:first|last|only)-(?:child|of-type)|nth-(?:last-)?(?:child|of-type)\((?:odd|even|[0-9n+\s-]{1,12})\)"
    r"|not\(:?[.#]?[\w-]{1,60}\)))*"
)
_SELECTOR = re.compile(rf"{_ONE}(?:(?:\s*>\s*|\s+){_ONE}){{0,5}}", re.ASCII)
"""At most six elements in one another. Siblings (`~`, `+`) and `:has` look at every other element for each element."""
MAX_PARTS = 12
"""Words and combinators of one selector."""
_SLOW = re.compile(r":has|:is|:where|:nth-[\w-]+\([^()]*\bof\b", re.IGNORECASE)
_ARGUMENTS = re.compile(r"\([^()]*\)")
_SIBLINGS = re.compile(r"[~+](?!=)")
_CLASS = re.compile(r"\.(-?[A-Za-z_][\w-]*)", re.ASCII)


def allowed(name: str, value: str, *, in_sheet: bool = False) -> bool:
    """Return whether one declaration is harmless: it loads nothing and cannot leave its place on the page."""
    name = name.strip().lower()
    if in_sheet and name == "content":
        return _CONTENT.fullmatch(value) is not None
    if in_sheet and name == "transform":
        return _SHIFT.fullmatch(value.strip().lower()) is not None
    if name == "display":
        return _DISPLAY.fullmatch(value.strip().lower()) is not None
    if name not in _PROPERTIES and not (_NAME.fullmatch(name) and name.split("-", 1)[0] in _FAMILIES):
        return False
    if name.startswith(_TILED):
        return False
    if not _VALUE.fullmatch(value) or "/*" in value or not _closed(value) or SLOW_VALUE.search(value):
        return False
    value = value.strip().lower()
    if any(function and function not in _FUNCTIONS for function in _functions(value)):
        return False
    if name == "position":
        return value in _PLACES or (in_sheet and value in _PLACES_IN_SHEET)
    if name in _OFFSETS:
        return bool(_OFFSET.fullmatch(value))
    # A negative margin lays an output over its neighbours.
    return not (name.startswith("margin") and ("-" in value or "(" in value))


def allowed_in_widgets(name: str, value: str) -> bool:
    """Return the same for a trait of a widget's layout, which may be a grid: of tracks that are not many."""
    if name not in _GRID or (name == "display" and "grid" not in value):
        return allowed(name, value)
    value = value.lower()
    return (
        _VALUE.fullmatch(value) is not None
        and _closed(value)
        and not _MANY.search(value)
        and len(value) <= (MAX_REPEATED if "repeat" in value else MAX_GRID)
        and all(one in _FUNCTIONS | _TRACKS for one in _functions(value) if one)
    )


def declarations(text: str, *, in_sheet: bool = False) -> tuple[str, bool]:
    """Return the harmless ones of some declarations, and whether any was left out."""
    kept = []
    whole = True
    for declaration in text.split(";"):
        if not declaration.strip():
            continue
        name, colon, value = declaration.partition(":")
        if colon and allowed(name, value, in_sheet=in_sheet):
            kept.append(declaration)
        else:
            whole = False
    return (text if whole else ";".join(kept)), whole


def stylesheet(text: str, scope: str) -> str | None:
    """Return a style sheet whose rules reach only inside elements of class `scope`, or None if it is not plain."""
    rules = _rules(text)
    if rules is None:
        return None
    kept = []
    for selectors, body in rules:
        harmless, whole = declarations(body, in_sheet=True)
        parts = [part.strip() for part in selectors.split(",")]
        if not whole or not all(_SELECTOR.fullmatch(part) and _closed(part) for part in parts):
            return None
        kept.append(", ".join(f".{scope} {part}" for part in parts) + " {" + harmless + "}")
    return "\n".join(kept)


def is_costly(text: str, elements: int) -> bool:
    """Return whether a browser would be busy for long to find which of so many elements the rules are for.

    It tries a rule on the elements that have the id, the class or the name at the end of its selector.
    """
    if _parts(text) > MAX_SHEET_PARTS:
        return True
    tried: Counter[str] = Counter()
    longest = 0
    for selectors, body in _rules(text) or []:
        if elements > MAX_PLACED and "absolute" in body.lower():
            return True
        if "content" in body.lower():
            longest = max(longest, *(len(one) + 20 * (turns(one) + sought(one)) for one in body.split(";")))
        for part in selectors.split(","):
            words = part.split()
            if len(words) > MAX_PARTS or _SLOW.search(part) or _SIBLINGS.search(_ARGUMENTS.sub("", part)):
                return True
            name = words[-1].rpartition(">")[2].partition("[")[0].partition("(")[0] if words else ""
            if "#" not in name:
                tried["." + name.rpartition(".")[2] if "." in name else name.partition(":")[0] or "*"] += 1
    if 2 * elements * longest > MAX_CONTENT:
        return True
    return elements * (max(tried.values(), default=0) + tried["*"]) > MAX_MATCHES


def classes(text: str) -> set[str]:
    """Return the classes that the selectors of a style sheet name."""
    return {name for selectors, _ in _rules(text) or [] for name in _CLASS.findall(selectors)}


def _rules(text: str) -> list[tuple[str, str]] | None:
    """Return selectors and declarations of each rule, or None if there is anything else than rules."""
    if len(text) > MAX_SHEET:
        return None
    text = _ESCAPE.sub(_unescaped, text)
    if "\\" in text or "<" in text or "@" in text or _parts(text) > MAX_SHEET_PARTS:
        return None
    text = _without_comments(text)
    *rules, rest = text.split("}")
    pairs = [rule.split("{") for rule in rules]
    if rest.strip() or any(len(pair) != 2 for pair in pairs):
        return None
    return [(selectors, body) for selectors, body in pairs]


def _unescaped(escape: re.Match[str]) -> str:
    """Return the character of an escape, if it is a letter or sign that has no meaning of its own in a sheet."""
    number = int(escape[1], 16)
    letter = chr(number) if number <= sys.maxunicode else ""
    return letter if letter in {" ", "\xa0"} or (letter > "\xa0" and letter.isprintable()) else escape[0]


def _parts(text: str) -> int:
    """Return how many selectors and declarations a style sheet has; a comma of a value is none of a selector."""
    return text.count(";") + sum(1 + part.count(",", part.rfind("}") + 1) for part in text.split("{"))


def _without_comments(text: str) -> str:
    first, *others = text.split("/*")
    pieces = [first]
    for other in others:
        _, end, after = other.partition("*/")
        pieces.append(after if end else "")
    return " ".join(pieces)


def _functions(value: str) -> Iterator[str]:
    """Yield the word before each parenthesis. An expression would read a long word again from each of its letters."""
    for part in value.split("(")[:-1]:
        before = part.rstrip()
        yield before[len(before.rstrip(_NAMED)) :]


def _closed(text: str) -> bool:
    """Return whether every quote and parenthesis is closed, so that what follows cannot be swallowed or set free."""
    text = _STRING.sub("", text)
    return not ('"' in text or "'" in text) and text.count("(") == text.count(")")
