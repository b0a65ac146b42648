"""Expressions, evaluated as far as nothing has to be run for it: names, constants, calls, and where a value came from.

What a rule knows is noted on the way. Statements are read elsewhere.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ...core.screen_codes import ScreenCode
from . import calls, magics, operators
from .binding import Binding
from .call import Call, canonical, member
from .desk import Desk
from .rules.rule import words
from .value import DECODED, MOST_TEXT, SECRET, UNKNOWN, UNKNOWN_PART, Value, composed, constant, join, weight

_QUIET = frozenset({"get", "setdefault", "pop", "update", "keys", "__contains__", "__getitem__", "__setitem__", "copy"})
"""Methods of the environment that do not hand out all of it."""
MOST_ITEMS = 2000
_PEOPLE = frozenset(
    words(
        "race gender sex religion ethnicity nationality skin_color skin_colour caste disability "
        "sexual_orientation sexuality country_of_origin national_origin marital_status"
    )
)


class Expressions:
    """The expressions of one cell."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._notes = desk.notes
        self._book = desk.notes.book
        binding = Binding(desk, self)
        self.target = binding.target
        """Gives a value to what is assigned."""
        self._kinds: dict[type, Callable[[Any], Value]] = {
            ast.Constant: self._constant,
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Call: self._call,
            ast.BinOp: self._binary,
            ast.JoinedStr: self._joined,
            ast.Subscript: self._subscript,
            ast.List: self._items,
            ast.Tuple: self._items,
            ast.Set: self._items,
            ast.Dict: self._dict,
            ast.UnaryOp: self._unary,
            ast.IfExp: self._choice,
            ast.BoolOp: self._either,
            ast.Compare: self._compare,
            ast.Lambda: self._lambda,
            ast.NamedExpr: self._walrus,
            ast.Starred: lambda node: self.value(node.value),
            ast.Await: lambda node: self.value(node.value),
            **dict.fromkeys((ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp), binding.comprehension),
        }

    def value(self, node: ast.expr | None) -> Value:
        """Return what is known of an expression, and note what the rules know of it."""
        if node is None:
            return UNKNOWN
        self._desk.step()
        kind = self._kinds.get(type(node))
        if kind is not None:
            found = kind(node)
            if found.built and found.known and isinstance(found.const, str | bytes):
                self._seen(found, node)
            return found
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child)
        return UNKNOWN

    def _seen(self, found: Value, node: ast.expr) -> None:
        if (text := found.shown) is not None:
            self._notes.text(text, node.lineno)

    # --- names -----------------------------------------------------------------------------------------------------

    def bare(self, node: ast.expr) -> Value:
        """Return what a name or an attribute is, without noting that it is mentioned."""
        if isinstance(node, ast.Name):
            return self._desk.name(node.id)
        if isinstance(node, ast.Attribute):
            return self._of_attribute(node)
        return self.value(node)

    def mention(self, value: Value, line: int) -> None:
        """Note what the rules know of a name that is used in any way."""
        if value.ref is not None:
            for row in self._book.of(value.ref, called=False):
                self._notes.row(row, line, value.ref)
            if value.ref in ("os.environ", "os.environb"):
                self._notes.add(ScreenCode.CREDENTIAL_ENVIRONMENT, line, value.ref)

    def _name(self, node: ast.Name) -> Value:
        value = self._desk.name(node.id)
        self.mention(value, node.lineno)
        if "nonce" in node.id or "difficulty" in node.id:
            self._desk.flags.add("nonce")
        return value

    def _attribute(self, node: ast.Attribute) -> Value:
        value = self._of_attribute(node)
        self.mention(value, node.lineno)
        return value

    def _of_attribute(self, node: ast.Attribute, owner: Value | None = None) -> Value:
        self._desk.step()
        if owner is None:
            owner = self.bare(node.value)
        name = node.attr
        if name in self._book.attributes and not (name in ("__code__", "__globals__") and owner.ref == "lambda"):
            for row in self._book.of_attribute(name):
                self._notes.row(row, node.lineno, name)
        if owner.ref is None:
            return Value(taints=owner.taints) if owner.taints else UNKNOWN
        ref = canonical(f"{owner.ref}.{name}")
        if ref in ("os.environ", "os.environb"):
            return Value(ref=ref, taints=frozenset((SECRET,)))
        return Value(const="/") if ref in ("os.sep", "os.path.sep") else Value(ref=ref, taints=owner.taints)

    # --- calls -----------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Value:
        func = node.func
        receiver, method = UNKNOWN, None
        if isinstance(func, ast.Attribute):
            method = func.attr
            receiver = self.bare(func.value)
            target = self._of_attribute(func, receiver)
            if receiver.ref in ("os.environ", "os.environb"):
                if method not in _QUIET:
                    self.mention(receiver, node.lineno)
            elif isinstance(func.value, ast.Attribute):
                self.mention(receiver, node.lineno)
        else:
            target = self.bare(func)
        args = [self._argument(arg) for arg in node.args]
        keywords = {word.arg or "**": self._argument(word.value) for word in node.keywords}
        call = Call(target.ref, receiver, method, args, keywords, node.lineno, target.taints)
        self._desk.weigh(receiver, *args, *keywords.values())
        self._noted(call)
        if call.name is None:
            if isinstance(func, ast.Name):
                self._notes.text(func.id, node.lineno)
        elif call.name.startswith("get_ipython()."):
            found = magics.ipython(self._desk, call)
            if found is not None:
                return found
        return calls.result(self._desk, call)

    def _argument(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Name | ast.Attribute):
            value = self.bare(node)
            if value.ref is not None and value.ref not in ("os.environ",):
                self.mention(value, node.lineno)
            elif value.ref is not None:
                self._notes.add(ScreenCode.CREDENTIAL_ENVIRONMENT, node.lineno, value.ref)
            return value
        return self.value(node)

    def _noted(self, call: Call) -> None:
        if call.name is not None:
            for row in self._book.of(call.name, called=True):
                if not calls.is_harmless(self._desk, call, row.code):
                    self._notes.row(row, call.line, call.name)
            if "()" not in call.name or call.name.startswith("get_ipython()"):
                return
        if call.method in self._book.methods and not call.receiver.known:
            for row in self._book.of_method(call.method or ""):
                self._notes.row(row, call.line, f".{call.method}()")

    # --- constants -------------------------------------------------------------------------------------------------

    def _constant(self, node: ast.Constant) -> Value:
        value = node.value
        if isinstance(value, str):
            if len(value) > 2:
                self._notes.text(value, node.lineno)
            return Value(const=value) if len(value) <= MOST_TEXT else UNKNOWN
        if isinstance(value, bytes):
            self._notes.text(value.decode("latin-1"), node.lineno)
            return Value(const=value) if len(value) <= MOST_TEXT else UNKNOWN
        return Value(const=value)

    def _binary(self, node: ast.BinOp) -> Value:
        chain: list[ast.BinOp] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp):
            chain.append(left)
            left = left.left
        found = self.value(left)
        for one in reversed(chain):
            found = operators.two(self._desk, one, found, self.value(one.right))
        return found

    def _joined(self, node: ast.JoinedStr) -> Value:
        parts: list[str] = []
        taints: frozenset[str] = frozenset()
        exact = True
        for part in node.values:
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            value = self.value(inner)
            taints |= value.taints
            if isinstance(part, ast.FormattedValue) and part.format_spec is not None:
                self.value(part.format_spec)
            shown = value.shown
            if shown is None and value.known and isinstance(value.const, int | float):
                shown = str(value.const)
            exact = exact and shown is not None and value.text is None
            parts.append(UNKNOWN_PART if shown is None else shown)
        text = composed(parts)
        exact = exact and len(text) < MOST_TEXT
        self._desk.weigh(Value(text=text))
        if len(node.values) > 1:
            self._notes.text(text, node.lineno)
        return constant(text, taints=taints) if exact else Value(text=text, taints=taints)

    def _subscript(self, node: ast.Subscript) -> Value:
        owner = self.bare(node.value)
        where = node.slice
        if isinstance(where, ast.Slice):
            low, high, step = (
                self.value(part) if part is not None else Value(const=None)
                for part in (where.lower, where.upper, where.step)
            )
            if (
                owner.known
                and low.known
                and high.known
                and step.known
                and isinstance(owner.const, str | bytes | list | tuple)
            ):
                self._desk.weigh(owner)
                try:
                    return constant(owner.const[low.const : high.const : step.const], taints=owner.taints)
                except (TypeError, ValueError):
                    return UNKNOWN
            return Value(taints=owner.taints)
        index = self.value(where)
        self._desk.weigh(index)
        if owner.known and index.known:
            try:
                return constant(owner.const[index.const], taints=owner.taints)
            except (TypeError, KeyError, IndexError):
                return UNKNOWN
        if owner.ref is not None:
            return member(self._desk, owner, index, node.lineno)
        return Value(taints=owner.taints) if owner.taints else UNKNOWN

    def _items(self, node: ast.List | ast.Tuple | ast.Set) -> Value:
        values = [self.value(item) for item in node.elts[:MOST_ITEMS]]
        self._desk.weigh(*values)
        for item in node.elts[MOST_ITEMS:]:
            self.value(item)
        taints = join(*values)
        if len(node.elts) <= MOST_ITEMS and all(value.known for value in values) and not isinstance(node, ast.Set):
            whole = [value.const for value in values]
            return Value(const=whole, taints=taints) if weight(whole) <= MOST_TEXT else Value(taints=taints)
        if values and all(value.shown is not None or value.known for value in values):
            return Value(
                text=composed(
                    (value.shown if value.shown is not None else str(value.const) for value in values), between=" "
                ),
                taints=taints,
            )
        first = next(
            (value.ref for value in values if value.ref is not None and self._book.of(value.ref, called=True)), None
        )
        return Value(
            ref=f"[{first}]" if first else None,
            text=composed((value.shown or UNKNOWN_PART for value in values), between=" ") or None,
            taints=taints,
        )

    def _dict(self, node: ast.Dict) -> Value:
        keys = [self.value(key) if key is not None else UNKNOWN for key in node.keys]
        values = [
            self.bare(value) if key is None else self.value(value)
            for key, value in zip(node.keys, node.values, strict=True)
        ]
        taints = join(*values)
        self._desk.weigh(*keys, *values)
        if len(keys) <= MOST_ITEMS and all(one.known for one in (*keys, *values)):
            try:
                whole = {key.const: value.const for key, value in zip(keys, values, strict=True)}
                return Value(const=whole, taints=taints) if weight(whole) <= MOST_TEXT else Value(taints=taints)
            except TypeError:
                pass
        return Value(taints=taints) if taints else UNKNOWN

    # --- the rest --------------------------------------------------------------------------------------------------

    def _unary(self, node: ast.UnaryOp) -> Value:
        value = self.value(node.operand)
        if value.known and isinstance(value.const, int | float):
            if isinstance(node.op, ast.USub):
                return Value(const=-value.const)
            if isinstance(node.op, ast.Invert) and isinstance(value.const, int):
                return Value(const=~value.const)
        return Value(const=not value.const) if value.known and isinstance(node.op, ast.Not) else UNKNOWN

    def _choice(self, node: ast.IfExp) -> Value:
        test, first, second = self.value(node.test), self.value(node.body), self.value(node.orelse)
        if test.known:
            return first if test.const else second
        return first if first is not UNKNOWN else second

    def _either(self, node: ast.BoolOp) -> Value:
        values = [self.value(value) for value in node.values]
        return next((value for value in values if value.ref is not None), values[-1]._replace(taints=join(*values)))

    def _compare(self, node: ast.Compare) -> Value:
        sides = [
            self.bare(side) if isinstance(side, ast.Name | ast.Attribute) else self.value(side)
            for side in (node.left, *node.comparators)
        ]
        self._desk.weigh(*sides)
        if isinstance(node.left, ast.Name) and node.left.id.lower() in _PEOPLE and len(self._desk.scopes) > 1:
            self._notes.add(ScreenCode.DATA_PEOPLE, node.lineno, node.left.id)
        if len(sides) == 2 and all(side.known for side in sides) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            return Value(const=(sides[0].const == sides[1].const) is isinstance(node.ops[0], ast.Eq))
        return UNKNOWN

    def _lambda(self, node: ast.Lambda) -> Value:
        self._desk.scopes.append({arg.arg: UNKNOWN for arg in (*node.args.args, *node.args.kwonlyargs)})
        for default in (*node.args.defaults, *node.args.kw_defaults):
            self.value(default)
        found = self.value(node.body)
        self._desk.scopes.pop()
        return Value(ref="lambda", taints=found.taints & {DECODED})

    def _walrus(self, node: ast.NamedExpr) -> Value:
        value = self.value(node.value)
        self._desk.assign(node.target.id, value)
        return value
