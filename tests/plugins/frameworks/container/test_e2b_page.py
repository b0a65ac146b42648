"""The table of docs/e2b.md: what is in it works and is tested, and nothing of E2B's package is left out of it.

The last needs the package, which `make recipes` installs; the rest is about ours.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from typing import NamedTuple

import pytest

from sandbox_kernel.plugins.frameworks import e2b, e2b_commands, e2b_files
from tests.support import ROOT

TESTS = [ROOT / "tests/plugins/frameworks/container" / name for name in ("test_e2b.py", "test_e2b_arguments.py")]
WORD = re.compile(r"`([\w.]+)`")
OURS: dict[str, tuple[type, type]] = {
    "Sandbox": (e2b.Sandbox, e2b.AsyncSandbox),
    "SandboxPaginator": (e2b.SandboxPaginator, e2b.AsyncSandboxPaginator),
    "Commands": (e2b_commands.HostedCommands, e2b_commands.AsyncHostedCommands),
    "CommandHandle": (e2b.CommandHandle, e2b.AsyncCommandHandle),
    "Pty": (e2b_commands.HostedPty, e2b_commands.AsyncHostedPty),
    "Filesystem": (e2b_files.Filesystem, e2b_files.AsyncFilesystem),
    "WatchHandle": (e2b.WatchHandle, e2b.AsyncWatchHandle),
}
MADE_IN_INIT = {"files", "commands", "pty"}
OF_THE_SERVICE = {"request_timeout", "opts"}
"""Arguments that say how a service is reached. The page says once that they have no effect."""


class Row(NamedTuple):
    """One method, and its arguments."""

    method: str
    work: set[str]
    other: set[str]
    tests: list[str]


@functools.cache
def table() -> tuple[list[Row], list[str]]:
    """Return the rows, and the methods that are not there."""
    text = (ROOT / "docs/e2b.md").read_text(encoding="utf-8").partition("## Each method and argument")[2]
    there, _, absent = text.partition("\n## ")[0].partition("These are not there")
    rows = []
    for line in re.findall(r"^\| `.*$", there, re.MULTILINE):
        methods, work, other, tests = ([*WORD.findall(cell)] for cell in line.strip("|").split("|"))
        rows += [Row(method, set(work), set(other), tests) for method in methods if method != "await"]
    rows = [row._replace(work=row.work - {"await"}) for row in rows]
    gone = [word for line in re.findall(r"^\| (`.*?) \|", absent, re.MULTILINE) for word in WORD.findall(line)]
    return rows, gone


def parameters(cls: type, method: str) -> set[str] | None:
    """Return the names that a method takes; None if it takes any."""
    found = inspect.getattr_static(cls, method)
    if isinstance(found, property):
        return set()
    function = getattr(cls, method)
    given = inspect.signature(function).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in given):
        return None
    return {one.name for one in given}


@functools.cache
def bodies() -> dict[str, str]:
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in TESTS]
    functions = ast.FunctionDef, ast.AsyncFunctionDef
    return {node.name: ast.unparse(node) for tree in trees for node in tree.body if isinstance(node, functions)}


@pytest.mark.parametrize("row", [pytest.param(row, id=row.method) for row in table()[0]])
def test_what_works_is_there_and_is_tested(row: Row) -> None:
    kind, method = row.method.split(".")
    classes = [cls for cls in OURS[kind] if hasattr(cls, method)]
    if method not in MADE_IN_INIT:
        assert classes, f"{row.method} is not there"
        taken = [parameters(cls, method) for cls in classes]
        if None not in taken:
            missing = row.work - set().union(*(names or set() for names in taken))
            assert not missing, f"{row.method} does not take {missing}"
    code = "\n".join(bodies()[name] for name in row.tests)
    assert method in code or method == "create", f"{row.method} is not in {row.tests}"
    for name in row.work:
        assert re.search(rf"\b{name}=", code), f"{name} of {row.method} is not in {row.tests}"


def test_what_is_said_not_to_be_there_is_not() -> None:
    for name in table()[1]:
        kind, method = name.split(".")
        assert not any(hasattr(cls, method) for cls in OURS[kind]), f"{name} is there"


def test_the_table_leaves_nothing_of_the_package_out() -> None:
    pytest.importorskip("e2b_code_interpreter")
    import e2b.sandbox_async.commands.command as async_command
    import e2b.sandbox_async.commands.command_handle as async_handle
    import e2b.sandbox_async.commands.pty as async_pty
    import e2b.sandbox_async.filesystem.filesystem as async_files
    import e2b.sandbox_async.filesystem.watch_handle as async_watch
    import e2b.sandbox_async.paginator as async_pages
    import e2b.sandbox_sync.commands.command_handle as handle
    import e2b.sandbox_sync.filesystem.watch_handle as watch
    import e2b.sandbox_sync.paginator as pages
    import e2b_code_interpreter as package
    from e2b.sandbox_sync.commands import command, pty
    from e2b.sandbox_sync.filesystem import filesystem

    theirs = {
        "Sandbox": (package.Sandbox, package.AsyncSandbox),
        "SandboxPaginator": (pages.SandboxPaginator, async_pages.AsyncSandboxPaginator),
        "Commands": (command.Commands, async_command.Commands),
        "CommandHandle": (handle.CommandHandle, async_handle.AsyncCommandHandle),
        "Pty": (pty.Pty, async_pty.Pty),
        "Filesystem": (filesystem.Filesystem, async_files.Filesystem),
        "WatchHandle": (watch.WatchHandle, async_watch.AsyncWatchHandle),
    }
    found: dict[str, set[str]] = {}
    for kind, classes in theirs.items():
        for cls in classes:
            for method in dir(cls):
                if method.startswith("_"):
                    continue
                try:
                    names = set(inspect.signature(getattr(cls, method)).parameters) - {"self"}
                except (TypeError, ValueError):
                    names = set()
                found[f"{kind}.{method}"] = found.get(f"{kind}.{method}", set()) | names
    rows, gone = table()
    assert {row.method: row.work | (row.other - OF_THE_SERVICE) for row in rows} == {
        method: names - OF_THE_SERVICE for method, names in found.items() if method not in gone
    }
    assert not set(gone) - found.keys()
