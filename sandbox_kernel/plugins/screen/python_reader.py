"""Reads the Python of a cell: names by their imports and simple assignments, constant texts, and what is called.

Nothing is run, and no value is followed through a function, a loop or a container. What cannot be read is a finding.
"""

from __future__ import annotations

import ast
import re
import unicodedata
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...core.screen_findings import Screened
from ...policy import ipython_syntax
from . import constant_folding as folding
from .cell_findings import CellFindings
from .codes import ScreenCode
from .constant_folding import UNKNOWN, UNKNOWN_PART, Value, composed, joined_path
from .known_names import (
    ASSIGNABLE,
    BUILTINS,
    FOR_DATA,
    IMPORTERS,
    MODULES,
    NAMESPACES,
    PATCHED,
    PEOPLE,
    PLAIN_COMMAND,
    QUIET,
    RUNNERS,
    SECRET,
    SHELL_CALLS,
    SHORT,
    canonical,
)
from .magic_reader import MagicReader
from .path_rules import FOLDERS, SAME_PATH, SELF, VERBS, judge
from .rule_index import RuleIndex
from .shell_reader import ShellReader

MAX_CHARACTERS = 128 * 1024
MAX_CODE_DEPTH = 4
"""Of code within code."""
MAX_STEPS = 40_000
"""Parts of the syntax tree that are looked at for one cell."""
STEP_SIZE = 32
"""Characters or items of a constant that count as one such part whenever something looks through them."""
MAX_BRACKETS = 150
"""Depth of brackets; Python takes 200."""
MAX_REF = 200
"""Characters of a dotted name that is made by calls."""
MAX_PARTS = 500
"""Statements that are read one by one where a cell is no Python as a whole."""

_TURNS = re.compile(r"[\u202a-\u202e\u2066-\u2069\u200e\u200f]")
_ODD = re.compile(r"[\U0001d400-\U0001d7ff\uff21-\uff3a\uff41-\uff5a\u2100-\u214f\u1d2c-\u1d6a\u24b6-\u24e9]")
_STRINGS = re.compile(r"(\"\"\"|''').*?\1|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|#[^\n]*", re.DOTALL)


class TooIntricateError(Exception):
    """A cell has more in it than is looked at."""


class Call(NamedTuple):
    """One call: what is called, on what, with what."""

    name: str
    """The dotted name, empty if it is not known."""
    receiver: Value
    method: str
    args: list[Value]
    keywords: dict[str, Value]
    line: int

    def argument(self, at: int, *names: str) -> Value:
        """Return an argument by its place or by one of its names."""
        if at == SELF:
            return self.receiver
        given = (self.keywords[name] for name in names if name in self.keywords)
        return next(given, self.args[at] if len(self.args) > at else UNKNOWN)


class PythonReader:
    """Reads one cell. `known` are the names of earlier cells."""

    def __init__(self, index: RuleIndex, known: Mapping[str, Value]) -> None:
        self.names: dict[str, Value] = {}
        """What the cell assigned."""
        self._index = index
        self._known = known
        self._findings = CellFindings(index)
        self._shell = ShellReader(self._findings, self._inner)
        self._magics = MagicReader(self._findings, self._shell, self._inner)
        self._scopes = [self.names]
        self._steps = self._depth = self._endless = 0
        self._used: list[str] = []
        """Dotted names in the order in which they were used: what is given to a call was used within it."""

    def read(self, code: str) -> Screened:
        """Return what is found in a cell."""
        if len(code) > MAX_CHARACTERS:
            self._findings.add(ScreenCode.CELL_TOO_LARGE, 1, f"{len(code)} characters")
            self._findings.text(code[:MAX_CHARACTERS], 1)
            return self._findings.done()
        self._letters(code)
        try:
            self._cell(code)
        except (RecursionError, MemoryError, TooIntricateError):
            del self._scopes[1:]
            self._findings.add(ScreenCode.CELL_TOO_DEEP, 1)
            self._findings.text(code, 1)
        return self._findings.done()

    def _cell(self, code: str) -> None:
        one_line = code.strip().count("\n") == 0 and code.strip().partition(" ")[0].isidentifier()
        if ipython_syntax.is_plain(code) and not one_line and (tree := _parsed(code)) is not None:
            self._block(tree.body)
            return
        found = ipython_syntax.read(code, frozenset(self._known))
        if found.magic is not None:
            self._magics.cell(found.magic, found.arguments, found.body, found.first)
        elif (tree := _parsed(found.python)) is not None:
            self._block(tree.body)
        else:
            self._broken(found.python, 1)

    def _inner(self, code: str, line: int) -> None:
        """Read code that a cell gives to an interpreter, its lines counted from `line`."""
        self._step()
        if self._depth >= MAX_CODE_DEPTH or len(code) > MAX_CHARACTERS:
            self._findings.add(ScreenCode.CELL_TOO_DEEP, line)
            return
        self._depth += 1
        tree = _parsed(code) or _parsed(ipython_syntax.read(code).python)
        if tree is not None:
            self._block(ast.increment_lineno(tree, line - 1).body)
        elif UNKNOWN_PART not in code:
            self._broken(code, line)
        self._findings.text(code, line)
        self._depth -= 1

    def _broken(self, code: str, line: int) -> None:
        """Read code that is no Python of this version: each part that is, and the rest as a text."""
        self._findings.add(ScreenCode.CELL_UNPARSED, line)
        for part, first in _parts(code):
            if (tree := _parsed(part)) is not None:
                self._block(ast.increment_lineno(tree, line + first - 1).body)
            else:
                self._findings.text(part, line + first)

    def _letters(self, code: str) -> None:
        """Note letters that look like others, and such as turn the order of what is shown."""
        if code.isascii():
            return
        bare = _STRINGS.sub("", code)
        odd = [one for one in _ODD.findall(bare) if unicodedata.normalize("NFKC", one).isascii()]
        if found := (*_TURNS.findall(code), *odd):
            line = code.count("\n", 0, code.index(found[0])) + 1
            self._findings.add(ScreenCode.HIDDEN_LETTERS, line, f"U+{ord(found[0]):04X}")

    def _step(self, *values: Value) -> None:
        """Count one step, and more for a look through large values. Raises `TooIntricateError`."""
        self._steps += 1
        for value in values:
            if value.const is not folding.MISSING or value.text is not None:
                self._steps += folding.size(value.const if value.known else value.text) // STEP_SIZE
        if self._steps > MAX_STEPS:
            raise TooIntricateError

    def _note(self, ref: str, line: int, *kinds: str) -> bool:
        """Note what rules of these kinds know of a dotted name; return whether there is one."""
        rows = self._index.of(ref, *kinds)
        for row in rows:
            self._findings.row(row, line, ref)
        return bool(rows)

    # --- statements ------------------------------------------------------------------------------------------------

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        self._step()
        match node:
            case ast.Expr(value=ast.Constant(value=str() | bytes())):
                pass  # a description
            case ast.Assign():
                value = self._value(node.value)
                for target in node.targets:
                    self._bind(target, value)
            case ast.AnnAssign():
                self._bind(node.target, self._value(node.value))
            case ast.AugAssign():
                old = self._named(node.target.id) if isinstance(node.target, ast.Name) else UNKNOWN
                self._bind(node.target, self._two(node.op, old, self._value(node.value), node.lineno))
            case ast.Import() | ast.ImportFrom():
                self._imported(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node)
            case ast.ClassDef():
                self._scopes.append({})
                self._children(node)
                self._scopes.pop()
                self._bind_name(node.name, UNKNOWN)
            case ast.For() | ast.AsyncFor():
                items = self._value(node.iter).const
                first = items[0] if isinstance(items, list | str) and items else None
                self._bind(node.target, Value(const=first) if isinstance(first, str) else UNKNOWN)
                self._block((*node.body, *node.orelse))
            case ast.While():
                self._while(node)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    value = self._value(item.context_expr)
                    if item.optional_vars is not None:
                        self._bind(item.optional_vars, value)
                self._block(node.body)
            case _:
                self._children(node)

    def _children(self, node: ast.AST) -> None:
        """Read what has no meaning of its own here: what is in it, in its order."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self._statement(child)
            elif isinstance(child, ast.expr):
                self._value(child)
            else:
                self._children(child)

    def _imported(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._import(alias.name, node.lineno)
                self._findings.text(alias.name, node.lineno)
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                self._bind_name(alias.asname or name, Value(ref=canonical(name)))
            return
        module = node.module or ""
        if not node.level:
            self._import(module, node.lineno)
            self._findings.text(f"{module} {' '.join(alias.name for alias in node.names)}", node.lineno)
        for alias in node.names:
            for name in self._index.members.get(module, ()) if alias.name == "*" else (alias.name,):
                self._step()
                value = Value(ref=canonical(f"{module}.{name}"))
                if alias.name != "*":
                    self._mention(value, node.lineno)
                self._bind_name(alias.asname or name, value)

    def _import(self, module: str, line: int) -> None:
        for row in self._index.of_import(module[:MAX_REF]):
            self._findings.row(row, line, module[:MAX_REF])

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for expression in node.decorator_list:
            self._value(expression)
        scope = self._parameters(node.args)
        self._bind_name(node.name, UNKNOWN)
        self._findings.text(node.name, node.lineno)
        for row in self._index.exactly("define", node.name):
            self._findings.row(row, node.lineno, node.name)
        endless, self._endless = self._endless, 0
        self._scopes.append(scope)
        self._block(node.body)
        self._scopes.pop()
        self._endless = endless

    def _parameters(self, arguments: ast.arguments) -> dict[str, Value]:
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        named += filter(None, (arguments.vararg, arguments.kwarg))
        scope = {one.arg: UNKNOWN for one in named}
        defaults = [self._value(one) for one in arguments.defaults]
        for keyword in arguments.kw_defaults:
            self._value(keyword)
        for one, default in zip(reversed(arguments.args), reversed(defaults), strict=False):
            scope[one.arg] = default
        return scope

    def _while(self, node: ast.While) -> None:
        test = self._value(node.test)
        endless = test.known and bool(test.const) and not any(map(_leaves, ast.walk(node)))
        if endless:
            self._findings.add(ScreenCode.EXHAUST_LOOP, node.lineno)
        self._endless += endless
        self._block(node.body)
        self._endless -= endless
        self._block(node.orelse)

    # --- names -----------------------------------------------------------------------------------------------------

    def _named(self, name: str) -> Value:
        """Return what a name means here."""
        for scope in (*reversed(self._scopes), self._known):
            found: Value | None = scope.get(name)
            if found is not None:
                return found
        if name in MODULES or name == "get_ipython":
            return Value(ref=name)
        if name in BUILTINS:
            return Value(ref=canonical(f"builtins.{name}"))
        return Value(ref=SHORT[name]) if name in SHORT else UNKNOWN

    def _bind_name(self, name: str, value: Value) -> None:
        self._scopes[-1][name] = value

    def _bind(self, node: ast.expr, value: Value) -> None:
        """Give a value to the target of an assignment."""
        match node:
            case ast.Name():
                self._bind_name(node.id, value)
            case ast.Tuple() | ast.List():
                whole = value.const if isinstance(value.const, list) and len(value.const) == len(node.elts) else None
                for at, part in enumerate(node.elts):
                    self._bind(part, UNKNOWN if whole is None else Value(const=whole[at]))
            case ast.Starred():
                self._bind(node.value, UNKNOWN)
            case ast.Attribute():
                for row in self._index.exactly("attribute", node.attr):
                    self._findings.row(row, node.lineno, node.attr)
                self._patched(self._bare(node.value).ref or "", node.attr, value, node.lineno)
            case ast.Subscript():
                ref, key = self._bare(node.value).ref or "", self._value(node.slice).shown
                if ref == "sys.modules":
                    self._findings.add(ScreenCode.PERSIST_PATCH, node.lineno, f"sys.modules[{key}]")
                elif ref.endswith(".__dict__"):
                    self._patched(ref.removesuffix(".__dict__"), key or UNKNOWN_PART, value, node.lineno)

    def _patched(self, module: str, name: str, value: Value, line: int) -> None:
        """Note that an attribute of a module is replaced."""
        if self._note(f"{module}.{name}", line, "name") or module not in PATCHED or name in ASSIGNABLE:
            return
        if value.ref is not None or not value.known:
            self._findings.add(ScreenCode.PERSIST_PATCH, line, f"{module}.{name}")

    def _bare(self, node: ast.expr) -> Value:
        """Return what a name or an attribute is, without noting that it is mentioned."""
        if isinstance(node, ast.Name):
            return self._named(node.id)
        return self._member(node, self._bare(node.value)) if isinstance(node, ast.Attribute) else self._value(node)

    def _member(self, node: ast.Attribute, owner: Value) -> Value:
        self._step()
        for row in self._index.exactly("attribute", node.attr) if node.attr in self._index.attributes else ():
            self._findings.row(row, node.lineno, node.attr)
        if owner.ref is None or len(owner.ref) > MAX_REF:
            return UNKNOWN
        ref = canonical(f"{owner.ref}.{node.attr}")
        return Value(const="/") if ref in ("os.sep", "os.path.sep") else Value(ref=ref)

    def _mention(self, value: Value, line: int) -> None:
        """Note what the rules know of a name that is used in any way."""
        if value.ref is not None:
            self._used.append(value.ref)
            self._note(value.ref, line, "name")

    def _by_text(self, owner: str, name: Value, line: int) -> Value:
        """Return what has a name that is given as a text, and note it as if it stood there."""
        key = name.shown
        if key is None or not name.known or len(key) > MAX_REF:
            if owner in PATCHED:
                self._findings.add(ScreenCode.DYNAMIC_ATTRIBUTE, line, owner)
            return UNKNOWN
        found = Value(ref=canonical(f"{owner}.{key}")) if owner else self._named(key)
        attributes = tuple(self._index.exactly("attribute", key))
        known = found.ref is not None and self._note(found.ref, line, "name", "call")
        for row in attributes:
            self._findings.row(row, line, key)
        if known and owner:
            self._findings.add(ScreenCode.DYNAMIC_ATTRIBUTE, line, found.ref or "")
        own = found.ref == f"{owner}.{key}" and owner.partition(".")[0] in FOR_DATA
        if name.built and (known or attributes or (found.ref is not None and not own)):
            self._findings.add(ScreenCode.HIDDEN_NAME, line, key)
        return found

    # --- expressions -----------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr | None) -> Value:
        """Return what is known of an expression, and note what the rules know of it."""
        if node is None:
            return UNKNOWN
        self._step()
        kind = self._KINDS.get(type(node))
        if kind is None:
            self._children(node)
            return UNKNOWN
        found = kind(self, node)
        if found.built and (text := found.shown) is not None:
            self._findings.text(text, node.lineno)
        return found

    def _constant(self, node: ast.Constant) -> Value:
        value = Value(const=node.value) if folding.fits(node.value) else UNKNOWN
        if isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            self._findings.text(text, node.lineno)
        return value

    def _name(self, node: ast.Name) -> Value:
        value = self._named(node.id)
        if value.ref is None:
            self._used.append(node.id)
        self._mention(value, node.lineno)
        return value

    def _attribute(self, node: ast.Attribute) -> Value:
        value = self._member(node, self._bare(node.value))
        self._mention(value, node.lineno)
        return value

    def _walrus(self, node: ast.NamedExpr) -> Value:
        value = self._value(node.value)
        self._bind(node.target, value)
        return value

    def _inside(self, node: ast.Await | ast.Starred) -> Value:
        return self._value(node.value)

    def _unary(self, node: ast.UnaryOp) -> Value:
        value = self._value(node.operand).const
        return Value(const=-value) if isinstance(node.op, ast.USub) and type(value) is int else UNKNOWN

    def _compare(self, node: ast.Compare) -> Value:
        if isinstance(node.left, ast.Name) and node.left.id.lower() in PEOPLE and len(self._scopes) > 1:
            self._findings.add(ScreenCode.DATA_PEOPLE, node.lineno, node.left.id)
        self._children(node)
        return UNKNOWN

    def _lambda(self, node: ast.Lambda) -> Value:
        self._scopes.append(self._parameters(node.args))
        self._value(node.body)
        self._scopes.pop()
        return UNKNOWN

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        self._scopes.append({})
        for one in node.generators:
            self._value(one.iter)
            self._bind(one.target, UNKNOWN)
            for test in one.ifs:
                self._value(test)
        for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self._value(part)
        self._scopes.pop()
        return UNKNOWN

    def _binary(self, node: ast.BinOp) -> Value:
        chain: list[ast.BinOp] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp):
            chain.append(left)
            left = left.left
        found = self._value(left)
        for one in reversed(chain):
            found = self._two(one.op, found, self._value(one.right), one.lineno)
        return found

    def _two(self, operator: ast.operator, left: Value, right: Value, line: int) -> Value:
        self._step(left, right)
        name, first, second = type(operator).__name__, left.shown, right.shown
        if left.known and right.known:
            found = folding.operation(name, left.const, right.const)
            if found is not folding.MISSING:
                return Value(const=found, built=isinstance(found, str | bytes))
        if name == "Div" and left.ref == "pathlib.Path()":
            text = composed(((first or UNKNOWN_PART).rstrip("/"), "/", second or UNKNOWN_PART))
            self._findings.text(text, line)
            return Value(ref=left.ref, text=text)
        if name in ("Add", "Mod") and (first is not None or (second is not None and name == "Add")):
            parts = [first or UNKNOWN_PART, *([second or UNKNOWN_PART] if name == "Add" else [])]
            return Value(text=composed(parts))
        return UNKNOWN

    def _joined(self, node: ast.JoinedStr) -> Value:
        exact, parts = True, list[str]()
        for part in node.values:
            value = self._value(part.value if isinstance(part, ast.FormattedValue) else part)
            if isinstance(part, ast.FormattedValue):
                self._value(part.format_spec)
            self._step(value)
            shown = str(value.const) if isinstance(value.const, int | float) else value.shown
            exact = exact and shown is not None and value.text is None
            parts.append(UNKNOWN_PART if shown is None else shown)
        text = composed(parts)
        if len(parts) > 1:
            self._findings.text(text, node.lineno)
        return Value(const=text, built=True) if exact else Value(text=text)

    def _items(self, node: ast.List | ast.Tuple) -> Value:
        values = [self._value(item) for item in node.elts]
        self._step(*values)
        whole = [value.const for value in values]
        if all(value.known for value in values) and folding.fits(whole):
            return Value(const=whole)
        if any(value.shown for value in values):
            return Value(text=composed((value.shown or UNKNOWN_PART for value in values), " "))
        return UNKNOWN

    def _subscript(self, node: ast.Subscript) -> Value:
        owner = self._bare(node.value)
        if isinstance(node.slice, ast.Slice):
            parts = (node.slice.lower, node.slice.upper, node.slice.step)
            edges = [None if part is None else self._value(part).const for part in parts]
            index: Any = folding.MISSING if folding.MISSING in edges else slice(*edges)
        else:
            key = self._value(node.slice)
            if owner.ref is not None:
                return self._item(owner.ref, key, node.lineno)
            index = key.const
        self._step(owner)
        found = folding.item(owner.const, index)
        return Value(const=found, built=isinstance(found, str | bytes))

    def _item(self, ref: str, key: Value, line: int) -> Value:
        """Return what a key gives: of `globals()`, `sys.modules`, the environment, a `__dict__`."""
        if ref in ("os.environ", "os.environb"):
            return self._variable(key, line)
        if ref in NAMESPACES:
            return self._by_text("", key, line)
        if ref.endswith(".__dict__") or ref == "builtins":
            return self._by_text(ref.removesuffix(".__dict__"), key, line)
        if ref == "site.getsitepackages()":
            return Value(text="/site-packages")
        return Value(ref=f"{ref}[]") if len(ref) < MAX_REF else UNKNOWN

    def _variable(self, key: Value, line: int) -> Value:
        """Return what is known of a variable of the environment, and note one that is named like a secret."""
        if key.shown is not None and SECRET.search(key.shown):
            self._findings.add(ScreenCode.CREDENTIAL_VARIABLE, line, key.shown)
            self._used.append("os.environ")
        return Value(text="~") if key.shown in ("HOME", "USERPROFILE") else UNKNOWN

    # --- calls -----------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Value:
        func, receiver, method = node.func, UNKNOWN, ""
        if isinstance(func, ast.Attribute):
            receiver, method = self._bare(func.value), func.attr
            target = self._member(func, receiver)
            if receiver.ref in ("os.environ", "os.environb"):
                if method not in QUIET:
                    self._mention(receiver, node.lineno)
            elif isinstance(func.value, ast.Attribute):
                self._mention(receiver, node.lineno)
        else:
            target = self._bare(func)
            if target.ref is None and isinstance(func, ast.Name):
                self._findings.text(func.id, node.lineno)
        before = len(self._used)
        args = [self._value(arg) for arg in node.args]
        keywords = {word.arg or "**": self._value(word.value) for word in node.keywords}
        self._step(receiver, *args, *keywords.values())
        call = Call(target.ref or "", receiver, method, args, keywords, node.lineno)
        self._noted(call)
        self._flows(call, before)
        self._used += [one for one in (receiver.ref, target.ref) if one is not None]
        return self._result(call)

    def _noted(self, call: Call) -> None:
        if call.name:
            for row in self._index.of(call.name, "name", "call"):
                if not self._is_harmless(call, row.code):
                    self._findings.row(row, call.line, call.name)
            if self._endless:
                self._note(call.name, call.line, "endless")
            if "()" not in call.name or call.name.startswith("get_ipython()"):
                return
        if call.method in self._index.methods and not call.receiver.known:
            for row in self._index.exactly("method", call.method):
                self._findings.row(row, call.line, f".{call.method}()")

    def _is_harmless(self, call: Call, code: str) -> bool:
        """Return whether what a rule finds in a call is nothing, because of what the call is given."""
        first = call.argument(0, "command", "cmd", "source", "expression")
        if code == ScreenCode.PROCESS_SHELL.code and first.shown and PLAIN_COMMAND.match(first.shown):
            self._findings.add(ScreenCode.PROCESS_PROGRAM, call.line, first.shown)
            return True
        if code == ScreenCode.DYNAMIC_EXECUTION.code:
            return call.name in ("builtins.exec", "builtins.eval") and first.known and not first.built
        if code == ScreenCode.UNSAFE_LOAD.code and call.name.startswith("yaml."):
            loader = call.argument(1, "Loader").ref or ""
            return "Safe" in loader or "Base" in loader
        return call.name in ("importlib.reload", "signal.signal")

    def _flows(self, call: Call, before: int) -> None:
        """Note what is given to a call that must not be given to it: the names used in its own expression."""
        called = call.name or f".{call.method}"
        flows = [(given, row) for pattern, given, row in self._index.flows if pattern.fullmatch(called)]
        if flows:
            given = " ".join(self._used[before:])
            self._step(Value(text=given))
            for pattern, row in flows:
                if pattern.search(given) is not None:
                    self._findings.row(row, call.line, called)

    def _result(self, call: Call) -> Value:
        """Return what is known of the result of a call."""
        name, first, line = call.name, call.argument(0), call.line
        self._paths(call)
        if name in SHELL_CALLS:
            self._command(call)
        elif name in RUNNERS:
            code = call.argument(0, "source", "expression", "object").shown
            if code is not None:
                self._inner(code, line)
        elif name in IMPORTERS:
            return self._import_call(call)
        elif name in ("builtins.getattr", "inspect.getattr_static"):
            return self._by_text(first.ref, call.argument(1), line) if first.ref is not None else UNKNOWN
        elif name == "builtins.setattr":
            self._patched(first.ref or "", call.argument(1).shown or "", call.argument(2), line)
        elif name == "builtins.vars" and first.ref is not None:
            return Value(ref=f"{first.ref}.__dict__")
        elif name == "os.getenv" or (call.receiver.ref == "os.environ" and call.method in ("get", "pop")):
            return self._variable(first, line)
        elif name.startswith("get_ipython().") and first.shown is not None:
            self._ipython(call, first.shown)
        else:
            return self._computed(call)
        return self._of_name(name)

    def _computed(self, call: Call) -> Value:
        """Return a constant, a path, or the name of what is made by a call."""
        name, receiver = call.name, call.receiver
        if name in FOLDERS:
            return FOLDERS[name]
        if name in SAME_PATH:
            path = receiver if receiver.ref == "pathlib.Path()" else call.argument(0)
            if path.shown is not None:
                return path
        items = call.argument(1).const
        if name == "builtins.map" and call.argument(0).ref == "builtins.chr" and isinstance(items, list):
            letters = [folding.function("builtins.chr", [one]) for one in items]
            return Value(const=letters) if folding.MISSING not in letters else UNKNOWN
        if not call.keywords and all(arg.known for arg in call.args):
            given = [arg.const for arg in call.args]
            one = receiver.const
            found = folding.method(one, call.method, given) if receiver.known else folding.function(name, given)
            if found is not folding.MISSING:
                return Value(const=found, built=isinstance(found, str | bytes))
        if name in ("os.path.join", "pathlib.Path", "pathlib.Path().joinpath"):
            parts = [*([receiver.shown] if call.method == "joinpath" else []), *(arg.shown for arg in call.args)]
            text = joined_path(parts) if any(parts) else None
            if len(parts) > 1 and text is not None:
                self._findings.text(text, call.line)
            return Value(ref=None if name == "os.path.join" else "pathlib.Path()", text=text)
        if name == "os.path.dirname" and (call.argument(0).ref or "").endswith(".__file__"):
            return Value(text="/site-packages/{}")
        if receiver.known and call.method in ("format", "join"):
            return Value(text=(call.argument(0).text if call.method == "join" else None) or receiver.shown)
        return self._of_name(name, receiver.text)

    def _of_name(self, name: str, text: str | None = None) -> Value:
        return Value(ref=f"{name}()", text=text) if name and len(name) < MAX_REF else UNKNOWN

    def _paths(self, call: Call) -> None:
        """Note what a call does with the paths that it is given."""
        verbs = VERBS.get(call.name) or VERBS.get(f".{call.method}", ())
        if call.name in ("builtins.open", "pathlib.Path().open"):
            at = 1 if call.name == "builtins.open" else 0
            mode = call.argument(at, "mode").shown or "r"
            verbs = ((at - 1, "write" if set(mode) & set("wax+") else "read"),)
        for at, verb in verbs:
            path = call.argument(at, *("path", "file", "filename", "src", "top", "pathname") if at == 0 else ("dst",))
            if path.shown is not None and (code := judge(verb, path.shown)) is not None:
                self._findings.add(code, call.line, path.shown)
            elif verb == "tree" and path.shown is None:
                self._findings.add(ScreenCode.FILE_DELETE, call.line, call.name)
            elif verb == "write" and (path.ref or "").endswith(".__file__"):
                self._findings.add(ScreenCode.PERSIST_PACKAGE, call.line, path.ref or "")

    def _command(self, call: Call) -> None:
        """Read the command of a call: a list of words, or a text for a shell."""
        first = call.argument(0, "args", "cmd", "command", "file")
        if call.name.startswith(("subprocess.", "asyncio.")):
            shell = call.keywords.get("shell")
            through = shell is not None and (not shell.known or bool(shell.const))
            plain = first.shown is not None and PLAIN_COMMAND.match(first.shown)
            if (through and not plain) or (not first.known and first.text is None):
                self._findings.add(ScreenCode.PROCESS_SHELL, call.line, call.name)
            if {"start_new_session", "preexec_fn", "creationflags"} & set(call.keywords):
                self._findings.add(ScreenCode.PROCESS_BACKGROUND, call.line, call.name)
        elif call.name.startswith("os.") and len(call.args) > 1:
            first = Value(const=[word.shown for word in call.args if word.shown is not None])
        if isinstance(first.const, list):
            said = [str(word) for word in first.const]
            self._shell.words(said, call.line)
            self._findings.text(" ".join(said), call.line)
        elif first.shown is not None:
            self._shell.read(first.shown, call.line)

    def _import_call(self, call: Call) -> Value:
        """Read an import by a name that is given as a text."""
        name = call.argument(0, "name")
        if name.shown is None or not name.known:
            self._findings.add(ScreenCode.DYNAMIC_IMPORT, call.line, call.name)
            return UNKNOWN
        self._import(name.shown, call.line)
        if name.built:
            self._findings.add(ScreenCode.HIDDEN_NAME, call.line, name.shown)
        whole = call.name == "importlib.import_module" or "fromlist" in call.keywords
        return Value(ref=canonical(name.shown[:MAX_REF] if whole else name.shown[:MAX_REF].partition(".")[0]))

    def _ipython(self, call: Call, first: str) -> None:
        """Read a method of IPython's shell, which signs at the start of a line come to."""
        second, third = (call.argument(at).shown or "" for at in (1, 2))
        if call.name == "get_ipython().run_line_magic":
            self._magics.line(first, second, call.line)
        elif call.name == "get_ipython().magic":
            name, _, rest = first.partition(" ")
            self._magics.line(name, rest, call.line)
        elif call.name == "get_ipython().run_cell_magic":
            self._magics.cell(first, second, third, call.line)

    _KINDS: Final[Mapping[type, Callable[[PythonReader, Any], Value]]] = {
        ast.Constant: _constant,
        ast.Name: _name,
        ast.Attribute: _attribute,
        ast.Call: _call,
        ast.BinOp: _binary,
        ast.JoinedStr: _joined,
        ast.Subscript: _subscript,
        ast.UnaryOp: _unary,
        ast.Compare: _compare,
        ast.Lambda: _lambda,
        ast.NamedExpr: _walrus,
        **dict.fromkeys((ast.List, ast.Tuple), _items),
        **dict.fromkeys((ast.Await, ast.Starred), _inside),
        **dict.fromkeys((ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp), _comprehension),
    }


def _leaves(node: ast.AST) -> bool:
    """Return whether a loop may end at a node, or waits there."""
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).rpartition(".")[2] in ("exit", "quit", "_exit")
    return isinstance(node, ast.Break | ast.Return | ast.Raise | ast.Yield | ast.YieldFrom | ast.Await)


def _parsed(code: str) -> ast.Module | None:
    """Return the tree of code, None if it is no Python. Raises RecursionError for what is nested too deep."""
    depth = 0
    if code.count("(") + code.count("[") + code.count("{") >= MAX_BRACKETS:
        for sign in re.findall(r"[(\[{)\]}]", code):
            depth += 1 if sign in "([{" else -1
            if depth > MAX_BRACKETS:
                raise RecursionError
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(code)
        except (SyntaxError, ValueError):
            return None


def _parts(code: str) -> list[tuple[str, int]]:
    """Split code at lines that begin at the margin, with the number of the first line of each from 0."""
    found: list[tuple[str, int]] = []
    lines, start = code.split("\n"), 0
    for at, line in enumerate([*lines[1:], "end"], 1):
        if line and line[0] not in " \t)]}#" and not line.startswith(("else", "elif", "except", "finally")):
            found.append(("\n".join(lines[start:at]), start))
            start = at
    return [part for part in found if part[0].strip()][:MAX_PARTS]
