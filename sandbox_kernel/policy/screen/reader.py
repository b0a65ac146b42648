"""Reads one cell from its first to its last statement, and notes what the rules know of it.

What it cannot read is a finding of its own: too large, too deep, or no Python.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Sequence

from ...core.screen_codes import ScreenCode
from . import cell, loops, magics, places, sinks, sizes, source
from .call import canonical, imported
from .desk import Desk, State, TooIntricateError
from .expressions import Expressions
from .finding import Screened
from .notes import Notes
from .shell import ShellReader
from .value import UNKNOWN, Value

MOST_CHARACTERS = 128 * 1024
MOST_DEPTH = 4
"""Of code within code."""
_BRACKETS = re.compile(r"[(\[{]+")
_CALLED = re.compile(r"(?<![\w.])(?:[^\W_a-zA-Z]|\.)*+([A-Za-z_][\w.]*+)\s*+\(")
_QUOTED = re.compile(r"\"((?:\\.|[^\"\\\n])*+)\"?|'((?:\\.|[^'\\\n])*+)'?")
"""What is not closed goes to the end of its line: nothing is read again from each quotation mark in it."""


class Reader:
    """Reads cells of one session into one desk at a time."""

    def __init__(self, notes: Notes, state: State) -> None:
        self._notes = notes
        self._depth = 0
        self._desk = Desk(notes, state, [{}], ShellReader(notes, self._inner), self._inner, set(), [], [0], {})
        self._expressions = Expressions(self._desk)
        self._value = self._expressions.value
        self._functions: list[str] = []

    @property
    def names(self) -> dict[str, Value]:
        """What the cell assigned."""
        return self._desk.scopes[0]

    @property
    def reads(self) -> dict[str, Value | None]:
        """What it asked of the names of earlier cells."""
        return self._desk.reads

    def read(self, code: str, known: frozenset[str] = frozenset()) -> Screened:
        """Return what is found in a cell."""
        if len(code) > MOST_CHARACTERS:
            self._notes.add(ScreenCode.CELL_TOO_LARGE, 1, f"{len(code)} characters")
            self._notes.text(code[:MOST_CHARACTERS], 1)
            return self._notes.done()
        source.letters(self._notes, code)
        try:
            self._cell(code, known)
            sinks.together(self._desk)
        except (RecursionError, MemoryError, TooIntricateError):
            del self._desk.scopes[1:]
            self._notes.add(ScreenCode.CELL_TOO_DEEP, 1)
            self._notes.text(code, 1)
        return self._notes.done()

    def _cell(self, code: str, known: frozenset[str]) -> None:
        if cell.is_plain(code) and not source.automatic(code) and (tree := self._parsed(code)) is not None:
            self._block(tree.body)
            return
        found = cell.read(code, known)
        if found.magic is not None:
            magics.cell(self._desk, found.magic, found.arguments, found.body, found.first)
            return
        tree = self._parsed(found.python)
        if tree is not None:
            self._block(tree.body)
        else:
            self._broken(found.python, 1)

    def _parsed(self, code: str) -> ast.Module | None:
        source.bounded(code)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return cell.parsed(code)

    def _inner(self, code: str, line: int) -> None:
        """Read code that a cell gives to an interpreter, its lines counted from `line`."""
        self._desk.step()
        if self._depth >= MOST_DEPTH or len(code) > MOST_CHARACTERS:
            self._notes.add(ScreenCode.CELL_TOO_DEEP, line)
            return
        self._depth += 1
        tree = self._parsed(code) or self._parsed(cell.read(code).python)
        if tree is not None:
            ast.increment_lineno(tree, line - 1)
            self._block(tree.body)
        elif "{}" not in code:
            self._broken(code, line)
        self._notes.text(code, line)
        self._depth -= 1

    def _broken(self, code: str, line: int) -> None:
        """Read code that is no Python of this version: each part that is, and the names and texts of the rest."""
        self._notes.add(ScreenCode.CELL_UNPARSED, line)
        for part, first in source.parts(code):
            tree = self._parsed(part)
            if tree is not None:
                ast.increment_lineno(tree, line + first - 1)
                self._block(tree.body)
                continue
            for match in _QUOTED.finditer(part):
                self._notes.text(match[1] or match[2] or "", line + first)
            for match in _CALLED.finditer(part):
                self._guessed(match[1], line + first + part.count("\n", 0, match.start()))

    def _guessed(self, dotted: str, line: int) -> None:
        head, _, rest = dotted.partition(".")
        known = self._desk.name(head)
        if known.ref is None:
            return
        ref = canonical(f"{known.ref}.{rest}" if rest else known.ref)
        for row in self._notes.book.of(ref, called=True):
            self._notes.row(row, line, ref)

    # --- statements ------------------------------------------------------------------------------------------------

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        self._desk.step()
        match node:
            case ast.Expr():
                self._alone(node.value)
            case ast.Assign():
                value = self._assigned(node.value)
                for target in node.targets:
                    self._expressions.target(target, value)
            case ast.AugAssign():
                self._augmented(node)
            case ast.AnnAssign():
                if node.value is not None:
                    self._expressions.target(node.target, self._assigned(node.value))
            case ast.Import() | ast.ImportFrom():
                self._imported(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node)
            case ast.ClassDef():
                self._class(node)
            case ast.For() | ast.AsyncFor() | ast.While():
                self._loop(node)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    value = self._value(item.context_expr)
                    if item.optional_vars is not None:
                        self._expressions.target(item.optional_vars, value)
                self._block(node.body)
            case ast.Delete():
                for target in node.targets:
                    self._value(target)
            case _:
                self._other(node)

    def _alone(self, node: ast.expr) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            return  # a description
        self._assigned(node)

    def _assigned(self, node: ast.expr) -> Value:
        """Return a value; a name that is given away is mentioned, but one that is only renamed is followed instead."""
        value = self._value(node)
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Sub)
            and isinstance(node.left, ast.Constant)
            and node.left.value == 1
        ):
            right = ast.unparse(node.right)
            if re.search(r"(?i)(^y(_train)?$|label|target)", right):
                self._notes.add(ScreenCode.DATA_LABELS, node.lineno, f"1 - {right}"[:80])
        return value

    def _augmented(self, node: ast.AugAssign) -> None:
        value = self._value(node.value)
        if isinstance(node.target, ast.Name):
            old = self._desk.name(node.target.id)
            if (
                old.known
                and isinstance(old.const, str)
                and value.known
                and isinstance(value.const, str)
                and len(old.const) < 4096
            ):
                value = Value(const=old.const + value.const, built=True, taints=old.taints | value.taints)
                self._notes.text(value.const, node.lineno)
            elif old.taints or value.taints:
                value = Value(taints=old.taints | value.taints)
            else:
                value = UNKNOWN
        self._expressions.target(node.target, value)

    def _imported(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                imported(self._desk, alias.name, node.lineno)
                self._notes.text(alias.name, node.lineno)
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                self._desk.assign(
                    alias.asname or name, Value(ref=canonical(f"{name}.")[:-1] if "." not in name else name)
                )
            return
        module = node.module or ""
        if not node.level:
            imported(self._desk, module, node.lineno)
            self._notes.text(f"{module} {' '.join(alias.name for alias in node.names)}", node.lineno)
        for alias in node.names:
            if alias.name == "*":
                for name in source.starred(module):
                    self._desk.assign(name, Value(ref=canonical(f"{module}.{name}")))
                continue
            value = Value(ref=canonical(f"{module}.{alias.name}"))
            self._expressions.mention(value, node.lineno)
            self._desk.assign(alias.asname or alias.name, value)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for expression in (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults):
            self._value(expression)
        arguments = node.args
        named = [
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            *filter(None, (arguments.vararg, arguments.kwarg)),
        ]
        scope = {one.arg: UNKNOWN for one in named}
        for one, default in zip(reversed(arguments.args), reversed(arguments.defaults), strict=False):
            scope[one.arg] = self._value(default)
        self._desk.assign(node.name, Value(ref=f"def:{node.name}"))
        around = self._desk.loops[:]
        self._desk.loops.clear()
        self._desk.scopes.append(scope)
        self._block(node.body)
        self._desk.scopes.pop()
        self._desk.loops[:] = around
        loops.recursion(self._notes, node)
        loops.unfolds(self._notes, node)
        self._methods_of_python(node)
        self._notes.text(node.name, node.lineno)
        returned = [one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value is not None][:4]
        self._desk.scopes.append(scope)
        quiet = [
            self._expressions.bare(one) for one in returned if isinstance(one, ast.Name | ast.Attribute | ast.Call)
        ]
        self._desk.scopes.pop()
        taints = frozenset[str]().union(*(one.taints for one in quiet))
        if taints:
            self._desk.assign(node.name, Value(ref=f"def:{node.name}", taints=taints))

    def _methods_of_python(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Note the methods that Python calls by itself: when an object is loaded, or goes away."""
        if node.name in ("__reduce__", "__reduce_ex__"):
            self._notes.add(
                ScreenCode.UNSAFE_LOAD_FORGED if self._notes.is_grave() else ScreenCode.UNSAFE_LOAD,
                node.lineno,
                node.name,
            )
        elif node.name == "__del__":
            self._notes.add(ScreenCode.PERSIST_FINALIZER, node.lineno, node.name)

    def _class(self, node: ast.ClassDef) -> None:
        for expression in (*node.bases, *node.decorator_list, *(word.value for word in node.keywords)):
            self._value(expression)
        self._desk.scopes.append({})
        self._block(node.body)
        self._desk.scopes.pop()
        self._desk.assign(node.name, Value(ref=f"def:{node.name}"))

    # --- loops -----------------------------------------------------------------------------------------------------

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        if isinstance(node, ast.While):
            self._desk.loops.append(1.0)
            test = self._value(node.test)
            self._desk.loops.pop()
            count = math.inf if test.known and bool(test.const) else 1.0
            if any(sizes.is_huge(self._expressions.bare(one)) for one in loops.bounds(node)):
                loops.doubles(self._notes, node)
        else:
            items = self._value(node.iter)
            count = sizes.count_of(items)
            first = items.const[0] if items.known and isinstance(items.const, list | str) and items.const else None
            self._expressions.target(node.target, Value(const=first) if first is not None else places.item(items))
        endless = count == math.inf
        if endless and loops.leaves(node.body):
            endless, count = False, 1.0
        if endless:
            self._notes.add(ScreenCode.EXHAUST_LOOP, node.lineno)
        self._desk.loops.append(count)
        if 9e8 <= self._desk.times < math.inf:
            self._notes.add(ScreenCode.EXHAUST_PROCESSOR, node.lineno, f"{self._desk.times:.3g} times")
        self._block(node.body)
        if endless and any(
            isinstance(part, ast.AugAssign) and isinstance(part.op, ast.Add | ast.Mult) for part in ast.walk(node)
        ):
            loops.grows(self._notes, node)
        self._desk.loops.pop()
        self._block(node.orelse)

    def _other(self, node: ast.AST) -> None:
        """Read what has no meaning of its own here: what is in it, in its order."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self._statement(child)
            elif isinstance(child, ast.expr):
                self._value(child)
            elif isinstance(child, ast.ExceptHandler | ast.match_case | ast.withitem):
                self._other(child)
