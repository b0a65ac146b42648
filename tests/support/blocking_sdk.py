"""Writes what is blocking of the SDK and of its commands: `make blocking`; tests/unit/sdk/test_blocking.py compares.

A class is written of each asynchronous one. It has each public method and property that its base, in the module whose
name ends with `_base`, does not have by hand: with the same signature and docstring, around one call.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from tests.support import ROOT

WRITTEN = {
    "sandbox_kernel.sdk.blocking": ("sdk.files.AsyncFiles", "sdk.client.AsyncSandbox"),
    "sandbox_kernel.plugins.commands.blocking_commands": (
        "plugins.commands.commands.AsyncCommands",
        "plugins.commands.commands.AsyncPty",
    ),
}
"""Modules, each with the asynchronous classes that its own are written of."""
NOT_FOR_CALLERS = {"is_new", "prepared", "watching", "opened", "writing", "uploading", "downloading"}
WORDS = {
    r"\bawait ": "",
    r"\basync (?=def|with|for)": "",
    r"\bAsync(?=Iterator|Sandbox|Files|CommandHandle|Commands|Pty)": "",
    r"(?<![\w.])list\[": "builtins.list[",  # some of the classes have a method of that name
}
CHECKS = ("--select=I,F401,F811", "--config=lint.isort.split-on-trailing-comma=false", "--fix-only", "--quiet")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def path_of(module: str) -> Path:
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


def asynchronous(module: str) -> tuple[type, ...]:
    """Return the classes that those of a module are written of."""
    named = [name.rpartition(".") for name in WRITTEN[module]]
    return tuple(getattr(importlib.import_module(f"sandbox_kernel.{place}"), name) for place, _, name in named)


def generated(module: str, sources: tuple[type, ...] | None = None) -> str:
    """Return a module as it has to be."""
    base, known = importlib.import_module(f"{module}_base"), asynchronous(module)
    classes = [written(source, base) for source in sources or known]
    modules = dict.fromkeys([base.__name__, *(source.__module__ for source in known)])
    own = "\n".join(classes)
    head = path_of(module).read_text(encoding="utf-8").partition("from ")[0]
    text = "\n".join([head, *(line for one in modules for line in imports(one, own)), own])
    for tool in (["check", *CHECKS], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *tool, "--stdin-filename", str(path_of(module)), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def imports(module: str, own: str) -> Iterator[str]:
    """Yield lines that import what a module imports, and what it has itself; what is too much is removed later.

    For type checkers, that is what the text `own` names: a block of them must not be left empty.
    """
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        match node:
            case ast.If():
                wanted = [one for one in map(ast.unparse, node.body) if re.search(rf"\b{one.split()[-1]}\b", own)]
                yield from [f"if {ast.unparse(node.test)}:", *(f"    {one}" for one in wanted)] if wanted else []
            case ast.Import() | ast.ImportFrom():
                yield ast.unparse(node)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                yield f"from .{module.rpartition('.')[2]} import {name}"


def written(source: type, bases: ModuleType) -> str:
    """Return the blocking class of an asynchronous one."""
    name = source.__name__.removeprefix("Async")
    base = getattr(bases, f"{name}Base")
    text = textwrap.dedent(inspect.getsource(source))
    [cls] = ast.parse(text).body
    assert isinstance(cls, ast.ClassDef)
    by_hand = {each for one in base.__mro__[:-1] for each in vars(one)}
    methods = [
        method(node, text.splitlines(), source.__name__, by_hand)
        for node in cls.body
        if isinstance(node, Function) and not node.name.startswith("_") and node.name not in NOT_FOR_CALLERS | by_hand
    ]
    docstring = textwrap.indent(f'"""{inspect.cleandoc(base.__doc__)}', "    ").replace("\n    \n", "\n\n")
    docstring += '\n    """' if "\n" in docstring else '"""'
    return f"class {name}({name}Base):\n{docstring}\n\n" + "\n".join(methods)


def method(node: Function, lines: list[str], source: str, by_hand: set[str]) -> str:
    """Return the blocking form of a method."""
    decorators = {ast.unparse(one) for one in node.decorator_list}
    start = min([node.lineno, *(one.lineno for one in node.decorator_list)]) - 1
    if "overload" in decorators:
        return spoken("\n".join(lines[start : node.end_lineno]))
    end = node.body[0].end_lineno if ast.get_docstring(node) is not None else node.body[0].lineno - 1
    head = spoken("\n".join(lines[start:end]))
    is_of_class = bool(decorators & {"classmethod", "staticmethod"})
    given = [one.arg for one in [*node.args.posonlyargs, *node.args.args]["staticmethod" not in decorators :]]
    given += [f"*{node.args.vararg.arg}"] if node.args.vararg else []
    given += [f"{one.arg}={one.arg}" for one in node.args.kwonlyargs]
    given += [f"**{node.args.kwarg.arg}"] if node.args.kwarg else []
    inner, result = f"self._inner.{node.name}", ast.unparse(node.returns) if node.returns else "None"
    last = ast.unparse(node.body[-1])
    if f"_{node.name}" in by_hand:
        call = f"self._{node.name}({', '.join(given)})"
    elif last.startswith("return await followed("):
        call = last.removeprefix("return ").replace("await followed(self.", "self._followed(self._inner.")
    elif is_of_class:
        call = f"in_a_loop({source}.{node.name}({', '.join(given)}))"
    elif isinstance(node, ast.AsyncFunctionDef):
        call = f"self._call({', '.join([inner, *given])})"
    elif "cached_property" in decorators:
        call = f"{spoken(result)}({inner}, Caller(self._call))"
    else:
        call = inner if "property" in decorators else f"{inner}({', '.join(given)})"
    if result == "None":
        return f"{head}\n        {call}\n"
    # What is overloaded is called by way of Any: a type checker cannot pass on which form that is.
    if f"@overload\n    async def {node.name}(" in "\n".join(lines) and inner in call:
        call = f"cast({spoken(result)!r}, {call.replace(inner, f'cast(Any, {inner})')})"
    return f"{head}\n        return {call}\n"


def spoken(text: str) -> str:
    """Return text of the asynchronous class as the blocking one has it."""
    for pattern, word in WORDS.items():
        text = re.sub(pattern, word, text)
    return text


def check_is_up_to_date(module: str) -> None:
    """Assert that a module is what is written of it."""
    assert generated(module) == path_of(module).read_text(encoding="utf-8"), "make blocking"


def check_is_whole(module: str) -> None:
    """Assert that each public method of the asynchronous classes has its blocking form."""
    for source in asynchronous(module):
        blocking = getattr(importlib.import_module(module), source.__name__.removeprefix("Async"))
        public = {each for each in dir(source) if not each.startswith("_")} - NOT_FOR_CALLERS
        assert public
        for each in public:
            there, here = getattr(source, each), getattr(blocking, each)
            assert here.__doc__ or not there.__doc__, each
            assert not (callable(there) and inspect.iscoroutinefunction(here)), each


if __name__ == "__main__":
    for each in WRITTEN:
        path_of(each).write_text(generated(each), encoding="utf-8")
