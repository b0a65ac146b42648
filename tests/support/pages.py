"""Examples in pages, for tests that run them as a reader would type them."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from textwrap import dedent
from typing import Any

from tests.support import ROOT


def snippets(name: str, language: str = "python") -> list[str]:
    """Return the examples of a page that are in a language."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return [dedent(one) for one in re.findall(rf"^ *```{language}\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)]


async def run(names: dict[str, Any], source: str, page: str) -> None:
    """Run an example with `await` on its top level, as a notebook does."""
    code = compile(source, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)  # noqa: S307 (our own page)
    if inspect.isawaitable(result):
        await result


@dataclass(frozen=True)
class Step:
    """What a reader does next on a page: type a line into a shell, run an example in Python, or write a file."""

    line: int
    kind: str
    """`shell`, `python`, or the name of a file."""
    source: str

    @property
    def label(self) -> str:
        """Return the text by which a table names it."""
        return self.source if self.kind == "shell" else f"{self.kind}: {self.source}"


SHELLS = ("bash", "console", "sh")
FILE = re.compile(r"`(\w[\w.-]*\.\w+)`:$")
"""How the text ends before a fence whose content is a file of that name."""


def steps(name: str) -> list[Step]:
    """Return what a reader does on a page, in its order. An indented line is a shell's, and all else is fenced."""
    found: list[Step] = []
    lines: list[tuple[int, str]] = []
    text, fence, code = "", "", False
    inside: list[str] = []
    for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
        if mark := re.match(r" *```(\w*)", line):
            if fence and fence in SHELLS:
                lines += [(number, one.removeprefix("$ ")) for one in inside]
            elif fence and (file := FILE.search(text)):
                found.append(Step(number - len(inside), file[1], dedent("\n".join(inside)) + "\n"))
            elif fence == "python":
                found.append(Step(number - len(inside), fence, dedent("\n".join(inside)) + "\n"))
            fence, inside, code = "" if fence else mark[1] or "none", [], False
        elif fence:
            inside.append(line)
        elif code and line.startswith("    "):
            lines.append((number, line.strip()))
        else:
            code, text = not line.strip(), line.strip() or text
        while lines and not lines[-1][1].endswith("\\"):
            whole = []
            while lines:
                at, one = lines.pop(0)
                whole.append(one)
                if not one.endswith("\\"):
                    break
            found.append(Step(at - len(whole) + 1, "shell", "\n".join(whole)))
    return found
