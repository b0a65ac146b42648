"""The package's sources, parsed once for all tests of a worker that read them: that takes most of their time."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.support import ROOT

PACKAGE = ROOT / "sandbox_kernel"


@contextmanager
def _kept() -> Iterator[None]:
    """Look for no garbage while something is made, nor among it afterwards: it stays.

    To go through all sources would take seconds of each test that collects garbage.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@cache
def tree_of(path: Path) -> ast.Module:
    with _kept():
        return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Return all that a module is made of: to walk through it takes longer than to look at it."""
    tree = tree_of(path)
    with _kept():
        return list(ast.walk(tree))
