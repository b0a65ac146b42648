"""Operators between two values: sums, products and paths, and texts of which only parts are known."""

from __future__ import annotations

import ast

from . import fold, sizes
from .desk import Desk
from .value import MISSING, MOST_TEXT, UNKNOWN, UNKNOWN_PART, Value, composed, constant, join


def two(desk: Desk, node: ast.BinOp, left: Value, right: Value) -> Value:
    """Return what an operator makes of two values."""
    taints, name = join(left, right), type(node.op).__name__
    desk.weigh(left, right)
    if left.known and right.known:
        try:
            found = fold.binary(name, left.const, right.const)
        except fold.TooMuchError as error:
            sizes.huge(desk, error, left.const, right.const, node.lineno)
            if error.what == "items":
                return Value(ref=f"sized:{error.size}", taints=taints)
            found = MISSING
        if found is not MISSING:
            built = isinstance(found, str | bytes)
            return constant(found, built=built, taints=taints)
    elif name == "Mult" and (right.known or left.known):
        count = right.const if right.known else left.const
        if isinstance(count, int) and not isinstance(count, bool) and isinstance(node.left, ast.List | ast.ListComp):
            sizes.sized(desk, float(count), 8.0, node.lineno)
    if name in ("Add", "Div") or (name == "Mod" and left.shown is not None):
        return _partly(name, left, right, taints)
    return Value(taints=taints) if taints else UNKNOWN


def _partly(name: str, left: Value, right: Value, taints: frozenset[str]) -> Value:
    """Return a text of which parts are known; `/` joins paths."""
    first, second = left.shown, right.shown
    if name == "Div":
        if left.ref != "pathlib.Path()":
            return Value(taints=taints)
        start = (first or UNKNOWN_PART).rstrip("/")
        text = composed((start, "/", second or UNKNOWN_PART))
        return Value(ref="pathlib.Path()", text=text, taints=taints)
    if first is None and second is None:
        return Value(taints=taints) if taints else UNKNOWN
    text = (first or UNKNOWN_PART) if name == "Mod" else (first or UNKNOWN_PART) + (second or UNKNOWN_PART)
    return Value(text=text[:MOST_TEXT], taints=taints)
