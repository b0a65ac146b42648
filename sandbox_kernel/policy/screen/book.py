"""All rules together, ready to be asked: by a dotted name, a method, a module, a text or a command of a shell.

Pure. An operator's own rules, weights and switches go in here; patterns are compiled once.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import NamedTuple

from .rules.rule import Rule, Weight

FAMILIES = (
    *("process", "files", "network", "credentials", "persistence", "escape", "exhaustion"),
    *("obfuscation", "miners", "data", "reading"),
)
MOST_ASKED = 4096
"""Names whose answer is remembered."""


class Row(NamedTuple):
    """What is said of a finding, whatever part of its rule found it."""

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


class Book:
    """The rules, by what they look for."""

    def __init__(self, changes: Changes = Changes()) -> None:  # noqa: B008 (a value that nobody can change)
        self.changes = changes
        self.rows: dict[str, Row] = {}
        self._names: dict[str, list[Row]] = {}
        self._calls: dict[str, list[Row]] = {}
        self._methods: dict[str, list[Row]] = {}
        self._attributes: dict[str, list[Row]] = {}
        self._imports: dict[str, list[Row]] = {}
        self.text: list[tuple[re.Pattern[str], Row]] = []
        self.shell: list[tuple[re.Pattern[str], Row]] = []
        self.script: list[tuple[re.Pattern[str], Row]] = []
        self._asked: OrderedDict[tuple[str, bool], Rows] = OrderedDict()
        for family in FAMILIES:
            for rule in import_module(f"{__package__}.rules.{family}").RULES:
                self._add(family, rule)
        for own in changes.own:
            self._add_own(own)
        self.attributes = frozenset(self._attributes)
        self.methods = frozenset(self._methods)

    def _add(self, family: str, rule: Rule) -> None:
        weight = self.changes.weights.get(rule.code.code, int(rule.weight))
        if not weight:
            return
        row = Row(rule.code.code, family, weight, rule.cwe, rule.code.text, rule.code.remedy)
        self.rows[row.code] = row
        for table, keys in (
            (self._names, rule.names),
            (self._calls, rule.calls),
            (self._methods, rule.methods),
            (self._attributes, rule.attributes),
            (self._imports, rule.imports),
        ):
            _index(table, keys, row)
        for patterns, texts in ((self.text, rule.text), (self.shell, rule.shell), (self.script, rule.script)):
            patterns += [(re.compile(text), row) for text in texts]

    def _add_own(self, own: Own) -> None:
        self.rows[own.row.code] = own.row
        _index(self._names, own.names, own.row)
        _index(self._imports, own.imports, own.row)
        for patterns, texts in ((self.text, own.text), (self.shell, own.shell)):
            patterns += [(re.compile(text), own.row) for text in texts]

    # --- questions -------------------------------------------------------------------------------------------------

    def of(self, name: str, *, called: bool) -> Rows:
        """Return the rules that know a dotted name; those about calls only where it is called."""
        key = (name, called)
        found = self._asked.get(key)
        if found is None:
            tables = (self._names, self._calls) if called else (self._names,)
            found = tuple(dict.fromkeys(row for table in tables for row in _found(table, name)))
            self._asked[key] = found
            if len(self._asked) > MOST_ASKED:
                self._asked.popitem(last=False)
        return found

    def of_method(self, name: str) -> Iterable[Row]:
        return self._methods.get(name, ())

    def of_attribute(self, name: str) -> Iterable[Row]:
        return self._attributes.get(name, ())

    def of_import(self, module: str) -> list[Row]:
        """Return the rules about a module that is imported, the operator's list among them."""
        top, changes = module.partition(".")[0], self.changes
        rows = list(dict.fromkeys(row for name in (module, top) for row in _found(self._imports, name)))
        listed = changes.imports is not None and top not in changes.imports and module not in changes.imports
        if (listed or top in changes.denied or module in changes.denied) and (
            row := self.rows.get("import-not-allowed")
        ):
            rows.append(row)
        return rows


def _index(table: dict[str, list[Row]], keys: Iterable[str], row: Row) -> None:
    for key in keys:
        table.setdefault(key, []).append(row)


def _found(table: Mapping[str, list[Row]], name: str) -> Iterable[Row]:
    yield from table.get(name, ())
    head = name
    while (at := head.rfind(".")) > 0:
        head = head[:at]
        yield from table.get(f"{head}.*", ())


@cache
def usual() -> Book:
    """Return the rules as they are, without an operator's changes."""
    return Book()


LEVELS = {one.name.lower(): int(one) for one in Weight} | {"off": 0}
"""The words for weights in a file of rules."""
