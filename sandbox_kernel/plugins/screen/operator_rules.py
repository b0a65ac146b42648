"""An operator's file of rules: TOML that adds rules, weighs them, switches them off, and lists modules.

Pure: it is given the text. Errors name the place in the file.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping

from ...core.screen_findings import WEIGHTS
from .rule_index import Changes, Own, RuleRow, default

LEVELS = WEIGHTS | {"off": 0}
"""The words for weights in a file of rules."""
MAX_RULES = 200
MAX_PATTERN = 1000
_CODE = re.compile(r"own(-[a-z0-9]+)+")
_NAME = re.compile(r"[A-Za-z_][\w.]*(\(\))?[\w.]*(\.\*)?")
_KINDS = {"names": "name", "imports": "import", "text": "text", "shell": "shell"}
"""What a rule may look for, and what the rule index calls it."""
_FIELDS = {"code", "weight", "reason", "instead", "cwe", *_KINDS}


class BadRules(ValueError):
    """A file of rules that cannot be taken; its text says why, to be read after the name of the setting."""


def changes(text: str) -> Changes:
    """Return what a file of rules changes. Raises `BadRules`."""
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # the second for what nests too deep
        raise BadRules(f"is no TOML: {error}") from None
    if unknown := set(table) - {"weights", "rule", "imports"}:
        raise BadRules(f"has a table {min(unknown)!r}, and only weights, rule and imports mean something")
    imports = _table(table, "imports", {"allow", "deny"})
    allowed = _texts(imports, "allow", "imports") if "allow" in imports else None
    return Changes(
        weights=_weights(_table(table, "weights", None)),
        own=_rules(table.get("rule", [])),
        imports=None if allowed is None else frozenset(allowed),
        denied=frozenset(_texts(imports, "deny", "imports")),
    )


def _table(table: Mapping[str, object], name: str, known: set[str] | None) -> Mapping[str, object]:
    found = table.get(name, {})
    if not isinstance(found, Mapping):
        raise BadRules(f"has {name}, which is no table")
    if known is not None and (unknown := set(found) - known):
        raise BadRules(f"has {min(unknown)!r} in {name}, which means nothing there")
    return found


def _weights(table: Mapping[str, object]) -> dict[str, int]:
    found: dict[str, int] = {}
    for code, level in table.items():
        if code not in default().rows:
            raise BadRules(f"weighs {code!r}, and there is no such code")
        found[code] = _level(level, code)
    return found


def _level(level: object, where: str) -> int:
    if not isinstance(level, str) or level not in LEVELS:
        raise BadRules(f"has a weight for {where!r} that is none of {', '.join(LEVELS)}")
    return LEVELS[level]


def _rules(raw: object) -> tuple[Own, ...]:
    if not isinstance(raw, list) or len(raw) > MAX_RULES:
        raise BadRules(f"has rules that are no list of up to {MAX_RULES} tables")
    found = tuple(_rule(one) for one in raw)
    if len({row.code for row, _ in found}) < len(found):
        raise BadRules("has two rules of one code")
    return found


def _rule(raw: object) -> Own:
    if not isinstance(raw, Mapping) or not isinstance(code := raw.get("code"), str) or not _CODE.fullmatch(code):
        raise BadRules("has a rule without a code of its own, which begins with own-")
    if unknown := set(raw) - _FIELDS:
        raise BadRules(f"has {min(unknown)!r} in {code}, which means nothing there")
    reason, instead, cwe = raw.get("reason"), raw.get("instead", "Leave it out."), raw.get("cwe")
    if not isinstance(reason, str) or not isinstance(instead, str) or type(cwe) not in (int, type(None)):
        raise BadRules(f"has a rule {code} whose reason or instead is no text, or whose cwe is no number")
    parts = {kind: _texts(raw, kind, code) for kind in _KINDS}
    if not any(parts.values()):
        raise BadRules(f"has a rule {code} that looks for nothing")
    for name in parts["names"]:
        if not _NAME.fullmatch(name):
            raise BadRules(f"has a name in {code} that is none: {name!r}")
    for pattern in (*parts["text"], *parts["shell"]):
        _compiled(pattern, code)
    row = RuleRow(code, "own", _level(raw.get("weight", "high"), code), cwe, reason[:200], instead[:200])
    return row, tuple((_KINDS[kind], one) for kind, found in parts.items() for one in found)


def _compiled(pattern: str, code: str) -> None:
    try:
        re.compile(pattern[:MAX_PATTERN])
    except (re.error, OverflowError, RecursionError) as error:  # the last two for large numbers, and deep parentheses
        raise BadRules(f"has a pattern in {code} that is none: {error}") from None


def _texts(table: Mapping[str, object], name: str, where: str) -> tuple[str, ...]:
    found = table.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, str) and 0 < len(one) <= MAX_PATTERN for one in found):
        raise BadRules(f"has {name} in {where} that is no list of texts")
    return tuple(found)
