"""Refusals are data: each has a row in the table, each row is used, and no module looks into a sentence."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from string import Formatter

import pytest

from sandbox_kernel import cli
from sandbox_kernel.core import errors
from sandbox_kernel.core.codes import (
    TABLE,
    Code,
    EndCode,
    Survived,
    find,
)
from sandbox_kernel.core.errors import FileRefused, SandboxDied, SandboxError
from sandbox_kernel.plugins import index
from tests.support import ROOT
from tests.support.cases import each
from tests.support.sources import nodes_of, tree_of

PACKAGE = ROOT / "sandbox_kernel"
PARTS = TABLE | index.codes()
ALL = [one for part in PARTS.values() for one in part]
TYPES = {part.__name__: part for part in PARTS.values()}
EVENTS = [PARTS[title] for title in ("Outputs", "Messages", "Files", "Network", "Secrets") if title in PARTS]
SAYING = {"note", "add", "noted", "RefusedError"}
"""Calls that fill in the text of a code: the code's own, or with the code as their first argument."""
OF_ERRORS = {"message", "reason", "reasons", "survived", "text"}
"""Attributes that hold what a person reads."""
HOLDERS = {"error", "refused", "failure", "reason", "note", "refusal", "event", "death"}
LOOKING = {"startswith", "endswith", "fullmatch", "match", "search", "find", "partition", "split", "removeprefix"}


@cache
def trees() -> dict[str, ast.Module]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return {str(path.relative_to(PACKAGE)): tree_of(path) for path in paths}


@cache
def nodes() -> dict[str, list[ast.AST]]:
    return {name: nodes_of(PACKAGE / name) for name in trees()}


def walked(source: str) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(source))


def used() -> Iterator[tuple[str, str, str]]:
    for name, found in nodes().items():
        for node in found:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in TYPES:
                yield name, node.value.id, node.attr
    for path in PACKAGE.rglob("rules/*.txt"):  # a rule of the screen, and the first line of what it looks for
        for rule in re.finditer(r"^\[([a-z-]+)\] .*\n\w", path.read_text(encoding="utf-8"), re.MULTILINE):
            yield path.name, "ScreenCode", rule[1].upper().replace("-", "_")


def code_of(node: ast.expr) -> Code | None:
    """Return the row that an expression names, None if it is none."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in TYPES:
        return TYPES[node.value.id][node.attr]
    return None


def test_each_code_is_one_word_for_programs_and_the_only_one_of_its_name() -> None:
    names = [one.code for one in ALL]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)
    ours = [one for part in TABLE.values() for one in part]
    assert [find(one.code) for one in ours] == ours


@pytest.mark.parametrize("part", PARTS)
def test_each_code_says_what_it_means_and_what_to_do(part: str) -> None:
    for one in PARTS[part]:
        assert one.text
        assert one.remedy.endswith(".")
        assert len(one.text) < (300 if part == "Hints" else 130)  # a hint is whole sentences


def test_what_is_refused_is_a_violation_a_limit_or_a_notice() -> None:
    """Failures are ends; the report's form has no other severity for an event."""
    events = {one.severity for part in EVENTS for one in part}
    assert events == {"violation", "limit", "notice"}


def test_each_code_is_used_somewhere() -> None:
    there = {(part, row) for _, part, row in used()}
    assert [str(one) for one in ALL if (type(one).__name__, one.name) not in there] == []


def test_each_code_that_is_used_is_in_the_table() -> None:
    assert [(file, row) for file, part, row in used() if row not in TYPES[part].__members__] == []


def test_each_place_fills_in_what_the_text_of_its_code_has_in_braces() -> None:
    wrong = []
    for name, found in nodes().items():
        for node in found:
            if not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            inside = node.func.value if isinstance(node.func, ast.Attribute) else None
            code = code_of(inside) if inside is not None and called == "note" else None
            if code is None and called in SAYING and node.args:
                code = code_of(node.args[0])
            if code is None:
                continue
            wanted = {field for _, field, _, _ in Formatter().parse(code.text) if field is not None}
            if wanted != {keyword.arg for keyword in node.keywords}:
                wrong.append((name, node.lineno, code.code))
    assert wrong == []


def test_an_error_that_is_raised_with_a_bare_code_has_nothing_to_fill_in() -> None:
    names = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, SandboxError)}
    for name, found in nodes().items():
        for node in found:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names and node.args:
                code = code_of(node.args[0]) if len(node.args) == 1 else None
                assert code is None or "{" not in code.text, (name, node.lineno)


OWN_WORDS = {"AttestationFailed", "CallbackFailed", "FileRefused", "ScreenBlocked", "TooHeavyError"}
"""Errors that have one code only and take something else, and one that takes no words, as mypy sees."""


@cache
def error_names() -> frozenset[str]:
    """Return the names of all errors that take a code, wherever they are defined."""
    found = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, SandboxError)}
    classes = [node for part in nodes().values() for node in part if isinstance(node, ast.ClassDef)]
    while more := {c.name for c in classes if {ast.unparse(base) for base in c.bases} & found} - found:
        found |= more
    return frozenset(found - OWN_WORDS)


def without_code(nodes: Iterable[ast.AST]) -> list[int]:
    """Return the lines on which an error is made of words alone, for which a program would have to read them."""
    found = []
    for node in nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in error_names()
            and node.args
        ):
            first = node.args[0]
            named = any(code_of(part) for part in ast.walk(first) if isinstance(part, ast.expr))
            named = named or (isinstance(first, ast.Call) and ast.unparse(first.func) == "Note")
            named = named or any(isinstance(part, ast.Attribute) and part.attr == "code" for part in ast.walk(first))
            found += [node.lineno] * (not named and not (isinstance(first, ast.Name) and first.id in CODES))
    return found


CODES = {"code", "note", "why", "link_failure"}
"""Names of variables that hold a code or a note, as mypy knows."""


def test_no_error_is_made_of_words_alone() -> None:
    """Write `SomeError(EndCode.ROW, "the words")`, or a row whose own text is enough: see core/codes.py."""
    assert {name: lines for name, part in nodes().items() if (lines := without_code(part))} == {}


@pytest.mark.slow
def test_control_an_error_made_of_words_alone_is_seen() -> None:
    assert without_code(walked('raise EngineError("it failed")')) == [1]
    assert without_code(walked('raise EngineError(f"it failed: {error}", limit="3 s")')) == [1]
    assert without_code(walked("raise SandboxDied(message)")) == [1]
    assert not without_code(walked('raise EngineError(EndCode.ENGINE_FAILED, "it failed")'))
    assert not without_code(walked("raise SandboxDied(EndCode.START_TOO_SLOW.note(what=what))"))
    assert not without_code(walked("raise ConfigurationError(error.code, message)"))


@each("kind", [kind for kind in vars(errors).values() if isinstance(kind, type)])
def test_each_error_has_a_usual_code_of_its_own(kind: type) -> None:
    if not issubclass(kind, SandboxError) or kind in (errors.CellError, FileRefused):
        return  # one is never raised, the other never without a code
    assert isinstance(vars(kind).get("usual"), Code)


def looked_into(nodes: Iterable[ast.AST]) -> list[int]:
    """Return the lines on which a program compares, matches or takes apart what a person is to read."""

    def is_words(node: ast.AST) -> bool:
        if isinstance(node, ast.BoolOp):
            return any(map(is_words, node.values))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
            return isinstance(node.args[0], ast.Name) and node.args[0].id in HOLDERS
        if isinstance(node, ast.Attribute) and node.attr in OF_ERRORS:
            return isinstance(node.value, ast.Name) and node.value.id in HOLDERS
        return isinstance(node, ast.Name) and node.id in {"reason", "survived", "problem"}

    def is_text(node: ast.AST) -> bool:
        return isinstance(node, ast.Constant) and isinstance(node.value, str)

    found = []
    for node in nodes:
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any((is_words(a) and is_text(b)) or (is_words(b) and is_text(a)) for a, b in pairwise(sides)):
                found.append(node.lineno)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOOKING:
            found += [node.lineno] * any(map(is_words, (node.func.value, *node.args)))
    return found


def test_no_module_looks_into_a_sentence() -> None:
    assert {name: lines for name, part in nodes().items() if (lines := looked_into(part))} == {}


@pytest.mark.parametrize(
    "line",
    [
        'gone = (error.survived or "").startswith("nothing")',
        'limit = "Limit: " in reason',
        'honest = reason == "out of turn"',
        "harmless = PATTERN.fullmatch(reason)",
        'kind = str(error).partition(" Limit:")[0]',
        'mine = "may not use" in problem',
    ],
)
def test_a_look_into_a_sentence_is_seen(line: str) -> None:
    """The control: what the code did before there were codes."""
    assert looked_into(walked(line)) == [1]


def test_what_survived_is_a_word_for_programs_and_a_sentence_for_people() -> None:
    error = SandboxDied(EndCode.SANDBOX_IDLE)
    assert (error.kept, error.survived) == (None, None)
    error.leaves(Survived.NOTHING, "the sandbox had to be ended")
    assert (error.kept, error.survived) == (Survived.NOTHING, "nothing: the sandbox had to be ended")
    assert json.dumps(error.kept) == '"nothing"'
    assert "Kept: nothing: the sandbox had to be ended." in str(error)


def test_the_command_prints_all_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["codes", "--json"]) == 0
    assert [row["code"] for row in json.loads(capsys.readouterr().out)] == [one.code for one in ALL]
    assert cli.main(["codes"]) == 0
    shown = re.findall(r"^ {4}([a-z0-9-]+)(?: \(\w+\))?: ", capsys.readouterr().out, re.MULTILINE)
    assert sorted(shown) == sorted(one.code for one in ALL)
