"""The rule index: all rules by what they look for. A dotted name, a method, a module, a text or a shell command.

The rules are files in `rules/`, one for each family, read once. An operator's own rules and weights are added to them.
A rule is a line `[code] weight CWE-number`, and lines that each say what it looks for, by their first word:

- `name`: Dotted names, found wherever they are mentioned. They are written as the library has them, whatever a cell
  calls them; `a.b.*` is all below, and what a call makes has `()`: the method of a socket is `socket.socket().connect`.
- `call`: Dotted names, found where they are called; `endless`: where they are called in a loop without an end.
- `method`: Methods, found where they are called on something that is not known.
- `attribute`: Attributes of anything; `define`: functions that are defined.
- `import`: Modules, found where they are imported.
- `flow`: Patterns `called -> given` of a called name, and of a name in the same expression or that its names come from.
- `text`: A pattern of texts in the code, however these are composed, and of shell commands.
- `shell`: A pattern of one simple command of a shell: its words, without quotes, with one space between.
- `script`: A pattern of all that a shell is given at once: pipes, redirections, loops.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from ...core.screen_findings import WEIGHTS
from .codes import ScreenCode

MAX_ASKED = 4096
"""Names whose answer is kept."""
_RULES = Path(__file__).parent / "rules"
_RULE = re.compile(r"\[([a-z-]+)\] (\w+)(?: CWE-(\d+))?")
_NAMES = ("name", "call", "endless", "method", "attribute", "define", "import")
_PATTERNS = ("text", "shell", "script", "flow")


class RuleRow(NamedTuple):
    """What a finding of a rule says, whatever part of the rule found it."""

    code: str
    family: str
    weight: int
    cwe: int | None
    reason: str
    remedy: str


Own = tuple[RuleRow, tuple[tuple[str, str], ...]]
"""A rule of an operator's: a row, and the lines of the rule, each in two: its first word, and what follows."""


class Changes(NamedTuple):
    """What an operator changed: a weight by code (0 switches off), rules of their own, and lists of modules."""

    weights: Mapping[str, int] = {}
    own: tuple[Own, ...] = ()
    imports: frozenset[str] | None = None
    """The modules that may be imported; None allows all."""
    denied: frozenset[str] = frozenset()


class RuleIndex:
    """The rules, by what they look for."""

    def __init__(self, changes: Changes = Changes()) -> None:  # noqa: B008 (a value that nobody can change)
        self.changes = changes
        self.rows: dict[str, RuleRow] = {}
        self._names: dict[str, dict[str, list[RuleRow]]] = {kind: {} for kind in _NAMES}
        self._patterns: dict[str, list[tuple[str, RuleRow]]] = {kind: [] for kind in _PATTERNS}
        definitions = dict(line.split(" ", 1) for line in _lines(_RULES / "definitions.txt"))
        codes = {one.code: one for one in ScreenCode}
        for path in sorted(_RULES.glob("*.txt")):
            row: RuleRow | None = None
            for line in _lines(path) if path.stem != "definitions" else ():
                if (match := _RULE.fullmatch(line)) is not None:
                    code, cwe = codes[match[1]], int(match[3]) if match[3] else None
                    weight = changes.weights.get(code.code, WEIGHTS[match[2]])
                    row = RuleRow(code.code, path.stem, weight, cwe, code.text, code.remedy) if weight else None
                    self.rows |= {} if row is None else {row.code: row}
                elif row is not None:
                    kind, _, text = line.partition(" ")
                    self._add(row, kind, re.sub(r"<([A-Z_]+)>", lambda match: definitions[match[1]], text))
        for row, lines in changes.own:
            self.rows[row.code] = row
            for kind, text in lines:
                self._add(row, kind, text)
        self.methods = frozenset(self._names["method"])
        self.of = lru_cache(MAX_ASKED)(self._of)
        self.members: dict[str, set[str]] = {}
        """The names of each module that some rule knows: those that `from module import *` is taken to bring."""
        for name in (*self._names["name"], *self._names["call"]):
            head, dot, last = name.rpartition(".")
            while dot:
                if last.isidentifier():
                    self.members.setdefault(head, set()).add(last)
                head, dot, last = head.rpartition(".")

    def _add(self, row: RuleRow, kind: str, text: str) -> None:
        if kind in self._patterns:
            self._patterns[kind].append((text, row))
        else:
            for name in text.split():
                self._names[kind].setdefault(name, []).append(row)

    # Compiling takes most of the time of a short check, so a kind is compiled for the first code that has use for it.

    @cached_property
    def text(self) -> list[tuple[re.Pattern[str], RuleRow]]:
        """The patterns of texts."""
        return self._compiled("text")

    @cached_property
    def shell(self) -> list[tuple[re.Pattern[str], RuleRow]]:
        """The patterns of one command."""
        return self._compiled("shell")

    @cached_property
    def script(self) -> list[tuple[re.Pattern[str], RuleRow]]:
        """The patterns of all that a shell is given at once."""
        return self._compiled("script")

    @cached_property
    def flows(self) -> list[tuple[re.Pattern[str], re.Pattern[str], RuleRow]]:
        """The patterns of a called name, and of what it is given."""
        parted = ((text.partition(" -> "), row) for text, row in self._patterns["flow"])
        return [(re.compile(called), re.compile(given), row) for (called, _, given), row in parted]

    def _compiled(self, kind: str) -> list[tuple[re.Pattern[str], RuleRow]]:
        return [(re.compile(text), row) for text, row in self._patterns[kind]]

    def _of(self, name: str, *kinds: str) -> tuple[RuleRow, ...]:
        """Return the rules that know a dotted name, by itself or by `a.b.*`, in tables of these kinds."""
        found: dict[RuleRow, None] = {}
        for table in (self._names[kind] for kind in kinds):
            found |= dict.fromkeys(table.get(name, ()))
            head = name
            while (at := head.rfind(".")) > 0:
                head = head[:at]
                found |= dict.fromkeys(table.get(f"{head}.*", ()))
        return tuple(found)

    def exactly(self, kind: str, name: str) -> Iterable[RuleRow]:
        """Return the rules about a method, an attribute or a definition of this name."""
        return self._names[kind].get(name, ())

    def of_import(self, module: str) -> list[RuleRow]:
        """Return the rules about a module that is imported, the operator's lists among them."""
        top, changes = module.partition(".")[0], self.changes
        rows = list(dict.fromkeys((*self.of(module, "import"), *self.of(top, "import"))))
        listed = changes.imports is not None and top not in changes.imports and module not in changes.imports
        denied = listed or top in changes.denied or module in changes.denied
        if denied and (row := self.rows.get(ScreenCode.IMPORT_NOT_ALLOWED.code)):
            rows.append(row)
        return rows


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


@cache
def default() -> RuleIndex:
    """Return the rules without an operator's changes."""
    return RuleIndex()
