"""Loops and functions that have no end, by their shape."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ...core.screen_codes import ScreenCode
from .notes import Notes

_ENDS = frozenset({"sys.exit", "exit", "quit", "os._exit"})


def leaves(body: Iterable[ast.stmt], inner: bool = False) -> bool:
    """Return whether a loop can be left from within."""
    for node in body:
        if isinstance(node, ast.Break) and not inner:
            return True
        if isinstance(node, ast.Return | ast.Raise):
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield | ast.YieldFrom | ast.Await):
            return True
        if isinstance(node, ast.Expr | ast.Assign) and any(
            isinstance(part, ast.Yield | ast.YieldFrom | ast.Await) for part in ast.walk(node)
        ):
            return True
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in _ENDS:
            return True
        loops = isinstance(node, ast.For | ast.While | ast.AsyncFor)
        for name in ("body", "orelse", "finalbody"):
            if leaves(getattr(node, name, None) or [], inner or (loops and name == "body")):
                return True
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            if leaves(part.body, inner):
                return True
    return False


def recursion(notes: Notes, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Note a function that calls itself with nothing before that could end it."""
    for statement in node.body:
        if isinstance(
            statement,
            ast.If | ast.While | ast.For | ast.Try | ast.Match | ast.With | ast.Raise | ast.FunctionDef | ast.ClassDef,
        ):
            return
        for part in ast.walk(statement):
            if isinstance(part, ast.IfExp | ast.BoolOp | ast.Lambda | ast.Await | ast.Yield):
                return
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == node.name:
                notes.add(ScreenCode.EXHAUST_RECURSION, part.lineno, node.name)
                return


def unfolds(notes: Notes, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Note a function that calls itself to find out how often it calls itself."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == node.name:
            inner = [one for arg in part.args for one in ast.walk(arg)]
            if any(
                isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == node.name
                for one in inner
            ):
                notes.add(ScreenCode.EXHAUST_PROCESSOR, part.lineno, node.name)
                return


def bounds(node: ast.While) -> list[ast.expr]:
    """Return what the length of something is compared with, for as long as a loop goes on."""
    test = node.test
    if not isinstance(test, ast.Compare) or not isinstance(test.left, ast.Call):
        return []
    return test.comparators if isinstance(test.left.func, ast.Name) and test.left.func.id == "len" else []


def doubles(notes: Notes, node: ast.While) -> None:
    """Note what is added to itself in a loop."""
    for part in ast.walk(node):
        if isinstance(part, ast.AugAssign) and isinstance(part.op, ast.Add | ast.Mult):
            itself = ast.unparse(part.target) == ast.unparse(part.value)
            if itself or isinstance(part.op, ast.Mult):
                notes.add(ScreenCode.EXHAUST_MEMORY, part.lineno)


def grows(notes: Notes, node: ast.stmt) -> None:
    for part in ast.walk(node):
        if (isinstance(part, ast.AugAssign) and isinstance(part.op, ast.Mult)) or (
            isinstance(part, ast.AugAssign) and isinstance(part.value, ast.Name | ast.List | ast.BinOp)
        ):
            notes.add(ScreenCode.EXHAUST_MEMORY, part.lineno)
