"""How many views a widget comes to, with all that is in it: a box in itself, or boxes that double, would fill the tab.

Pure, imports nothing of this package. A front end draws each child anew in each place, without a bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

MAX_VIEWS = 10_000
"""Views of one widget. A grid of 20 by 20 fields has 401."""
MAX_DEPTH = 50
MAX_EDGES = 5_000
"""Pairs of a widget and one in it, of a session: it may open 1,000 widgets."""


class Views:
    """Which widget is shown in which, and how often."""

    def __init__(self) -> None:
        self._inside: dict[tuple[str, str], Counter[str]] = {}
        """(widget, place in it) -> the widgets there."""

    def put(self, widget: str, place: str, inside: Iterable[str]) -> bool:
        """Note what is now in a place; False, and nothing is noted, if that were more than a page can bear."""
        new = Counter(inside)
        old = self._inside.get((widget, place))
        if new == (old or Counter()):
            return True
        self._inside[widget, place] = new
        if self._bearable():
            return True
        if old is None:
            del self._inside[widget, place]
        else:
            self._inside[widget, place] = old
        return False

    def add(self, widgets: Sequence[str], place: str, one: str) -> bool:
        """Note one widget more in the same place of each of several; False, and nothing is noted, as with `put`.

        All at once, and counted once: a cell may have a thousand widgets that take over each of its displays.
        """
        there = [self._inside.setdefault((widget, place), Counter()) for widget in widgets]
        for inside in there:
            inside[one] += 1
        if not widgets or self._bearable():
            return True
        for inside in there:
            inside[one] -= 1
            if not inside[one]:
                del inside[one]
        return False

    def empty(self, widget: str, place: str) -> None:
        self._inside.pop((widget, place), None)

    def forget(self, widget: str) -> None:
        """Note that a widget is gone, and what was in it with it."""
        for key in [key for key in self._inside if key[0] == widget]:
            del self._inside[key]

    def _bearable(self) -> bool:
        if sum(map(len, self._inside.values())) > MAX_EDGES:
            return False
        inside: dict[str, Counter[str]] = {}
        for (widget, _), there in self._inside.items():
            inside[widget] = inside[widget] + there if widget in inside else there
        known: dict[str, tuple[int, int]] = {}
        try:
            return all(_measure(widget, inside, known, 0)[0] <= MAX_VIEWS for widget in inside)
        except RecursionError:
            return False


def _measure(
    widget: str, inside: dict[str, Counter[str]], known: dict[str, tuple[int, int]], level: int
) -> tuple[int, int]:
    """Return how many views a widget comes to and how deep they lie. Raises `RecursionError` if that has no end."""
    if level > MAX_DEPTH:
        raise RecursionError
    if widget not in known:
        views, depth = 1, 0
        for one, times in inside.get(widget, Counter()).items():
            more, deeper = _measure(one, inside, known, level + 1)
            views, depth = views + times * more, max(depth, deeper + 1)
        if depth > MAX_DEPTH:
            raise RecursionError
        known[widget] = (min(views, MAX_VIEWS + 1), depth)
    return known[widget]
