"""Reads the Python of a cell: names by their imports and assignments, constant texts, and what is called.

Nothing is run or computed: no value is followed through a call, a loop or a container, and nothing is decoded. What
cannot be read is a finding.
"""

from __future__ import annotations

import ast
import re
import shlex
import unicodedata
import warnings
from collections.abc import Mapping
from typing import NamedTuple

from ...core.screen_findings import Screened
from . import ipython_syntax
from .cell_findings import CellFindings
from .codes import ScreenCode
from .known_names import (
    ASSIGNABLE,
    BUILTINS,
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
from .path_rules import JOINS, SELF, VERBS, judge
from .rule_index import RuleIndex
from .shell_reader import ShellReader

MAX_CHARACTERS = 128 * 1024
MAX_CODE_DEPTH = 4
"""Of code within code."""
MAX_STEPS = 40_000
"""Parts of the syntax tree that are looked at for one cell."""
STEP_SIZE = 32
"""Characters of a text that count as one such part whenever it is put together or given to a call."""
MAX_TEXT = 1 << 16
"""Characters of a text that is put together."""
MAX_BRACKETS = 150
"""Depth of brackets; Python takes 200."""
MAX_REF = 200
"""Characters of a dotted name that is made by calls."""
MAX_PARTS = 500
"""Statements that are read one by one where a cell is no Python as a whole."""
UNKNOWN_PART = "{}"
"""Stands in a text for a part that is not known."""

_TURNS = re.compile(r"[\u202a-\u202e\u2066-\u2069\u200e\u200f]")
_ODD = re.compile(r"[\U0001d400-\U0001d7ff\uff21-\uff3a\uff41-\uff5a\u2100-\u214f\u1d2c-\u1d6a\u24b6-\u24e9]")
_STRINGS = re.compile(r"(\"\"\"|''').*?\1|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|#[^\n]*", re.DOTALL)


class TooIntricateError(Exception):
    """A cell has more in it than is looked at."""


class ExpressionValue(NamedTuple):
    """What is known of an expression; all of it may be nothing."""

    ref: str | None = None
    """The dotted name of what it is, with `()` behind what was called: `socket.socket()`."""
    text: str | None = None
    """A constant text, or the words of a list of them for a shell. Parts that are not known are `{}`."""
    composed: bool = False
    """Whether the text was put together, and does not stand in the code as it is."""

    @property
    def exact(self) -> str | None:
        """The text, if all of it is known."""
        return None if self.text is None or UNKNOWN_PART in self.text else self.text


UNKNOWN = ExpressionValue()


class SyntaxCall(NamedTuple):
    """One call: what is called, on what, with what."""

    name: str
    """The dotted name, empty if it is not known."""
    receiver: ExpressionValue
    method: str
    args: list[ExpressionValue]
    keywords: dict[str, ExpressionValue]
    line: int

    def argument(self, at: int, *names: str) -> ExpressionValue:
        """Return an argument by its place or by one of its names."""
        if at == SELF:
            return self.receiver
        given = (self.keywords[name] for name in names if name in self.keywords)
        return next(given, self.args[at] if len(self.args) > at else UNKNOWN)


class PythonReader(ast.NodeVisitor):
    """Reads one cell. `known` are the names of earlier cells."""

    def __init__(self, index: RuleIndex, known: Mapping[str, ExpressionValue]) -> None:
        self.names: dict[str, ExpressionValue] = {}
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
        self._findings.begin(code)
        if len(code) > MAX_CHARACTERS:
            self._findings.add(ScreenCode.CELL_TOO_LARGE, 1, f"{len(code)} characters")
            self._findings.text(code[:MAX_CHARACTERS], 1)
            return self._findings.done()
        self._letters(code)
        try:
            self._cell(code)
        except (RecursionError, MemoryError, TooIntricateError):
            del self._scopes[1:]
            self._findings.node = None
            self._findings.add(ScreenCode.CELL_TOO_DEEP, 1)
            self._findings.text(code, 1)
        return self._findings.done()

    def _cell(self, code: str) -> None:
        one_line = code.strip().count("\n") == 0 and code.strip().partition(" ")[0].isidentifier()
        if ipython_syntax.is_plain(code) and not one_line and (tree := _parsed(code)) is not None:
            self._findings.parsed(code)
            self.visit(tree)
            return
        found = ipython_syntax.read(code, frozenset(self._known))
        if found.magic is not None:
            self._magics.cell(found.magic, found.arguments, found.body, found.first)
        elif (tree := _parsed(found.python)) is not None:
            self._findings.parsed(found.python)
            self.visit(tree)
        else:
            self._broken(found.python, 1)

    def _inner(self, code: str, line: int) -> None:
        """Read code that a cell gives to an interpreter, its lines counted from `line`."""
        self._step()
        if self._depth >= MAX_CODE_DEPTH or len(code) > MAX_CHARACTERS:
            self._findings.add(ScreenCode.CELL_TOO_DEEP, line)
            return
        self._depth += 1
        node, exact = self._findings.node, self._findings.exact
        python, tree = code, _parsed(code)
        if tree is None:
            python = ipython_syntax.read(code).python
            tree = _parsed(python)
        if tree is not None:
            self._findings.parsed(python, line)
            self.visit(ast.increment_lineno(tree, line - 1))
        elif UNKNOWN_PART not in code:
            self._broken(code, line)
        self._findings.node, self._findings.exact = node, exact
        self._findings.text(code, line)
        self._depth -= 1

    def _broken(self, code: str, line: int) -> None:
        """Read code that is no Python of this version: each part that is, and the rest as a text."""
        self._findings.add(ScreenCode.CELL_UNPARSED, line)
        self._findings.parsed(code, line)
        for part, first in _parts(code):
            if (tree := _parsed(part)) is not None:
                self.visit(ast.increment_lineno(tree, line + first - 1))
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

    def _step(self, *texts: str | None) -> None:
        """Count one step, and more for a look through long texts. Raises `TooIntricateError`."""
        self._steps += 1 + sum(len(text) // STEP_SIZE for text in texts if text is not None)
        if self._steps > MAX_STEPS:
            raise TooIntricateError

    def _note(self, ref: str, line: int, *kinds: str) -> bool:
        """Note what rules of these kinds know of a dotted name; return whether there is one."""
        rows = self._index.of(ref, *kinds)
        for row in rows:
            self._findings.row(row, line, ref)
        return bool(rows)

    def visit(self, node: ast.AST) -> ExpressionValue:
        """Note what the rules know of a node and all in it; return what is known of an expression."""
        visitor = getattr(self, f"visit_{type(node).__name__}", self.generic_visit)
        if not isinstance(node, ast.expr | ast.stmt):
            return visitor(node) or UNKNOWN
        self._step()
        outer, self._findings.node = self._findings.node, node
        value = visitor(node) or UNKNOWN
        self._findings.node = outer
        return value

    # --- statements ------------------------------------------------------------------------------------------------

    def visit_Expr(self, node: ast.Expr) -> None:
        """Read a statement that is an expression; a text alone is a description."""
        if not isinstance(node.value, ast.Constant):
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Bind names to a value."""
        value = self.visit(node.value)
        for target in node.targets:
            self._bind(target, value, constant=isinstance(node.value, ast.Constant))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Bind a name whose type is declared."""
        self._bind(node.target, self.visit(node.value) if node.value is not None else UNKNOWN)

    def visit_withitem(self, node: ast.withitem) -> None:
        """Bind the name of what a `with` opens."""
        value = self.visit(node.context_expr)
        if node.optional_vars is not None:
            self._bind(node.optional_vars, value)

    def visit_Import(self, node: ast.Import) -> None:
        """Bind the names of modules."""
        for alias in node.names:
            self._import(alias.name, node.lineno)
            self._findings.text(alias.name, node.lineno)
            name = alias.name if alias.asname else alias.name.partition(".")[0]
            self._bind_name(alias.asname or name, ExpressionValue(canonical(name)))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Bind names of a module; all that the rules know of it for a star."""
        module = node.module or ""
        if not node.level:
            self._import(module, node.lineno)
            self._findings.text(f"{module} {' '.join(alias.name for alias in node.names)}", node.lineno)
        for alias in node.names:
            for name in self._index.members.get(module, ()) if alias.name == "*" else (alias.name,):
                self._step()
                value = ExpressionValue(canonical(f"{module}.{name}"))
                if alias.name != "*":
                    self._mention(value, node.lineno)
                self._bind_name(alias.asname or name, value)

    def _import(self, module: str, line: int) -> None:
        for row in self._index.of_import(module[:MAX_REF]):
            self._findings.row(row, line, module[:MAX_REF])

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Read a function, whose loops do not run where it stands."""
        self._bind_name(node.name, UNKNOWN)
        self._findings.text(node.name, node.lineno)
        for row in self._index.exactly("define", node.name):
            self._findings.row(row, node.lineno, node.name)
        endless, self._endless = self._endless, 0
        self._scoped(node)
        self._endless = endless

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 (the name is of `ast`)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Read a class, whose names are its own."""
        self._bind_name(node.name, UNKNOWN)
        self._scoped(node)

    def _scoped(self, node: ast.AST) -> None:
        self._scopes.append({})
        self.generic_visit(node)
        self._scopes.pop()

    visit_Lambda = _scoped  # noqa: N815

    def visit_arg(self, node: ast.arg) -> None:
        """Bind a parameter."""
        self._bind_name(node.arg, UNKNOWN)

    def visit_While(self, node: ast.While) -> None:
        """Read a loop, which may have no end."""
        always = isinstance(node.test, ast.Constant) and bool(node.test.value)
        endless = always and not any(map(_leaves, ast.walk(node)))
        if endless:
            self._findings.add(ScreenCode.EXHAUST_LOOP, node.lineno)
        self._endless += endless
        self.generic_visit(node)
        self._endless -= endless

    # --- names -----------------------------------------------------------------------------------------------------

    def _named(self, name: str) -> ExpressionValue:
        """Return what a name means here."""
        for scope in (*reversed(self._scopes), self._known):
            found: ExpressionValue | None = scope.get(name)
            if found is not None:
                return found
        if name in MODULES or name == "get_ipython":
            return ExpressionValue(name)
        if name in BUILTINS:
            return ExpressionValue(canonical(f"builtins.{name}"))
        return ExpressionValue(SHORT[name]) if name in SHORT else UNKNOWN

    def _bind_name(self, name: str, value: ExpressionValue) -> None:
        self._scopes[-1][name] = value

    def _bind(self, node: ast.expr, value: ExpressionValue, *, constant: bool = False) -> None:
        """Give a value to the target of an assignment; of what is not one name, nothing is known afterwards."""
        match node:
            case ast.Name():
                self._bind_name(node.id, value)
            case ast.Attribute():
                for row in self._index.exactly("attribute", node.attr):
                    self._findings.row(row, node.lineno, node.attr)
                self._patched(self._bare(node.value).ref or "", node.attr, node.lineno, constant=constant)
            case ast.Subscript():
                if self._bare(node.value).ref == "sys.modules":
                    self._findings.add(ScreenCode.PERSIST_PATCH, node.lineno, "sys.modules")
                self.visit(node.slice)
            case _:
                self.visit(node)

    def _patched(self, module: str, name: str, line: int, *, constant: bool) -> None:
        """Note that an attribute of a module is replaced, unless a constant is a setting of the module's."""
        known = self._note(f"{module}.{name}", line, "name")
        if not known and not constant and module in PATCHED and name not in ASSIGNABLE:
            self._findings.add(ScreenCode.PERSIST_PATCH, line, f"{module}.{name}")

    def _bare(self, node: ast.expr) -> ExpressionValue:
        """Return what a name or an attribute is, without noting that it is mentioned."""
        if isinstance(node, ast.Name):
            return self._named(node.id)
        return self._member(node, self._bare(node.value)) if isinstance(node, ast.Attribute) else self.visit(node)

    def _member(self, node: ast.Attribute, owner: ExpressionValue) -> ExpressionValue:
        self._step()
        for row in self._index.exactly("attribute", node.attr):
            self._findings.row(row, node.lineno, node.attr)
        if owner.ref is None or len(owner.ref) > MAX_REF:
            return UNKNOWN
        return ExpressionValue(canonical(f"{owner.ref}.{node.attr}"))

    def _mention(self, value: ExpressionValue, line: int) -> None:
        """Note what the rules know of a name that is used in any way."""
        if value.ref is not None:
            self._used.append(value.ref)
            self._note(value.ref, line, "name")

    def _by_text(self, owner: str, name: ExpressionValue, line: int) -> ExpressionValue:
        """Return what has a name that is given as a text, and note it as if it stood there."""
        key = name.exact
        if key is None or len(key) > MAX_REF:
            if owner in PATCHED:
                self._findings.add(ScreenCode.DYNAMIC_ATTRIBUTE, line, owner)
            return UNKNOWN
        found = ExpressionValue(canonical(f"{owner}.{key}")) if owner else self._named(key)
        attributes = tuple(self._index.exactly("attribute", key))
        known = found.ref is not None and self._note(found.ref, line, "name", "call")
        for row in attributes:
            self._findings.row(row, line, key)
        if known and owner:
            self._findings.add(ScreenCode.DYNAMIC_ATTRIBUTE, line, found.ref or "")
        if name.composed and (known or attributes or found.ref not in (None, f"{owner}.{key}")):
            self._findings.add(ScreenCode.HIDDEN_NAME, line, key)
        return found

    # --- expressions -----------------------------------------------------------------------------------------------

    def visit_Constant(self, node: ast.Constant) -> ExpressionValue:
        """Read a text."""
        if not isinstance(node.value, str | bytes):
            return UNKNOWN
        text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
        self._findings.text(text, node.lineno)
        return ExpressionValue(text=text)

    def visit_Name(self, node: ast.Name) -> ExpressionValue:
        """Read a name; one that is bound otherwise than by a plain assignment is unknown from here on."""
        if not isinstance(node.ctx, ast.Load):
            self._bind_name(node.id, UNKNOWN)
            return UNKNOWN
        value = self._named(node.id)
        if value.ref is None:
            self._used.append(node.id)
        self._mention(value, node.lineno)
        return value

    def visit_Attribute(self, node: ast.Attribute) -> ExpressionValue:
        """Read an attribute."""
        value = self._member(node, self._bare(node.value))
        self._mention(value, node.lineno)
        return value

    def visit_Compare(self, node: ast.Compare) -> None:
        """Read a comparison, of which a function may be about people."""
        if isinstance(node.left, ast.Name) and node.left.id.lower() in PEOPLE and len(self._scopes) > 1:
            self._findings.add(ScreenCode.DATA_PEOPLE, node.lineno, node.left.id)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ExpressionValue:
        """Read texts that are added, and paths that are joined; of a template, the text itself."""
        chain: list[ast.BinOp] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp):
            chain.append(left)
            left = left.left
        first = self.visit(left)
        parts = [first.text]
        between = "/" if first.ref == "pathlib.Path()" else ""
        for one in reversed(chain):
            part = self.visit(one.right).text
            parts.append(None if isinstance(one.op, ast.Mod) else part)
        if not isinstance(node.op, ast.Add | ast.Div | ast.Mod):
            return UNKNOWN
        return self._composed(parts, node.lineno, between, first.ref if between else None)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ExpressionValue:
        """Read an f-string."""
        parts: list[str | None] = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue) and part.format_spec is not None:
                self.visit(part.format_spec)
            parts.append(self.visit(part.value if isinstance(part, ast.FormattedValue) else part).text)
        return self._composed(parts, node.lineno)

    def _composed(
        self, parts: list[str | None], line: int, between: str = "", ref: str | None = None
    ) -> ExpressionValue:
        """Return a text that is put together of parts, and have it searched."""
        if not any(parts):
            return ExpressionValue(ref)
        kept, length = list[str](), 0
        for part in parts:
            kept.append((UNKNOWN_PART if part is None else part)[: MAX_TEXT - length])
            length += len(kept[-1]) + len(between)
            if length >= MAX_TEXT:
                break
        text = between.join(kept)
        text = text.replace("//", "/") if between else text
        self._step(text)
        if len(parts) > 1:
            self._findings.text(text, line)
        return ExpressionValue(ref, text, composed=len(parts) > 1)

    def visit_List(self, node: ast.List | ast.Tuple) -> ExpressionValue:
        """Read a list, which may be a command."""
        if not isinstance(node.ctx, ast.Load):
            self.generic_visit(node)
            return UNKNOWN
        texts = [self.visit(item).text for item in node.elts]
        if not any(texts):
            return UNKNOWN
        self._step(*texts)
        return ExpressionValue(text=shlex.join(UNKNOWN_PART if text is None else text for text in texts)[:MAX_TEXT])

    visit_Tuple = visit_List  # noqa: N815

    def visit_Subscript(self, node: ast.Subscript) -> ExpressionValue:
        """Read what a key gives: of the environment, or of a namespace."""
        ref, key = self._bare(node.value).ref, self.visit(node.slice)
        if ref is None:
            return UNKNOWN
        if ref in ("os.environ", "os.environb"):
            return self._variable(key, node.lineno)
        if ref in NAMESPACES:
            return self._by_text("", key, node.lineno)
        if ref.endswith(".__dict__") or ref == "builtins":
            return self._by_text(ref.removesuffix(".__dict__"), key, node.lineno)
        return ExpressionValue(f"{ref}[]") if len(ref) < MAX_REF else UNKNOWN

    def _variable(self, key: ExpressionValue, line: int) -> ExpressionValue:
        """Return what is known of a variable of the environment, and note one that is named like a secret."""
        if key.text is not None and SECRET.search(key.text):
            self._findings.add(ScreenCode.CREDENTIAL_VARIABLE, line, key.text)
            self._used.append("os.environ")
        return ExpressionValue(text="~") if key.text in ("HOME", "USERPROFILE") else UNKNOWN

    # --- calls -----------------------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> ExpressionValue:
        """Read a call: what is called, and what it is given."""
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
        args = [self.visit(arg) for arg in node.args]
        keywords = {word.arg or "**": self.visit(word.value) for word in node.keywords}
        self._step(receiver.text, *(value.text for value in (*args, *keywords.values())))
        call = SyntaxCall(target.ref or "", receiver, method, args, keywords, node.lineno)
        self._noted(call)
        self._flows(call, before)
        self._used += [one for one in (receiver.ref, target.ref) if one is not None]
        return self._result(call, node)

    def _noted(self, call: SyntaxCall) -> None:
        if call.name:
            for row in self._index.of(call.name, "name", "call"):
                if not self._is_harmless(call, row.code):
                    self._findings.row(row, call.line, call.name)
            if self._endless:
                self._note(call.name, call.line, "endless")
            if "()" not in call.name or call.name.startswith("get_ipython()"):
                return
        if call.method in self._index.methods and call.receiver.text is None:
            for row in self._index.exactly("method", call.method):
                self._findings.row(row, call.line, f".{call.method}()")

    def _is_harmless(self, call: SyntaxCall, code: str) -> bool:
        """Return whether what a rule finds in a call is nothing, because of what the call is given."""
        first = call.argument(0, "command", "cmd", "source", "expression")
        if code == ScreenCode.PROCESS_SHELL.code and first.text and PLAIN_COMMAND.match(first.text):
            self._findings.add(ScreenCode.PROCESS_PROGRAM, call.line, first.text)
            return True
        if code == ScreenCode.DYNAMIC_EXECUTION.code:
            return call.name in ("builtins.exec", "builtins.eval") and first.text is not None and not first.composed
        if code == ScreenCode.UNSAFE_LOAD.code and call.name.startswith("yaml."):
            loader = call.argument(1, "Loader").ref or ""
            return "Safe" in loader or "Base" in loader
        return call.name in ("importlib.reload", "signal.signal")

    def _flows(self, call: SyntaxCall, before: int) -> None:
        """Note what is given to a call that must not be given to it: the names used in its own expression."""
        called = call.name or f".{call.method}"
        flows = [(given, row) for pattern, given, row in self._index.flows if pattern.fullmatch(called)]
        if flows:
            given = " ".join(self._used[before:])
            self._step(given)
            for pattern, row in flows:
                if pattern.search(given) is not None:
                    self._findings.row(row, call.line, called)

    def _result(self, call: SyntaxCall, node: ast.Call) -> ExpressionValue:
        """Read what a call is given, by what is called; return what is known of its result."""
        name, first, line = call.name, call.argument(0), call.line
        self._paths(call)
        if name in SHELL_CALLS:
            self._command(call, node)
        elif name in RUNNERS:
            code = call.argument(0, "source", "expression", "object").text
            if code is not None:
                self._inner(code, line)
        elif name in IMPORTERS:
            return self._import_call(call)
        elif name == "builtins.getattr":
            return self._by_text(first.ref, call.argument(1), line) if first.ref is not None else UNKNOWN
        elif name == "builtins.setattr":
            constant = all(isinstance(arg, ast.Constant) for arg in node.args[2:])
            self._patched(first.ref or "", call.argument(1).text or "", line, constant=constant)
        elif name == "os.getenv" or (call.receiver.ref == "os.environ" and call.method in ("get", "pop")):
            return self._variable(first, line)
        elif name.startswith("get_ipython().") and first.text is not None:
            self._ipython(call, first.text)
        elif name in JOINS:
            return self._composed([arg.text for arg in call.args], line, "/", JOINS[name])
        elif name == "pathlib.Path.home":
            return ExpressionValue("pathlib.Path()", "~")
        elif call.method == "format":
            return self._composed([call.receiver.text, None], line)
        return ExpressionValue(f"{name}()") if name and len(name) < MAX_REF else UNKNOWN

    def _paths(self, call: SyntaxCall) -> None:
        """Note what a call does with the paths that it is given."""
        verbs = VERBS.get(call.name) or VERBS.get(f".{call.method}", ())
        if call.name in ("builtins.open", "pathlib.Path().open"):
            at = 1 if call.name == "builtins.open" else 0
            mode = call.argument(at, "mode").text or "r"
            verbs = ((at - 1, "write" if set(mode) & set("wax+") else "read"),)
        for at, verb in verbs:
            path = call.argument(at, *("path", "file", "filename", "src", "top", "pathname") if at == 0 else ("dst",))
            if path.text is not None and (code := judge(verb, path.text)) is not None:
                self._findings.add(code, call.line, path.text)
            elif verb == "tree" and path.text is None:
                self._findings.add(ScreenCode.FILE_DELETE, call.line, call.name)
            elif verb == "write" and (path.ref or "").endswith(".__file__"):
                self._findings.add(ScreenCode.PERSIST_PACKAGE, call.line, path.ref or "")

    def _command(self, call: SyntaxCall, node: ast.Call) -> None:
        """Read the command of a call: a list of words, or a text for a shell."""
        command = call.argument(0, "args", "cmd", "command", "file").text
        if call.name.startswith(("subprocess.", "asyncio.")):
            through = any(word.arg == "shell" and not _is_false(word.value) for word in node.keywords)
            plain = command is not None and PLAIN_COMMAND.match(command)
            if (through and not plain) or command is None:
                self._findings.add(ScreenCode.PROCESS_SHELL, call.line, call.name)
            if {"start_new_session", "preexec_fn", "creationflags"} & set(call.keywords):
                self._findings.add(ScreenCode.PROCESS_BACKGROUND, call.line, call.name)
        elif call.name.startswith("os.") and len(call.args) > 1:
            command = " ".join(word.text for word in call.args if word.text is not None)
        if command is not None:
            self._shell.read(command, call.line)

    def _import_call(self, call: SyntaxCall) -> ExpressionValue:
        """Read an import by a name that is given as a text."""
        name = call.argument(0, "name")
        if name.exact is None:
            self._findings.add(ScreenCode.DYNAMIC_IMPORT, call.line, call.name)
            return UNKNOWN
        module = name.exact[:MAX_REF]
        self._import(module, call.line)
        if name.composed:
            self._findings.add(ScreenCode.HIDDEN_NAME, call.line, module)
        whole = call.name == "importlib.import_module" or "fromlist" in call.keywords
        return ExpressionValue(canonical(module if whole else module.partition(".")[0]))

    def _ipython(self, call: SyntaxCall, first: str) -> None:
        """Read a method of IPython's shell, which signs at the start of a line come to."""
        second, third = (call.argument(at).text or "" for at in (1, 2))
        if call.name == "get_ipython().run_line_magic":
            self._magics.line(first, second, call.line)
        elif call.name == "get_ipython().magic":
            name, _, rest = first.partition(" ")
            self._magics.line(name, rest, call.line)
        elif call.name == "get_ipython().run_cell_magic":
            self._magics.cell(first, second, third, call.line)


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


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
