"""The rule index: all rules by what they look for. A dotted name, a method, a module, a text or a shell command.

Pure. An operator's own rules and weights go in here; patterns are compiled once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib import import_module
from typing import NamedTuple

from .rules.rule import Rule

FAMILIES = (
    *("process", "files", "network", "credentials", "persistence", "escape", "exhaustion"),
    *("obfuscation", "miners", "data", "reading"),
)
MAX_ASKED = 4096
"""Names whose answer is kept."""


class Row(NamedTuple):
    """What a finding of a rule says, whatever part of the rule found it."""

    code: str
    family: str
    weight: int
    cwe: int | None
    reason: str
    remedy: str


class Own(NamedTuple):
    """A rule of an operator's: a row, and what it looks for."""

    row: Row
    names: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    shell: tuple[str, ...] = ()


class Changes(NamedTuple):
    """What an operator changed: a weight by code (0 switches off), rules of their own, and lists of modules."""

    weights: Mapping[str, int] = {}
    own: tuple[Own, ...] = ()
    imports: frozenset[str] | None = None
    """The modules that may be imported; None allows all."""
    denied: frozenset[str] = frozenset()


Rows = tuple[Row, ...]
_TABLES = ("names", "calls", "methods", "attributes", "imports", "endless")
_PATTERNS = ("text", "shell", "script")


class RuleIndex:
    """The rules, by what they look for."""

    def __init__(self, changes: Changes = Changes()) -> None:  # noqa: B008 (a value that nobody can change)
        self.changes = changes
        self.rows: dict[str, Row] = {}
        self._tables: dict[str, dict[str, list[Row]]] = {name: {} for name in _TABLES}
        self._patterns: dict[str, list[tuple[re.Pattern[str], Row]]] = {name: [] for name in _PATTERNS}
        self.flows: list[tuple[re.Pattern[str], re.Pattern[str], Row]] = []
        for family in FAMILIES:
            for rule in import_module(f"{__package__}.rules.{family}").RULES:
                code = rule.code
                weight = changes.weights.get(code.code, int(rule.weight))
                if weight:
                    self._add(Row(code.code, family, weight, rule.cwe, code.text, code.remedy), rule)
        for own in changes.own:
            self._add(own.row, own)
        self.attributes = frozenset(self._tables["attributes"])
        self.methods = frozenset(self._tables["methods"])
        self.text, self.shell, self.script = (self._patterns[name] for name in _PATTERNS)
        self.of = lru_cache(MAX_ASKED)(self._of)

    def _add(self, row: Row, rule: Rule | Own) -> None:
        self.rows[row.code] = row
        for name, table in self._tables.items():
            for key in getattr(rule, name, ()):
                table.setdefault(key, []).append(row)
        for name, patterns in self._patterns.items():
            patterns += [(re.compile(text), row) for text in getattr(rule, name, ())]
        if isinstance(rule, Rule):
            self.flows += [(re.compile(called), re.compile(given), row) for called, given in rule.flows]

    def _of(self, name: str, *kinds: str) -> Rows:
        """Return the rules that know a dotted name, by itself or by `a.b.*`, in tables of these kinds."""
        found: dict[Row, None] = {}
        for table in (self._tables[kind] for kind in kinds):
            found |= dict.fromkeys(table.get(name, ()))
            head = name
            while (at := head.rfind(".")) > 0:
                head = head[:at]
                found |= dict.fromkeys(table.get(f"{head}.*", ()))
        return tuple(found)

    def of_method(self, name: str) -> Iterable[Row]:
        """Return the rules about a method of something that is not known."""
        return self._tables["methods"].get(name, ())

    def of_attribute(self, name: str) -> Iterable[Row]:
        """Return the rules about an attribute, whatever has it."""
        return self._tables["attributes"].get(name, ())

    def of_import(self, module: str) -> list[Row]:
        """Return the rules about a module that is imported, the operator's lists among them."""
        top, changes = module.partition(".")[0], self.changes
        rows = list(dict.fromkeys((*self.of(module, "imports"), *self.of(top, "imports"))))
        listed = changes.imports is not None and top not in changes.imports and module not in changes.imports
        denied = listed or top in changes.denied or module in changes.denied
        if denied and (row := self.rows.get("import-not-allowed")):
            rows.append(row)
        return rows


@cache
def default() -> RuleIndex:
    """Return the rules without an operator's changes."""
    return RuleIndex()
