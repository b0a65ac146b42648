"""What binds names: assignments, and the loops within expressions."""

from __future__ import annotations

import ast
from typing import Any, Protocol

from ...core.screen_codes import ScreenCode
from . import places, sizes
from .call import patched
from .desk import Desk
from .value import MADE, UNKNOWN, Value, join


class Evaluates(Protocol):
    """What evaluates expressions."""

    def value(self, node: ast.expr | None) -> Value:
        """Return what is known of an expression."""

    def bare(self, node: ast.expr) -> Value:
        """Return what a name is, without noting that it is mentioned."""


class Binding:
    """Gives names their values."""

    def __init__(self, desk: Desk, expressions: Evaluates) -> None:
        self._desk = desk
        self._expressions = expressions

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        desk, generator = self._desk, node.generators[0]
        items = [self._expressions.value(one.iter) for one in node.generators]
        desk.scopes.append({})
        desk.loops.extend(sizes.count_of(one) for one in items)
        if desk.times >= 1e9:
            self._desk.notes.add(ScreenCode.EXHAUST_PROCESSOR, node.lineno, f"{desk.times:.3g} times")
        try:
            found = self._unrolled(node, generator, items[0])
            if found is not None:
                return found
            for one, item in zip(node.generators, items, strict=True):
                self.target(one.target, places.item(item))
                for test in one.ifs:
                    self._expressions.value(test)
            parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            values = [self._expressions.value(part) for part in parts]
            if (times := desk.times) >= 1e8 and not isinstance(node, ast.GeneratorExp):
                sizes.sized(desk, times, 32.0, node.lineno)
            return Value(ref="builtins.range()" if times >= 1e6 else None, text=None, taints=join(*items, *values))
        finally:
            del desk.loops[len(desk.loops) - len(items) :]
            desk.scopes.pop()

    def _unrolled(self, node: ast.expr, generator: ast.comprehension, items: Value) -> Value | None:
        """Return a list that is computed from constants, such as that of the letters of a text."""
        whole = items.const if items.known else None
        if (
            isinstance(node, ast.DictComp)
            or not isinstance(whole, list | tuple | str | bytes)
            or not 0 < len(whole) <= 1024
        ):
            return None
        if len(node.generators) > 1 or generator.ifs or not isinstance(generator.target, ast.Name):  # type: ignore[attr-defined]
            return None
        found: list[Any] = []
        for item in whole:
            self._desk.assign(generator.target.id, Value(const=item))
            value = self._expressions.value(node.elt)  # type: ignore[attr-defined]
            if not value.known:
                return None
            found.append(value.const)
        return Value(const=found, taints=items.taints, built=True)

    def target(self, node: ast.expr, value: Value) -> None:
        """Give a value to what is assigned."""
        if isinstance(node, ast.Name):
            self._desk.assign(node.id, value)
        elif isinstance(node, ast.Starred):
            self.target(node.value, Value(taints=value.taints))
        elif isinstance(node, ast.Tuple | ast.List):
            whole = value.const if value.known and isinstance(value.const, list | tuple) else []
            for at, part in enumerate(node.elts):
                exact = len(whole) == len(node.elts)
                self.target(
                    part,
                    Value(const=whole[at])
                    if exact
                    else Value(ref=f"{value.ref}[{at}]" if value.ref else None, taints=value.taints),
                )
        elif isinstance(node, ast.Attribute):
            owner = self._expressions.bare(node.value)
            patched(self._desk, owner, node.attr, value, node.lineno)
            if node.attr in self._desk.notes.book.attributes:
                for row in self._desk.notes.book.of_attribute(node.attr):
                    self._desk.notes.row(row, node.lineno, node.attr)
        elif isinstance(node, ast.Subscript):
            owner, index = (
                self._expressions.bare(node.value),
                self._expressions.value(node.slice) if not isinstance(node.slice, ast.Slice) else UNKNOWN,
            )
            if owner.ref in ("sys.modules", "builtins.__dict__", "builtins.globals()") or (owner.ref or "").endswith(
                ".__dict__"
            ):
                patched(self._desk, owner, str(index.shown or MADE), value, node.lineno)
