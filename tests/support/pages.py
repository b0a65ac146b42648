"""Examples in pages, for tests that run them as a reader would type them."""

from __future__ import annotations

import ast
import inspect
import re
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
