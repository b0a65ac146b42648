"""Writes sandbox_kernel/sdk/blocking.py: `make blocking`; tests/unit/sdk/test_blocking.py compares.

A class is written of each asynchronous one. It has each public method and property that its base, in blocking_base.py,
does not have by hand: with the same signature and docstring, around one call.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator

from sandbox_kernel.sdk import blocking_base, client, commands, files
from tests.support import ROOT

BLOCKING = ROOT / "sandbox_kernel/sdk/blocking.py"
ASYNCHRONOUS: tuple[type, ...] = (files.AsyncFiles, commands.AsyncCommands, commands.AsyncPty, client.AsyncSandbox)
NOT_FOR_CALLERS = {"is_new", "prepared", "watching", "opened", "writing", "uploading", "downloading"}
WORDS = {
    r"\bawait ": "",
    r"\basync (?=def|with|for)": "",
    r"\bAsync(?=Iterator|Sandbox|Files|CommandHandle|Commands|Pty)": "",
    r"(?<![\w.])list\[": "builtins.list[",  # some of the classes have a method of that name
}
HEAD = '''"""The SDK without `await`: the same on an event loop in another thread. Written by `make blocking`.

Public: plugins may import it.
"""
'''

CHECKS = ("--select=I,F401,F811", "--config=lint.isort.split-on-trailing-comma=false", "--fix-only", "--quiet")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def generated(sources: tuple[type, ...] = ASYNCHRONOUS) -> str:
    """Return the module as it has to be."""
    classes = [written(source) for source in sources]
    modules = dict.fromkeys(["sandbox_kernel.sdk.blocking_base", *(source.__module__ for source in ASYNCHRONOUS)])
    text = "\n".join([HEAD, *(line for module in modules for line in imports(module)), *classes])
    for tool in (["check", *CHECKS], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *tool, "--stdin-filename", str(BLOCKING), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def imports(module: str) -> Iterator[str]:
    """Yield lines that import what a module imports, and what it has itself; what is too much is removed later."""
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.If():
                yield ast.unparse(node)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                yield f"from .{module.rpartition('.')[2]} import {name}"


def written(source: type) -> str:
    """Return the blocking class of an asynchronous one."""
    name = source.__name__.removeprefix("Async")
    base = getattr(blocking_base, f"{name}Base")
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


if __name__ == "__main__":
    BLOCKING.write_text(generated(), encoding="utf-8")
