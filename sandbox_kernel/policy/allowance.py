"""What one output may come to: one value that every reader of it charges, whether it draws, typesets or lays out.

Bounds, not models: nobody estimates a browser's time. What multiplies is charged as often as it says.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_ELEMENTS = 50_000
"""Elements of one output. A table of 2,000 rows and 20 columns has 44,000."""
REPEATS = "elements with their repeats"
LETTERS_OF_AN_ELEMENT = 20
"""Characters of text that count as an element on a page."""


class ExcessError(ValueError):
    """An output comes to more than it may; the text says of what."""

    def __init__(self, limit: float, what: str) -> None:
        super().__init__(f"it has more than {limit:,.0f} {what}")


@dataclass(slots=True)
class Allowance:
    """What is left of one output."""

    elements: float = MAX_ELEMENTS
    characters: int = 0
    bytes: int = 0
    depth: int = 0
    """How deep elements may lie in each other. Nothing of this is used up."""
    taken: float = field(default=0.0, init=False)
    """Elements that were taken."""

    @property
    def work(self) -> int:
        """Elements of a page that the output counts as."""
        return int(self.taken)

    def charge(self, elements: float = 0, *, characters: int = 0, bytes: int = 0, depth: int = 0) -> None:  # noqa: A002
        """Take so much, each as often as it is there. Raises `ExcessError`, and takes nothing, if less is left."""
        if elements > self.elements:
            raise ExcessError(self.elements, REPEATS)
        if characters > self.characters:
            raise ExcessError(self.characters, "characters")
        if bytes > self.bytes:
            raise ExcessError(self.bytes, "bytes")
        if depth > self.depth:
            raise ExcessError(self.depth, "elements in each other")
        self.elements -= elements
        self.taken += elements
        self.characters -= characters
        self.bytes -= bytes

    def bears(self, elements: float = 0, *, characters: int = 0, bytes: int = 0) -> bool:  # noqa: A002
        """Take so much if it is left, and return whether it was."""
        try:
            self.charge(elements, characters=characters, bytes=bytes)
        except ExcessError:
            return False
        return True


def of_markup() -> Allowance:
    """Return what the markup of one output may come to. Each limit at its edge is drawn in about two seconds."""
    return Allowance(MAX_ELEMENTS, characters=500_000, bytes=1_000_000, depth=60)


def of_images() -> Allowance:
    """Return what all images of one output may come to: three such outputs fill a page. A pixel takes four bytes."""
    return Allowance(MAX_ELEMENTS / 3, bytes=400_000_000, depth=80)


def of_formulas() -> Allowance:
    """Return what all formulas of one output may come to; characters are those that are looked at, in half a second."""
    return Allowance(MAX_ELEMENTS / 2, characters=300_000, depth=40)


def of_chart() -> Allowance:
    """Return what the data of one figure may come to: 20,000 points."""
    return Allowance(40_000)


def of_text(letters: int) -> int:
    """Return how many elements of a page count as much as so many characters."""
    return letters // LETTERS_OF_AN_ELEMENT
