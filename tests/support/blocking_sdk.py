"""Writes half of sandbox_kernel/sdk/blocking.py: `make blocking`; tests/unit/sdk/test_blocking.py compares.

A region of a class begins with a line that names the asynchronous class. It gets each public method and property of it
that is not written by hand: with the same signature and docstring, around one call.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator

from sandbox_kernel.sdk import client, commands, files
from tests.support import ROOT

BLOCKING = ROOT / "sandbox_kernel/sdk/blocking.py"
REGION = re.compile(r"(    # --- generated from (\w+) ---\n).*?(    # --- end of what is generated ---\n)", re.DOTALL)
ASYNCHRONOUS = (client.AsyncSandbox, files.AsyncFiles, commands.AsyncCommands, commands.AsyncPty)
SOURCES = {cls.__name__: cls for cls in ASYNCHRONOUS}
NOT_FOR_CALLERS = {"is_new", "prepared", "watching", "opened", "writing", "uploading", "downloading"}
WORDS = {
    r"\bawait ": "",
    r"\basync (?=def|with)": "",
    r"\bAsync(?=Sandbox|Commands|Pty)": "",
    r"(?<![\w.])list\[": "builtins.list[",  # some of the classes have a method of that name
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def generated(text: str) -> str:
    """Return the module with its regions as they have to be."""
    by_hand = {
        (cls.name, node.name)
        for cls in ast.parse(REGION.sub("", text)).body
        if isinstance(cls, ast.ClassDef)
        for node in cls.body
        if isinstance(node, Function)
    }

    def region(found: re.Match[str]) -> str:
        name = next(name for name in re.findall(r"^class (\w+)", text[: found.start()], re.MULTILINE)[::-1])
        made = [
            method
            for each, method in methods(SOURCES[found[2]])
            if not each.startswith("_") and each not in NOT_FOR_CALLERS and (name, each) not in by_hand
        ]
        return found[1] + "\n" + "\n".join(made) + "\n" + found[3]

    ruff = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(BLOCKING), "-"]
    return subprocess.run(ruff, input=REGION.sub(region, text), capture_output=True, text=True, check=True).stdout


def methods(source: type) -> Iterator[tuple[str, str]]:
    """Yield the name and the blocking form of each method, those of the class itself first."""
    seen = set()
    for cls in source.__mro__[:-1]:
        text = textwrap.dedent(inspect.getsource(cls))
        [body] = ast.parse(text).body
        assert isinstance(body, ast.ClassDef)
        for node in body.body:
            if isinstance(node, Function) and node.name not in seen:
                seen.add(node.name)
                yield node.name, blocking(node, text.splitlines())


def blocking(node: Function, lines: list[str]) -> str:
    start = min([node.lineno, *(one.lineno for one in node.decorator_list)]) - 1
    has_docstring = ast.get_docstring(node) is not None
    end = node.body[0].end_lineno if has_docstring else node.body[0].lineno - 1
    head = "\n".join(lines[start:end])
    for pattern, word in WORDS.items():
        head = re.sub(pattern, word, head)
    names = [f"self._inner.{node.name}", *(one.arg for one in node.args.args[1:])]
    if node.args.vararg:
        names.append(f"*{node.args.vararg.arg}")
    names += [f"{one.arg}={one.arg}" for one in node.args.kwonlyargs]
    if node.args.kwarg:
        names.append(f"**{node.args.kwarg.arg}")
    if isinstance(node, ast.AsyncFunctionDef):
        call = f"self._call({', '.join(names)})"
    elif any(isinstance(one, ast.Name) and one.id == "property" for one in node.decorator_list):
        call = names[0]
    else:
        call = f"{names[0]}({', '.join(names[1:])})"
    returns = "" if node.returns is None or ast.unparse(node.returns) == "None" else "return "
    return f"{head}\n        {returns}{call}\n"


if __name__ == "__main__":
    BLOCKING.write_text(generated(BLOCKING.read_text(encoding="utf-8")), encoding="utf-8")
