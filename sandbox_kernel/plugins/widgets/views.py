"""How many views a widget comes to, with all that is in it: a box in itself, or boxes that double, would fill the tab.

Pure, imports nothing of this package. A front end draws each child again in each place, without a bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

MAX_VIEWS = 10_000
"""Views of one widget, and of all that a cell displays. A grid of 20 by 20 fields has 401."""
VIEW = 5
"""Elements of a page that a view counts as: what has more in it counts as so many more views."""
MAX_DEPTH = 50
MAX_CELLS = 100
"""Cells whose displayed widgets are known: the last ones that displayed any."""
MAX_EDGES = 5_000
"""Pairs of a widget and one in it, of a session: it may open 1,000 widgets."""


class Views:
    """Which widget is shown in which, and how often."""

    def __init__(self) -> None:
        self._weights: dict[str, dict[str, int]] = {}
        """Widget -> trait -> what it costs to draw that, in views."""
        self._cells: dict[str, Counter[str]] = {}
        """Cell -> the widgets that it displays."""
        self._known: dict[str, tuple[int, int]] = {}
        """Widget -> what it comes to, in views, and how deep they lie."""
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

    def weigh(self, widget: str, trait: str, weight: int) -> bool:
        """Note what a trait costs to draw, in views; False, and nothing is noted, if that were more, wherever it is."""
        weights = self._weights.get(widget, {})
        old = weights.get(trait, 0)
        if weight == old:
            return True
        self._weights[widget] = {**weights, trait: weight}
        if weight < old or self._bearable():
            return True
        self._weights[widget] = weights
        return False

    def weighed(self, widget: str, trait: str) -> int:
        return self._weights.get(widget, {}).get(trait, 0)

    def show(self, cell: str, widget: str, *, new: bool) -> bool:
        """Note that a cell displays a widget, once more if it is `new`; False, and nothing is noted, as with `put`."""
        there = self._cells.setdefault(cell, Counter())
        while len(self._cells) > MAX_CELLS:
            del self._cells[next(iter(self._cells))]
        old = there[widget]
        there[widget] = old + 1 if new else max(old, 1)
        if self._bearable():
            return True
        there[widget] = old
        return False

    def clear(self, cell: str) -> None:
        """Note that a cell clears what it displays."""
        self._cells.pop(cell, None)

    def weight(self, widget: str) -> int:
        """Return what a widget came to, in views, with all in it, when one was last displayed or changed."""
        return self._known.get(widget, (1, 0))[0]

    def times(self, widget: str) -> int:
        """Return how often a widget is drawn in the cells, wherever it lies there."""
        around: dict[str, Counter[str]] = {}
        for (outer, _), there in self._inside.items():
            for inner, often in there.items():
                around.setdefault(inner, Counter())[outer] += often
        known: dict[str, int] = {}

        def drawn(one: str) -> int:
            if one not in known:
                known[one] = 0  # nothing that may be drawn lies in itself
                shown = sum(there[one] for there in self._cells.values())
                known[one] = shown + sum(often * drawn(outer) for outer, often in around.get(one, Counter()).items())
            return known[one]

        return min(drawn(widget), MAX_VIEWS)

    def forget(self, widget: str) -> None:
        """Note that a widget is gone, and what was in it with it."""
        self._weights.pop(widget, None)
        for there in self._cells.values():
            there.pop(widget, None)
        for key in [key for key in self._inside if key[0] == widget]:
            del self._inside[key]

    def _bearable(self) -> bool:
        if sum(map(len, self._inside.values())) > MAX_EDGES:
            return False
        inside: dict[str, Counter[str]] = {}
        for (widget, _), there in self._inside.items():
            inside[widget] = inside[widget] + there if widget in inside else there
        known: dict[str, tuple[int, int]] = {}
        weights = {widget: sum(of.values()) for widget, of in self._weights.items()}

        def views(widget: str) -> int:
            return _measure(widget, inside, weights, known, 0)[0]

        try:
            fits = all(views(widget) <= MAX_VIEWS for widget in inside) and all(
                sum(often * views(widget) for widget, often in there.items()) <= MAX_VIEWS
                for there in self._cells.values()
            )
        except RecursionError:
            return False
        if fits:
            self._known = known
        return fits


def _measure(
    widget: str,
    inside: dict[str, Counter[str]],
    weights: dict[str, int],
    known: dict[str, tuple[int, int]],
    level: int,
) -> tuple[int, int]:
    """Return how many views a widget comes to and how deep they lie. Raises `RecursionError` if that has no end."""
    if level > MAX_DEPTH:
        raise RecursionError
    if widget not in known:
        views, depth = 1 + weights.get(widget, 0), 0
        for one, times in inside.get(widget, Counter()).items():
            more, deeper = _measure(one, inside, weights, known, level + 1)
            views, depth = views + times * more, max(depth, deeper + 1)
        if depth > MAX_DEPTH:
            raise RecursionError
        known[widget] = (min(views, MAX_VIEWS + 1), depth)
    return known[widget]
